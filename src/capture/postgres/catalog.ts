import { DatabaseError, InvalidInput, NotSupported } from '../../base/errors.ts';
import { suggest } from '../../base/options/options.ts';
import { id, type PostgresEngine, statement, type Transaction, VERBATIM } from '../../engine/postgres/index.ts';
import { OPERATOR_SCHEMA, type OperatorSchema } from './operators.ts';

/** A table as the catalogs describe it. */
export interface Table {
  readonly oid: string;
  readonly schema: string;
  readonly name: string;
  readonly kind: string;
  readonly persistence: string;
  readonly owned: boolean;
  /** A partition, or a table that inherits from another one: a statement that names the parent changes its rows, too. */
  readonly has_parent: boolean;
  readonly has_children: boolean;
  readonly subscribed: boolean;
  readonly primary_key: readonly string[];
  readonly columns: readonly Column[];
}

export interface Column {
  readonly name: string;
  /** The declared type, `character varying(20)`. `base` is the type without length and domain, `character varying`. */
  readonly type: string;
  readonly base: string;
  readonly required: boolean;
  readonly generated: boolean;
  /** True if one value has several texts: citext, and collations that take different texts for equal. */
  readonly folds: boolean;
  /** True for a generated column that is computed when it is read (Postgres 18): triggers do not see its value. */
  readonly virtual: boolean;
  /** True for a type of variable length. */
  readonly long: boolean;
  readonly operators: OperatorSchema;
}

const TABLE = statement(
  'capture.table',
  `
select c.oid::text as oid, n.nspname as schema, c.relname as name, c.relkind::text as kind, c.relpersistence::text as persistence,
  pg_has_role(c.relowner, 'usage') as owned, exists (select from pg_inherits i where i.inhrelid = c.oid) as has_parent,
  exists (select from pg_inherits i where i.inhparent = c.oid) as has_children,
  exists (select from pg_subscription_rel s where s.srrelid = c.oid) as subscribed,
  array(select a.attname::text from pg_index i cross join lateral pg_catalog.unnest(i.indkey) with ordinality k (num, ord)
    join pg_attribute a on a.attrelid = c.oid and a.attnum = k.num where i.indrelid = c.oid and i.indisprimary order by k.ord) as primary_key,
  coalesce((select pg_catalog.json_agg(pg_catalog.json_build_object('name', a.attname, 'type', case when t.typnamespace = 'pg_catalog'::regnamespace::oid and t.typname <> 'char'
        then replace(format_type(a.atttypid, a.atttypmod), '"', '') else format_type(a.atttypid, a.atttypmod) end,
      'base', case when t.typtype = 'e' then 'enum' else replace(format_type(coalesce(nullif(t.typbasetype, 0::oid), a.atttypid), null::int), '"', '') end,
      'required', a.attnotnull, 'generated', a.attgenerated <> '', 'virtual', a.attgenerated = 'v',
      'folds', t.typname = 'citext' or exists (select from pg_collation l where l.oid = a.attcollation and not l.collisdeterministic), 'long', t.typlen < 0, 'operators', ${OPERATOR_SCHEMA}) order by a.attnum)
    from pg_attribute a join pg_type t on t.oid = a.atttypid
    where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped), '[]') as columns
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.oid = to_regclass($1::text)::oid`,
);

const IS_ELSEWHERE = statement('capture.is_elsewhere', 'select pawl.capture_is_elsewhere($1::oid) as elsewhere');

/** A handle that runs statements: the engine, or a transaction. */
export type Reader = Pick<PostgresEngine | Transaction, 'query' | 'schema'>;

/** @returns undefined when there is no such table */
export async function findTable(db: Reader, table: string): Promise<Table | undefined> {
  const [row] = await db.query<Table>(TABLE, [table]);
  return row;
}

