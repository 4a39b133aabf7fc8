import { InvalidInput } from '../errors.ts';

/** The place of a refused value: `field` is its path (`retry.attempts`), `what` the call that got it (`createQueue`). */
export interface OptionPath {
  readonly field: string;
  readonly what?: string | undefined;
}

/**
 * The error for a value that is not accepted: `option "retry.attempts" for createQueue must be a whole number from 1 to 100, but
 * was 0`.
 * @param accepted  the accepted values, in words that fit after "must be"
 */
export function refusal(place: OptionPath, value: unknown, accepted: string): InvalidInput {
  return new InvalidInput(`${subject(place)} must be ${accepted}, but was ${show(value)}`, { field: place.field });
}

/** The name of the refused field in a message. The whole value has the empty path. */
export function subject(place: OptionPath): string {
  if (place.what === undefined) return place.field;
  return place.field === '' ? `the options of ${place.what}` : `option "${place.field}" for ${place.what}`;
}

const SHOWN = 60;

/** A value in the form for messages: short, on one line. Of an object only its keys, because its values may be private. */
export function show(value: unknown): string {
  if (typeof value === 'string') return shorten(JSON.stringify(maskSecrets(value)));
  if (typeof value === 'bigint') return `${value}n`;
  if (typeof value === 'function') return value.name === '' ? 'a function' : `the function ${value.name}`;
  if (typeof value !== 'object' || value === null) return String(value);
  if (Array.isArray(value)) return value.length === 0 ? 'an empty array' : `an array of ${value.length}`;
  if (value instanceof Date) return Number.isNaN(value.getTime()) ? 'an invalid Date' : value.toISOString();
  return shorten(`an object {${Object.keys(value).join(', ')}}`);
}

/** Masks the password of a URL, and in any text the word after the name of a secret: `password=…`, `token: …`. */
export function maskSecrets(text: string): string {
  return text.replace(URL_PASSWORD, '$1***$2').replace(NAMED_SECRET, '$1***');
}

const URL_PASSWORD = /(\/\/[^\s:@/]*:)[^\s/?#]*(@)/g;
const NAMED_SECRET =
  /((?:password|passwd|pwd|secret|token|api[_-]?key|authorization|bearer)["']?\s*[=: ]\s*["']?(?:bearer |basic )?)[^\s&"';,]+/gi;

function shorten(text: string): string {
  return text.length <= SHOWN ? text : `${text.slice(0, SHOWN - 1)}…`;
}
