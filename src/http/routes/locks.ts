import { NotFound } from '../../base/errors.ts';
import { pageOf, readCursor, readIdCursor, writeCursor } from '../protocol/cursor.ts';
import { flag, integer, maybe, text } from '../protocol/field.ts';
import { AFTER, type AnyRoute, route } from '../protocol/route.ts';
import { errorOf } from '../redaction/hidden.ts';

const namespace = maybe(text({ min: 0, max: 255, about: 'as given to createLocks; default: outside of namespaces' }));
const name = text({ max: 255, about: 'the name of a lock' });
const anyNamespace = maybe(text({ min: 0, max: 255, about: 'default: all of them' }));
const limit = integer({ min: 1, max: 200, default: 50 });
const after = maybe(text({ about: AFTER }));

/** Locks: their holders, their waiters in order, and the graph of blockers. */
export const lockRoutes: readonly AnyRoute[] = [
  route({
    method: 'GET',
    path: '/locks',
    id: 'listLocks',
    tag: 'locks',
    summary: 'Locks that are held or waited for now, by name.',
    permission: 'view',
    query: {
      namespace: anyNamespace,
      name: maybe(text({ max: 255, about: 'a part of the name' })),
      contended: flag('only locks with waiters'),
      limit,
      after,
    },
    answers: 'LockList',
    sharedMs: 1000,
    run: async ({ query, services: { store } }) => {
      const [space = '', last = ''] = readCursor(query.after, 2) ?? [];
      const rows = await store.locks.list([space, last], { ...query, limit: query.limit + 1 });
      return pageOf(rows, query.limit, (row) => writeCursor(row.namespace, row.name));
    },
  }),
  route({
    method: 'GET',
    path: '/locks/graph',
    id: 'lockGraph',
    tag: 'locks',
    summary:
      'Who waits for what, who holds it, and what waiters keep meanwhile: up to 500 waits; and backends that wait for rows of others.',
    permission: 'view',
    query: { namespace: anyNamespace },
    answers: 'LockGraph',
    sharedMs: 1000,
    run: async ({ query, services }) => {
      const waits = await services.store.locks.waits(query.namespace);
      const keeping = waits.find(({ keeps }) => keeps.length > 0) ?? waits[0];
      // Any name will do: circles and backends are those of the whole namespace.
      const locks = services.locks(keeping?.namespace ?? '');
      const { backends, cycles } = await locks.explain(keeping?.name ?? '-');
      return { waits, backends: backends.map(shownBackend), cycles };
    },
  }),
  route({
    method: 'GET',
    path: '/locks/hottest',
    id: 'hottestLocks',
    tag: 'locks',
    summary: 'The names that were held most often within the hour, from at most 20,000 holds.',
    permission: 'view',
    query: { namespace: anyNamespace },
    answers: 'HotLocks',
    sharedMs: 1000,
    run: async ({ query, services: { store } }) => ({ items: await store.locks.hottest(query.namespace) }),
  }),
  route({
    method: 'GET',
    path: '/locks/one',
    id: 'getLock',
    tag: 'locks',
    summary:
      'One lock: who holds it, who waits in which order, and what stands in their way. A lock that is free has neither.',
    permission: 'view',
    query: { namespace, name },
    answers: 'LockDetail',
    run: async ({ query: { namespace: space = '', name: of }, services }) => {
      const { holders, waiters, backends, ...rest } = await services.locks(space).explain(of);
      return {
        namespace: space,
        ...rest,
        backends: backends.map(shownBackend),
        holders,
        waiters,
      };
    },
  }),
  route({
    method: 'GET',
    path: '/locks/one/history',
    id: 'lockHistory',
    tag: 'locks',
    summary: 'Who held a lock until when, and how that ended, newest first.',
    permission: 'view',
    query: { namespace, name, limit, after },
    answers: 'LockPastList',
    run: async ({ query: { namespace: space = '', name: of, limit: most, after: from }, services: { store } }) => {
      const before = readIdCursor(from);
      const rows = await store.locks.history(space, of, before, most + 1);
      return pageOf(rows, most, (row) => writeCursor(row.token));
    },
  }),
  route({
    method: 'POST',
    path: '/locks/break',
    id: 'breakLock',
    tag: 'locks',
    summary:
      'Takes a lock away from all of its holders. They are notified, but what they have begun goes on until they check.',
    permission: 'lock:break',
    body: { namespace, name, reason: text({ max: 1000, about: 'kept in the history, and told to the holders' }) },
    answers: 'LockBroken',
    target: ({ body }) => `lock ${body.name}${body.namespace ? ` of ${body.namespace}` : ''}`,
    run: async ({ body: { namespace: space = '', name: of, reason }, effects }) => {
      const broken = await effects.locks(space).break(of, { reason });
      if (broken.length === 0) throw new NotFound(`no process holds lock "${of}"`);
      return { broken };
    },
  }),
];

/** The text of another session's statement may contain values. */
function shownBackend<T extends { readonly query: string }>(backend: T): object {
  return { ...backend, query: errorOf(backend.query, { queue: 'statement', kind: '' }) };
}
