import { InvalidInput } from './errors.ts';
import { findUnfaithful } from './unfaithful.ts';

// The texts and values that a database can store and return unchanged. Every stored text and value passes through this file.

/** The name of such a text in messages. */
export const STORABLE = 'text without U+0000 and lone surrogates';

/**
 * Whether a text has neither U+0000, which no text column can store, nor half of a surrogate pair, which has no UTF-8 form. For a
 * stack of ten frames this costs a hundredth of a microsecond; a regular expression would cost three.
 */
export function isStorable(text: string): boolean {
  return text.isWellFormed() && !text.includes('\0');
}

/** A text for people to read: U+0000 is made visible, and half a pair is replaced. */
export function toStorable(text: string): string {
  // Encodes as UTF-8, which has no lone surrogates.
  return isStorable(text) ? text : Buffer.from(text.replaceAll('\0', '\\0')).toString();
}

/**
 * The default for the largest stored value, as JSON in UTF-8. A value of more than some megabytes slows each claim and settlement
 * that carries it, for all jobs in it. Put such a value into a file, and its name into the payload.
 */
export const MOST_BYTES: number = 4 * 1024 * 1024;

/** SQL refuses a larger value, too: see pawl.refuse_large. */
export const MOST_BYTES_EVER: number = 32 * 1024 * 1024;

/**
 * A value as JSON that jsonb accepts; undefined becomes null. Costs one call of JSON.stringify, and one search in its result.
 * @param what  for the message, e.g. `payload`
 * @throws InvalidInput  for a value that JSON cannot hold (a bigint, a circle, a function, too deep nesting) or would change into
 *   nothing (a Map, a Promise, NaN, an invalid Date); for a value that jsonb cannot hold: U+0000 and lone surrogates, in texts and in names; for a
 *   value larger than `mostBytes`
 */
export function toJson(value: unknown, what: string, field?: string, mostBytes: number = MOST_BYTES): string {
  let json: string | undefined;
  try {
    json = JSON.stringify(value ?? null);
  } catch (cause) {
    const why = findUnfaithful(value, what) ?? (cause instanceof Error ? cause.message : 'it cannot be read');
    throw refused(`${what} cannot be written as JSON: ${why}`, field, cause);
  }
  if (json === undefined) {
    const why = typeof value === 'object' ? 'its toJSON() gives undefined' : `it is a ${typeof value}`;
    throw refused(`${what} cannot be written as JSON: ${why}`, field);
  }
  if (json.length * 3 > mostBytes) refuseLarge(json, what, field, mostBytes);
  // A silent change by JSON ends as one of these texts; only then is the value searched.
  if (json.includes('null') || json.includes('{}')) {
    const why = findUnfaithful(value, what);
    if (why !== undefined) throw refused(`${what} cannot be written as JSON: ${why}`, field);
  }
  if (json.includes('\\u') && UNSTORABLE_JSON.test(json)) {
    throw refused(`${what} cannot hold U+0000 or a lone surrogate`, field);
  }
  return json;
}

function refuseLarge(json: string, what: string, field: string | undefined, mostBytes: number): void {
  const bytes = Buffer.byteLength(json);
  if (bytes <= mostBytes) return;
  throw refused(
    `${what} has ${bytes} bytes as JSON, and the limit is ${mostBytes}; store large data in a file, and its name in the value`,
    field,
  );
}

function refused(message: string, field: string | undefined, cause?: unknown): InvalidInput {
  return new InvalidInput(message, { ...(field !== undefined && { field }), ...(cause !== undefined && { cause }) });
}

/** An escape that a backslash before it does not undo. JSON.stringify never escapes pairs of surrogates. */
const UNSTORABLE_JSON = /(?<!\\)(?:\\\\)*\\u(?:0000|d[89a-f])/;

/**
 * The same for a value that JSON.parse has read from outside. It also refuses numbers that JSON.parse could only read as
 * Infinity, such as 1e400: the database would keep them, and every reader would get another value.
 * @throws InvalidInput
 */
export function requireJson(value: unknown, what: string, field: string): void {
  // With a list and not by recursion: JSON.parse accepts deeper nesting than the stack.
  const left: unknown[] = [value];
  while (left.length > 0) {
    const next = left.pop();
    if (next === Infinity || next === -Infinity) {
      throw new InvalidInput(`${what} has a number beyond 1.8e308, which no program could read; send it as a string`, {
        field,
      });
    }
    if (typeof next !== 'object' || next === null) continue;
    for (const inner of Object.values(next)) left.push(inner);
  }
  toJson(value, what, field);
}
