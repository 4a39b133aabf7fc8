import type { ClaimedUnit } from '../../queue/index.ts';
import { anything, duration, flag, integer, maybe, text } from '../protocol/field.ts';
import { type AnyRoute, route } from '../protocol/route.ts';

const handle = { handle: text({ max: 300, about: 'the handle that claiming gave' }) };
const LEASE = { min: '1s', max: '24h' } as const;

/** Jobs for a program in another language: it claims them, and reports their outcomes. */
export const pullRoutes: readonly AnyRoute[] = [
  route({
    method: 'POST',
    path: '/queues/{queue}/claim',
    id: 'claimJobs',
    tag: 'jobs',
    summary:
      'Claims what is ready now, and does not wait. Each unit is yours until you complete, fail or release it by its handle, or until its lease is over; then it is given back, charged. A unit is one job, or all jobs of a key if its kind coalesces. If the answer is lost, the units come back with the end of the lease.',
    permission: 'job:work',
    params: { queue: text({ max: 100, about: 'the name of a queue' }) },
    body: {
      limit: integer({ min: 1, max: 1000, default: 1, about: 'the most units' }),
      lease: duration({ ...LEASE, default: '30s', about: 'how long it is yours unless you extend it' }),
      client: maybe(text({ max: 100, about: 'what the list of workers shows as its host' })),
    },
    answers: 'ClaimedUnits',
    isFrequent: true,
    target: ({ params }) => `queue ${params.queue}`,
    run: async ({ params, body, effects: { queues } }) => ({
      items: (await queues.claim(params.queue, body)).map(shown),
    }),
  }),
  route({
    method: 'POST',
    path: '/claims/complete',
    id: 'completeJob',
    tag: 'jobs',
    summary: 'The jobs of a claimed unit are complete. 409 lease_lost: they were settled before, or the lease is over.',
    permission: 'job:work',
    body: { ...handle, result: maybe(anything('kept with the jobs')) },
    answers: 'UnitSettled',
    isQuiet: true,
    run: async ({ body, effects: { queues } }) => {
      await queues.complete(body.handle, body.result);
      return { to: 'complete' };
    },
  }),
  route({
    method: 'POST',
    path: '/claims/fail',
    id: 'failJob',
    tag: 'jobs',
    summary:
      'The attempt of a claimed unit has failed: its jobs are tried again, after retryIn, or the backoff of the job, or 1 s, 2 s, 4 s and so on, unless this was the last attempt, or final is true. 409 lease_lost: as for complete.',
    permission: 'job:work',
    body: {
      ...handle,
      error: text({ max: 100_000, about: 'kept with the jobs' }),
      retryIn: maybe(duration({ min: 0, max: '365d', about: 'how long to wait for the next attempt' })),
      final: flag('the jobs end in error, whatever attempts are left'),
    },
    answers: 'UnitSettled',
    isQuiet: true,
    run: async ({ body: { handle: unit, error, retryIn, final }, effects: { queues } }) => ({
      to: await queues.fail(unit, error, { retryIn, final }),
    }),
  }),
  route({
    method: 'POST',
    path: '/claims/release',
    id: 'releaseJob',
    tag: 'jobs',
    summary:
      'Gives a claimed unit back, uncharged: it is ready again at once, or ends as cancelled if it was cancelled meanwhile. 409 lease_lost: as for complete.',
    permission: 'job:work',
    body: handle,
    answers: 'UnitSettled',
    isQuiet: true,
    run: async ({ body, effects: { queues } }) => ({ to: await queues.release(body.handle) }),
  }),
  route({
    method: 'POST',
    path: '/claims/extend',
    id: 'extendClaim',
    tag: 'jobs',
    summary:
      'Renews the lease from now on, for all units that were claimed together. isCancelled: stop, and release the unit. 409 lease_lost: stop what you do under it.',
    permission: 'job:work',
    body: { ...handle, lease: maybe(duration({ ...LEASE, about: 'default: as long as before' })) },
    answers: 'ExtendedClaim',
    isQuiet: true,
    run: ({ body, effects: { queues } }) => queues.extend(body.handle, body.lease),
  }),
];

function shown({ handle: unit, kind, key, attempt, token, processId, expiresAt, jobs }: ClaimedUnit): object {
  return {
    handle: unit,
    kind,
    key,
    attempt,
    token: String(token),
    processId,
    expiresAt,
    jobs: jobs.map(({ id, payload, attempt: nth, enqueuedAt, meta }) => ({
      id,
      payload,
      attempt: nth,
      enqueuedAt,
      meta: meta ?? null,
    })),
  };
}
