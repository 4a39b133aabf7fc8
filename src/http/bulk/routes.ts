import { InvalidInput } from '../../base/errors.ts';
import { parseQuery, type QueueRecord } from '../../queue/index.ts';
import type { Principal } from '../auth/permission.ts';
import { ofQuery, summary } from '../jobs/query.ts';
import { pageOf, readCursor, readIdCursor, writeCursor } from '../protocol/cursor.ts';
import { choice, id, integer, listOf, maybe, text, unkept } from '../protocol/field.ts';
import { AFTER, type AnyRoute, route } from '../protocol/route.ts';
import { errorOf, filtersOf, searchOf } from '../redaction/hidden.ts';
import type { Redaction } from '../redaction/redaction.ts';
import type { BulkAction, BulkRecord } from '../store/bulk.ts';
import { type BulkOn, previewBulk, requireOneWay } from './preview.ts';

const bulk = { id: id('the id of a bulk action') };
const limit = integer({ min: 1, max: 200, default: 50 });
const after = maybe(text({ about: AFTER }));
const most = integer({ min: 1, max: 100_000, default: 100_000 });

/** The change, and its jobs. */
const on = {
  action: choice(['retry', 'cancel', 'finish', 'redrive', 'move', 'erase']),
  query: unkept(maybe(text({ about: 'a search; status:error for all in error' }))),
  queue: maybe(text({ max: 100 })),
  jobs: maybe(listOf(id('the id of a job'), { max: 1000 }, 'instead of query')),
};

function whichOf({ query, jobs }: { query: string | undefined; jobs: readonly string[] | undefined }): string {
  return jobs === undefined ? `jobs that fit ${searchWithoutWords(query ?? '')}` : `${jobs.length} jobs by their ids`;
}

/** Bulk actions: changes of all jobs that a search finds, or of named jobs. */
export const bulkRoutes: readonly AnyRoute[] = [
  route({
    method: 'POST',
    path: '/bulk',
    id: 'startBulk',
    tag: 'jobs',
    summary:
      'Retries, cancels, completes by hand (finish), redrives, moves or erases every job that a search finds, at most 100,000, or up to 1,000 jobs by their ids, in the background: in this process, or after its end in another.',
    permission: 'job:bulk',
    body: {
      ...on,
      reason: maybe(text({ max: 1000, about: 'kept with the jobs' })),
      to: maybe(text({ max: 100, about: 'of a move: the queue that the jobs go to' })),
      toKind: maybe(text({ max: 100, about: 'of a move: their kind there; default: that of the same name' })),
      limit: most,
    },
    status: 202,
    answers: 'Bulk',
    target: ({ body }) => `${body.action} of ${whichOf(body)}`,
    run: async ({ body, who, services: { redaction, queues: looks }, effects }) => {
      const { action, reason, to, toKind, limit: upTo, ...which } = body;
      await requireWords(which, who, redaction);
      requireTarget(action, to, toKind, await looks.reads.list());
      const { query, queue, jobs } = which;
      if (jobs !== undefined)
        return shown(await effects.bulk.startOn([...new Set(jobs)], { action, reason, to, toKind }, who.name));
      return shown(
        await effects.bulk.start({ action, query: query ?? '', queue, reason, to, toKind, limit: upTo }, who.name),
      );
    },
  }),
  route({
    method: 'POST',
    path: '/bulk/preview',
    id: 'previewBulk',
    tag: 'jobs',
    summary:
      'How many jobs a bulk action would hit, and five of them. Changes nothing. It counts for two seconds at most, and no further than 100,000; isAll says whether that was all.',
    permission: 'view',
    isQuiet: true,
    body: on,
    answers: 'BulkPreview',
    run: async ({ body: { action, ...which }, who, services }) => {
      await requireWords(which, who, services.redaction);
      const { sample, ...counts } = await previewBulk(services, action, which);
      return { ...counts, sample: sample.map(summary) };
    },
  }),
  route({
    method: 'GET',
    path: '/bulk',
    id: 'listBulk',
    tag: 'jobs',
    summary: 'Bulk actions, newest first; they are kept for 30 days after their end.',
    permission: 'view',
    query: { limit, after },
    answers: 'BulkList',
    run: async ({ query, services }) => {
      const rows = await services.bulk.list(readIdCursor(query.after), query.limit + 1);
      const { items, after: next } = pageOf(rows, query.limit, (row) => writeCursor(row.id));
      return { items: items.map(shown), after: next };
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
    run: async ({ params, services }) => shown(await services.bulk.get(params.id)),
  }),
  route({
    method: 'GET',
    path: '/bulk/{id}/results',
    id: 'listBulkResults',
    tag: 'jobs',
    summary: 'The outcome of each job that was processed, in the order in which the jobs were found.',
    permission: 'view',
    params: bulk,
    query: { outcome: maybe(choice(['done', 'refused'])), limit, after },
    answers: 'BulkResultList',
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
    summary: 'Ends a bulk action; the changes that it has made remain.',
    permission: 'job:bulk',
    params: bulk,
    answers: 'Bulk',
    target: ({ params }) => `bulk action ${params.id}`,
    run: async ({ params, effects }) => shown(await effects.bulk.stop(params.id)),
  }),
];

/** @throws InvalidInput  a move without its queue, or another action with one; there is no such queue or kind */
function requireTarget(
  action: BulkAction,
  to: string | undefined,
  toKind: string | undefined,
  known: readonly QueueRecord[],
): void {
  if (action !== 'move') {
    if (to === undefined && toKind === undefined) return;
    throw new InvalidInput('to and toKind are for a move alone', { field: to === undefined ? 'toKind' : 'to' });
  }
  if (to === undefined) throw new InvalidInput('a move needs to, the queue that the jobs go to', { field: 'to' });
  const there = known.find(({ name }) => name === to);
  if (there === undefined) throw new InvalidInput(`there is no queue "${to}"`, { field: 'to' });
  if (toKind === undefined || there.kinds.includes(toKind)) return;
  throw new InvalidInput(`queue "${to}" has no kind "${toKind}"; it has ${there.kinds.join(', ')}`, {
    field: 'toKind',
  });
}

/** @throws InvalidInput, HttpRefusal  the search has words, and its caller may not search for words */
async function requireWords(on: BulkOn, who: Principal, redaction: Redaction): Promise<void> {
  requireOneWay(on);
  const { terms } = await ofQuery(
    'query',
    Promise.resolve().then(() => parseQuery(on.query ?? '')),
  );
  if (terms.length > 0) redaction.requireSearch(who);
}

function shown(bulk: BulkRecord): object {
  const error = errorOf(bulk.error, { queue: bulk.queue ?? '', kind: '' });
  return { ...bulk, query: searchOf(bulk.query, parseQuery(bulk.query)), error };
}

/** For the audit, which is written before the search is parsed. */
function searchWithoutWords(query: string): string {
  try {
    return JSON.stringify(filtersOf(parseQuery(query)));
  } catch {
    return 'an invalid search';
  }
}
