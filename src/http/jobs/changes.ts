import { InvalidInput } from '../../base/errors.ts';
import { anything, integer, jobId, maybe, text } from '../protocol/field.ts';
import { onceOf } from '../protocol/idempotency.ts';
import { Reply } from '../protocol/reply.ts';
import { type AnyRoute, route } from '../protocol/route.ts';
import { traceOf } from '../protocol/telemetry.ts';
import { jobFields, locationOf } from './enqueue.ts';

const job = { id: jobId('the id of a job') };

const { priority: _byDefault, kind: _kind, key: _key, unique: _unique, after: _after, ...own } = jobFields;
const { afterError: _afterError, afterCancel: _afterCancel, ...kept } = own;
const changeFields = {
  ...kept,
  payload: maybe(anything('instead of its own')),
  backoff: maybe(kept.backoff),
  meta: maybe(kept.meta),
  priority: maybe(integer({ min: -32_768, max: 32_767, about: 'lower runs first' })),
};

/** Changes of one job. */
export const jobChangeRoutes: readonly AnyRoute[] = [
  route({
    method: 'POST',
    path: '/jobs/{id}/retry',
    id: 'retryJob',
    tag: 'jobs',
    summary:
      'Makes a job that ended in error or was cancelled new again, with all its attempts before it. With a payload: adds a new job like this one, which has ended, of its queue, kind, key and priority, and with that payload; both say so.',
    permission: 'job:retry',
    params: job,
    body: { payload: maybe(anything('instead of its own')) },
    takesKey: true,
    also: [201],
    answers: 'JobRetried',
    target: ({ params }) => `job ${params.id}`,
    run: async ({ params, body, text: raw, who, request, services, effects }) => {
      const once = onceOf(request, who.name, raw);
      if (body.payload === undefined) {
        if (once.key !== null) return effects.jobs.retry(once, params.id);
        return { id: params.id, status: await effects.queues.retry(params.id) };
      }
      const { kind, queue, key } = await services.queues.reads.get(params.id);
      const declared = services.program.queues.find(({ name }) => name === queue);
      await declared?.check(kind, body.payload, { key: key ?? undefined });
      const answer = await effects.jobs.rerun(once, params.id, raw, traceOf(request.headers));
      return new Reply(answer, { status: 201, headers: locationOf(services, answer) });
    },
  }),
  route({
    method: 'POST',
    path: '/jobs/{id}/cancel',
    id: 'cancelJob',
    tag: 'jobs',
    summary:
      'Cancels a job. The handler of one that runs is told to end: that is under way then (202), and it is still in-progress.',
    permission: 'job:cancel',
    params: job,
    body: { reason: maybe(text({ max: 1000, about: 'kept with the job' })) },
    also: [202],
    answers: 'JobCancelled',
    target: ({ params }) => `job ${params.id}`,
    run: async ({ params, body: { reason }, effects: { queues } }) => {
      const status = await queues.cancel(params.id, reason === undefined ? {} : { reason });
      const cancelling = status === 'in-progress';
      return new Reply({ id: params.id, status, cancelling }, { status: cancelling ? 202 : 200 });
    },
  }),
  route({
    method: 'POST',
    path: '/jobs/{id}/update',
    id: 'updateJob',
    tag: 'jobs',
    summary:
      'Changes a job that waits: its payload, its time, its priority, its options. What is left out stays. It keeps its id, its attempts and its place in its key. 409: it has begun or ended.',
    permission: 'job:update',
    params: job,
    body: changeFields,
    answers: 'JobUpdated',
    target: ({ params }) => `job ${params.id}`,
    run: async ({ params, body, text: raw, services, effects }) => {
      const { payload, runAt, delay, expiresAt, backoff, meta, ...rest } = body;
      if (runAt !== undefined && delay !== undefined)
        throw new InvalidInput('give either runAt or delay', { field: 'delay' });
      if (payload !== undefined) {
        const { kind, queue, key } = await services.queues.reads.get(params.id);
        const declared = services.program.queues.find(({ name }) => name === queue);
        await declared?.check(kind, payload, { key: key ?? undefined });
      }
      return effects.jobs.update(params.id, raw, {
        ...rest,
        backoff,
        meta,
        runAt: runAt?.toISOString(),
        delay: delay === undefined ? undefined : `${delay} milliseconds`,
        expiresAt: expiresAt?.toISOString(),
      });
    },
  }),
  route({
    method: 'POST',
    path: '/jobs/{id}/finish',
    id: 'finishJob',
    tag: 'jobs',
    summary:
      'Completes a job that waits, ended in error or was cancelled, without running it, with a result if one is given. 409: it is in progress or complete.',
    permission: 'job:update',
    params: job,
    body: { result: anything('any JSON: its result') },
    answers: 'JobFinished',
    target: ({ params }) => `job ${params.id}`,
    run: async ({ params, body: { result }, effects: { queues } }) => ({
      id: params.id,
      status: await queues.finish(params.id, { result }),
    }),
  }),
  route({
    method: 'POST',
    path: '/jobs/{id}/skip',
    id: 'skipJob',
    tag: 'jobs',
    summary:
      "Lets a key go on past a job that ended in error and blocks it, in a queue with keyOnError: 'block'. The job stays in error. 409: it blocks no key.",
    permission: 'job:retry',
    params: job,
    answers: 'JobSkipped',
    target: ({ params }) => `job ${params.id}`,
    run: async ({ params, effects: { queues } }) => ({ id: params.id, status: await queues.skip(params.id) }),
  }),
  route({
    method: 'POST',
    path: '/jobs/{id}/redrive',
    id: 'redriveJob',
    tag: 'jobs',
    summary:
      'Puts the job that a dead letter names back to work, and ends the letter, in one transaction. 409: the letter, or its job, is in progress, or its job is not in error any more.',
    permission: 'job:retry',
    params: job,
    answers: 'JobRedriven',
    target: ({ params }) => `job ${params.id}`,
    run: async ({ params, effects: { queues } }) => ({ ...(await queues.redrive(params.id)), letter: params.id }),
  }),
  route({
    method: 'DELETE',
    path: '/jobs/{id}',
    id: 'eraseJob',
    tag: 'jobs',
    summary:
      'Erases a job that waits or has ended, for data that may not stay: payload, result, errors, tags, history, and its words in the index of searches. 409: it is in progress. 404: there is none, or it was erased before.',
    permission: 'job:erase',
    params: job,
    answers: 'JobErased',
    target: ({ params }) => `job ${params.id}`,
    run: async ({ params, effects: { queues } }) => {
      await queues.erase(params.id);
      return { id: params.id, erased: true };
    },
  }),
];
