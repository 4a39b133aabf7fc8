import { type SearchQuery, searchFilter } from '../../queue/index.ts';

/** The owner of a value: a queue and a kind of job; for other values see docs/http.md. */
export interface ValueOrigin {
  readonly queue: string;
  readonly kind: string;
}

/**
 * The permission to see a value. A `payload` is any value that a program stored. A `text` may quote one, as errors and statements
 * of other sessions do. `words` are search words for payloads and errors.
 */
export type HiddenKind = 'payload' | 'text' | 'words';

/** The replacement for a text that the caller may not see. */
export const HIDDEN = '[hidden]';

/**
 * A value that not every caller may see. Routes put it into their answers, which callers may share. Only `Redaction.write()`
 * turns it into JSON, for the caller of the request. Anywhere else JSON.stringify leaves it out.
 */
export class Hidden {
  static #show: ((hidden: Hidden, value: unknown) => unknown) | undefined;
  readonly kind: HiddenKind;
  readonly of: ValueOrigin;
  /** The replacement for callers that may not see it; undefined: it is left out. */
  readonly instead: unknown;
  readonly #value: unknown;

  constructor(kind: HiddenKind, value: unknown, of: ValueOrigin, instead: unknown) {
    this.kind = kind;
    this.of = of;
    this.instead = instead;
    this.#value = value;
  }

  /** Only for `Redaction.write()`: while `write` runs, `show` decides the form of each hidden value. */
  static showing<T>(show: (hidden: Hidden, value: unknown) => unknown, write: () => T): T {
    Hidden.#show = show;
    try {
      return write();
    } finally {
      Hidden.#show = undefined;
    }
  }

  toJSON(): unknown {
    return Hidden.#show?.(this, this.#value);
  }
}

/** Payloads, results, progress, fields, details, changes. */
export function payloadOf(value: unknown, of: ValueOrigin, instead?: unknown): Hidden {
  return new Hidden('payload', value, of, instead);
}

/** The text of an error, or another text that may quote stored values. */
export function errorOf(text: string | null, of: ValueOrigin): Hidden | null {
  return text === null ? null : new Hidden('text', text, of, HIDDEN);
}

/** A sentence that ends with such a text, after a colon: every caller may see the sentence itself. */
export function quotingError(text: string, of: ValueOrigin): Hidden {
  const colon = text.indexOf(': ');
  return new Hidden('text', text, of, colon < 0 ? HIDDEN : `${text.slice(0, colon)}: ${HIDDEN}`);
}

/** The text of a search. Every caller may see filters by name, but not words. */
export function searchOf(text: string, query: SearchQuery): Hidden | string {
  return query.terms.length === 0 ? text : new Hidden('words', text, NOBODYS, filtersOf(query));
}

const NOBODYS: ValueOrigin = { queue: '', kind: '' };

/** A search without its words, because a payload may contain them. */
export function filtersOf(query: SearchQuery): string {
  const filters = (['key', 'kind', 'status', 'since', 'until'] as const).flatMap((name) => {
    const value = query[name];
    return value === undefined ? [] : [searchFilter(name, value)];
  });
  return [...filters, ...(query.terms.length === 0 ? [] : [HIDDEN])].join(' ');
}
