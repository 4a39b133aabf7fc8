import { id, type SchemaName } from '../../../engine/postgres/index.ts';
import { linkNumber, type Source } from '../../declare/source.ts';
import { literal } from '../../declare/sql-text.ts';

/**
 * The text of the triggers. They run in the user's transactions, so three rules come before all others:
 *
 * - No content of a row makes them fail. Keys have types whose output cannot fail, and are written as text; history is text
 *   that is cut. If a column is gone (renamed, dropped), the whole table becomes dirty, and no error occurs.
 * - They read no table, except a catalog for that last rule. The consumer follows links later. When the trigger runs, it could
 *   not see an order that another transaction is inserting for the changed customer, and would miss it.
 * - They run as a role that may insert into the log and do nothing else, and they use nothing that another role has created.
 *   For that, they have a search path of schemas in which no other role can create anything. If a path costs too much, they use
 *   exact names only.
 *
 * A statement on 100,000 rows pays for copying them to the transition table. Only the new rows are copied, because copying the
 * old rows, too, costs as much again (27 % more processor time of a bulk update instead of 14 %). A row trigger writes the old
 * key of a row. Its condition is true only if the key changed, and testing the condition costs next to nothing.
 *
 * A statement on one row pays for every query that a function runs, for each step of its plan, and for each setting of the
 * function. So a statement trigger runs one query for one row, without a setting. The name lookup of SQL shows whether the
 * column still exists: a name without a table means the column of the innermost table that has one. So `order_id` is the column
 * of the changed rows. If they have no such column, it is the column of a value in the query around them, of a type that no key
 * has.
 */

export const OPERATIONS = ['insert', 'update', 'move', 'delete', 'truncate'] as const;
export type Operation = (typeof OPERATIONS)[number];

/** The role that owns the functions. */
export function ownerOf({ name }: SchemaName): string {
  return `${name}_capture`;
}

/** The consumers of the changes that a source writes. */
export interface Readers {
  /** Pawl's schema, which contains the log. */
  readonly schema: string;
  /** The lines that receive dirty keys. */
  readonly latest: readonly number[];
  readonly capture: number;
  /** Whether single changes are kept: for a history, or for a line that reads them in order. */
  readonly changes: boolean;
  /** The oid of the source's table. */
  readonly relation: string;
}

export function functionName(entity: string, source: Source, operation: Operation): string {
  return `capture_${entity}_${source.number}_${operation}`;
}

export function triggerName(schema: string, entity: string, operation: Operation): string {
  return `${schema}_capture_${entity}_${operation}`;
}

/** The triggers that a source needs. */
export function operationsOf(source: Source, readers: Readers): Operation[] {
  return OPERATIONS.filter((operation) => operation !== 'move' || !isRowLevel(source, readers));
}

export function functionText(entity: string, source: Source, operation: Operation, readers: Readers): string {
  return `create or replace function ${readers.schema}.${functionName(entity, source, operation)}() returns trigger
language plpgsql security definer${settings(source, operation, readers)
    .map(([name, value]) => ` set ${name} = ${value}`)
    .join('')} as ${dollar(functionBody(source, operation, readers))}`;
}

/**
 * The settings under which a function runs, whatever the writing session has set. The settings that affect the text of a value
 * are set only if values are stored, because each costs a fraction of a microsecond a row. A function that names exactly what
 * it calls has no settings, which would cost 4 µs of a statement on one row.
 */
export function settings(
  source: Source,
  operation: Operation,
  readers: Readers,
): readonly (readonly [name: string, value: string])[] {
  if (isExact(source, operation, readers)) return [];
  return readers.changes && operation !== 'truncate' && source.history !== undefined ? [PATH, ...FORMATS] : [PATH];
}

/** True for the functions of statement triggers, except for truncate. {@link noteChanged} is all of their text. */
function isExact(source: Source, operation: Operation, readers: Readers): boolean {
  return each(source, operation, readers) === 'statement' && operation !== 'truncate';
}

