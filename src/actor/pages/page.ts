import { InvalidInput } from '../../base/errors.ts';
import { type Check, checkOptions, custom, oneOf, optional, text } from '../../base/options/options.ts';
import { toJson } from '../../base/storable.ts';

export const SEVERITIES = ['info', 'warning', 'error', 'critical'] as const;
export type Severity = (typeof SEVERITIES)[number];

/** A problem that a person has to look at. */
export interface PageOptions {
  /**
   * One page is open per tag. A further call with this tag is counted, and raises the severity of the page if its own is higher.
   * 1 to 1000 bytes.
   */
  readonly tag: string;
  /** One line: what is wrong. */
  readonly summary: string;
  /** Default `'error'`. */
  readonly severity?: Severity | undefined;
  /** Any helpful JSON. If a further call has no details, the page keeps its details. */
  readonly details?: unknown;
  /**
   * A possible cause, such as `host:7`. The page is kept but not delivered, unless it is more severe, in two cases: a page with
   * that tag is open, or somebody was notified within 15 minutes of another page with the same root.
   */
  readonly root?: string | undefined;
}

/** A page, ready for the database. */
export interface PageRequest {
  readonly tag: string;
  readonly summary: string;
  readonly severity: number;
  readonly details: unknown;
  readonly root: string | undefined;
  readonly actor: string | undefined;
}

const anything: Check<unknown> = custom('anything', (value) => value, { default: null });

const shape = {
  tag: text({ min: 1, maxBytes: 1000 }),
  summary: text({ min: 1, max: 10_000 }),
  severity: oneOf(SEVERITIES, { default: 'error' }),
  details: anything,
  root: optional(text({ min: 1, max: 1000 })),
};

/** @throws InvalidInput */
export function readPage(page: PageOptions, actor?: string): PageRequest {
  const { severity, ...rest } = checkOptions('page', page, shape);
  toJson(rest.details, 'the details of a page');
  return { ...rest, severity: SEVERITIES.indexOf(severity) + 1, actor };
}

/** @param what  the call that resolves the page @throws InvalidInput */
export function readTag(what: string, tag: unknown): string {
  return checkOptions(what, { tag }, { tag: shape.tag }).tag;
}

export type PageChoice = { readonly id: string } | { readonly tag: string };

const choice = { id: optional(text({ min: 1 })), tag: optional(shape.tag) };

/** @throws InvalidInput, also if both are given, or neither */
export function readPageChoice(what: string, which: PageChoice): PageChoice {
  const { id, tag } = checkOptions(what, which, choice);
  if (id !== undefined && tag === undefined) return { id };
  if (tag !== undefined && id === undefined) return { tag };
  throw new InvalidInput(`${what}() takes either the id of a page, or its tag: { id: '7' } or { tag: 'disk' }`, {
    field: 'tag',
  });
}
