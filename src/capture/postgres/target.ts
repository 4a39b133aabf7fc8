import { InvalidInput } from '../../base/errors.ts';
import { id, type Statement, statement, type Transaction, VERBATIM } from '../../engine/postgres/index.ts';
import type { Difference } from '../declare/definition.ts';
import { type Definition, rootOf, type Source } from '../declare/source.ts';
import { literal } from '../declare/sql-text.ts';
import { type Column, findTable, type Reader, requireColumn, type Table } from './catalog.ts';
import { differs, type OperatorSchema, operator } from './operators.ts';
import { compareTypes } from './types.ts';

/** The declared table that a projection writes. */
export interface TargetOptions {
  readonly into: string;
  readonly columns: Readonly<Record<string, string>>;
  readonly text: readonly string[];
  readonly fragments: readonly string[];
  readonly order: string | undefined;
  readonly tenant: string | undefined;
  readonly language: string;
}

/** The column of the target that holds the words of the columns in `text`. */
export const WORDS = 'pawl_words';

/** The target as it was found in the database. */
export interface Target {
  readonly schema: string;
  readonly name: string;
  /** The name of the key column, and its type. */
  readonly key: string;
  readonly keyType: string;
  readonly keyOperators: OperatorSchema;
  /** The columns that `build` may return, including the key, with their types. */
  readonly columns: readonly TargetColumn[];
}

export type TargetColumn = Pick<Column, 'name' | 'type' | 'operators'>;

/**
 * Compares the target with its declaration. Only what changes no data is repaired: missing tables, columns and indexes are
 * added.
 */
export async function compareTarget(db: Reader, definition: Definition, options: TargetOptions): Promise<Difference[]> {
  const root = rootOf(definition);
  const table = await findTable(db, options.into);
  if (table === undefined)
    return [createTable(options, root.column, root.type), ...indexes(undefined, options, root.column)];
  const found: Difference[] = [];
  const [key] = table.primary_key;
  if (key === undefined || table.primary_key.length > 1) {
    found.push(hopeless(options, 'it needs a primary key of one column, the key of the entity'));
  }
  found.push(...(await compareTypes(db, table, rootOf(definition), options)));
  for (const [column, type] of Object.entries(options.columns)) {
    if (table.columns.some(({ name }) => name === column)) continue;
    const sql = `alter table ${id(table.schema, table.name)} add column ${id(column)} ${type}`;
    found.push({ kind: 'target', object: options.into, problem: `it has no column ${column}`, sql: [sql] });
  }
  for (const column of [...options.text, ...options.fragments, options.order, options.tenant]) {
    if (column === undefined || column in options.columns || table.columns.some(({ name }) => name === column))
      continue;
    found.push(hopeless(options, `it has no column ${column}; name it in columns, with its type`));
  }
  if (options.text.length > 0 && !table.columns.some(({ name }) => name === WORDS)) {
    const sql = `alter table ${id(table.schema, table.name)} add column ${wordsColumn(options)}`;
    found.push({ kind: 'target', object: options.into, problem: 'it has no column of words', sql: [sql] });
  }
  return [...found, ...(await missingIndexes(db, table, options, key ?? root.column))];
}

function hopeless({ into }: TargetOptions, problem: string): Difference {
  return { kind: 'target', object: into, problem, sql: [] };
}

function createTable(options: TargetOptions, key: string, keyType: string): Difference {
  const columns = Object.entries(options.columns).filter(([name]) => name !== key);
  const lines = [
    `${id(key)} ${keyType} primary key`,
    ...columns.map(([name, type]) => `${id(name)} ${type}`),
    ...(options.text.length === 0 ? [] : [wordsColumn(options)]),
  ];
  const sql = `create table ${quoted(options.into)} (\n  ${lines.join(',\n  ')}\n)`;
  return { kind: 'target', object: options.into, problem: 'there is no such table', sql: [sql] };
}

/** Splits a name that the user writes; the user quotes a name that needs it. */
function quoted(name: string): string {
  return name.includes('"')
    ? name
    : name
        .split('.')
        .map((part) => id(part))
        .join('.');
}

/**
 * The database makes the words, so that they never differ from the columns. A tsvector holds 1 MB: 150,000 characters of
 * words of any language always fit.
 */
