import { InvalidInput, NotSupported } from '../../base/errors.ts';
import { custom, optional } from '../../base/options/options.ts';
import { refusal } from '../../base/options/refusal.ts';
import type { Check } from '../../base/options/shape.ts';
import { isObject } from '../../base/options/shape.ts';
import { suggest } from '../../base/options/suggest.ts';
import { isStorable } from '../../base/storable.ts';
import {
  callInTransaction,
  id,
  type OpenTransaction,
  PostgresEngine,
  SchemaName,
  schemaName,
  statement,
  Transaction,
} from '../../engine/postgres/index.ts';

/**
 * A table of your own: `'task'`, which the search path finds, or `'billing.task'`. Write names as the catalog has them: case
 * matters, and nothing needs quotes. A name with a dot in it needs the object form.
 */
export type TableName = string | { readonly schema?: string; readonly name: string };

/** A table's name in its parts. */
export interface TableParts {
  readonly schema: string | undefined;
  readonly name: string;
}

/** A value of a column. A string fits any type: it is read as a value of the column's type. A Date has milliseconds only. */
export type ColumnValue = string | number | bigint | boolean | Date | Uint8Array | null;

/** An engine, where each call is a transaction of its own, or an open transaction of any known library. */
export type EngineOrTransaction = PostgresEngine | OpenTransaction;

/** Where a call is made, and which schema has the functions for it. */
export interface CallTarget {
  readonly handle: EngineOrTransaction;
  readonly schema: SchemaName;
}

/** An option of all calls that take a transaction. */
export interface PawlSchema {
  /**
   * The option `schema` of your `postgres(url, { schema })`. Needed only for transactions of other libraries, which do not know it.
   * Default `pawl`.
   */
  readonly pawlSchema?: string | undefined;
}

/** The check of {@link PawlSchema}. */
export const pawlSchema: Check<SchemaName | undefined> = optional(schemaName);

/** Engines and transactions of Pawl's know their schema. */
export function placeOf(handle: EngineOrTransaction, given: SchemaName | undefined): CallTarget {
  const isOwn = handle instanceof PostgresEngine || handle instanceof Transaction;
  return { handle, schema: given ?? (isOwn ? handle.schema : new SchemaName('pawl')) };
}

/** The check of a table's name. */
export function parseTable(what: string, table: unknown): TableParts {
  return tableName.given(table, { field: 'table', what });
}

const tableName: Check<TableParts> = custom(
  "a table's name such as 'task', 'schema.task' or { schema, name }",
  (value, place) => {
    const parts = typeof value === 'string' ? value.split('.') : longForm(value);
    const [name, schema] = [...parts].reverse();
    if (parts.length > 2 || !isName(name) || !(schema === undefined || isName(schema))) {
      throw refusal(place, value, "a table's name such as 'task', 'schema.task' or { schema, name }");
    }
    return { schema, name };
  },
);

function longForm(value: unknown): unknown[] {
  if (!isObject(value)) return [];
  return value.schema === undefined ? [value.name] : [value.schema, value.name];
}

/** Whether a value can be the name of a column, table or schema. */
export function isName(value: unknown): value is string {
  return typeof value === 'string' && value !== '' && !value.includes('\0');
}

/** The table as a statement names it. */
export function quoteTable({ schema, name }: TableParts): string {
  return (schema === undefined ? [name] : [schema, name]).map(quoteName).join('.');
}

/** A dollar is written by its code point: in the text of a statement it would start a parameter. */
function quoteName(name: string): string {
  return name.includes('$') ? `U&${id(name.replaceAll('\\', '\\\\').replaceAll('$', () => '\\0024'))}` : id(name);
}

/** The table as messages show it. */
export function showTable({ schema, name }: TableParts): string {
  return schema === undefined ? name : `${schema}.${name}`;
}

/**
 * The text of a value, which the database reads as a value of the column's type; undefined for a value without such a text.
 */
export function toText(value: unknown): string | null | undefined {
  switch (typeof value) {
    case 'string':
      return isStorable(value) ? value : undefined;
    case 'number':
    case 'bigint':
    case 'boolean':
      return String(value);
    case 'object':
      if (value instanceof Date) return Number.isNaN(value.getTime()) ? undefined : value.toISOString();
      if (value instanceof Uint8Array) return `\\x${Buffer.from(value).toString('hex')}`;
      return value === null ? null : JSON.stringify(value);
    case 'undefined':
    case 'symbol':
    case 'function':
      return undefined;
  }
}

/** The answer of the database's functions to a table, column or value that does not exist. */
interface TableRefusal {
  readonly field: string;
  readonly problem: string;
  readonly word: string | null;
  readonly candidates: readonly string[];
  /** Set where no other value would do. */
  readonly unsupported?: boolean | undefined;
}

const SHOWN_CANDIDATES = 20;

/** The error for a refusal of the database: nothing was written, and the transaction can continue. */
export function refusedError(what: string, refused: TableRefusal): InvalidInput | NotSupported {
  const { field, problem, word, candidates } = refused;
  if (refused.unsupported === true) return new NotSupported(`${what}: ${problem}`);
  const near = word === null ? undefined : suggest(word, candidates);
  const all = candidates.length === 0 ? '' : `; there are ${candidates.slice(0, SHOWN_CANDIDATES).join(', ')}`;
  const advice = near === undefined ? all : `; did you mean "${near}"?`;
  return new InvalidInput(`option "${field}" for ${what}: ${problem}${advice}`, { field });
}

/** Runs one statement with one text parameter, in the caller's transaction or, on an engine, in one of its own. */
export function callOn(
  { handle, schema }: CallTarget,
  name: string,
  text: string,
  payload: object,
): Promise<Record<string, unknown>[]> {
  const value = JSON.stringify(payload);
  if (handle instanceof PostgresEngine) {
    // The rows are the caller's, so the caller's type parsers read them.
    const sent = schema.text(text).replace('$1', '$1::text');
    return handle.query(statement(name, sent, { prepare: false, isOwn: false }), [value]);
  }
  return callInTransaction(handle, schema, { text: `-- ${name}\n${text}`, value });
}

/** Calls a function that takes and returns a jsonb; throws when the answer is a refusal. */
export async function callFunction<Answer extends object>(
  place: CallTarget,
  what: string,
  name: string,
  payload: object,
): Promise<Answer> {
  const [row] = await callOn(place, name, `select pawl.${name}($1::jsonb)::text as answer`, payload);
  const answer = JSON.parse(String(row?.['answer'])) as Answer & { refused?: TableRefusal };
  if (answer.refused) throw refusedError(what, answer.refused);
  return answer;
}

/** @throws InvalidInput  for an engine: the locks would end before the call returns */
export function requireTransaction(what: string, handle: EngineOrTransaction): void {
  if (handle instanceof PostgresEngine) {
    throw new InvalidInput(
      `${what} locks until the end of a transaction, and tx is an engine; use engine.transaction((tx) => ${what}(tx, …))`,
      { field: 'tx' },
    );
  }
}
