import { DatabaseError, InvalidInput } from '../base/errors.ts';
import { checkOptions, custom, duration, integer, optional, suggest, text } from '../base/options/options.ts';
import { refusal, type OptionPath as Subject, show } from '../base/options/refusal.ts';
import { isObject } from '../base/options/shape.ts';
import type { Duration } from '../base/time/duration.ts';
import type { PostgresEngine, Transaction } from '../engine/postgres/index.ts';
import { type Condition, type SearchPosition, SearchStatements, setUp, toHtml } from './postgres/search.ts';
import type { TargetOptions } from './postgres/target/declared.ts';
import type { Target } from './postgres/target/target.ts';
import { parseSearch } from './search-query.ts';

export interface SearchOptions {
  /** Rows in a page, 1 to 500. Default 20. */
  readonly limit?: number | undefined;
  /** Only rows with these values in these columns. */
  readonly filter?: Readonly<Record<string, string | number | bigint | boolean | null>> | undefined;
  /** The tenant whose rows are searched. Required if the projection has a tenant column. */
  readonly tenant?: string | number | bigint | undefined;
  /** `next` of the page before. Default, and with null: from the first page on. */
  readonly cursor?: string | null | undefined;
  /** How long the database may take. Default 5 s. */
  readonly timeout?: Duration | undefined;
}

export interface SearchMatch {
  readonly row: Readonly<Record<string, unknown>>;
  readonly rank: number;
  /** The text around the found words as HTML: the words are marked, everything else is escaped. */
  readonly snippet: string;
}

export interface SearchPage {
  /** Best first. */
  readonly rows: readonly SearchMatch[];
  /**
   * True when more rows match than were ranked: these are the best of the first 500 in the order of the projection, highest
   * values first. The next pages rank the rows after them.
   */
  readonly capped: boolean;
  /** How many match: exact up to 3,000, and 3,000 where there are more. */
  readonly matches: number;
  /** Where the next page begins; null on the last one. */
  readonly next: string | null;
}

/** Ranking reads every candidate; reading this many takes a few milliseconds. */
const CANDIDATES = 500;
/**
 * Up to this many, the index gives all matches at once. With more, walking in order finds candidates sooner than sorting all
 * matches.
 */
const NARROW = 3000;
/** Rows to walk over. With one match in 30 that gives all candidates. */
const WALK = 20_000;

/** Searches a projection. */
export class Searcher {
  readonly #engine: PostgresEngine;
  readonly #target: Target;
  readonly #options: TargetOptions;
  readonly #statements: SearchStatements;

  constructor(engine: PostgresEngine, target: Target, options: TargetOptions) {
    this.#engine = engine;
    this.#target = target;
    this.#options = options;
    this.#statements = new SearchStatements(target, options);
  }

  async search(query: string, options: SearchOptions): Promise<SearchPage> {
    if (this.#options.text.length === 0) {
      throw new InvalidInput('this projection has no text to search; declare the columns in text', { field: 'text' });
    }
    const given = { ...options, cursor: options.cursor ?? undefined };
    const { limit, filter, tenant, cursor, timeout } = checkOptions('search', given, shape);
    const terms = parseSearch(checkOptions('search', { query }, { query: text() }).query);
    const condition = this.#statements.condition(terms, this.#filters(filter, tenant));
    const found = this.#engine.transaction(
      async (tx) => {
        await setUp(tx, this.#target, timeout, tenant ?? '');
        const matches = await this.#count(tx, condition);
        const page = await this.#page(tx, condition, cursor, { limit, isWide: matches >= NARROW });
        return { ...page, matches };
      },
      { readOnly: true },
    );
    return found.catch((error: unknown) => {
      if (!isNoValue(error)) throw error;
      const field = given.cursor === undefined ? 'filter' : 'cursor';
      throw new InvalidInput(`a value does not fit the type of its column: ${error.message}`, { field, cause: error });
    });
  }

  #filters(filter: Readonly<Record<string, string | null>>, tenant: string | undefined): [string, string | null][] {
    const names = this.#target.columns.map(({ name }) => name);
    for (const column of Object.keys(filter)) {
      if (names.includes(column)) continue;
      const near = suggest(column, names);
      const advice = near === undefined ? `there are ${names.join(', ')}` : `did you mean "${near}"?`;
      throw new InvalidInput(`there is no column "${column}" to filter by; ${advice}`, { field: `filter.${column}` });
    }
    if (this.#options.tenant === undefined) {
      if (tenant !== undefined) throw new InvalidInput('this projection has no tenant column', { field: 'tenant' });
      return Object.entries(filter);
    }
    if (tenant === undefined) {
      throw new InvalidInput('this projection holds rows of several tenants; name one in option "tenant"', {
        field: 'tenant',
      });
    }
    return [...Object.entries(filter), [this.#options.tenant, tenant]];
  }

  async #count(tx: Transaction, condition: Condition): Promise<number> {
    const { statement, values } = this.#statements.count(condition, NARROW);
    const [row] = await tx.query<{ words: number; matches: number }>(statement, values);
    if (row === undefined || row.words === 0) {
      throw new InvalidInput(
        `a search needs at least one word to look for; the language "${this.#options.language}" finds none in this query, or only words that are too common`,
        {
          field: 'query',
        },
      );
    }
    return row.matches;
  }

