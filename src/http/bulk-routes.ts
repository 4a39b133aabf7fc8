import { pageOf, readCursor, readIdCursor, writeCursor } from './cursor.ts';
import { choice, id, integer, maybe, text } from './field.ts';
import { AFTER, type AnyRoute, route } from './route.ts';

const bulk = { id: id('the id of a bulk action') };
const limit = integer({ min: 1, max: 200, default: 50 });
const after = maybe(text({ about: AFTER }));

/** Bulk actions: on everything that a search finds. */
export const bulkRoutes: readonly AnyRoute[] = [
  route({
    method: 'POST',
    path: '/bulk',
    id: 'startBulk',
    tag: 'jobs',
    summary:
      'Retries or cancels every job that a search finds, at most 100,000, in the background: in this process, or after its end in another.',
    permission: 'job:bulk',
    body: {
      action: choice(['retry', 'cancel']),
      query: text({ about: 'a search; status:error for all in error' }),
      queue: maybe(text({ max: 100 })),
      reason: maybe(text({ max: 1000, about: 'kept with the jobs' })),
      limit: integer({ min: 1, max: 100_000, default: 100_000 }),
    },
    status: 202,
    answers: 'Bulk',
    target: ({ body }) => `${body.action} of jobs that fit ${JSON.stringify(body.query)}`,
    run: ({ body: { action, query, queue, reason, limit: most }, who, services }) =>
      services.bulk.start({ action, query, queue, reason, limit: most }, who.name),
  }),
  route({
    method: 'GET',
    path: '/bulk',
    id: 'listBulk',
    tag: 'jobs',
    summary: 'Bulk actions, newest first; they are kept for 30 days after their end.',
    permission: 'view',
    query: { limit, after },
    answers: 'BulkPage',
    run: async ({ query, services }) => {
      const rows = await services.bulk.list(readIdCursor(query.after), query.limit + 1);
      return pageOf(rows, query.limit, (row) => writeCursor(row.id));
    },
  }),
  route({
    method: 'GET',
    path: '/bulk/{id}',
    id: 'getBulk',
    tag: 'jobs',
    summary: 'How far a bulk action is.',
    permission: 'view',
    params: bulk,
    answers: 'Bulk',
    run: ({ params, services }) => services.bulk.get(params.id),
  }),
  route({
    method: 'GET',
    path: '/bulk/{id}/results',
    id: 'listBulkResults',
    tag: 'jobs',
    summary: 'What became of each job that had its turn, in the order in which they were found.',
    permission: 'view',
    params: bulk,
    query: { outcome: maybe(choice(['done', 'refused'])), limit, after },
    answers: 'BulkResultPage',
    run: async ({ params, query, services }) => {
      const from = Number(readCursor(query.after, 1, (part) => /^\d{1,9}$/.test(part))?.[0] ?? 0);
      const rows = await services.bulk.results(params.id, from, query.outcome, query.limit + 1);
      const { items, after: next } = pageOf(rows, query.limit, (row) => writeCursor(String(row.n)));
      return { items: items.map(({ job, outcome, detail }) => ({ job, outcome, detail })), after: next };
    },
  }),
  route({
    method: 'POST',
    path: '/bulk/{id}/stop',
    id: 'stopBulk',
    tag: 'jobs',
    summary: 'Ends a bulk action; what it has done stays done.',
    permission: 'job:bulk',
    params: bulk,
    answers: 'Bulk',
    target: ({ params }) => `bulk action ${params.id}`,
    run: ({ params, services }) => services.bulk.stop(params.id),
  }),
];
