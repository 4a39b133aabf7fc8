import { InvalidInput } from '../../base/errors.ts';
import type { Check } from '../../base/options/options.ts';
import * as kinds from '../../base/options/options.ts';
import { type OptionPath, refusal, subject } from '../../base/options/refusal.ts';
import { requireJson } from '../../base/storable.ts';
import { type Duration, parseDuration } from '../../base/time/duration.ts';
import { readTimestamp } from '../../base/time/timestamp.ts';
import { DEEPEST, isDeeper } from '../redaction/depth.ts';

/** JSON Schema 2020-12, the version of OpenAPI 3.1. */
export type JsonSchema = Readonly<Record<string, unknown>> | boolean;

/** One value of a request: its check, and its description in the OpenAPI document. They are declared once, so both agree. */
export interface Field<T> {
  readonly check: Check<T>;
  readonly schema: JsonSchema;
  readonly isRequired: boolean;
  /** True: it may contain values that programs store, so the audit does not store it. */
  readonly isValue?: boolean;
  /** Turns a text from a path or a query into the value that a body would have. */
  readonly fromText: (value: string) => unknown;
}

export type Fields = Readonly<Record<string, Field<unknown>>>;

/** The checked values of a table of fields. */
export type Values<F extends Fields> = { readonly [K in keyof F]: F[K] extends Field<infer T> ? T : never };

export interface TextField {
  readonly min?: number;
  readonly max?: number;
  readonly about?: string;
  readonly pattern?: readonly [RegExp, string];
}

/** A text, by default of 1 to 1,000 characters. */
export function text({ min = 1, max = 1000, about, pattern }: TextField = {}): Field<string> {
  const check = kinds.text({ min, max, ...(pattern === undefined ? {} : { pattern }) });
  const schema = { type: 'string', minLength: min, maxLength: max, ...(pattern && { pattern: pattern[0].source }) };
  return fieldOf(check, schema, about);
}

/** An id of digits, as jobs, actors and pages have it; a string, because it may be larger than 2^53. */
export function id(about: string): Field<string> {
  const words = 'an id, such as "42"';
  const check = kinds.custom(words, (value, place) => {
    if (typeof value !== 'string' || !isId(value)) throw refusal(place, value, words);
    return value;
  });
  return fieldOf(check, { type: 'string', maxLength: 19, pattern: ID.source }, about);
}

/** The id of a job. On a table of DynamoDB the queue comes before it, because each queue there has ids of its own. */
export function jobId(about: string): Field<string> {
  const words = 'the id of a job, such as "42", or "mail:42" on DynamoDB';
  const check = kinds.custom(words, (value, place) => {
    if (typeof value !== 'string' || !isId(value.slice(value.lastIndexOf(':') + 1))) throw refusal(place, value, words);
    return value;
  });
  return fieldOf(check, { type: 'string', maxLength: 120, pattern: JOB_ID.source }, about);
}

const JOB_ID = /^(.{1,100}:)?[1-9]\d{0,18}$/;
const ID = /^[1-9]\d{0,18}$/;

/** Whether it is a number that the database can have used as an id. */
export function isId(value: string): boolean {
  return ID.test(value) && BigInt(value) < 2n ** 63n;
}

export function integer(range: { min: number; max: number; default?: number; about?: string }): Field<number> {
  const { about, ...rest } = range;
  const schema = { type: 'integer', minimum: range.min, maximum: range.max };
  const field = fieldOf(kinds.integer(rest), withDefault(schema, range.default), about, (value) =>
    /^-?\d{1,15}$/.test(value) ? Number(value) : value,
  );
  return range.default === undefined ? field : { ...field, isRequired: false };
}

export function flag(about?: string): Field<boolean> {
  const field = fieldOf(kinds.bool({ default: false }), { type: 'boolean', default: false }, about, (value) =>
    value === 'true' ? true : value === 'false' ? false : value,
  );
  return { ...field, isRequired: false };
}

export function choice<const T extends string>(values: readonly T[], about?: string, byDefault?: T): Field<T> {
  const check = kinds.oneOf<T>(values, byDefault === undefined ? {} : { default: byDefault as NoInfer<T> });
  const field = fieldOf(check, withDefault({ type: 'string', enum: values }, byDefault), about);
  return byDefault === undefined ? field : { ...field, isRequired: false };
}

