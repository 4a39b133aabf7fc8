import { InvalidInput } from '../../../base/errors.ts';
import { id } from '../../../engine/postgres/index.ts';
import type { Difference } from '../../declare/definition.ts';
import { type Definition, rootOf } from '../../declare/source.ts';
import { literal } from '../../declare/sql-text.ts';
import { type Column, findTable, type Reader, requireColumn } from '../catalog.ts';
import type { OperatorSchema } from '../operators.ts';
import { quoted, type TargetOptions, WORDS } from './declared.ts';
import { compareDistribution } from './distribution.ts';
import { missingIndexes } from './indexes.ts';
import { compareTypes } from './types.ts';

/** The target as it was found in the database. */
export interface Target {
  readonly schema: string;
  readonly name: string;
  /** The name of the key column, and its type. */
  readonly key: string;
  readonly keyType: string;
  readonly keyOperators: OperatorSchema;
  /** The tenant's column, if it is part of the primary key because the rows are distributed by it. */
  readonly tenant: string | undefined;
  /** Citus spreads the rows over nodes. */
  readonly isDistributed: boolean;
  /** The columns that `build` may return, including the key, with their types. */
  readonly columns: readonly TargetColumn[];
}

export type TargetColumn = Pick<Column, 'name' | 'type' | 'base' | 'operators'>;

/**
 * Compares the target with its declaration. Repairs only differences whose repair changes no data: missing tables, columns and
 * indexes are added.
 */
export async function compareTarget(db: Reader, definition: Definition, options: TargetOptions): Promise<Difference[]> {
  const root = rootOf(definition);
  const table = await findTable(db, options.into);
  if (table === undefined) {
    const distribution = await compareDistribution(db, undefined, root.column, options);
    const lacks = distribution.some(({ sql }) => sql.length === 0);
    return [
      ...(lacks ? [] : [createTable(options, root.column, root.type)]),
      ...distribution,
      ...(await missingIndexes(db, undefined, options, root.column)),
    ];
  }
  const found: Difference[] = [];
  const key = keyOf(table.primary_key, options);
  if (key === undefined) {
    const columns =
      tenantInKey(options) === undefined
        ? 'one column, the key of the entity'
        : `two columns, ${options.tenant} and the key of the entity`;
    found.push(hopeless(options, `it needs a primary key of ${columns}`));
  }
  found.push(...(await compareTypes(db, table, { root, key, ...options })));
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
  const distribution = key === undefined ? [] : await compareDistribution(db, table, key, options);
  return [...found, ...distribution, ...(await missingIndexes(db, table, options, key ?? root.column))];
}

/** The tenant's column, if the primary key also contains it: a distributed table has no other unique keys. */
function tenantInKey({ distribute, tenant }: TargetOptions): string | undefined {
  return distribute?.by === 'tenant' ? tenant : undefined;
}

/** The column with the key of the entity; undefined if the primary key has the wrong columns. */
function keyOf(primaryKey: readonly string[], options: TargetOptions): string | undefined {
  const tenant = tenantInKey(options);
  const [key, ...more] = primaryKey.filter((column) => column !== tenant);
  return more.length > 0 || primaryKey.length !== (tenant === undefined ? 1 : 2) ? undefined : key;
}

function hopeless({ into }: TargetOptions, problem: string): Difference {
  return { kind: 'target', object: into, problem, sql: [] };
}

function createTable(options: TargetOptions, key: string, keyType: string): Difference {
  const columns = Object.entries(options.columns).filter(([name]) => name !== key);
  const tenant = tenantInKey(options);
  const lines = [
    `${id(key)} ${keyType}${tenant === undefined ? ' primary key' : ''}`,
    ...columns.map(([name, type]) => `${id(name)} ${type}`),
    ...(tenant === undefined ? [] : [`primary key (${id(tenant)}, ${id(key)})`]),
    ...(options.text.length === 0 ? [] : [wordsColumn(options)]),
  ];
  const sql = `create table ${quoted(options.into)} (\n  ${lines.join(',\n  ')}\n)`;
  return { kind: 'target', object: options.into, problem: 'there is no such table', sql: [sql] };
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

/** @throws InvalidInput when the table does not exist any more */
export async function openTarget(db: Reader, options: TargetOptions): Promise<Target> {
  const table = await findTable(db, options.into);
  const key = keyOf(table?.primary_key ?? [], options);
  if (table === undefined || key === undefined) {
    throw new InvalidInput(`there is no table "${options.into}" with a primary key; call apply() first`, {
      field: 'into',
    });
  }
  const named = Object.keys(options.columns);
  const columns = table.columns
    .filter(({ name, generated }) => !generated && (named.length === 0 || name === key || named.includes(name)))
    .map(({ name, type, base, operators }) => ({ name, type, base, operators }));
  const { type: keyType, operators: keyOperators } = requireColumn(table, key, 'into');
  const tenant = tenantInKey(options);
  const isDistributed = options.distribute !== undefined;
  return { schema: table.schema, name: table.name, key, keyType, keyOperators, tenant, isDistributed, columns };
}
