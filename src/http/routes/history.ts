import { pageOf, readCursor, writeCursor } from '../protocol/cursor.ts';
import { HttpRefusal } from '../protocol/failure.ts';
import { choice, integer, maybe, text, time } from '../protocol/field.ts';
import { AFTER, type AnyRoute, route } from '../protocol/route.ts';
import { errorOf, quotingError } from '../redaction/hidden.ts';
import { type HistoryEvent, type HistoryPlace, placeOf } from '../store/history.ts';

const DAY_MS = 86_400_000;

/** One log of all events. */
export const historyRoutes: readonly AnyRoute[] = [
  route({
    method: 'GET',
    path: '/history',
    id: 'listHistory',
    tag: 'history',
    summary: 'Events of all parts, newest first: jobs, locks, actors, pages, and what people did.',
    permission: 'view',
    query: {
      since: maybe(time('default: a day before until')),
      until: maybe(time('default: now')),
      part: maybe(choice(['job', 'lock', 'actor', 'page', 'audit'])),
      of: maybe(text({ max: 255, about: 'a queue, a type of actors, the name of a lock, the tag of a page' })),
      q: maybe(text({ max: 200, about: 'an id, or a part of an error, reason or name' })),
      limit: integer({ min: 1, max: 200, default: 100 }),
      after: maybe(text({ about: AFTER })),
    },
    answers: 'HistoryList',
    run: async ({ query, who, services: { store, redaction } }) => {
      const withAudit = who.permissions.has('audit:read');
      if (query.part === 'audit' && !withAudit)
        throw new HttpRefusal('forbidden', 'this needs the permission audit:read');
      const until = query.until ?? new Date();
      const since = query.since ?? new Date(until.getTime() - DAY_MS);
      const { part, of: subject, q: word, limit } = query;
      const cursor = readCursor(query.after, 5) as [string, string, string, string, string] | undefined;
      const after = cursor === undefined ? undefined : checked(cursor);
      const events = await store.history.list({
        since,
        until,
        part,
        subject,
        word,
        withAudit,
        withErrors: redaction.maySearch(who),
        after,
        limit: limit + 1,
      });
      const { items, after: next } = pageOf(events, limit, (event) => writeCursor(...placeOf(event)));
      return { items: items.map(shown), after: next };
    },
  }),
];

function shown({ detail, error, place: _place, ...event }: HistoryEvent): object {
  if (error === null) return { ...event, detail };
  const of = { queue: event.subject, kind: event.part };
  if (detail === null) return { ...event, detail: errorOf(error, of) };
  return { ...event, detail: quotingError(`${detail}: ${error}`, of) };
}

/** A time in the form of the database, to the microsecond. */
const AT = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?[+-]\d\d(:\d\d)?$/;

/** Checks the time of a cursor, because a statement gets this time as a value. @throws InvalidInput */
function checked(cursor: HistoryPlace): HistoryPlace {
  if (!AT.test(cursor[0]) || Number.isNaN(Date.parse(cursor[0]))) readCursor('', 1);
  return cursor;
}
