import { type SearchQuery, searchFilter } from '../../queue/index.ts';

/** Whose it is: a queue and a kind of job; for others what docs/http.md says. */
export interface ValueOrigin {
  readonly queue: string;
  readonly kind: string;
}

/**
 * What it takes to see it. A `payload` is whatever a program stored; a `text` may quote one, as errors do, and the statements of
 * other sessions; `words` are what somebody searched payloads and errors for.
 */
export type HiddenKind = 'payload' | 'text' | 'words';

/** What stands in an answer in place of a text that its caller may not see. */
export const HIDDEN = '[hidden]';

/**
 * A value that not everybody may see. Routes put it into their answers, which may be shared; it becomes JSON at the door alone, by
 * `Redaction.write()`, for the caller of the request. Anywhere else JSON.stringify leaves it out.
 */
export class Hidden {
  static #show: ((hidden: Hidden, value: unknown) => unknown) | undefined;
  readonly kind: HiddenKind;
  readonly of: ValueOrigin;
  /** Shown to callers that may not see it; undefined: it is left out. */
  readonly instead: unknown;
  readonly #value: unknown;

  constructor(kind: HiddenKind, value: unknown, of: ValueOrigin, instead: unknown) {
    this.kind = kind;
    this.of = of;
    this.instead = instead;
    this.#value = value;
  }

  /** For the door alone: what is written meanwhile shows what `show` makes of each. */
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

/** The text of an error, or another that may quote what was stored. */
export function errorOf(text: string | null, of: ValueOrigin): Hidden | null {
  return text === null ? null : new Hidden('text', text, of, HIDDEN);
}

/** A sentence with such a text at its end, after a colon: the sentence itself is for all. */
export function quotingError(text: string, of: ValueOrigin): Hidden {
  const colon = text.indexOf(': ');
  return new Hidden('text', text, of, colon < 0 ? HIDDEN : `${text.slice(0, colon)}: ${HIDDEN}`);
}

/** What was searched for. Filters by name are for all, words are not. */
export function searchOf(text: string, query: SearchQuery): Hidden | string {
  return query.terms.length === 0 ? text : new Hidden('words', text, NOBODYS, filtersOf(query));
}

const NOBODYS: ValueOrigin = { queue: '', kind: '' };

/** A search without its words: those may be what stands in a payload. */
export function filtersOf(query: SearchQuery): string {
  const filters = (['key', 'kind', 'status', 'since', 'until'] as const).flatMap((name) => {
    const value = query[name];
    return value === undefined ? [] : [searchFilter(name, value)];
  });
  return [...filters, ...(query.terms.length === 0 ? [] : [HIDDEN])].join(' ');
}
