import { InvalidInput } from '../base/errors.ts';
import { refusal, show } from '../base/options/refusal.ts';
import { isStorable } from '../base/storable.ts';

/** The name of a lock, 1 to 255 bytes; or several, taken together. */
export type LockName = string | readonly string[];

const MOST_BYTES = 255;
const MOST_NAMES = 1000;

/** The names, sorted, each once. @throws InvalidInput for an empty set or a name that cannot be stored */
export function parseNames(what: string, name: LockName): readonly string[] {
  if (!Array.isArray(name)) return [parseName(what, name)];
  if (name.length === 0) {
    throw new InvalidInput(`${what} was given an empty set of names; give at least one`, { field: 'name' });
  }
  if (name.length > MOST_NAMES) throw refusal({ what, field: 'name' }, name, `a set of at most ${MOST_NAMES} names`);
  return [...new Set(name.map((each) => parseName(what, each)))].sort();
}

/** @throws InvalidInput */
export function parseName(what: string, name: unknown): string {
  const words = `a text of 1 to ${MOST_BYTES} bytes without U+0000 and lone surrogates`;
  if (typeof name !== 'string' || name === '' || Buffer.byteLength(name) > MOST_BYTES || !isStorable(name)) {
    throw refusal({ what, field: 'name' }, name, words);
  }
  return name;
}

/** The names for messages: `lock "a"`, `locks "a", "b"`. */
export function describe(names: readonly string[]): string {
  const shown = names.slice(0, 5).map((name) => show(name));
  const more = names.length > 5 ? ` and ${names.length - 5} more` : '';
  return `${names.length === 1 ? 'lock' : 'locks'} ${shown.join(', ')}${more}`;
}
