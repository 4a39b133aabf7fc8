import { DatabaseError, LockNotAvailable, SchemaMismatch, StatementTimeout } from '../base/errors.ts';
import {
  id,
  only,
  type PostgresEngine,
  type Statement,
  statement,
  type Transaction,
} from '../engine/postgres/index.ts';
import type { Reader } from './postgres-catalog.ts';
import type { Delivery } from './postgres-change.ts';
import type { Target } from './postgres-target.ts';

/** For the rest of the transaction the texts of values are those that every other session reads as the same values. */
const PLAINLY = `set_config('datestyle', 'ISO', true), set_config('intervalstyle', 'postgres', true),
  set_config('extra_float_digits', '1', true)`;

const DRAW = statement(
  'capture.draw_version',
  `select nextval('pawl.capture_version_seq')::text as version, ${PLAINLY}`,
);

const PLAIN_TEXTS = statement('capture.plain_texts', `select ${PLAINLY}`);

const LAST = statement('capture.last_version', 'select s.last_value::text as version from pawl.capture_version_seq s');

const TAKE = statement(
  'capture.copy_take',
  'select t.keys, t.newest::text as newest from pawl.capture_copy_take($1::uuid, $2::bigint, $3::text[], $4::int) t',
);

const NEWEST = statement(
  'capture.copy_newest',
  'select coalesce(max(c.version), 0)::text as version from pawl.capture_copy_key c where c.copy = $1::uuid',
);

const REBASE = statement('capture.copy_rebase', 'select pawl.capture_copy_rebase($1::smallint, $2::bigint)');

const NAME = statement(
  'capture.copy_name',
  'select l.copy::text as copy from pawl.capture_line l where l.id = $1::smallint',
);

/** Has what is read in this transaction written as every other session reads it. */
export async function readPlainly(tx: Transaction): Promise<void> {
  await tx.query(PLAIN_TEXTS);
}

/** A number higher than that of every delivery that was begun before. What is read after it is written as {@link readPlainly} has it. */
export async function drawVersion(tx: Transaction): Promise<string> {
  return only(await tx.query<{ version: string }>(DRAW)).version;
}

/** The highest number that was drawn here. */
export async function lastVersion(db: Reader): Promise<string> {
  return only(await db.query<{ version: string }>(LAST)).version;
}

/** Takes those keys whose rows over there are not newer than `version`. */
export async function takeKeys(
  tx: Transaction,
  { copy, version, keys, timeoutMs }: { copy: string; version: string; keys: readonly string[]; timeoutMs: number },
): Promise<{ keys: readonly string[]; newest: string | null }> {
  return only(await tx.query<{ keys: string[]; newest: string | null }>(TAKE, [copy, version, keys, timeoutMs]));
}

/** The highest number that the copy has seen. */
export async function newestThere(to: PostgresEngine, copy: string): Promise<string> {
  return only(await to.query<{ version: string }>(NEWEST, [copy])).version;
}

/** Lets the numbers go on behind those that the copy has seen. */
export async function rebaseVersions(engine: PostgresEngine, line: number, newest: string): Promise<void> {
  await engine.query(REBASE, [line, newest]);
}

const PROBE = statement('capture.copy_probe', 'select c.version from pawl.capture_copy_key c limit 0');

/** @throws SchemaMismatch when the migrations were not run in the other database */
export async function requireCopies(to: PostgresEngine): Promise<void> {
  await to.query(PROBE);
}

/** The name under which another database knows a line. */
export async function copyName(db: Reader, line: number): Promise<string> {
  return only(await db.query<{ copy: string }>(NAME, [line])).copy;
}

const OPEN = statement(
  'capture.copy_open',
  'select pawl.capture_copy_open($1::uuid, $2::bigint, $3::text::pg_snapshot, $4::int)::text as after',
);

const ADVANCE = statement(
  'capture.copy_advance',
  'select pawl.capture_copy_advance($1::uuid, $2::bigint + 1, $3::text::pg_snapshot, $4::bigint)',
);

const LOCK_LINE = statement(
  'capture.copy_line',
  'select l.copy::text as copy, l.delivery::text as delivery from pawl.capture_line l where l.id = $1::smallint for update',
);

const GO_ON = statement(
  'capture.copy_go_on',
  `
insert into pawl.capture_copy_place as p (copy, delivery, batch, after) values ($1::uuid, $2::bigint, '1:1:', 0)
on conflict (copy) do update set delivery = excluded.delivery, batch = excluded.batch, after = 0`,
);

/**
 * Takes the place of a copy for this transaction. @returns the number of the last change of the batch that is there already
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

/** Makes both sides agree on how many deliveries there were, whatever either remembers. */
export async function agreeOnPlace(engine: PostgresEngine, to: PostgresEngine, line: number): Promise<void> {
  await engine.transaction(async (tx) => {
    const { copy, delivery } = only(await tx.query<{ copy: string; delivery: string }>(LOCK_LINE, [line]));
    await to.transaction(async (other) => {
      await other.query(GO_ON, [copy, delivery]);
    });
  });
}

/** Statements for a target in another database; they are made once, since their text depends on its columns. */
export interface CopyStatements {
  /** Here: the rows of the keys in `$1`, as JSON that the database makes itself. */
  readonly make: Statement;
  /** There: keys of rows, in their order. */
  readonly page: Statement;
  /** Here: of the keys in `$1` those of no entity. */
  readonly strays: Statement;
}

export function copyStatements(
  { schema, name, key, keyType }: Target,
  root: { schema: string; name: string; column: string; type: string },
  query: string | undefined,
): CopyStatements {
  const place = `${schema}.${name}`;
  return {
    make: statement(
      `capture.make ${place}`,
      `
with made as materialized (
${query ?? `select null::text as ${id(key)} where $1::text[] is null`}
)
select coalesce(json_agg(to_json(m)), '[]')::text as json, coalesce(array_agg(m.${id(key)}::text), '{}') as found
from made m where m.${id(key)}::text = any ($1::text[])`,
      { prepare: false },
    ),
    page: statement(
      `capture.copy_page ${place}`,
      `
select t.${id(key)}::text as key from ${id(schema, name)} t
where $1::text is null or t.${id(key)} > $1::text::${keyType} order by t.${id(key)} limit $2::int`,
      { prepare: false },
    ),
    strays: statement(
      `capture.copy_strays ${place}`,
      `
select k.key from unnest($1::text[]) k (key)
where not exists (select from ${id(root.schema, root.name)} r where r.${id(root.column)} = k.key::${root.type})`,
      { prepare: false },
    ),
  };
}

/** Resources, a standby that was promoted elsewhere, a shutdown, privileges: not the fault of a row. */
const OUT_OF_SERVICE = /^(25|53|57|58|42501)/;

export function isOutOfService(error: unknown): boolean {
  if (error instanceof LockNotAvailable || error instanceof StatementTimeout || error instanceof SchemaMismatch)
    return true;
  return error instanceof DatabaseError && OUT_OF_SERVICE.test(error.sqlState ?? '');
}
