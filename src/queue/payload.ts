import { InvalidInput } from '../base/errors.ts';

/** @throws InvalidInput for what JSON cannot hold */
export function toJson(value: unknown, field: string): string {
  let json: string | undefined;
  try {
    json = JSON.stringify(value ?? null);
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : 'it cannot be read';
    throw new InvalidInput(`${field} cannot be written as JSON: ${why}`, { field, cause });
  }
  if (json === undefined) {
    const what = typeof value === 'object' ? 'its toJSON() gives undefined' : `it is a ${typeof value}`;
    throw new InvalidInput(`${field} cannot be written as JSON: ${what}`, { field });
  }
  return json;
}

/**
 * The same for what goes through a jsonb parameter.
 * @param whose  which payloads these are, for the message
 * @throws InvalidInput  also for what JSON holds and jsonb does not
 */
export function toJsonb(value: unknown, field: string, whose: string): unknown {
  const json = toJson(value, field);
  if (UNSTORABLE.test(json)) {
    throw new InvalidInput(`the payload of ${whose} cannot hold U+0000 or a lone surrogate`, { field });
  }
  return JSON.parse(json);
}

/** An escape that a backslash before it does not undo. Pairs of surrogates are never escaped by JSON.stringify. */
const UNSTORABLE = /(?<!\\)(?:\\\\)*\\u(?:0000|d[89a-f])/;
