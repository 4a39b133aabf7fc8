import { InvalidInput } from '../base/errors.ts';

/** One term of a search. */
export interface Term {
  readonly kind: 'word' | 'prefix' | 'phrase';
  readonly text: string;
  /** True for `-word`: rows with this term are excluded. */
  readonly not: boolean;
}

const TERM = /(-?)(?:"([^"]*)"?|([^\s"]+))/g;

/**
 * Parses what a person typed: words, `"phrases"`, beginnings of words as `beg*`; a `-` before one of them excludes rows. All
 * terms have to match; of more than 32, the last ones are ignored, excluded ones first. Any text is a valid query, except one without a word to search for.
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
  const wanted = terms.filter(({ not }) => !not);
  if (wanted.length > 0) return [...wanted, ...terms.filter(({ not }) => not)].slice(0, MOST);
  throw new InvalidInput('a search needs at least one word to look for, such as: warranty smith', { field: 'query' });
}

/** A person types fewer terms; more would cost more than they find. */
const MOST = 32;

function hasWord(text: string): boolean {
  return /[\p{Letter}\p{Number}]/u.test(text);
}
