import { createHash } from 'node:crypto';
import { InvalidInput, SchemaMismatch } from '../../base/errors.ts';
import { failure } from './failure.ts';
import { PIN, PINNED_PATH } from './pin.ts';
import { type Migration, migrations as released } from './schema.gen.ts';
import type { Session } from './session/session.ts';
import { type Statement, statement } from './sql.ts';
import { instant } from './types.ts';

/** What to bring up to date, and how. */
export interface MigrateOptions {
  /** Change nothing; the report's `sql` is what would be run, fit for psql. Default false. */
  dryRun?: boolean;
  /** Only these lines, e.g. `['queue']`. Default: all. */
  lines?: string[];
}

/** One file of one line, by its number. */
export interface MigrationStep {
  line: string;
  number: number;
  name: string;
}

/** What `migrate()` did. */
export interface MigrationReport {
  /** Applied by this call; empty when the schema was current, or another process was quicker. */
  applied: MigrationStep[];
  /** Only of a dry run: the statements it would have run. */
  sql: string | undefined;
}

/** How the schema in the database compares with this version. */
export interface MigrationStatus {
  /** `behind` is mended by `migrate()`; `newer` by upgrading Pawl; `changed` by a person. */
  state: 'current' | 'behind' | 'newer' | 'changed';
  applied: (MigrationStep & { appliedAt: Date })[];
  pending: MigrationStep[];
  /** What is newer or changed, in words; undefined otherwise. */
  problem: string | undefined;
}

/** What migrating needs of an engine. */
export interface Migrated {
  query<Row>(sql: Statement, values?: unknown[]): Promise<Row[]>;
  session<T>(fn: (session: Session) => Promise<T>): Promise<T>;
}

interface AppliedRow extends MigrationStep {
  checksum: string;
  applied_at: Date;
}

/**
 * Applies what is missing, each file in its own transaction. Every transaction takes the same advisory lock first and
 * then looks again, so any number of processes may start at once. Needs CREATE on the database the first time only.
 * @throws SchemaMismatch when the database is newer than this version, or an applied file was changed since
 */
export async function migrate(
  engine: Migrated,
  options: MigrateOptions = {},
  known: readonly Migration[] = released,
): Promise<MigrationReport> {
  const wanted = select(known, options.lines);
  const missing = compare(await readApplied(engine), known, wanted);
  if (options.dryRun === true) {
    return { applied: [], sql: missing.map(script).join('\n') };
  }
  const applied: MigrationStep[] = [];
  if (missing.length > 0) {
    await engine.session(async (session) => {
      for (let step = await applyNext(session, known, wanted); step !== undefined; ) {
        applied.push(step);
        step = await applyNext(session, known, wanted);
      }
    });
  }
  return { applied, sql: undefined };
}

/** Compares without changing anything. */
export async function status(engine: Migrated, known: readonly Migration[] = released): Promise<MigrationStatus> {
  const rows = await readApplied(engine);
  const pending = known.filter((migration) => find(rows, migration) === undefined).map(step);
  const newer = problemNewer(rows, known);
  const changed = problemChanged(rows, known);
  const behind = pending.length > 0 ? 'behind' : 'current';
  return {
    state: newer === undefined ? (changed === undefined ? behind : 'changed') : 'newer',
    applied: rows.map((row) => ({ ...step(row), appliedAt: row.applied_at })),
    pending,
    problem: newer ?? changed,
  };
}

/** sha256 of the file with its line ends as written on Unix, so that a checkout on Windows counts as the same. */
export function checksum(sql: string): string {
  return createHash('sha256').update(sql.replaceAll('\r\n', '\n')).digest('hex');
}

// Any number will do as long as nobody else uses it: the bytes of "pawl", and 1 for migrations.
const LOCK = 'select pg_advisory_xact_lock(1885435756, 1)';

/**
 * Waiting for the other processes may take as long as their migrations do; a table in use may not hold us for ever. A migration is run by
 * the owner of everything, so nothing of it is looked for where others may create.
 */
const OPEN = `begin;
set local search_path = ${PINNED_PATH};
set local lock_timeout = 0;
set local statement_timeout = 0;
set local idle_in_transaction_session_timeout = 0;
${LOCK};
set local lock_timeout = '30s';
set local standard_conforming_strings = on;
set local client_min_messages = warning`;

// CREATE SCHEMA IF NOT EXISTS asks for the right to create even when the schema is there.
const FOUNDATION = `do $$
begin
  if current_setting('server_encoding') not in ('UTF8', 'SQL_ASCII') then
    raise exception 'database "%" is encoded in %, which cannot hold every text; Pawl needs one in UTF8: create database NAME template template0 encoding ''UTF8''',
      current_database(), current_setting('server_encoding') using errcode = 'PW006';
  end if;
  if not exists (select from pg_namespace where nspname = 'pawl') then
    create schema pawl;
  end if;
  if to_regclass('pawl.migration') is null then
    create table pawl.migration (
      line text not null,
      number integer not null,
      name text not null,
      checksum text not null,
      applied_at timestamptz not null default clock_timestamp(),
      primary key (line, number)
    );
  end if;
end
$$`;

