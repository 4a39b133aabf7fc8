import type { RemoteLease } from '../../lock/index.ts';
import { HttpRefusal } from '../protocol/failure.ts';
import { choice, duration, maybe, text } from '../protocol/field.ts';
import { Reply } from '../protocol/reply.ts';
import { type AnyRoute, type Call, route } from '../protocol/route.ts';

const UUID = /^[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}$/;

const which = {
  namespace: maybe(text({ min: 0, max: 255, about: 'as given to createLocks; default: outside of namespaces' })),
  name: text({ max: 255, about: 'the name of a lock' }),
};
const held = { ...which, handle: text({ min: 36, max: 36, pattern: [UUID, 'the handle that acquiring gave'] }) };

/** Locks that a program holds over HTTP: a shell script, or a program in another language. */
export const leaseRoutes: readonly AnyRoute[] = [
  route({
    method: 'POST',
    path: '/locks',
    id: 'acquireLock',
    tag: 'locks',
    summary:
      'Acquires a lock, or waits for it in one queue with all other waiters. You renew it yourself: without renewals it ends with its lease. The token fences: pass it to each store that you write to, and let the store refuse a smaller one. The handle is for renewing and releasing; keep it secret. 409 lock_timeout: it was not granted in time.',
    permission: 'lock:hold',
    body: {
      ...which,
      mode: choice(['exclusive', 'shared'], 'shared ones are held side by side', 'exclusive'),
      lease: duration({ min: '1s', max: '24h', default: '30s', about: 'how long it is held unless it is renewed' }),
      wait: duration({ min: 0, max: '30s', default: 0, about: 'how long to wait for it' }),
    },
    status: 201,
    answers: 'Lease',
    target: targetOf,
    run: async ({ body, request, effects }) => {
      const { namespace = '', name, mode, lease: leaseMs, wait: waitMs } = body;
      const wanted = { leaseMs, waitMs, isShared: mode === 'shared', signal: request.signal };
      const lease = await effects
        .remoteLocks(namespace)
        .acquire(name, wanted)
        .catch((error: unknown) => {
          // The caller has left the queue by its disconnection; no client reads this.
          if (request.signal.aborted) throw new HttpRefusal('body_incomplete', 'the caller hung up');
          throw error;
        });
      return new Reply(shown(namespace, name, lease), {});
    },
  }),
  route({
    method: 'POST',
    path: '/locks/renew',
    id: 'renewLock',
    tag: 'locks',
    summary: 'Holds a lock for another lease from now on. 409 lease_lost: stop what you do under it.',
    permission: 'lock:hold',
    isQuiet: true,
    body: held,
    answers: 'Lease',
    run: async ({ body: { namespace = '', name, handle }, effects }) =>
      shown(namespace, name, await effects.remoteLocks(namespace).renew(name, handle)),
  }),
  route({
    method: 'POST',
    path: '/locks/release',
    id: 'releaseLock',
    tag: 'locks',
    summary: 'Gives a lock up: the next in line has it at once. 409 lease_lost: it was lost before.',
    permission: 'lock:hold',
    body: held,
    answers: 'LockReleased',
    target: targetOf,
    run: async ({ body: { namespace = '', name, handle }, effects }) => ({
      released: true,
      token: String(await effects.remoteLocks(namespace).release(name, handle)),
    }),
  }),
];

function targetOf({ body: { namespace, name } }: Pick<Call<never, never, typeof which>, 'body'>): string {
  return `lock ${name}${namespace ? ` of ${namespace}` : ''}`;
}

function shown(namespace: string, name: string, { token, handle, leaseMs, expiresAt }: RemoteLease): object {
  return { namespace, name, token: String(token), handle, leaseMs, expiresAt };
}
