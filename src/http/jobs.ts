import { InvalidInput, NotFound } from '../base/errors.ts';
import { type JobLock, locksOfJobs } from '../lock/index.ts';
import type { JobRecord } from '../queue/index.ts';
import { anything, id, integer, isId, maybe, text, time } from './field.ts';
import { requirePayload } from './redact.ts';
import { AFTER, type AnyRoute, type Call, route } from './route.ts';
import { traceOf } from './telemetry.ts';

const job = { id: id('the id of a job') };
/** A page that is short and has a next one is better than one that is waited for. */
const PAGE_MS = 50;
const reason = maybe(text({ max: 1000, about: 'kept with the job' }));

/** Jobs: find, look at, add, retry and cancel them. */
export const jobRoutes: readonly AnyRoute[] = [
  route({
    method: 'GET',
    path: '/jobs',
    id: 'listJobs',
    tag: 'jobs',
    summary:
      'Jobs, newest first: by words, "phrases", key:, kind:, status:, since:, until:. A page takes bounded work, so it may have fewer jobs than asked for and a next one all the same.',
    permission: 'view',
    query: {
      q: maybe(text({ min: 0, about: 'an id, words, or name:value' })),
      queue: maybe(text({ max: 100 })),
      limit: integer({ min: 1, max: 200, default: 50 }),
      after: maybe(text({ about: AFTER })),
    },
    answers: 'JobPage',
    sharedMs: 1000,
    run: async ({ query: { q = '', queue, limit, after }, services: { queues } }) => {
      const named = /^\s*#?([1-9]\d{0,18})\s*$/.exec(q)?.[1];
      if (named !== undefined && isId(named) && after === undefined) {
        const found = await queues.reads.get(named).catch(unlessMissing);
        if (found !== undefined && (queue === undefined || found.queue === queue))
          return { items: [summary(found)], after: null };
      }
      const page = await queues.reads.search(q, { queue, limit, after, budget: PAGE_MS });
      return { items: page.jobs.map(summary), after: page.after };
    },
  }),
  route({
    method: 'GET',
    path: '/jobs/{id}',
    id: 'getJob',
    tag: 'jobs',
    summary:
      'One job: where it is, why it does not run, and every move it made. Numbers beyond 2^53 are exact in its /payload alone.',
    permission: 'view',
    params: job,
    answers: 'JobDetail',
    run: async ({ params, who, services: { queues, redaction, store, bounded } }) => {
      const record = await queues.reads.get(params.id);
      const unitOf = async (): Promise<unknown[]> => {
        if (record.processId === null) return [];
        const siblings = await store.jobs.siblings(params.id);
        return siblings.filter((one) => one['processId'] === record.processId).map((one) => one['id']);
      };
      const locksOf = async (unit: readonly unknown[]): Promise<readonly JobLock[]> =>
        record.claimedAt === null ? [] : locksOfJobs(bounded, [...new Set([params.id, ...unit.map(String)])]);
      const [explanation, history, [unit, locks], trace] = await Promise.all([
        queues.reads.explain(params.id),
        queues.reads.history(params.id),
        unitOf().then(async (unit) => [unit, await locksOf(unit)] as const),
        store.jobs.trace(params.id),
      ]);
      const { progress, result, payload } = record;
      const show = (value: unknown): unknown => redaction.show(value, who, record);
      return {
        ...summary(record),
        progress: show(progress) ?? null,
        payload: show(payload),
        result: show(result),
        payloadHidden: !who.permissions.has('payload:read'),
        explanation,
        history,
        unit,
        locks,
        traceparent: trace ?? null,
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
    run: async ({ params, services: { store } }) => ({ items: await store.jobs.siblings(params.id) }),
  }),
  route({
    method: 'POST',
    path: '/queues/{queue}/jobs',
    id: 'enqueueJob',
    tag: 'jobs',
    summary:
      'Adds a job. The payload is kept to the letter as far as jsonb does. It is checked by its schema when it runs; and here already where this server was given the queue.',
    permission: 'job:enqueue',
    params: { queue: text({ max: 100 }) },
    body: {
      kind: text({ max: 100 }),
      payload: anything('any JSON'),
      key: maybe(text({ about: 'jobs of one key run one after another' })),
      priority: integer({ min: -32_768, max: 32_767, default: 0, about: 'lower runs first' }),
      runAt: maybe(time('not before')),
    },
    status: 201,
    answers: 'Enqueued',
    target: ({ params }) => `queue ${params.queue}`,
    run: async ({ params, body, text: request, request: { headers }, services: { store, program } }) => {
      if (body.key !== undefined && Buffer.byteLength(body.key) > 1000) {
        throw new InvalidInput('key must be at most 1000 bytes', { field: 'key' });
      }
      const declared = program.queues.find(({ name }) => name === params.queue);
      await declared?.check(body.kind, body.payload, { key: body.key });
      return store.jobs.enqueue(params.queue, request, traceOf(headers));
    },
  }),
  route({
    method: 'POST',
    path: '/jobs/{id}/retry',
    id: 'retryJob',
    tag: 'jobs',
    summary: 'Makes a job that ended in error or was cancelled new again, with all its attempts before it.',
    permission: 'job:retry',
    params: job,
    answers: 'JobChanged',
    target: ({ params }) => `job ${params.id}`,
    run: async ({ params, services: { queues } }) => ({ id: params.id, status: await queues.writes.retry(params.id) }),
  }),
  route({
    method: 'POST',
    path: '/jobs/{id}/cancel',
    id: 'cancelJob',
    tag: 'jobs',
    summary: 'Cancels a job. The handler of one that runs is told to end; it is then still in-progress.',
    permission: 'job:cancel',
    params: job,
    body: { reason },
    answers: 'JobChanged',
    target: ({ params }) => `job ${params.id}`,
    run: async ({ params, body, services: { queues } }) => {
      const status = await queues.writes.cancel(params.id, body.reason === undefined ? {} : { reason: body.reason });
      return { id: params.id, status };
    },
  }),
];

/** In lists, without what may be long and is nobody's business. */
function summary(record: JobRecord): Omit<JobRecord, 'payload' | 'result'> {
  const { payload: _payload, result: _result, ...rest } = record;
  return { ...rest, progress: null };
}

async function readPart(
  { params, who, services }: Call<typeof job>,
  part: 'payload' | 'result' | 'progress',
): Promise<Response> {
  requirePayload(who);
  const { store, redaction, queues } = services;
  const row = await store.jobs.payload(params.id);
  let json = row?.[part] ?? 'null';
  if (redaction.isNeeded) {
    const record = await queues.reads.get(params.id);
    json = JSON.stringify(redaction.show(record[part], who, record) ?? null);
  }
  return new Response(json, { headers: { 'content-type': 'application/json; charset=utf-8' } });
}

function unlessMissing(error: unknown): undefined {
  if (error instanceof NotFound) return undefined;
  throw error;
}