function wordsColumn({ text, language }: TargetOptions): string {
  const share = Math.floor(150_000 / text.length);
  const parts = text.map((column, index) => {
    const weight = ['A', 'B', 'C', 'D'][Math.min(index, 3)];
    return `pg_catalog.setweight(to_tsvector(${literal(language)}::regconfig, left(coalesce(${id(column)}::text, ''), ${share})), '${weight}'::"char")`;
  });
  return `${WORDS} tsvector generated always as (${parts.join(' || ')}) stored`;
}

interface Index {
  readonly name: string;
  readonly sql: string;
}

function wantedIndexes(on: string, options: TargetOptions, key: string): Index[] {
  const base = (options.into.split('.').at(-1) ?? '').replaceAll('"', '').slice(0, 40);
  const make = (name: string, rest: string): Index => ({
    name: `${base}_pawl_${name}`,
    sql: `create index ${id(`${base}_pawl_${name}`)} on ${on} ${rest}`,
  });
  // Without fastupdate=off a search now and then reads a list of 4 MB of entries that are not in the index proper yet.
  const gin = (what: string): string => `using gin (${what}) with (fastupdate = off)`;
  const { order, tenant } = options;
  return [
    ...(options.text.length === 0 ? [] : [make('words', gin(WORDS))]),
    ...(order === undefined ? [] : [make('order', `(${id(order)}, ${id(key)})`)]),
    ...(tenant === undefined ? [] : [make('tenant', `(${id(tenant)}, ${id(order ?? key)})`)]),
    ...options.fragments.map((column) => make(`part_${column}`, gin(`${id(column)} gin_trgm_ops`))),
  ];
}

function indexes(
  on: string | undefined,
  options: TargetOptions,
  key: string,
  there: readonly string[] = [],
): Difference[] {
  const missing = wantedIndexes(on ?? quoted(options.into), options, key).filter(({ name }) => !there.includes(name));
  return [
    ...missing.map(({ name, sql }) => ({
      kind: 'index',
      object: name,
      problem: 'it is missing',
      sql: sql.includes('gin_trgm_ops') ? ['create extension if not exists pg_trgm', sql] : [sql],
    })),
    ...policy(on ?? quoted(options.into), options, there),
  ];
}

/** A session sees the rows of the tenant that it has set (set_config('pawl.tenant', …)); the table's owner sees all. */
function policy(on: string, { tenant, into }: TargetOptions, there: readonly string[]): Difference[] {
  if (tenant === undefined || there.includes('pawl_tenant')) return [];
  const sees = `${id(tenant)}::text = nullif(current_setting('pawl.tenant', true), '')`;
  return [
    {
      kind: 'policy',
      object: into,
      problem: 'tenants are not kept apart by row-level security',
      sql: [`alter table ${on} enable row level security`, `create policy pawl_tenant on ${on} using (${sees})`],
    },
  ];
}

const THERE = statement(
  'capture.target_indexes',
  `
select c.relname::text as name from pg_index i join pg_class c on c.oid = i.indexrelid where i.indrelid = $1::oid
union all
select p.polname::text from pg_policy p join pg_class c on c.oid = p.polrelid where p.polrelid = $1::oid and c.relrowsecurity`,
);

async function missingIndexes(db: Reader, table: Table, options: TargetOptions, key: string): Promise<Difference[]> {
  const there = await db.query<{ name: string }>(THERE, [table.oid]);
  return indexes(
    id(table.schema, table.name),
    options,
    key,
    there.map(({ name }) => name),
  );
}

/** @throws InvalidInput when the table does not exist any more */
export async function openTarget(db: Reader, options: TargetOptions): Promise<Target> {
  const table = await findTable(db, options.into);
  const [key] = table?.primary_key ?? [];
  if (table === undefined || key === undefined) {
    throw new InvalidInput(`there is no table "${options.into}" with a primary key; call apply() first`, {
      field: 'into',
    });
  }
  const named = Object.keys(options.columns);
  const columns = table.columns
    .filter(({ name, generated }) => !generated && (named.length === 0 || name === key || named.includes(name)))
    .map(({ name, type, operators }) => ({ name, type, operators }));
  const { type: keyType, operators: keyOperators } = requireColumn(table, key, 'into');
  return { schema: table.schema, name: table.name, key, keyType, keyOperators, columns };
}