/** A moment, or a date, in ISO 8601. */
export function time(about?: string): Field<Date> {
  const words = 'a time in ISO 8601, such as 2026-11-21T09:30:00Z';
  const check = kinds.custom(words, (value, place) => {
    const at = typeof value === 'string' && ISO.test(value) ? readTimestamp(value) : undefined;
    if (at === undefined) throw refusal(place, value, words);
    return at;
  });
  return fieldOf(check, { type: 'string', format: 'date-time' }, about);
}

/**
 * A moment in ISO 8601, a date, or a duration back from now: `2h`. It is passed on unchanged, because the search interprets it.
 */
export function timeOrAgo(about?: string): Field<string> {
  const words = 'a time in ISO 8601 or how long ago, such as 2026-11-21T09:30:00Z or 2h';
  const check = kinds.custom(words, (value, place) => {
    if (typeof value !== 'string') throw refusal(place, value, words);
    if (ISO.test(value) && readTimestamp(value) !== undefined) return value;
    try {
      parseDuration(value, { field: place.field });
    } catch {
      throw refusal(place, value, words);
    }
    return value;
  });
  return fieldOf(check, { type: 'string', maxLength: 40 }, about);
}

/** A duration, as text with a unit or in milliseconds: `30s`. The result is in milliseconds. */
export function duration(range: { min: Duration; max: Duration; default?: Duration; about?: string }): Field<number> {
  const { about, ...rest } = range;
  const schema = { anyOf: [{ type: 'string', maxLength: 40 }, { type: 'number' }] };
  const field = fieldOf(kinds.duration(rest), withDefault(schema, range.default), about);
  return range.default === undefined ? field : { ...field, isRequired: false };
}

const ISO = /^\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:?\d\d))?$/;

/** Any JSON that can be stored and read back unchanged, nested no deeper than 500 levels. */
export function anything(about?: string): Field<unknown> {
  const read = (value: unknown, place: OptionPath): unknown => {
    if (isDeeper(value, DEEPEST)) {
      throw new InvalidInput(`${subject(place)} is nested deeper than ${DEEPEST} levels`, { field: place.field });
    }
    requireJson(value, subject(place), place.field);
    return value;
  };
  const check = kinds.custom<unknown>('any JSON', read, { default: null });
  return { ...fieldOf<unknown>(check, {}, about), isRequired: false, isValue: true };
}

export function listOf<T>(of: Field<T>, { max }: { max: number }, about?: string): Field<readonly T[]> {
  return fieldOf(
    kinds.list(of.check, { min: 1, max }),
    { type: 'array', items: of.schema, minItems: 1, maxItems: max },
    about,
  );
}

/** The same field, but it may contain values that programs store: the audit does not store it. */
export function unkept<T>(field: Field<T>): Field<T> {
  return { ...field, isValue: true };
}

/** The same field, but it may be left out. */
export function maybe<T>(field: Field<T>): Field<T | undefined> {
  return { ...field, check: kinds.optional(field.check), isRequired: false };
}

/** Checks a table of values; `text` says that they come from a path or a query. @throws InvalidInput */
export function readFields<F extends Fields>(what: string, given: object, fields: F, isText: boolean): Values<F> {
  const values = Object.fromEntries(
    Object.entries(given).map(([name, value]) => {
      const field = Object.hasOwn(fields, name) ? fields[name] : undefined;
      return [name, isText && typeof value === 'string' ? (field?.fromText(value) ?? value) : value];
    }),
  );
  const shape = Object.fromEntries(Object.entries(fields).map(([name, { check }]) => [name, check]));
  return kinds.checkOptions(what, values, shape) as Values<F>;
}

/** The JSON Schema of an object with only these fields. */
export function schemaOf(fields: Fields): JsonSchema {
  const all = Object.entries(fields);
  return {
    type: 'object',
    properties: Object.fromEntries(all.map(([name, { schema }]) => [name, schema])),
    required: all.filter(([, { isRequired }]) => isRequired).map(([name]) => name),
    additionalProperties: false,
  };
}

function fieldOf<T>(
  check: Check<T>,
  schema: Readonly<Record<string, unknown>>,
  about: string | undefined,
  fromText: (value: string) => unknown = (value) => value,
): Field<T> {
  const described = about === undefined ? schema : { ...schema, description: about };
  return { check, schema: described, isRequired: true, fromText };
}

function withDefault(schema: Readonly<Record<string, unknown>>, value: unknown): Readonly<Record<string, unknown>> {
  return value === undefined ? schema : { ...schema, default: value };
}
