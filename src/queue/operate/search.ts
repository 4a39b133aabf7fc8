import { InvalidInput } from '../../base/errors.ts';
import { suggest } from '../../base/options/options.ts';
import { show } from '../../base/options/refusal.ts';
import { isStorable } from '../../base/storable.ts';
import { type Duration, parseDuration } from '../../base/time/duration.ts';
import { readTimestamp } from '../../base/time/timestamp.ts';
import { JOB_STATUSES, type JobRecord } from '../job.ts';

export interface SearchOptions {
  /** Jobs per page. Default 50, at most 1,000. */
  readonly limit?: number | undefined;
  /** The `after` of the previous page. */
  readonly after?: string | null | undefined;
  /**
   * About how long one page may take in the database. After this time the page ends, and `after` says where the next one
   * continues. Default 120 ms.
   */
  readonly budget?: Duration | undefined;
}

/** One page of the found jobs, newest first. */
export interface SearchPage {
  readonly jobs: readonly JobRecord[];
  /**
   * The cursor of the next page; null on the last one. The work for one page is bounded. So a page may have fewer jobs than
   * `limit`, or none, and still have a next page.
   */
  readonly after: string | null;
  /**
   * If this page is short because the index is behind: how many jobs are not in the index yet. They are read one by one, the
   * newest first, and the next pages have the missing ones. 0 for a full page and for the last one.
   */
  readonly indexBehind: number;
}

/** A parsed query, for pawl.queue_search(). */
export interface SearchQuery {
  readonly terms: readonly string[];
  readonly key?: string | undefined;
  readonly tag?: string | undefined;
  readonly kind?: string | undefined;
  readonly status?: string | undefined;
  readonly since?: string | undefined;
  readonly until?: string | undefined;
  /** How long before now, in ms. */
  readonly sinceMs?: number | undefined;
  readonly untilMs?: number | undefined;
}

const FILTERS = ['key', 'tag', 'kind', 'status', 'since', 'until'] as const;
type Filter = (typeof FILTERS)[number];

/** Enough for a key of 1,000 bytes in which each byte is escaped. */
const LONGEST = 3000;
const MOST_TERMS = 20;

/**
 * `name:value`, `name:"value"`, `"a phrase"`, or a word; a lone quote is an error. Within quotes, `\"` and `\\` are escapes.
 */
