import { anything, id, maybe, text } from '../protocol/field.ts';
import { onceOf } from '../protocol/idempotency.ts';
import { Reply } from '../protocol/reply.ts';
import { type AnyRoute, route } from '../protocol/route.ts';
import { traceOf } from '../protocol/telemetry.ts';
import { locationOf } from './enqueue.ts';

const job = { id: id('the id of a job') };

/** What is done to one job. */
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
      if (body.payload === undefined) return { id: params.id, status: await effects.queues.retry(params.id) };
      const { kind, queue, key } = await services.queues.reads.get(params.id);
      const declared = services.program.queues.find(({ name }) => name === queue);
      await declared?.check(kind, body.payload, { key: key ?? undefined });
      const once = onceOf(request, who.name, raw);
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
];
