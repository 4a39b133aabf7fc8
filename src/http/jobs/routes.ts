import { NotFound } from '../../base/errors.ts';
import { type JobLock, locksOfJobs } from '../../lock/index.ts';
import { type Explanation, type JobRecord, parseQuery } from '../../queue/index.ts';
import { watchJob } from '../live/events.ts';
import { duration, integer, isId, jobId, maybe, text } from '../protocol/field.ts';
import { AFTER, type AnyRoute, type Call, route } from '../protocol/route.ts';
import { errorOf, payloadOf, quotingError } from '../redaction/hidden.ts';
import { jobChangeRoutes } from './changes.ts';
import { enqueueRoute } from './enqueue.ts';
import { flowRoutes } from './flows.ts';
import { pullRoutes } from './pull.ts';
import { JOB_FILTERS, ofQuery, queryOf, summary } from './query.ts';

const job = { id: jobId('the id of a job') };
/** The time limit of a page: a short page that has a next one is better than a slow page. */
const PAGE_MS = 50;
/** A search for one job. */
const NAMED = /^\s*#?([1-9]\d{0,18})\s*$/;

/** Jobs: requests that find, read, add, retry and cancel them. */
export const jobRoutes: readonly AnyRoute[] = [
  route({
    method: 'GET',
    path: '/jobs',
    id: 'listJobs',
    tag: 'jobs',
    summary:
      'Jobs, newest first: by words, "phrases", key:, kind:, status:, since:, until: in q, or by parameters of these names. A page takes bounded work, so it may have fewer jobs than asked for and a next one anyway; indexBehind says how many jobs are still to be indexed, where that is why.',
    permission: 'view',
    query: {
      q: maybe(text({ min: 0, about: 'an id, words, or name:value' })),
      ...JOB_FILTERS,
      queue: maybe(text({ max: 100 })),
      limit: integer({ min: 1, max: 200, default: 50 }),
      after: maybe(text({ about: AFTER })),
    },
    answers: 'JobList',
    sharedMs: 1000,
    run: async ({ query: { queue, limit, after, ...asked }, who, services: { queues, redaction } }) => {
      const q = queryOf(asked);
      const named = NAMED.exec(q)?.[1];
      if (named !== undefined && isId(named) && after === undefined) {
        const found = await queues.reads.get(named).catch(unlessMissing);
        if (found !== undefined && (queue === undefined || found.queue === queue))
          return { items: [summary(found)], after: null, indexBehind: 0 };
        // The search continues, because a payload may contain the number.
        if (!redaction.maySearch(who)) return { items: [], after: null, indexBehind: 0 };
      }
      const { terms } = await ofQuery(
        'q',
        Promise.resolve().then(() => parseQuery(q)),
      );
      if (terms.length > 0) redaction.requireSearch(who);
      const page = await ofQuery('q', queues.reads.search(q, { queue, limit, after, budget: PAGE_MS }));
      return { items: page.jobs.map(summary), after: page.after, indexBehind: page.indexBehind };
    },
  }),
  route({
    method: 'GET',
    path: '/jobs/{id}',
    id: 'getJob',
    tag: 'jobs',
    summary:
      'One job: where it is, why it does not run, and every move it made; with wait as soon as it is settled, or when that time is over. Numbers beyond 2^53 are exact in its /payload alone.',
    permission: 'view',
    params: job,
    query: { wait: maybe(duration({ min: 0, max: '30s', about: 'how long to wait, at most, until it is settled' })) },
    answers: 'JobDetail',
    run: async ({ params, query: { wait }, who, request, services }) => {
      const { queues, store, bounded, jobs, table } = services;
      if (wait !== undefined) {
        // One statement reads all jobs that callers wait for, so an id that no job can have must not get into it.
        await queues.reads.get(params.id);
        await jobs.settled(params.id, wait, request.signal);
      }
      const record = await queues.reads.get(params.id);
      const unitOf = async (): Promise<unknown[]> => {
        if (record.processId === null || table !== undefined) return [];
        const siblings = await store.queues.siblings(params.id);
        return siblings.filter((one) => one['processId'] === record.processId).map((one) => one['id']);
      };
      const locksOf = async (unit: readonly unknown[]): Promise<readonly JobLock[]> =>
        record.claimedAt === null || table !== undefined
          ? []
          : locksOfJobs(bounded, [...new Set([params.id, ...unit.map(String)])]);
      const [explanation, history, [unit, locks], trace, reruns, relations] = await Promise.all([
        queues.reads.explain(params.id),
        queues.reads.history(params.id),
        unitOf().then(async (unit) => [unit, await locksOf(unit)] as const),
        store.queues.trace(params.id),
        store.jobs.reruns(params.id),
        store.queues.relations(params.id),
      ]);
      const { progress, result, payload, meta } = record;
      return {
        ...summary(record),
        progress: payloadOf(progress, record, null),
        payload: payloadOf(payload, record),
        result: payloadOf(result, record),
        meta: payloadOf(meta, record),
        payloadHidden: !who.permissions.has('payload:read'),
        explanation: explained(explanation, record),
        history: history.map((move) => ({ ...move, error: errorOf(move.error, record) })),
        unit,
        locks,
        traceparent: trace ?? null,
        ...reruns,
        ...relations,
      };
    },
  }),
  ...(['payload', 'result', 'progress'] as const).map((part) =>
    route({
      method: 'GET',
      path: `/jobs/{id}/${part}`,
      id: `getJob${part[0]?.toUpperCase()}${part.slice(1)}`,
      tag: 'jobs',
      summary: `The ${part} of a job, to the letter.`,
      permission: 'payload:read',
      params: job,
      answers: 'Json',
      run: (call) => readPart(call, part),
    }),
  ),
  route({
    method: 'GET',
    path: '/jobs/{id}/siblings',
    id: 'listJobSiblings',
    tag: 'jobs',
    summary: 'The jobs of the same key before and after this one. Those with the same processId ran as one unit.',
    permission: 'view',
    params: job,
    answers: 'JobSiblings',
    run: async ({ params, services: { store } }) => ({ items: await store.queues.siblings(params.id) }),
  }),
  route({
    method: 'GET',
    path: '/jobs/{id}/events',
    id: 'jobEvents',
    tag: 'jobs',
    summary:
      'How a job stands, as server-sent events: at once, whenever its status, attempt or progress changes, and for the last time when it is settled.',
    permission: 'view',
    params: job,
    answers: 'Json',
    givesStream: true,
    run: async ({ params, stream, services }) => {
      await services.queues.reads.get(params.id);
      return stream(watchJob(services.jobs, params.id));
    },
  }),
  enqueueRoute,
  ...jobChangeRoutes,
  ...flowRoutes,
  ...pullRoutes,
];

const QUOTING = new Set(['error', 'cancelled', 'backing_off']);

function explained({ reasons, ...rest }: Explanation, job: JobRecord): object {
  const shown = reasons.map((reason) =>
    QUOTING.has(reason.code) ? { ...reason, text: quotingError(reason.text, job) } : reason,
  );
  return { ...rest, reasons: shown };
}

async function readPart(
  { params, services }: Call<typeof job>,
  part: 'payload' | 'result' | 'progress',
): Promise<Response> {
  const { store, redaction, queues } = services;
  const row = await store.queues.payload(params.id);
  let json = row?.[part] ?? 'null';
  if (redaction.isNeeded) {
    const record = await queues.reads.get(params.id);
    json = JSON.stringify(redaction.payload(record[part], record) ?? null);
  }
  return new Response(json, { headers: { 'content-type': 'application/json; charset=utf-8' } });
}

function unlessMissing(error: unknown): undefined {
  if (error instanceof NotFound) return undefined;
  throw error;
}
