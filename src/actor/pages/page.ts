import { type Check, checkOptions, custom, oneOf, optional, text } from '../../base/options/options.ts';
import { toJson } from '../../base/storable.ts';

export const SEVERITIES = ['info', 'warning', 'error', 'critical'] as const;
export type Severity = (typeof SEVERITIES)[number];

/** What a person has to look at. */
export interface PageOptions {
  /** One page is open per tag; asking for it again counts, and raises its severity if that is higher. 1 to 1000 bytes. */
  readonly tag: string;
  /** One line: what is wrong. */
  readonly summary: string;
  /** Default `'error'`. */
  readonly severity?: Severity | undefined;
  /** Anything that is JSON and helps. A page that is asked for again without details keeps those that it has. */
  readonly details?: unknown;
  /**
   * What may be behind it, such as `host:7`. While the page with that tag is open, or another page with the same root of which
   * somebody was told within 15 minutes, this one is kept but not delivered, unless it is more severe.
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
