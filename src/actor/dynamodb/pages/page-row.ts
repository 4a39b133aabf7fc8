/** The row of an open page, and the decisions about it, as pure functions. */
import type { Change, Fields } from '../../../engine/dynamodb/index.ts';
import { type PageRequest, SEVERITIES } from '../../pages/page.ts';
import type { PageRecord } from '../../record.ts';

/** The names of the fields. */
export const P = {
  id: 'q',
  tag: 'g',
  severity: 'v',
  summary: 'u',
  details: 'd',
  actor: 'a',
  root: 'r',
  count: 'c',
  openedAt: 't',
  seenAt: 's',
  ackedAt: 'k',
  ackedBy: 'b',
  /** Missing: the page is suppressed, since people know its cause already. */
  notifiedAt: 'n',
  resolvedAt: 'z',
} as const;

/** A notification suppresses other pages of the same root for this time. */
const KNOWN_MS = 15 * 60_000;

export function openedPage(id: number, page: PageRequest, now: number, isKnown: boolean): Fields {
  const { tag, severity, summary, details, actor, root } = page;
  return {
    [P.id]: id,
    [P.tag]: tag,
    [P.severity]: severity,
    [P.summary]: summary,
    [P.details]: JSON.stringify(details ?? null),
    [P.count]: 1,
    [P.openedAt]: now,
    [P.seenAt]: now,
    ...(actor !== undefined && { [P.actor]: Number(actor) }),
    ...(root !== undefined && { [P.root]: root }),
    ...(!isKnown && { [P.notifiedAt]: now }),
  };
}

/** The change of an open page that is opened again. @param isNotified  a notification is written together with it */
export function repeatedPage(open: Fields, page: PageRequest, now: number, isNotified: boolean): Change {
  const isHigher = page.severity > Number(open[P.severity]);
  const set: Record<string, string | number | null> = {
    [P.count]: Number(open[P.count]) + 1,
    [P.seenAt]: now,
    [P.summary]: page.summary,
  };
  if (page.details !== null && page.details !== undefined) set[P.details] = JSON.stringify(page.details);
  if (isHigher) {
    set[P.severity] = page.severity;
    set[P.ackedAt] = null;
  }
  if (isNotified) set[P.notifiedAt] = now;
  return { expect: seen(open), set };
}

/** The condition that the page has not changed since it was read. */
export function seen(open: Fields): Change['expect'] {
  return { [P.id]: open[P.id] ?? null, [P.count]: open[P.count] ?? null, [P.notifiedAt]: open[P.notifiedAt] ?? null };
}

/**
 * Whether people know the cause of a page already. They do if the page whose tag is the root is open, or another page with the same root for which a
 * notification was written within the last 15 minutes. A less severe page does not count. Of two such pages of equal severity, the older counts.
 */
export function isKnown(page: Fields, open: readonly Fields[], now: number): boolean {
  const root = page[P.root];
  if (root === undefined || root === page[P.tag]) return false;
  const severity = Number(page[P.severity]);
  return open.some((other) => {
    if (other[P.tag] === root) return Number(other[P.severity]) >= severity;
    if (other[P.root] !== root || other[P.id] === page[P.id] || now - Number(other[P.notifiedAt] ?? 0) > KNOWN_MS)
      return false;
    const more = Number(other[P.severity]) - severity;
    return more > 0 || (more === 0 && Number(other[P.id]) < Number(page[P.id]));
  });
}

export function recordOf(fields: Fields): PageRecord {
  const date = (name: string): Date | null => (fields[name] === undefined ? null : new Date(Number(fields[name])));
  const text = (name: string): string | null => (fields[name] === undefined ? null : String(fields[name]));
  const resolvedAt = date(P.resolvedAt);
  const ackedAt = date(P.ackedAt);
  return {
    id: String(fields[P.id]),
    tag: String(fields[P.tag]),
    severity: severityOf(fields[P.severity]),
    status: resolvedAt !== null ? 'resolved' : ackedAt !== null ? 'acked' : 'open',
    summary: String(fields[P.summary]),
    details: JSON.parse(text(P.details) ?? 'null'),
    actor: text(P.actor),
    root: text(P.root),
    suppressed: fields[P.notifiedAt] === undefined,
    count: Number(fields[P.count]),
    openedAt: new Date(Number(fields[P.openedAt])),
    seenAt: new Date(Number(fields[P.seenAt])),
    ackedAt,
    ackedBy: text(P.ackedBy),
    resolvedAt,
  };
}

export function severityOf(value: string | number | undefined): PageRecord['severity'] {
  return SEVERITIES[Number(value) - 1] ?? 'error';
}