const TOKEN =
  /\s*(?:([a-z]+):(?:"((?:[^"\\]|\\[^])*)"|([^\s"]*))(?=\s|$)|"((?:[^"\\]|\\[^])*)"|([^\s"]+)(?=[\s"]|$))/iy;

/** Writes a filter for any value: `key:"a \"b\" c"`. */
export function searchFilter(name: Filter, value: string): string {
  return `${name}:"${value.replaceAll(/["\\]/g, '\\$&')}"`;
}

function unescape(quoted: string | undefined): string | undefined {
  return quoted?.replaceAll(/\\(["\\])/g, '$1');
}

/**
 * Parses a query. Words and `"quoted phrases"` are text that a job's payload, or one of its errors, must contain, in any case.
 * Filters are `key:`, `tag:`, `kind:`, `status:`; and `since:` and `until:` with a date, a time in ISO 8601, or a duration back
 * from now (`since:2h`).
 * @throws InvalidInput  the message names the malformed part
 */
export function parseQuery(query: string): SearchQuery {
  if (typeof query !== 'string' || query.length > LONGEST) {
    throw new InvalidInput(`a search query must be a string of at most ${LONGEST} characters, but was ${show(query)}`, {
      field: 'query',
    });
  }
  const terms: string[] = [];
  const filters = new Map<Filter, string>();
  TOKEN.lastIndex = 0;
  for (let at = 0; query.slice(at).trim() !== ''; at = TOKEN.lastIndex) {
    TOKEN.lastIndex = at;
    const match = TOKEN.exec(query);
    if (match === null) throw refused(`the quote at "${query.slice(at).trim().slice(0, 20)}" is not closed`);
    const [text, name, quoted, plain, phrase, word] = match;
    const filter = name === undefined ? undefined : filterOf(name);
    if (filter !== undefined) setFilter(filters, filter, unescape(quoted) ?? plain ?? '');
    else addTerm(terms, unescape(phrase) ?? word ?? text.trim().replaceAll('"', ''));
  }
  return { terms, ...readFilters(filters) };
}

/** @returns undefined if the text is no filter: `http://…` is a word */
function filterOf(name: string): Filter | undefined {
  const lower = name.toLowerCase();
  const filter = FILTERS.find((one) => one === lower);
  if (filter !== undefined) return filter;
  const near = suggest(lower, [...FILTERS]);
  if (near !== undefined)
    throw refused(`there is no filter "${name}:"; did you mean "${near}:"? Quote it to search for it`);
  return undefined;
}

function setFilter(filters: Map<Filter, string>, name: Filter, value: string): void {
  if (value === '') throw refused(`"${name}:" needs a value right after it`);
  if (!isStorable(value)) throw refused(`the value of "${name}:" has U+0000 or a lone surrogate`);
  if (filters.has(name)) throw refused(`"${name}:" is given twice`);
  filters.set(name, value);
}

function addTerm(terms: string[], term: string): void {
  const clean = term.trim();
  if (!/[\p{L}\p{N}]/u.test(clean)) throw refused(`"${term}" has no letter or digit to search for`);
  if (!isStorable(clean)) throw refused('it has U+0000 or a lone surrogate');
  if (terms.length === MOST_TERMS) throw refused(`it has more than ${MOST_TERMS} words`);
  terms.push(clean);
}

function readFilters(filters: ReadonlyMap<Filter, string>): Omit<SearchQuery, 'terms'> {
  const [key, tag, kind, status] = (['key', 'tag', 'kind', 'status'] as const).map((name) => filters.get(name));
  if (status !== undefined && !JOB_STATUSES.some((known) => known === status)) {
    const near = suggest(status, JOB_STATUSES);
    const advice = near === undefined ? `one of ${JOB_STATUSES.join(', ')}` : `did you mean "${near}"?`;
    throw refused(`there is no status "${status}"; ${advice}`);
  }
  return {
    ...(key === undefined ? {} : { key }),
    ...(tag === undefined ? {} : { tag }),
    ...(kind === undefined ? {} : { kind }),
    ...(status === undefined ? {} : { status }),
    ...readTime('since', filters.get('since')),
    ...readTime('until', filters.get('until')),
  };
}

function readTime(name: 'since' | 'until', value: string | undefined): Omit<SearchQuery, 'terms'> {
  if (value === undefined) return {};
  const at = /^\d{4}-\d\d-\d\d(T[\d:.]+(Z|[+-]\d\d:?\d\d)?)?$/i.test(value) ? readTimestamp(value) : undefined;
  if (at !== undefined) return { [name]: at.toISOString() };
  try {
    return { [`${name}Ms`]: parseDuration(value, { field: name }) };
  } catch (cause) {
    const what = `"${name}:" takes a date (2026-11-21), a time (2026-11-21T09:30:00Z) or a duration back from now (2h), not "${value}"`;
    throw new InvalidInput(`the search query is invalid: ${what}`, { field: 'query', cause });
  }
}

function refused(why: string): InvalidInput {
  return new InvalidInput(`the search query is invalid: ${why}`, { field: 'query' });
}

/** The cursor in the form that users get. */
export function writeCursor(before: string | null): string | null {
  return before === null ? null : Buffer.from(`1:${before}`).toString('base64url');
}

/** @throws InvalidInput  it is not a cursor of this function */
export function readCursor(after: unknown): string {
  const text = typeof after === 'string' ? Buffer.from(after, 'base64url').toString() : '';
  const match = /^1:([1-9]\d{0,18})$/.exec(text);
  if (match?.[1] === undefined || BigInt(match[1]) > 2n ** 63n - 1n) {
    throw new InvalidInput(`${show(after)} is no cursor; pass the "after" of the page before`, { field: 'after' });
  }
  return match[1];
}
