import { InvalidInput } from '../base/errors.ts';
import { checkOptions, optional, suggest, text } from '../base/options/options.ts';
import { show } from '../base/options/refusal.ts';
import { isObject } from '../base/options/shape.ts';
import { toJson } from '../base/storable.ts';
import { findDate } from '../base/unfaithful.ts';
import type { LooseFields } from './kind.ts';

const createShape = { key: optional(text({ min: 1, maxBytes: 1000 })) };
const sendShape = { name: text({ min: 1, max: 200 }) };

/** The key among the options of a `create`, in a turn or outside of one. @throws InvalidInput */
export function readKey(options: unknown): string | undefined {
  return checkOptions('create', options, createShape).key;
}

/** The name of a message. @throws InvalidInput */
export function requireMessageName(name: unknown): void {
  checkOptions('send', { name }, sendShape);
}

/** The error for a name that was not declared; it suggests the nearest declared name. */
export function unknownName(what: string, name: unknown, known: readonly string[], field: string): InvalidInput {
  const isText = typeof name === 'string';
  const near = isText ? suggest(name, known) : undefined;
  const listed = known.length === 1 ? `there is only ${known[0]}` : `there are ${known.join(', ')}`;
  const all = known.length === 0 ? `there is no ${what} at all` : listed;
  const advice = near === undefined ? all : `did you mean "${near}"?`;
  return new InvalidInput(`there is no ${what} ${isText ? `"${name}"` : show(name)}; ${advice}`, { field });
}

/** @throws InvalidInput  the schema returned something else than an object */
export function asFields(value: unknown): LooseFields {
  if (!isObject(value))
    throw new InvalidInput(`the fields of an actor are an object, but were ${show(value)}`, { field: 'fields' });
  return value;
}

/** The program has to be corrected: another try of the same turn would fail in the same way. */
export class Mistake extends InvalidInput {
  override readonly name = 'InvalidInput';
}

/**
 * Fields as JSON. Every turn gets them back unchanged.
 * @throws Mistake  names the place of a value that JSON cannot hold, or would change: a Map, NaN, a bigint, a Date
 */
export function fieldsOf(fields: LooseFields): string {
  let json: string;
  try {
    json = toJson(fields, 'fields');
  } catch (error) {
    throw error instanceof InvalidInput ? new Mistake(error.message, { field: 'fields', cause: error }) : error;
  }
  // A Date ends with this text in JSON; only then are the fields searched.
  const place = json.includes('Z"') ? findDate(fields, 'fields') : undefined;
  if (place === undefined) return json;
  throw new Mistake(
    `${place} is a Date, which the next turn would get as a text; write date.toISOString(), or date.getTime()`,
    { field: 'fields' },
  );
}

/**
 * Refuses fields that a schema silently leaves out, because they would be lost.
 * @param valid  the output of the schema
 * @throws InvalidInput  with the nearest name that the schema knows
 */
export function requireFields(type: string, given: object, valid: object): void {
  for (const [name, value] of Object.entries(given)) {
    if (value !== undefined && !(name in valid)) throw unknownName(`field of ${type}`, name, Object.keys(valid), name);
  }
}

/** @throws InvalidInput  with the nearest declared name */
export function requireSemaphore(type: string, name: unknown, known: readonly string[]): void {
  if (typeof name !== 'string' || !known.includes(name))
    throw unknownName(`semaphore of ${type}`, name, known, 'semaphore');
}
