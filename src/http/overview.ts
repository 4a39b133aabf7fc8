import { formatDuration } from '../base/duration.ts';
import { inspectServer, inspectTables } from '../engine/postgres/inspect.ts';
import { readQueueHealth, searchFilter } from '../queue/index.ts';
import { pageOf, readIdCursor, writeCursor } from './cursor.ts';
import { integer, maybe, text } from './field.ts';
import type { LiveSnapshot } from './postgres-live.ts';
import { AFTER, type AnyRoute, route } from './route.ts';
import { seriesRoute } from './series.ts';
import type { Services } from './services.ts';
import { packageVersion } from './version.ts';

const OLD_TRANSACTION_MS = 10 * 60_000;

/** What is shown first, and what administrators look at. */
export const overviewRoutes: readonly AnyRoute[] = [
  route({
    method: 'GET',
    path: '/live',
    id: 'live',
    tag: 'live',
    summary: 'The live picture, no older than one interval: for whoever cannot use /events.',
    permission: 'view',
    answers: 'Live',
    run: ({ services: { live } }) => live.snapshot(),
  }),
  seriesRoute('/series', {}),
  route({
    method: 'GET',
    path: '/attention',
    id: 'attention',
    tag: 'live',
    summary: 'What needs somebody now, the worst first.',
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
    answers: 'AuditPage',
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
    migrations: { ...status, problem: status.problem ?? null },
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

interface Item {
  readonly level: 'warning' | 'error';
  readonly text: string;
  readonly advice?: string;
  /** The page of the dashboard, with its filters. */
  readonly look: string;
}

async function needsAttention({ bounded, actors, live }: Services): Promise<Item[]> {
  const [queues, ofActors, snapshot] = await Promise.all([
    readQueueHealth(bounded),
    actors.reads.health(),
    live.snapshot(),
  ]);
  const { lostWorkers, strandedKeys, unattended, paused } = queues;
  const queuePage = (name: string): string => `queues/${encodeURIComponent(name)}`;
  const items: Item[] = [
    ...ofSnapshot(snapshot),
    ...lostWorkers.map(({ process, queue, jobs }): Item => {
      const held = jobs > 0 ? `, with ${jobs} jobs in hand` : '';
      return {
        level: jobs > 0 ? 'error' : 'warning',
        text: `worker ${process} of queue "${queue}" is lost${held}`,
        look: 'workers',
      };
    }),
    ...strandedKeys.slice(0, 5).map(
      ({ queue, key }): Item => ({
        level: 'error',
        text: `key "${key}" of queue "${queue}" counts as busy, but nobody has it`,
        advice: 'this is a fault in Pawl: please report it',
        look: `jobs?q=${encodeURIComponent(searchFilter('key', key))}`,
      }),
    ),
    ...unattended.map(
      (name): Item => ({
        level: 'error',
        text: `jobs of queue "${name}" wait, but no worker of it runs`,
        advice: 'start one',
        look: queuePage(name),
      }),
    ),
    ...paused.map((name): Item => ({ level: 'warning', text: `queue "${name}" is paused`, look: queuePage(name) })),
    ...ofActors.unattended.map(
      (name): Item => ({
        level: 'error',
        text: `actors of type "${name}" are due, but no worker runs them`,
        advice: 'start one',
        look: `actors?type=${encodeURIComponent(name)}`,
      }),
    ),
    ...ofActors.held.slice(0, 5).map(
      ({ actor, reason }): Item => ({
        level: 'warning',
        text: `actor ${actor} is held: ${reason}`,
        look: `actors/${actor}`,
      }),
    ),
    ...ofActors.lostWorkers.map(
      (process): Item => ({ level: 'warning', text: `worker ${process} of actors is lost`, look: 'workers' }),
    ),
  ];
  return items.sort((a, b) => Number(a.level === 'warning') - Number(b.level === 'warning'));
}

function ofSnapshot({
  pages,
  queues,
  oldestTransactionMs,
  connections,
  maxConnections,
  wraparound,
}: LiveSnapshot): Item[] {
  const items: Item[] = [];
  if (pages.open > 0) {
    const level = pages.worst === 'critical' || pages.worst === 'error' ? 'error' : 'warning';
    items.push({ level, text: `${pages.open} ${pages.open === 1 ? 'page is' : 'pages are'} open`, look: 'pages' });
  }
  for (const { name, stats } of queues) {
    const errors = Number(stats['error']);
    const look = `jobs?queue=${encodeURIComponent(name)}&q=status%3Aerror`;
    if (errors > 0)
      items.push({
        level: 'warning',
        text: `${errors >= 10_000 ? '10,000 or more' : errors} jobs of queue "${name}" ended in error`,
        look,
      });
  }
  if ((oldestTransactionMs ?? 0) > OLD_TRANSACTION_MS) {
    const age = formatDuration(Math.round((oldestTransactionMs ?? 0) / 60_000) * 60_000);
    items.push({
      level: 'warning',
      text: `a transaction has been open for ${age}, so dead rows cannot be removed`,
      look: 'admin',
    });
  }
  if (connections > maxConnections * 0.9) {
    items.push({ level: 'error', text: `${connections} of ${maxConnections} connections are in use`, look: 'admin' });
  }
  if (wraparound > 1_500_000_000) {
    items.push({
      level: 'error',
      text: 'the database comes near the end of its transaction ids',
      advice: 'vacuum it',
      look: 'admin',
    });
  }
  return items;
}
