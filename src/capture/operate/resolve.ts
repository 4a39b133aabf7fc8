import { InvalidInput } from '../../base/errors.ts';
import { id } from '../../engine/postgres/index.ts';
import type { Declaration, DeclaredSource } from '../declare/definition.ts';
import type { Definition, History, Source } from '../declare/source.ts';
import {
  type Column,
  isMistake,
  type Reader,
  refuseNulls,
  requireColumn,
  requireKey,
  requireSource,
  requireStored,
  type Table,
  tryLink,
} from '../postgres/catalog.ts';
import { linkQuery } from '../postgres/install/trigger.ts';
import { operator } from '../postgres/operators.ts';

/**
 * Finds the declared tables and columns in the database. Writes nothing.
 * @throws InvalidInput  a table, column, query or privilege is missing, or keys would be NULL
 * @throws NotSupported  a table whose changes cannot be captured
 */
export async function resolve(db: Reader, declared: Declaration): Promise<Definition> {
  const tables: Table[] = [];
  for (const [index, source] of declared.sources.entries()) {
    const table = await requireSource(db, source.table, fieldOf(index, source));
    const twin = tables.findIndex(({ oid }) => oid === table.oid);
    if (twin >= 0) {
      throw new InvalidInput(`"${source.table}" and "${declared.sources[twin]?.table}" are the same table`, {
        field: fieldOf(index, source),
      });
    }
    tables.push(table);
  }
  const sources: Source[] = [];
  for (const [index, source] of declared.sources.entries()) {
    const [table] = tables.slice(index, index + 1);
    if (table !== undefined) sources.push(await resolveSource(db, index, source, table, { declared, tables }));
  }
  return { entity: declared.entity, sources, keepMs: declared.keepMs };
}

interface DeclarationContext {
  readonly declared: Declaration;
  readonly tables: readonly Table[];
}

async function resolveSource(
  db: Reader,
  index: number,
  source: DeclaredSource,
  table: Table,
  all: DeclarationContext,
): Promise<Source> {
  const field = fieldOf(index, source);
  const column = requireKey(table, source.column ?? onlyKey(table, index === 0 ? 'key' : `${field}.column`), field);
  if (index === 0 && !column.required) {
    throw new InvalidInput(
      `${table.name}.${column.name} may be NULL, and the key of an entity may not; make it NOT NULL`,
      { field },
    );
  }
  const query =
    source.keys ?? (source.to === undefined ? undefined : followColumn(source.to, column, `${field}.to`, all));
  if (query !== undefined) await tryQuery(db, { column: column.name, type: column.type, query, field, table });
  else if (!column.required && source.nulls !== 'ignore') await refuseNulls(db, table, column.name, field);
  const [root] = all.tables;
  const key = root === undefined ? undefined : requireKeyOf(root, all);
  const holdsKeys = index > 0 && query === undefined && root !== undefined && key?.folds === true;
  return {
    number: index,
    schema: table.schema,
    name: table.name,
    column: column.name,
    type: column.type,
    operators: column.operators,
    query: holdsKeys ? linkQuery(root, matches(column, key), key.name) : query,
    ...(holdsKeys && { holdsKeys }),
    rowLevel: table.kind === 'p' || table.has_parent || table.subscribed,
    history: resolveHistory(source, table),
  };
}

/** The column with the key of the entity. */
function requireKeyOf(root: Table, { declared }: DeclarationContext): Column {
  return requireKey(root, declared.key ?? onlyKey(root, 'key'), 'root');
}

/**
 * Turns a reference such as `orders.customer_id` into a query for keys. The table is the root, or one that holds the key in a
 * column.
 */
function followColumn(to: string, from: Column, field: string, { declared, tables }: DeclarationContext): string {
  const dot = to.lastIndexOf('.');
  const [name, column] = [to.slice(0, dot), to.slice(dot + 1)];
  const index = declared.sources.findIndex(({ table }) => table === name);
  const [target, source] = [tables[index], declared.sources[index]];
  if (target === undefined || source === undefined) {
    throw new InvalidInput(
      `"${to}" is no column of a captured table; there are ${declared.sources.map((s) => s.table).join(', ')}`,
      {
        field,
      },
    );
  }
  const own = requireColumn(target, column, field);
  if (source.to !== undefined || source.keys !== undefined) {
    throw new InvalidInput(
      `"${name}" does not hold the key of the entity itself; write the way from there as { column, keys: sql\`…\` }`,
      {
        field,
      },
    );
  }
  return linkQuery(target, matches(from, own), source.column ?? onlyKey(target, field));
}

/**
 * Compares in the type of the table's own column, with the operator of that column, so that its index can be used. Between
 * types of two schemas, Postgres would search the search path for a bare `=`.
 */
function matches(from: Column, own: Column): string {
  const type = own.base === 'enum' ? own.type : own.base;
  const cast = from.operators === own.operators ? '' : `::${type}`;
  return `c.${id(from.name)}${cast} ${operator('=', own.operators)} t.${id(own.name)}`;
}

function onlyKey(table: Table, field: string): string {
  const [key, ...more] = table.primary_key;
  if (key !== undefined && more.length === 0) return key;
  throw new InvalidInput(
    `the table "${table.name}" has ${key === undefined ? 'no primary key' : 'a primary key of several columns'}; say which column to use`,
    { field },
  );
}

interface LinkTrial {
  readonly column: string;
  readonly type: string;
  readonly query: string;
  readonly field: string;
  readonly table: Table;
}

/** Runs the query for a few rows, so that a mistake in it is reported now and with the name of the table. */
async function tryQuery(db: Reader, { column, type, query, field, table }: LinkTrial): Promise<void> {
  const givesNull = await tryLink(db, table, { column, type, query }).catch((cause: unknown) => {
    if (!isMistake(cause)) throw cause;
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new InvalidInput(`the query for "${table.name}" cannot be run: ${why}`, { field, cause });
  });
  if (givesNull) {
    throw new InvalidInput(`the query for "${table.name}" returns NULL as a key; exclude these rows in the query`, {
      field,
    });
  }
}

function resolveHistory({ history, table: name }: DeclaredSource, table: Table): History | undefined {
  if (history === undefined) return undefined;
  const field = `history.${name}`;
  const columns = history.columns.map((column) => {
    const { long } = requireStored(table, column, field);
    return { name: column, long };
  });
  return { rows: history.rows, columns };
}

function fieldOf(index: number, { table }: DeclaredSource): string {
  return index === 0 ? 'root' : `via.${table}`;
}