const PATH = ['search_path', 'pg_catalog, pg_temp'] as const;
const FORMATS = [
  ['DateStyle', 'iso'],
  ['IntervalStyle', 'postgres'],
  ['bytea_output', 'hex'],
  ['extra_float_digits', '1'],
] as const;

/** The body of the function; it is also compared with the installed one. */
export function functionBody(source: Source, operation: Operation, readers: Readers): string {
  const { latest, changes } = readers;
  const parts = [
    ...(latest.length === 0 ? [] : [noteDirty(source, operation, readers)]),
    ...(changes ? [noteChange(source, operation, readers)] : []),
  ];
  const columns = [source.column, ...(changes ? (source.history?.columns ?? []).map(({ name }) => name) : [])];
  const isGuarded = each(source, operation, readers) === 'row' && parts.length > 0;
  const guard = isGuarded ? refuseGone(columns, readers) : '';
  const declared = isExact(source, operation, readers) ? 'declare\n  written pg_catalog.int8;\n' : '';
  return `\n#variable_conflict use_column\n${declared}begin\n${guard}${parts.join('\n')}\n  return null;\nend `;
}

export function triggerText(
  entity: string,
  source: Source,
  operation: Operation,
  { readers, on: table }: { readers: Readers; on: { schema: string; name: string } },
): string[] {
  const on = id(table.schema, table.name);
  const name = id(triggerName(readers.schema, entity, operation));
  const run = `execute function ${readers.schema}.${functionName(entity, source, operation)}()`;
  const event = operation === 'move' ? 'update' : operation;
  const column = id(source.column);
  const moved = `${exact(source, `old.${column}`)} is distinct from ${exact(source, `new.${column}`)}`;
  const when = operation === 'move' ? ` when (${moved})` : '';
  const [before, after] = transitionNames(source, operation, readers);
  const copies = [
    ...(before === null ? [] : [` referencing old table as ${before}`]),
    ...(after === null ? [] : [` referencing new table as ${after}`]),
  ];
  return [
    `create trigger ${name} after ${event} on ${on}${copies.join('')} for each ${each(source, operation, readers)}${when} ${run}`,
    `alter table ${on} enable always trigger ${name}`,
  ];
}

/**
 * The trigger of {@link triggerText} as `pg_get_triggerdef` writes it and {@link shapeOf} shortens it. It contains everything
 * about a trigger: when it fires, on which columns, under which condition, with which arguments.
 */
export function triggerShape(
  entity: string,
  source: Source,
  operation: Operation,
  { readers, on: table }: { readers: Readers; on: { schema: string; name: string } },
): string {
  const event = operation === 'move' ? 'UPDATE' : operation.toUpperCase();
  const column = `${source.column}${exact(source, '').includes('collate') ? ' COLLATE C' : ''}`;
  const when = operation === 'move' ? ` WHEN old.${column} IS DISTINCT FROM new.${column}` : '';
  const [before, after] = transitionNames(source, operation, readers);
  const copies = `${before === null ? '' : ` OLD TABLE AS ${before}`}${after === null ? '' : ` NEW TABLE AS ${after}`}`;
  const referencing = copies === '' ? '' : ` REFERENCING${copies}`;
  const level = each(source, operation, readers).toUpperCase();
  return unquoted(
    `CREATE TRIGGER ${triggerName(readers.schema, entity, operation)} AFTER ${event} ON ${table.schema}.${table.name}${referencing} FOR EACH ${level}${when} EXECUTE FUNCTION ${functionName(entity, source, operation)}`,
  );
}

/**
 * Removes what differs between versions and settings of Postgres: parentheses, quotes, casts to text, schemas of the search
 * path.
 */
export function shapeOf(definition: string, schema: string): string {
  return unquoted(definition)
    .replaceAll('::text', '')
    .replaceAll('COLLATE pg_catalog.', 'COLLATE ')
    .replace(`EXECUTE FUNCTION ${schema}.`, 'EXECUTE FUNCTION ');
}

