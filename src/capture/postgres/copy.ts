import { DatabaseError, LockNotAvailable, SchemaMismatch, StatementTimeout } from '../../base/errors.ts';
import {
  id,
  only,
  type PostgresEngine,
  type Statement,
  statement,
  type Transaction,
  VERBATIM,
} from '../../engine/postgres/index.ts';
import type { Source } from '../declare/source.ts';
import type { Delivery } from './change.ts';
import { operator } from './operators.ts';
import type { RowsToWrite } from './target/statements.ts';
import type { Target } from './target/target.ts';

/** Settings for the rest of a transaction: values are written as texts that every other session reads as the same values. */
const PLAINLY = `set_config('datestyle', 'ISO', true), set_config('intervalstyle', 'postgres', true),
  set_config('extra_float_digits', '1', true)`;

const DRAW = statement(
  'capture.copy_draw',
  `
select d.copy::text as copy, d.epoch::text as epoch, d.version::text as version, d.is_known as "isKnown", ${PLAINLY}
from pawl.capture_copy_next_version($1::smallint) d`,
);

const PLAIN_TEXTS = statement('capture.plain_texts', `select ${PLAINLY}`);

const POSITION = statement('capture.copy_position', 'select pg_catalog.pg_current_wal_insert_lsn()::text as position');

const TAKE = statement(
  'capture.copy_take',
  `
select t.is_current as "isCurrent", t.keys
from pawl.capture_copy_take($1::uuid, $2::bigint, $3::bigint, $4::pg_lsn, $5::text[], $6::int) t`,
);

/** For the rest of this transaction, values are written as texts that every other session reads as the same values. */
export async function readPlainly(tx: Transaction): Promise<void> {
  await tx.query(PLAIN_TEXTS);
}

/** One delivery of a copy. */
export interface Draw {
  readonly copy: string;
  /** The epoch of the copy: it changes when one of the two databases may have gone back in time. */
  readonly epoch: string;
  /** Higher than the version of every delivery that began earlier. */
  readonly version: string;
  /** Whether a worker has checked the line since this server started. */
  readonly isKnown: boolean;
}

/** Begins a delivery. Values that are read after it are written as after {@link readPlainly}. */
export async function drawVersion(tx: Transaction, line: number): Promise<Draw> {
  return only(await tx.query<Draw>(DRAW, [line]));
}

/** A position in the database's log (WAL) behind everything that this transaction has read so far. */
export async function logPosition(tx: Transaction): Promise<string> {
  return only(await tx.query<{ position: string }>(POSITION)).position;
}

/** The keys that are to be written, and where in the log their entities were read. */
export interface SnapshotTaking {
  readonly draw: Draw;
  readonly position: string;
  readonly keys: readonly string[];
  readonly timeoutMs: number;
}

/** Takes the keys whose rows in the other database are not newer; none, if this epoch is over. */
export async function takeKeys(
  tx: Transaction,
  { draw: { copy, epoch, version }, position, keys, timeoutMs }: SnapshotTaking,
): Promise<{ isCurrent: boolean; keys: readonly string[] }> {
  const values = [copy, epoch, version, position, keys, timeoutMs];
  return only(await tx.query<{ isCurrent: boolean; keys: string[] }>(TAKE, values));
}

const PROBE = statement('capture.copy_probe', 'select c.version from pawl.capture_copy_key c limit 0');

/** @throws SchemaMismatch when the migrations were not run in the other database */
export async function requireCopies(to: PostgresEngine): Promise<void> {
  await to.query(PROBE);
}

const OPEN = statement(
  'capture.copy_open',
  'select pawl.capture_copy_open($1::uuid, $2::bigint, $3::uuid, $4::int)::text as after',
);

const ADVANCE = statement(
  'capture.copy_advance',
  'select pawl.capture_copy_advance($1::uuid, $2::bigint + 1, $3::uuid, $4::bigint)',
);

const LOCK_LINE = statement(
  'capture.copy_line',
  'select l.copy::text as copy, l.delivery::text as delivery from pawl.capture_line l where l.id = $1::smallint for update',
);

const GO_ON = statement(
  'capture.copy_go_on',
  `
insert into pawl.capture_copy_place as p (copy, delivery, batch, after) values ($1::uuid, $2::bigint, gen_random_uuid(), 0)
on conflict (copy) do update set delivery = excluded.delivery, batch = excluded.batch, after = 0`,
);

/**
 * Locks the position of a copy for this transaction. @returns the number of the last change of this batch that the copy already
 * has
 * @throws Conflict  one of the two databases was restored to an earlier time
 */
export async function openPlace(
  tx: Transaction,
  { copy, number, batch }: Delivery,
  timeoutMs: number,
): Promise<string> {
  return only(await tx.query<{ after: string }>(OPEN, [copy, number, batch, timeoutMs])).after;
}

export async function advancePlace(tx: Transaction, { copy, number, batch }: Delivery, after: string): Promise<void> {
  await tx.query(ADVANCE, [copy, number, batch, after]);
}

/** Makes both databases agree on the number of deliveries, whatever each of them has stored. */
export async function agreeOnPlace(engine: PostgresEngine, to: PostgresEngine, line: number): Promise<void> {
  await engine.transaction(async (tx) => {
    const { copy, delivery } = only(await tx.query<{ copy: string; delivery: string }>(LOCK_LINE, [line]));
    await to.transaction(async (other) => {
      await other.query(GO_ON, [copy, delivery]);
    });
  });
}

