import { inspectServer, inspectTables } from '../../engine/postgres/inspect.ts';
import { packageVersion } from '../../engine/version.ts';
import { needsAttention } from '../live/attention.ts';
import { pageOf, readIdCursor, writeCursor } from '../protocol/cursor.ts';
import { integer, maybe, text } from '../protocol/field.ts';
import { AFTER, type AnyRoute, route } from '../protocol/route.ts';
import { seriesRoute } from '../queues/series.ts';
import type { Services } from '../services.ts';

/** The first page, and pages for administrators. */
export const overviewRoutes: readonly AnyRoute[] = [
  route({
    method: 'GET',
    path: '/live',
    id: 'live',
    tag: 'live',
    summary:
      'The live picture, no older than one interval: for clients that cannot use /events. Of queues and types the first 200 by name; totals are of all, and truncated says how many are left out.',
    permission: 'view',
    answers: 'Live',
    run: ({ services: { live } }) => live.picture(),
  }),
  seriesRoute('/series', {}),
  route({
    method: 'GET',
    path: '/attention',
    id: 'attention',
    tag: 'live',
    summary: 'The problems that need a person now, the worst first.',
    permission: 'view',
    answers: 'Attention',
    sharedMs: 5000,
    run: async ({ services }) => ({ items: await needsAttention(services) }),
  }),
  route({
    method: 'GET',
    path: '/workers',
    id: 'listWorkers',
    tag: 'workers',
    summary: 'The processes that work: of queues, and of actors.',
    permission: 'view',
    answers: 'Workers',
    sharedMs: 1000,
    run: async ({ services: { queues, store } }) => {
      const [ofQueues, actors] = await Promise.all([queues.reads.workers(), store.actors.workers()]);
      return { queues: ofQueues, actors };
    },
  }),
  route({
    method: 'GET',
    path: '/admin',
    id: 'admin',
    tag: 'admin',
    summary: 'The server, the migrations, the sizes of the tables, this process.',
    permission: 'view',
    answers: 'Admin',
    sharedMs: 1000,
    run: readAdmin,
  }),
  route({
    method: 'GET',
    path: '/audit',
    id: 'listAudit',
    tag: 'admin',
    summary: 'What people did through this API, newest first.',
    permission: 'audit:read',
    query: {
      who: maybe(text({ max: 200 })),
      action: maybe(text({ max: 100 })),
      limit: integer({ min: 1, max: 200, default: 50 }),
      after: maybe(text({ about: AFTER })),
    },
    answers: 'AuditList',
    run: async ({ query: { who, action, limit, after }, services: { store } }) => {
      const rows = await store.audit.list(readIdCursor(after), who, action, limit + 1);
      return pageOf(rows, limit, (row) => writeCursor(row.id));
    },
  }),
];

async function readAdmin({ services }: { readonly services: Services }): Promise<object> {
  const { bounded, engine, live, settings, startedAt } = services;
  const [facts, status, tables] = await Promise.all([inspectServer(engine), bounded.status(), inspectTables(bounded)]);
  const { majorVersion: _major, connectMs: _connect, oldestTransaction, ...server } = facts;
  const { statementTimeout, live: liveMs, bodyLimit, rate, audit, readOnly } = settings;
  return {
    server: { ...server, oldestTransaction: oldestTransaction ?? null },
    migrations: {
      ...status,
    },
    tables,
    process: {
      pid: process.pid,
      node: process.version,
      version: packageVersion(),
      startedAt,
      watchers: live.watchers,
      rssBytes: process.memoryUsage.rss(),
    },
    settings: { statementTimeoutMs: statementTimeout, liveMs, bodyLimit, rate, auditMs: audit, readOnly },
  };
}