function unquoted(text: string): string {
  return text.replaceAll(/[()"]/g, '');
}

/** The names of a trigger's transition tables: [old, new]. */
function transitionNames(source: Source, operation: Operation, readers: Readers): [string | null, string | null] {
  if (each(source, operation, readers) === 'row' || operation === 'truncate') return [null, null];
  return operation === 'delete' ? ['pawl_old', null] : [null, 'pawl_new'];
}

/** A query that turns the values of `changed c` into keys, by one column of one table `t`. */
export function linkQuery(table: { schema: string; name: string }, on: string, key: string): string {
  return `select t.${id(key)} from ${id(table.schema, table.name)} t join changed c on ${on}`;
}

function isRowLevel(source: Source, { changes }: Readers): boolean {
  return source.rowLevel || changes;
}

function each(source: Source, operation: Operation, readers: Readers): 'row' | 'statement' {
  return operation === 'move' || (isRowLevel(source, readers) && operation !== 'truncate') ? 'row' : 'statement';
}

function noteDirty(source: Source, operation: Operation, readers: Readers): string {
  if (operation === 'truncate') return wholeTable(readers);
  const column = id(source.column);
  const number = linkNumber(source);
  if (operation === 'move') return noteRow(number, 'old', column, readers);
  if (isRowLevel(source, readers)) {
    if (operation === 'insert') return noteRow(number, 'new', column, readers);
    const before = noteRow(number, 'old', column, readers);
    if (operation === 'delete') return before;
    return `${noteRow(number, 'new', column, readers)}
  if ${exact(source, `old.${column}`)} is distinct from ${exact(source, `new.${column}`)} and ${replanned(readers)} then
  ${before}
  end if;`;
  }
  return noteChanged(source, operation === 'delete' ? 'pawl_old' : 'pawl_new', readers);
}

/**
 * The keys in a transition table. The text names types, operators and functions exactly, because the session that writes
 * decides what a plain name means.
 *
 * Sorting one row costs as much as inserting it. So the first two rows are written unsorted, and only if there were two, all
 * others follow.
 */
function noteChanged(source: Source, table: string, { latest, schema }: Readers): string {
  const [line, more] =
    latest.length === 1
      ? [latest[0], '']
      : ['l', ` cross join pg_catalog.unnest('{${latest.join()}}'::pg_catalog.int2[]) l`];
  const isOwn = exact(source, 'r.key') === 'r.key';
  const key = isOwn ? 'r.key' : 'r.key::pg_catalog.text collate pg_catalog."C"';
  const [keys, type] = isOwn
    ? [key, 'pg_catalog.pg_typeof(k.key)']
    : [`${key} as key, pg_catalog.pg_typeof(r.key) as type`, 'k.type'];
  const gone = `${type} operator(pg_catalog.=) 'pg_catalog.tid'::pg_catalog.regtype`;
  const column = id(source.column);
  const rows = `from (select pg_catalog.tid '(0,0)' as ${column}) gone cross join lateral (select ${column} as key from ${table}) r`;
  const first = `${rows}
    where r.key is not null limit 2`;
  const insert = (found: string): string => `  insert into ${schema}.capture_dirty (line, source, key)
  select ${line}, case when ${gone} then -1 else ${linkNumber(source)} end, case when ${gone} then '' else k.key::pg_catalog.text end
  from (
    ${found}
  ) k${more};`;
  // `distinct` compares values of their own type, which costs less than comparing texts. The sort makes all transactions write
  // in one order. Both are in the inner query, because around it they would be one more step of the plan.
  return `${insert(`select ${keys} ${first}`)}
  get diagnostics written = row_count;
  if written operator(pg_catalog.>) ${latest.length} then
  ${insert(`select distinct ${keys} ${rows}
    where ${key} operator(pg_catalog.<>) all (array(select ${key} ${first})) order by 1`)}
  end if;`;
}

/** Compares texts by their bytes: two texts that a collation or citext takes for equal are two keys. */
function exact({ type }: Source, value: string): string {
  return ['smallint', 'integer', 'bigint', 'uuid'].includes(type) ? value : `${value}::text collate pg_catalog."C"`;
}

function noteRow(number: number, row: 'old' | 'new', column: string, readers: Readers): string {
  const { latest, schema } = readers;
  return `  insert into ${schema}.capture_dirty (line, source, key)
  select l, ${number}, ${row}.${column}::text from ${lines(latest)} l where ${row}.${column} is not null and ${replanned(readers)};`;
}

/**
 * A condition that is always true, in each query that reads columns of `new` or `old`. A session keeps the plan of such a query
 * with the types of the columns, and the query fails when a type is changed later. Postgres discards a plan that names a table
 * when that table changes. A number needs no table of that name, so a renamed table does no harm.
 */
function replanned({ relation }: Readers): string {
  return `'${relation}'::pg_catalog.regclass is not null`;
}

/** The body without the numbers of tables, which are others in a database that was restored from a dump. */
export function withoutRelations(body: string): string {
  return body.replaceAll(/'\d+'::pg_catalog\.regclass/g, '');
}

function refuseGone(columns: readonly string[], readers: Readers): string {
  const probe = (column: string): string => `not exists (select from pg_catalog.pg_attribute a
    where a.attrelid = tg_relid and a.attname = ${literal(column)} and not a.attisdropped)`;
  return `  if ${[...new Set(columns)].map(probe).join(' or ')} then
${readers.latest.length === 0 ? '  null;' : wholeTable(readers)}
    return null;
  end if;
`;
}

function wholeTable({ latest, schema }: Readers): string {
  return `  insert into ${schema}.capture_dirty (line, source, key) select l, -1, '' from ${lines(latest)} l;`;
}

function lines(numbers: readonly number[]): string {
  return `unnest('{${numbers.join()}}'::smallint[])`;
}

function noteChange(source: Source, operation: Operation, readers: Readers): string {
  const { capture, schema } = readers;
  const fixed = `${capture}, ${source.number}, ${literal(operation)}`;
  if (operation === 'truncate') {
    return `  insert into ${schema}.capture_change (capture, source, op) values (${fixed});`;
  }
  const column = id(source.column);
  const key = operation === 'delete' ? `old.${column}::text` : `new.${column}::text`;
  const oldKey =
    operation === 'update' ? `nullif(old.${column}::text collate pg_catalog."C", new.${column}::text)` : 'null';
  const rows = source.history?.rows ?? 'keys';
  const before =
    operation !== 'insert' && (rows === 'both' || (rows === 'after' && operation === 'delete'))
      ? image(source, 'old')
      : 'null';
  const after = operation !== 'delete' && rows !== 'keys' ? image(source, 'new') : 'null';
  return `  insert into ${schema}.capture_change (capture, source, op, key, old_key, before, after)
  select ${fixed}, ${key}, ${oldKey}, ${before}, ${after} where ${replanned(readers)};`;
}

/** A value longer than this is cut: a value of 1 GB, written out as text, would not fit. */
const LONGEST = 65_536;

/** The listed columns as JSON whose values are text: json, unlike jsonb, takes everything that text can hold. */
function image(source: Source, row: 'old' | 'new'): string {
  const columns = source.history?.columns ?? [];
  const names = columns.map(({ name }) => literal(name)).join(', ');
  const values = columns.map(({ name, long }) => {
    const value = `${row}.${id(name)}`;
    if (!long) return `${value}::text`;
    return `case when pg_column_size(${value}) > ${LONGEST} then '(' || pg_column_size(${value}) || ' bytes)' else left(${value}::text, ${LONGEST}) end`;
  });
  return `json_object(array[${names}]::text[], array[${values.join(', ')}]::text[])`;
}

/** Quotes a body. The same body always gives the same text: people read a plan before they run it, and store it. */
function dollar(body: string): string {
  let tag = '$pawl$';
  for (let n = 1; body.includes(tag); n += 1) tag = `$pawl${n}$`;
  return tag + body + tag;
}