const IS_FOUNDED = statement(
  'migrate.is_founded',
  "select pg_catalog.to_regclass('pawl.migration') is not null as founded",
  {
    prepare: false,
  },
);

const READ_APPLIED = statement(
  'migrate.read_applied',
  `
select line, number, name, checksum, ${instant('applied_at')} as applied_at
from pawl.migration
order by line, number`,
  { prepare: false },
);

async function readApplied(engine: Pick<Migrated, 'query'>): Promise<AppliedRow[]> {
  const [answer] = await engine.query<{ founded: boolean }>(IS_FOUNDED);
  return answer?.founded === true ? engine.query<AppliedRow>(READ_APPLIED) : [];
}

async function applyNext(
  session: Session,
  known: readonly Migration[],
  wanted: readonly Migration[],
): Promise<MigrationStep | undefined> {
  try {
    await session.run(`${OPEN};\n${FOUNDATION}`);
    const [next] = compare(await session.query<AppliedRow>(READ_APPLIED), known, wanted);
    if (next !== undefined) {
      await session.run(`-- migrate.apply ${next.line}/${next.number}\n${next.sql}`);
      refuseOwnCommit(session, next);
      await session.run(`${PIN};\n${record(next)}`);
    }
    await session.run('commit');
    return next === undefined ? undefined : step(next);
  } catch (error) {
    await session.run('rollback').catch(() => session.release(true));
    throw failure(error);
  }
}

function refuseOwnCommit(session: Session, migration: Migration): void {
  if (session.client.getTransactionStatus?.() === 'I') {
    throw new SchemaMismatch(`${label(migration)} ends its own transaction; take COMMIT and ROLLBACK out of the file`);
  }
}

/** What is missing of `wanted`, in order. @throws SchemaMismatch when the database does not fit `known` */
function compare(rows: AppliedRow[], known: readonly Migration[], wanted: readonly Migration[]): Migration[] {
  const problem = problemNewer(rows, known) ?? problemChanged(rows, known);
  if (problem !== undefined) {
    throw new SchemaMismatch(problem);
  }
  return wanted.filter((migration) => find(rows, migration) === undefined);
}

function problemNewer(rows: AppliedRow[], known: readonly Migration[]): string | undefined {
  const unknown = rows.find((row) => find(known, row) === undefined);
  return unknown === undefined
    ? undefined
    : `the database has ${label(unknown)}, which this version of Pawl does not know: the database is newer than the ` +
        'code; upgrade pawl in this process';
}

function problemChanged(rows: AppliedRow[], known: readonly Migration[]): string | undefined {
  const changed = known.find((migration) => {
    const row = find(rows, migration);
    return row !== undefined && row.checksum !== checksum(migration.sql);
  });
  return changed === undefined
    ? undefined
    : `${label(changed)} differs from what was applied to the database: a released migration must not be edited; ` +
        'restore the file, or install the version of pawl that migrated this database';
}

function select(known: readonly Migration[], lines: string[] | undefined): readonly Migration[] {
  const missing = lines?.find((line) => !known.some((migration) => migration.line === line));
  if (missing !== undefined) {
    const names = [...new Set(known.map((migration) => migration.line))].join(', ');
    throw new InvalidInput(`there is no migration line "${missing}"; there are ${names}`, { field: 'lines' });
  }
  return lines === undefined ? known : known.filter((migration) => lines.includes(migration.line));
}

function find<T extends { line: string; number: number }>(
  list: readonly T[],
  wanted: { line: string; number: number },
): T | undefined {
  return list.find((entry) => entry.line === wanted.line && entry.number === wanted.number);
}

function script(migration: Migration): string {
  return `${OPEN};\n${FOUNDATION};\n\n${migration.sql.trim()}\n\n${PIN};\n${record(migration)};\ncommit;\n`;
}

function record(migration: Migration): string {
  const values = [migration.line, migration.name, checksum(migration.sql)].map(quote);
  return `insert into pawl.migration (line, number, name, checksum)
values (${values[0]}, ${migration.number}, ${values[1]}, ${values[2]})`;
}

function quote(value: string): string {
  return `'${value.replaceAll("'", "''")}'`;
}

function step({ line, number, name }: MigrationStep): MigrationStep {
  return { line, number, name };
}

function label({ line, number, name }: MigrationStep): string {
  return `migration ${line}/${String(number).padStart(3, '0')}_${name}`;
}