/** Statements on one target. They are made once per target, since their text depends on its columns. */
export class TargetStatements {
  readonly upsert: Statement;
  readonly remove: Statement;
  /**
   * Makes and writes the rows, and removes the rows of keys for which the query returns none; all in the database. Undefined
   * where the program makes the rows.
   */
  readonly project: Statement | undefined;
  readonly differing: Statement;
  readonly strays: Statement;

  /** @param query  makes the rows of the keys in `$1`; undefined where the program makes them */
  constructor(target: Target, root: Source, query?: string) {
    const { key, keyType, keyOperators, columns } = target;
    const equal = operator('=', keyOperators);
    const on = id(target.schema, target.name);
    const names = columns.map(({ name }) => id(name)).join(', ');
    const rest = columns.filter(({ name }) => name !== key);
    const rows =
      query === undefined ? `pg_catalog.json_populate_recordset(null::${on}, $1::json) n` : `(\n${query}\n) n`;
    // Some types, json among them, have no comparison; their texts have one.
    const differsFrom = (row: string): string => rest.map((column) => differing(column, row)).join(' or ');
    const differs = differsFrom('n');
    const set = rest.map(({ name }) => `${id(name)} = excluded.${id(name)}`).join(', ');
    const conflict = rest.length === 0 ? 'nothing' : `update set ${set} where ${differsFrom('excluded')}`;
    const name = `${target.schema}.${target.name}`;
    this.upsert = statement(
      `capture.upsert ${name}`,
      `insert into ${on} as t (${names}) select ${columns.map((c) => `n.${id(c.name)}`).join(', ')} from pg_catalog.json_populate_recordset(null::${on}, $1::json) n where $2::text[] is null or n.${id(key)}::text = any ($2::text[]) on conflict (${id(key)}) do ${conflict}`,
      VERBATIM,
    );
    this.project =
      query === undefined
        ? undefined
        : statement(
            `capture.project ${name}`,
            `
with made as materialized (
${query}
), written as (
  insert into ${on} as t (${names}) select ${columns.map((c) => `m.${id(c.name)}`).join(', ')} from made m
  where m.${id(key)}::text = any ($1::text[]) on conflict (${id(key)}) do ${conflict}
)
delete from ${on} t where t.${id(key)} ${equal} any ($1::text[]::${keyType}[]) and not exists (select from made m where m.${id(key)} ${equal} t.${id(key)})`,
            VERBATIM,
          );
    this.remove = statement(
      `capture.remove ${name}`,
      `delete from ${on} t where t.${id(key)} ${equal} any ($1::text[]::${keyType}[])`,
      VERBATIM,
    );
    this.differing = statement(
      `capture.differing ${name}`,
      `
select coalesce(n.${id(key)}, t.${id(key)})::text as key
from ${rows} full join (select * from ${on} t where t.${id(key)} ${equal} any (${query === undefined ? '$2' : '$1'}::text[]::${keyType}[])) t on t.${id(key)} ${equal} n.${id(key)}
where n.${id(key)} is null or t.${id(key)} is null${differs === '' ? '' : ` or ${differs}`}`,
      VERBATIM,
    );
    this.strays = statement(
      `capture.strays ${name}`,
      `
with page as materialized (select t.${id(key)} as key from ${on} t where $1::text is null or t.${id(key)} ${operator('>', keyOperators)} $1::text::${keyType} order by 1 limit $2::int)
select p.key::text as key, not exists (select from ${id(root.schema, root.name)} r where r.${id(root.column)} ${operator('=', root.operators)} p.key::text::${root.type}) as stray
from page p order by p.key`,
      VERBATIM,
    );
  }
}

function differing({ name, type, operators }: TargetColumn, row: string): string {
  const cast = /^(json|xml|point|line|lseg|box|path|polygon|circle)\b/.test(type) ? '::text' : '';
  return differs(`t.${id(name)}${cast}`, `${row}.${id(name)}${cast}`, cast === '' ? operators : 'pg_catalog');
}

/**
 * Writes rows, and removes the rows of keys for which there is none.
 * @param only  write only the rows of these keys; undefined for all
 */
export async function writeRows(
  tx: Transaction,
  statements: TargetStatements,
  json: string,
  gone: readonly string[],
  only?: readonly string[],
): Promise<void> {
  if (json !== '[]') await tx.query(statements.upsert, [json, only ?? null]);
  if (gone.length > 0) await tx.query(statements.remove, [gone]);
}
