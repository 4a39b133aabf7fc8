/** An open page as its row has it, and what is decided about it: pure, nothing here speaks to a database. */
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
  /** Not there: it is suppressed, since its root was notified. */
  notifiedAt: 'n',
  resolvedAt: 'z',
} as const;

/** The same root silences for this long after its last notification. */
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

/** An open page is asked for again. @param isNotified  a notification is written with it */
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

/** That no other process has changed it since it was read. */
export function seen(open: Fields): Change['expect'] {
  return { [P.id]: open[P.id] ?? null, [P.count]: open[P.count] ?? null, [P.notifiedAt]: open[P.notifiedAt] ?? null };
}

/**
 * Whether people know already of the cause of a page: the page whose tag is its root is open; or another one with the same root, for which
 * a notification was written within 15 minutes, is. Neither counts if it is less severe; of two that are equal the first one does.
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
