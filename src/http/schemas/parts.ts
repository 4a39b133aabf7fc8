import type { JsonSchema } from '../protocol/field.ts';

/** Schemas by their names in the OpenAPI document. */
export type Schemas = Readonly<Record<string, JsonSchema>>;

export const text: JsonSchema = { type: 'string' };
export const whole: JsonSchema = { type: 'integer' };
export const number: JsonSchema = { type: 'number' };
export const yes: JsonSchema = { type: 'boolean' };
export const time: JsonSchema = { type: 'string', format: 'date-time' };
export const any: JsonSchema = true;
/** Larger than a JavaScript number can hold, so it is a string. */
export const digits: JsonSchema = { type: 'string', pattern: '^-?\\d+$' };
/** The id of a job or a batch: on a table of DynamoDB with the queue in front of it. */
export const jobName: JsonSchema = { type: 'string', pattern: '^(.{1,100}:)?-?\\d+$' };

export const orNull = (schema: JsonSchema): JsonSchema => ({ anyOf: [schema, { type: 'null' }] });
export const list = (items: JsonSchema): JsonSchema => ({ type: 'array', items });
export const one = (...values: string[]): JsonSchema => ({ type: 'string', enum: values });
export const map = (values: JsonSchema): JsonSchema => ({ type: 'object', additionalProperties: values });
export const ref = (name: string): JsonSchema => ({ $ref: `#/components/schemas/${name}` });

/** An object with these properties and no others. All are present, except those whose name ends in "?". */
export function object(properties: Schemas): JsonSchema {
  const all = Object.entries(properties);
  return {
    type: 'object',
    properties: Object.fromEntries(all.map(([name, schema]) => [name.replace(/\?$/, ''), schema])),
    required: all.map(([name]) => name).filter((name) => !name.endsWith('?')),
    additionalProperties: false,
  };
}

/** A part of a list: pass `after` to get the next part; null if this is the last one. */
export function listed(items: JsonSchema): JsonSchema {
  return object({ items: list(items), after: orNull(text) });
}

export const lockMode: JsonSchema = one('exclusive', 'shared', 'permit');
export const lockOutcome: JsonSchema = one('released', 'broken', 'expired');

export const jobStatus: JsonSchema = one('new', 'in-progress', 'complete', 'error', 'cancelled');