/** Finds a table that can have triggers, and in which every write fires them. @throws InvalidInput, NotSupported */
export async function requireSource(db: Reader, table: string, field: string): Promise<Table> {
  const found = await findTable(db, table).catch((cause: unknown) => {
    if (!isMistake(cause)) throw cause;
    throw new InvalidInput(`"${table}" is no name of a table: ${String(cause)}`, { field, cause });
  });
  if (found === undefined) {
    throw new InvalidInput(`there is no table "${table}" that this role can see; write it as in SQL, with its schema`, {
      field,
    });
  }
  if (found.schema === db.schema.name || found.schema.startsWith('pg_') || found.schema === 'information_schema') {
    throw new InvalidInput(`"${table}" belongs to the system or to Pawl, and cannot be captured`, { field });
  }
  if ((found.kind !== 'r' && found.kind !== 'p') || found.persistence === 't') {
    throw new InvalidInput(
      `"${table}" is no ordinary table, and only these can have the triggers; name the tables behind it`,
      {
        field,
      },
    );
  }
  const [row] = await db.query<{ elsewhere: boolean }>(IS_ELSEWHERE, [found.oid]);
  if (row?.elsewhere === true) {
    throw new NotSupported(
      `the rows of "${table}" are on other nodes of Citus, where no trigger can write to the log here; capture a table that is on the ` +
        'coordinator alone (undistribute_table), or enqueue a job in each transaction that changes it',
    );
  }
  if (found.kind === 'r' && found.has_children) {
    throw new NotSupported(
      `tables inherit from "${table}" that are no partitions: their triggers are their own; name each of them, or use partitions`,
    );
  }
  if (!found.owned) {
    throw new InvalidInput(
      `the table "${table}" belongs to another role, and only its owner can capture it; run this as that role`,
      {
        field,
      },
    );
  }
  return found;
}

/** True if the text of a statement caused the error, and not an outage or a lack of time, memory or locks. */
export function isMistake(error: unknown): boolean {
  return error instanceof DatabaseError && /^(0A|21|22|2F|42|P0)/.test(error.sqlState ?? '');
}

/** @throws InvalidInput */
export function requireColumn(table: Table, column: string, field: string): Column {
  const found = table.columns.find((candidate) => candidate.name === column);
  if (found !== undefined) return found;
  const names = table.columns.map(({ name }) => name);
  const near = suggest(column, names);
  const advice = near === undefined ? `it has ${names.join(', ')}` : `did you mean "${near}"?`;
  throw new InvalidInput(`the table "${table.name}" has no column "${column}"; ${advice}`, { field });
}

const KEY_TYPES = ['smallint', 'integer', 'bigint', 'uuid', 'text', 'character varying', 'character', 'citext', 'enum'];

/** Finds a column whose values stay the same when they are written as text and read again. @throws InvalidInput */
export function requireKey(table: Table, column: string, field: string): Column {
  const found = requireStored(table, column, field);
  if (KEY_TYPES.includes(found.base)) return found;
  throw new InvalidInput(
    `${table.name}.${column} is of type ${found.type}, which cannot be a key; it may be ${KEY_TYPES.join(', ')}`,
    { field },
  );
}

/** Finds a column whose value triggers see. @throws InvalidInput */
export function requireStored(table: Table, column: string, field: string): Column {
  const found = requireColumn(table, column, field);
  if (!found.virtual) return found;
  throw new InvalidInput(
    `${table.name}.${column} is a virtual generated column, whose value no trigger sees; make it STORED`,
    { field },
  );
}

/** @throws InvalidInput when some rows have no value in the column */
export async function refuseNulls(db: Reader, table: Table, column: string, field: string): Promise<void> {
  const of = `${id(table.schema)}.${id(table.name)}`;
  const probe = statement(
    'capture.nulls',
    `select 1 as found from ${of} t where t.${id(column)} is null limit 1`,
    VERBATIM,
  );
  if ((await db.query(probe)).length === 0) return;
  throw new InvalidInput(
    `some rows of "${table.name}" have no ${column} and so belong to no entity; if that is right, write { column: '${column}', nulls: 'ignore' }`,
    { field },
  );
}

/** The query that turns values of a link into keys: `$1` is an array of the values as text. */
export function followText(column: string, type: string, query: string): string {
  return `with changed (${id(column)}) as (select pg_catalog.unnest($1::text[])::${type})
select distinct found.key::text as key from (
${query}
) found (key) where found.key is not null`;
}

/** Follows a link for a few existing values. @returns whether the query returns NULL for one of them */
export async function tryLink(
  db: Reader,
  table: Table,
  link: { column: string; type: string; query: string },
): Promise<boolean> {
  const { column, type, query } = link;
  const from = `${id(table.schema, table.name)} t where t.${id(column)} is not null`;
  const few = statement('capture.try_values', `select t.${id(column)}::text as key from ${from} limit 100`, VERBATIM);
  const keys = (await db.query<{ key: string }>(few)).map(({ key }) => key);
  await db.query(statement('capture.try', followText(column, type, query), VERBATIM), [keys]);
  const nulls = `with changed (${id(column)}) as (select pg_catalog.unnest($1::text[])::${type})
select 1 as found from (
${query}
) found (key) where found.key is null limit 1`;
  return (await db.query(statement('capture.try_nulls', nulls, VERBATIM), [keys])).length > 0;
}
