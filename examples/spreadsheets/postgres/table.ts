import { type PostgresEngine, statement, type Transaction } from 'pawl/postgres';
import type { Spreadsheet, Version } from '../store.ts';

const CREATE_TABLES = `
select pg_advisory_xact_lock(hashtext('spreadsheets.tables'));
create table if not exists spreadsheet (
  id          text primary key,
  columns     json not null,
  rows        json not null default '[]',
  version     integer not null default 0,
  file        text,
  created_by  text not null,
  created_at  timestamptz not null default clock_timestamp(),
  written_at  timestamptz
);
create table if not exists spreadsheet_gather (
  id     text primary key,
  until  timestamptz not null
);
create table if not exists spreadsheet_run (
  job         bigint not null,
  token       bigint not null,
  attempt     integer not null,
  process     integer not null,
  started_at  timestamptz not null default clock_timestamp(),
  applied_at  timestamptz,
  primary key (job, token)
)`;

// A version and the outcome of its jobs are committed together: none of them comes again.
const COLUMNS = `
  id, columns, rows, '[]'::json as jobs, version, file, created_by as "createdBy", created_at as "createdAt", written_at as "writtenAt"`;

const INSERT = statement(
  'spreadsheet.insert',
  'insert into spreadsheet (id, columns, created_by) values ($1, $2::json, $3)',
);
/** An update does not join jobs that are about to run: its job might be committed only after they have begun. */
const CLOSING_MS = 100;

// A table of its own: the spreadsheet's row is locked for as long as its file is being written.
const GATHER = statement(
  'spreadsheet.gather',
  `insert into spreadsheet_gather as g (id, until)
   values ($1, clock_timestamp() + ($2::integer + $3::integer) * interval '1 millisecond')
   on conflict (id) do update
   set until = case when g.until > clock_timestamp() + $3::integer * interval '1 millisecond' then g.until else excluded.until end
   returning until`,
);
const IS_EMPTY = statement('spreadsheet.is_empty', 'select not exists (select from spreadsheet) as is_empty');
const FIND = statement('spreadsheet.find', `select ${COLUMNS} from spreadsheet where id = $1`);
const LOCK = statement('spreadsheet.lock', `select ${COLUMNS} from spreadsheet where id = $1 for update`);
const SAVE = statement(
  'spreadsheet.save',
  `update spreadsheet
   set rows = $2::json, version = $3, file = $4, written_at = clock_timestamp()
   where id = $1`,
);

/** Makes the example's own tables. Safe to call from many processes at once. */
export async function createTables(engine: PostgresEngine): Promise<void> {
  await engine.session(async (session) => void (await session.run(CREATE_TABLES)));
}

/** Adds the row of a spreadsheet that is still to be written. */
export async function insert(tx: Transaction, id: string, columns: readonly string[], by: string): Promise<void> {
  await tx.query(INSERT, [id, JSON.stringify(columns), by]);
}

/** When the update that is being asked for is to run: together with those that wait already, or `ms` from now. */
export async function gather(tx: Transaction, id: string, ms: number): Promise<Date | undefined> {
  const [row] = await tx.query<{ until: Date }>(GATHER, [id, ms, CLOSING_MS]);
  return row?.until;
}

export async function isEmpty(engine: PostgresEngine): Promise<boolean> {
  const [row] = await engine.query<{ is_empty: boolean }>(IS_EMPTY);
  return row?.is_empty === true;
}

export async function find(engine: PostgresEngine, id: string): Promise<Spreadsheet | undefined> {
  const [row] = await engine.query<Spreadsheet>(FIND, [id]);
  return row;
}

/** The spreadsheet, its row locked until the transaction ends. */
export async function lock(tx: Transaction, id: string): Promise<Spreadsheet | undefined> {
  const [row] = await tx.query<Spreadsheet>(LOCK, [id]);
  return row;
}

/** Makes a file that has been written the current one, with the rows that are in it. */
export async function save(tx: Transaction, id: string, { rows, version, file }: Version): Promise<void> {
  await tx.query(SAVE, [id, JSON.stringify(rows), version, file]);
}
