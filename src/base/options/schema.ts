import { InvalidInput } from '../errors.ts';
import { type Check, custom } from './options.ts';
import { refusal } from './refusal.ts';
import { isObject } from './shape.ts';

/**
 * The part of Standard Schema v1 (https://standardschema.dev, MIT) that Pawl uses; zod, valibot, arktype and others
 * implement it. Copied as the specification recommends, so that it costs no dependency.
 */
export interface StandardSchemaV1<Input = unknown, Output = Input> {
  readonly '~standard': {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown) => SchemaResult<Output> | Promise<SchemaResult<Output>>;
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
  };
}

export type SchemaResult<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly SchemaIssue[] };

export interface SchemaIssue {
  readonly message: string;
  readonly path?: ReadonlyArray<PropertyKey | { readonly key: PropertyKey }> | undefined;
}

/** The type that a schema accepts; `unknown` without a schema. */
export type InferInput<S> =
  S extends StandardSchemaV1<infer _In, infer _Out> ? NonNullable<S['~standard']['types']>['input'] : unknown;

/** The output type of a schema; `unknown` without a schema. */
export type InferOutput<S> =
  S extends StandardSchemaV1<infer _In, infer _Out> ? NonNullable<S['~standard']['types']>['output'] : unknown;

const SHOWN_ISSUES = 5;

/**
 * The output of the schema for the value, with its defaults and transformations: at once if the schema is synchronous, otherwise
 * as a promise. Without a schema the value passes through. Allocates nothing of its own unless the value is refused.
 * @param what  names the value in messages and is the root of `field`: `payload`
 * @throws InvalidInput  with the path and message of the first five issues; the promise rejects with it likewise
 */
export function validate<S extends StandardSchemaV1>(
  schema: S,
  value: unknown,
  what: string,
): InferOutput<S> | Promise<InferOutput<S>>;
export function validate<S extends StandardSchemaV1 | undefined>(
  schema: S,
  value: unknown,
  what: string,
): InferOutput<S> | Promise<InferOutput<S>>;
export function validate(schema: StandardSchemaV1 | undefined, value: unknown, what: string): unknown {
  if (schema === undefined) return value;
  const result = schema['~standard'].validate(value);
  return 'then' in result ? result.then((late) => accept(late, what)) : accept(result, what);
}

/** The option that takes a schema, recognised by its shape; absent by default. */
export function schemaOption(): Check<StandardSchemaV1 | undefined> {
  const words = 'a Standard Schema, such as one of zod, valibot or arktype';
  const check = custom(words, (value, place) => {
    if (!isSchema(value)) throw refusal(place, value, words);
    return value;
  });
  return { given: check.given, absent: () => undefined };
}

function isSchema(value: unknown): value is StandardSchemaV1 {
  // A schema of arktype is a function.
  const standard: unknown =
    isObject(value) || typeof value === 'function' ? Reflect.get(value, '~standard') : undefined;
  return isObject(standard) && typeof standard.validate === 'function';
}

function accept(result: SchemaResult<unknown>, what: string): unknown {
  if (result.issues === undefined) return result.value;
  throw refused(result.issues, what);
}

function refused(issues: readonly SchemaIssue[], what: string): InvalidInput {
  const shown = issues.slice(0, SHOWN_ISSUES).map((issue) => `${pathOf(issue, what)}: ${issue.message}`);
  const rest = issues.length - shown.length;
  const more = rest > 0 ? `; and ${rest} more` : '';
  const field = issues[0] === undefined ? what : pathOf(issues[0], what);
  return new InvalidInput(`${what} was refused by its schema; ${shown.join('; ')}${more}`, { field });
}

function pathOf(issue: SchemaIssue, what: string): string {
  const keys = (issue.path ?? []).map((part) => String(typeof part === 'object' ? part.key : part));
  return [what, ...keys].join('.');
}
