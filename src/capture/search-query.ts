import { InvalidInput } from '../base/errors.ts';

/** One term of a search. */
export interface Term {
  readonly kind: 'word' | 'prefix' | 'phrase';
  readonly text: string;
  /** Rows with it are left out. */
  readonly not: boolean;
}

const TERM = /(-?)(?:"([^"]*)"?|([^\s"]+))/g;

/**
 * Reads what somebody typed: words, `"phrases"`, the beginnings of words as `beg*`, and each with a `-` before it for what
 * must not be there. All terms have to match. Any text is a query; only one without a word to look for is refused.
 * @throws InvalidInput
 */
export function parseSearch(text: string): Term[] {
  const terms = [...text.matchAll(TERM)].flatMap(([, minus, phrase, word]): Term[] => {
    const not = minus === '-';
    if (phrase !== undefined) return hasWord(phrase) ? [{ kind: 'phrase', text: phrase, not }] : [];
    if (word === undefined || !hasWord(word)) return [];
    const start = word.replace(/\*+$/, '');
    return [start === word ? { kind: 'word', text: word, not } : { kind: 'prefix', text: start, not }];
  });
  if (terms.some(({ not }) => !not)) return terms.slice(0, MOST);
  throw new InvalidInput('a search needs at least one word to look for, such as: warranty smith', { field: 'query' });
}

/** More terms than anybody types cost more than they find. */
const MOST = 32;

function hasWord(text: string): boolean {
  return /[\p{Letter}\p{Number}]/u.test(text);
}