  async #page(
    tx: Transaction,
    condition: Condition,
    place: SearchPosition,
    { limit, isWide }: { limit: number; isWide: boolean },
  ): Promise<Omit<SearchPage, 'matches'>> {
    let answer = isWide ? await this.#ranked(tx, condition, place, { limit, isWide }) : undefined;
    // The matches are far apart in this order, so the walk found too few of them.
    if (answer === undefined || answer.window.n < limit)
      answer = await this.#ranked(tx, condition, place, { limit, isWide: false });
    const { window, rows } = answer;
    const capped = isWide || window.n >= CANDIDATES;
    const page = rows.slice(0, limit);
    const last = page.at(-1);
    const isMore = rows.length > limit;
    const next =
      isMore && last !== undefined
        ? toCursor({ ...place, row: [last.rank, last.order, last.key] })
        : capped && window.key !== null && window.order !== null
          ? toCursor({ window: [window.order, window.key] })
          : null;
    return {
      rows: page.map(({ row, rank, snippet }) => ({ row, rank: Number(rank), snippet: toHtml(snippet) })),
      capped,
      next,
    };
  }

  async #ranked(
    tx: Transaction,
    condition: Condition,
    place: SearchPosition,
    { limit, isWide }: { limit: number; isWide: boolean },
  ): Promise<Answer> {
    const candidates = isWide
      ? this.#statements.wide(condition, place, CANDIDATES, WALK)
      : this.#statements.narrow(condition, place, CANDIDATES);
    const { statement, values } = this.#statements.page(candidates, condition, place, limit);
    const [row] = await tx.query<{ window: Answer['window']; rows: Answer['rows'] | null }>(statement, values);
    return { window: row?.window ?? { n: 0, order: null, key: null }, rows: row?.rows ?? [] };
  }
}

/** Values are parameters that are cast to the type of their column; the cast fails for a value that does not fit. */
function isNoValue(error: unknown): error is DatabaseError {
  return error instanceof DatabaseError && /^22(P0[23]|00[378])$/.test(error.sqlState ?? '');
}

interface Answer {
  readonly window: { readonly n: number; readonly order: string | null; readonly key: string | null };
  readonly rows: readonly {
    readonly row: Record<string, unknown>;
    readonly rank: string;
    readonly order: string | null;
    readonly key: string;
    readonly snippet: string;
  }[];
}

const shape = {
  limit: integer({ min: 1, max: 500, default: 20 }),
  filter: custom(
    'an object of columns and values',
    (value, place): Readonly<Record<string, string | null>> => {
      if (!isObject(value)) throw refusal(place, value, 'an object of columns and values');
      return Object.fromEntries(Object.entries(value).map(([column, each]) => [column, plain(each, place)]));
    },
    { default: {} },
  ),
  tenant: optional(custom('a string or a number', tenantText)),
  cursor: custom('next of the page before', fromCursor, { default: '' }),
  timeout: duration({ min: 1, max: '1h', default: '5s' }),
};

/**
 * If rows are distributed, the tenant is part of a statement's text. It may contain any character except the one that ends a
 * text.
 */
function tenantText(value: unknown, place: Subject): string {
  const tenant = plain(value, place) ?? '';
  if (tenant.includes('\0')) throw refusal(place, value, 'a text without the character NUL');
  return tenant;
}

function plain(value: unknown, place: Subject): string | null {
  if (value === null) return null;
  if (typeof value === 'string') return value;
  if (typeof value === 'number' || typeof value === 'bigint' || typeof value === 'boolean') return String(value);
  throw refusal(place, value, 'a string, a number, true, false or null');
}

function toCursor(place: SearchPosition): string {
  return Buffer.from(JSON.stringify(place)).toString('base64url');
}

function fromCursor(value: unknown): SearchPosition {
  if (value === '') return {};
  try {
    const place: unknown = JSON.parse(Buffer.from(String(value), 'base64url').toString());
    if (isObject(place)) return { ...pair(place, 'window', 2), ...pair(place, 'row', 3) };
  } catch {
    // The error below is also the answer to a text that cannot be parsed.
  }
  throw new InvalidInput(`${show(value)} is no cursor; pass "next" of the page before, unchanged`, { field: 'cursor' });
}

function pair(place: Readonly<Record<string, unknown>>, name: 'window' | 'row', length: number): object {
  const value = place[name];
  if (value === undefined) return {};
  if (!Array.isArray(value) || value.length !== length) throw new TypeError(name);
  return { [name]: value };
}
