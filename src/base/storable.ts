import { InvalidInput } from './errors.ts';
import { findUnfaithful } from './unfaithful.ts';

// What a database can hold, and gives back as it was. Every text and every value that is stored comes by here.

/** What such a text is called in messages. */
export const STORABLE = 'text without U+0000 and lone surrogates';

/**
 * Whether a text has neither U+0000, which no text column takes, nor half of a surrogate pair, which has no UTF-8. A stack of ten frames
 * costs a hundredth of a microsecond so, and three by a regular expression.
 */
export function isStorable(text: string): boolean {
  return text.isWellFormed() && !text.includes('\0');
}

/** A text for people to read: U+0000 made visible, half a pair replaced. */
export function toStorable(text: string): string {
  // By way of UTF-8, which has no lone surrogates.
  return isStorable(text) ? text : Buffer.from(text.replaceAll('\0', '\\0')).toString();
}

/**
 * The largest value that is stored unless somebody says else, as JSON in UTF-8. What is larger than some megabytes makes each claim
 * and each settlement that has it slow for all others; it belongs into a file, and its name into the value.
 */
export const MOST_BYTES: number = 4 * 1024 * 1024;

/** More than this is refused from SQL, too: see pawl.refuse_large. */
export const MOST_BYTES_EVER: number = 32 * 1024 * 1024;

/**
 * A value as JSON that jsonb takes; undefined is null. One call of JSON.stringify, and one search in what it gives.
 * @param what  for the message, e.g. `payload`
 * @throws InvalidInput  for what JSON cannot hold (a bigint, a circle, a function, what is nested too deep) or would change into
 *   nothing (a Map, a Promise, NaN), and for what jsonb cannot: U+0000 and lone surrogates, in texts and in
 *   names; for what is larger than `mostBytes`
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
  // What JSON changes silently ends as one of these; only then is the value looked through.
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
    `${what} has ${bytes} bytes as JSON, and ${mostBytes} are the most; write what is large into a file, and its name into the value`,
    field,
  );
}

function refused(message: string, field: string | undefined, cause?: unknown): InvalidInput {
  return new InvalidInput(message, { ...(field !== undefined && { field }), ...(cause !== undefined && { cause }) });
}

/** An escape that a backslash before it does not undo. Pairs of surrogates are never escaped by JSON.stringify. */
const UNSTORABLE_JSON = /(?<!\\)(?:\\\\)*\\u(?:0000|d[89a-f])/;

/**
 * The same for what JSON.parse has read from outside; refuses numbers too that it could only read as Infinity, such as 1e400. The
 * database would keep them, and every reader would see something else.
 * @throws InvalidInput
 */
export function requireJson(value: unknown, what: string, field: string): void {
  // By a list and not by calls of itself: JSON.parse takes what is nested deeper than the stack.
  const left: unknown[] = [value];
  while (left.length > 0) {
    const next = left.pop();
    if (next === Infinity || next === -Infinity) {
      throw new InvalidInput(`${what} has a number beyond 1.8e308, which no program could read; send it as a text`, {
        field,
      });
    }
    if (typeof next !== 'object' || next === null) continue;
    for (const inner of Object.values(next)) left.push(inner);
  }
  toJson(value, what, field);
}