const COPIES = statement(
  'capture.copies',
  `
select l.name, l.copy::text as copy, pawl.capture_database() as database
from pawl.capture_line l join pawl.capture_definition d on d.id = l.capture
where d.entity = $1::text and (l.guarantee = 'latest' or pawl.capture_is_database(l.database, pawl.capture_database()))`,
);

/** What another database knows a line by. */
export interface CopyName {
  /** The name of the line. */
  readonly name: string;
  readonly copy: string;
  readonly database: string;
}

/** The lines of a capture, except those whose position another database may use: this one is a copy of that one. */
export function readCopies(engine: PostgresEngine, entity: string): Promise<CopyName[]> {
  return engine.query<CopyName>(COPIES, [entity]);
}

const WAIT_FOR_COPY = statement(
  'capture.copy_wait',
  'select pg_advisory_xact_lock(hashtextextended($1::uuid::text, (-1000000)::bigint))',
);

const IS_OTHERS = statement(
  'capture.copy_is_others',
  'select 1 as yes from pawl.capture_copy_epoch e where e.copy = $1::uuid and not pawl.capture_is_database(e.database, $2::text)',
);

const REMOVE_COPY = ['key', 'place', 'known', 'epoch'].map((records) =>
  statement(`capture.copy_remove_${records}`, `delete from pawl.capture_copy_${records} c where c.copy = $1::uuid`),
);

/**
 * Removes what the other database has stored about a copy, unless the copy has another owner. Waits for deliveries that are
 * under way; none is taken after it.
 */
export async function removeCopy(to: PostgresEngine, { copy, database }: CopyName): Promise<void> {
  await to.transaction(async (tx) => {
    await tx.query(WAIT_FOR_COPY, [copy]);
    if ((await tx.query(IS_OTHERS, [copy, database])).length > 0) return;
    for (const records of REMOVE_COPY) await tx.query(records, [copy]);
  });
}

/** Statements for a target in another database. They are made once per target, since their text depends on its columns. */
export interface CopyStatements {
  /**
   * In the captured database: the rows of the keys in `$1`, as JSON that the database makes itself, and the log position
   * behind everything that was read.
   */
  readonly make: Statement;
  /** In the other database: keys of rows, in their order. */
  readonly page: Statement;
  /** In the captured database: the keys in `$1` that belong to no entity. */
  readonly strays: Statement;
}

export function copyStatements(
  { schema, name, key, keyType, keyOperators, columns }: Target,
  root: Source,
  query: string | undefined,
): CopyStatements {
  const place = `${schema}.${name}`;
  // As text, each type reads what it has written. Postgres has JSON of its own for some types, such as hstore, which they do not
  // read, and arrays lose their bounds in it. A text in a column of JSON would become a JSON string.
  const values = columns.map(
    (column) => `m.${id(column.name)}${/^jsonb?$/.test(column.base) ? '' : '::text'} as ${id(column.name)}`,
  );
  return {
    make: statement(
      `capture.make ${place}`,
      `
with made as materialized (
${query ?? `select null::text as ${id(key)} where $1::text[] is null`}
)
select coalesce(pg_catalog.json_agg(pg_catalog.to_json(row_of_texts)), '[]')::text as json, coalesce(pg_catalog.array_agg(row_of_texts.${id(key)}), '{}') as found,
  pg_catalog.pg_current_wal_insert_lsn()::text as position
from (select ${values.join(', ')} from made m where m.${id(key)}::text = any ($1::text[])) row_of_texts`,
      VERBATIM,
    ),
    page: statement(
      `capture.copy_page ${place}`,
      `
select t.${id(key)}::text as key from ${id(schema, name)} t
where $1::text is null or t.${id(key)} ${operator('>', keyOperators)} $1::text::${keyType} order by t.${id(key)} limit $2::int`,
      VERBATIM,
    ),
    strays: statement(
      `capture.copy_strays ${place}`,
      `
select k.key from pg_catalog.unnest($1::text[]) k (key)
where not exists (select from ${id(root.schema, root.name)} r where r.${id(root.column)} ${operator('=', root.operators)} k.key::${root.type})`,
      VERBATIM,
    ),
  };
}

/** Rows that a query has made, and the log position behind everything that they show. */
export async function readMade(
  tx: Transaction,
  { make }: CopyStatements,
  keys: readonly string[],
): Promise<RowsToWrite & { readonly position: string }> {
  const [row] = await tx.query<{ json: string; found: string[]; position: string }>(make, [keys]);
  return { json: row?.json ?? '[]', found: new Set(row?.found), position: row?.position ?? '0/0' };
}

/** Which of the keys of a page belong to no entity. */
export async function readStrays(
  tx: Transaction,
  { strays }: CopyStatements,
  keys: readonly string[],
): Promise<{ key: string; stray: boolean }[]> {
  const gone = new Set((await tx.query<{ key: string }>(strays, [keys])).map(({ key }) => key));
  return keys.map((key) => ({ key, stray: gone.has(key) }));
}

/** SQLSTATEs that no row causes: lack of resources, a standby that was promoted elsewhere, a shutdown, missing privileges. */
const OUT_OF_SERVICE = /^(25|53|57|58|42501)/;

export function isOutOfService(error: unknown): boolean {
  if (error instanceof LockNotAvailable || error instanceof StatementTimeout || error instanceof SchemaMismatch)
    return true;
  return error instanceof DatabaseError && OUT_OF_SERVICE.test(error.sqlState ?? '');
}
