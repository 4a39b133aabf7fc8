import { InvalidInput } from '../../base/errors.ts';
import type { OptionPath } from '../../base/options/refusal.ts';
import { refusal } from '../../base/options/refusal.ts';
import { isObject } from '../../base/options/shape.ts';
import { suggest } from '../../base/options/suggest.ts';
import { type ColumnValue, isName, toText } from './table.ts';

/** The name of a column: one of `Row` when that type is given, else any. */
export type Column<Row> = keyof Row & string;

/** Comparisons of one column; all must be true. A null column is neither less nor greater. */
export interface ColumnComparison {
  /** Equals one of these; null may be among them. */
  readonly in?: readonly ColumnValue[] | undefined;
  /** Equals none of these. A null column does not match. */
  readonly notIn?: readonly Exclude<ColumnValue, null>[] | undefined;
  /** Differs from this value; null matches. */
  readonly not?: ColumnValue | undefined;
  readonly lt?: Exclude<ColumnValue, null> | undefined;
  readonly lte?: Exclude<ColumnValue, null> | undefined;
  readonly gt?: Exclude<ColumnValue, null> | undefined;
  readonly gte?: Exclude<ColumnValue, null> | undefined;
}

/** A condition for each column: a value, null, or a comparison. All must be true. */
export type ColumnConditions<Row> = { readonly [C in Column<Row>]?: ColumnValue | ColumnComparison };

/** Conditions for columns, or a condition in SQL, or several of them, which must all be true. */
export type Where<Row> = ColumnConditions<Row> | SqlCondition | readonly (ColumnConditions<Row> | SqlCondition)[];

/** A condition written in SQL; made by {@link sql}. */
export class SqlCondition {
  /** @internal There is one more part than there are values. */
  readonly parts: readonly string[];
  /** @internal */
  readonly values: readonly unknown[];

  /** @internal */
  constructor(parts: readonly string[], values: readonly unknown[]) {
    this.parts = parts;
    this.values = values;
  }
}

/**
 * A condition in SQL over the columns of the table: sql`due_at + grace < clock_timestamp() and region = ${region}`.
 * A `${}` is a value, never SQL, and gets the type that the expression around it requires. It may also be another sql`…`.
 */
export function sql(strings: TemplateStringsArray, ...values: readonly (ColumnValue | SqlCondition)[]): SqlCondition {
  const parts = [strings[0] ?? ''];
  const flat: unknown[] = [];
  const append = (text: string | undefined): void => {
    parts.push((parts.pop() ?? '') + (text ?? ''));
  };
  values.forEach((value, index) => {
    if (value instanceof SqlCondition) {
      append(value.parts[0]);
      parts.push(...value.parts.slice(1));
      flat.push(...value.values);
      append(strings[index + 1]);
    } else {
      flat.push(value);
      parts.push(strings[index + 1] ?? '');
    }
  });
  return new SqlCondition(parts, flat);
}

/** A condition for the database's functions. */
export type WireCondition =
  | ColumnCondition
  | { readonly parts: readonly string[]; readonly values: readonly (string | null)[] };

/** One comparison of one column. */
export interface ColumnCondition {
  readonly column: string;
  readonly op: keyof ColumnComparison;
  readonly values: readonly (string | null)[];
}

/** The columns and values of a call, which the database checks before it does anything. */
export interface ColumnLookups {
  readonly columns: { field: string; column: string; as?: 'token' | 'lease' | 'retries' }[];
  readonly values: { field: string; column: string; value: string | null }[];
}

/** Reads `where`, and adds its columns and values to `lookups`. @throws InvalidInput */
export function readWhere(where: unknown, place: OptionPath, lookups: ColumnLookups): WireCondition[] {
  if (Array.isArray(where)) {
    return where.flatMap((one: unknown, index) =>
      readWhere(one, { ...place, field: `${place.field}.${index}` }, lookups),
    );
  }
  if (where instanceof SqlCondition)
    return [{ parts: where.parts, values: where.values.map((value) => readValue(value, place)) }];
  if (!isObject(where)) throw refusal(place, where, 'an object of columns, sql`…`, or an array of these');
  return Object.entries(where).flatMap(([column, given]) =>
    readColumn(column, given, { ...place, field: `${place.field}.${column}` }, lookups),
  );
}

function readColumn(column: string, given: unknown, place: OptionPath, lookups: ColumnLookups): WireCondition[] {
  // Not treated like a missing option: as "any value" it would capture rows by mistake.
  if (given === undefined)
    throw refusal(place, given, 'a value, null or a comparison; leave the column out to accept any');
  lookUpColumn(column, place, lookups);
  if (!isComparison(given)) return [compare(column, 'in', [given], place, lookups)];
  if (Object.keys(given).length === 0)
    throw refusal(place, given, `a value, null or a comparison by ${OPERATORS.join(', ')}`);
  return Object.entries(given).map(([op, operand]) => {
    const inside = { ...place, field: `${place.field}.${op}` };
    const known = OPERATORS.find((operator) => operator === op);
    if (known === undefined) throw unknownOperator(op, inside);
    return compare(column, known, operand, inside, lookups);
  });
}

/** Adds a column that must exist, and that may have to suit a purpose. */
export function lookUpColumn(
  column: unknown,
  place: OptionPath,
  lookups: ColumnLookups,
  as?: 'token' | 'lease' | 'retries',
): string {
  if (!isName(column)) throw refusal(place, column, 'the name of a column');
  lookups.columns.push({ field: place.field, column, ...(as === undefined ? {} : { as }) });
  return column;
}

const OPERATORS = [
  'in',
  'notIn',
  'not',
  'lt',
  'lte',
  'gt',
  'gte',
] as const satisfies readonly (keyof ColumnComparison)[];

/** Reads one comparison of a column, and adds its values to `lookups`. @throws InvalidInput */
export function compare(
  column: string,
  op: keyof ColumnComparison,
  operand: unknown,
  place: OptionPath,
  lookups: ColumnLookups,
): ColumnCondition {
  const isList = op === 'in' || op === 'notIn';
  if (isList && (!Array.isArray(operand) || operand.length === 0))
    throw refusal(place, operand, 'an array of at least one value');
  const operands: unknown[] = isList && Array.isArray(operand) ? operand : [operand];
  const values = operands.map((value) => lookUpValue(column, value, place, lookups));
  if (op !== 'in' && op !== 'not' && values.includes(null)) {
    throw refusal(
      place,
      operand,
      "no null, because no comparison with null is true; write null itself, or 'not: null'",
    );
  }
  return { column, op, values };
}

/** Adds a value that must fit the type of its column. @returns its text */
export function lookUpValue(column: string, value: unknown, place: OptionPath, lookups: ColumnLookups): string | null {
  const text = readValue(value, place);
  lookups.values.push({ field: place.field, column, value: text });
  return text;
}

function readValue(value: unknown, place: OptionPath): string | null {
  const text = toText(value);
  if (text === undefined) throw refusal(place, value, 'a string, number, bigint, boolean, Date, bytes or null');
  return text;
}

function isComparison(given: unknown): given is Readonly<Record<string, unknown>> {
  return isObject(given) && !(given instanceof Date) && !(given instanceof Uint8Array);
}

function unknownOperator(op: string, { field, what }: OptionPath): InvalidInput {
  const near = suggest(op, OPERATORS);
  const advice = near === undefined ? `accepted are ${OPERATORS.join(', ')}` : `did you mean "${near}"?`;
  return new InvalidInput(`option "${field}" for ${what} is no comparison; ${advice}`, { field });
}
