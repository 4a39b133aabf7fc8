// Pawl. Profiles: `lease` and `transaction` are the two ways to hold a unit; `single` claims one job at a time, so that
// the time between two handler calls is one claim and one settlement; `shared` is a worker with mixed keyed work; `merge`
// has a queue of its own whose kind coalesces, because one such kind makes the queue read all kinds of a key together.
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import * as v from 'valibot';
import { BULK } from '../harness/bulk.ts';
import {
  ATTEMPTS,
  dagOf,
  enqueueAll,
  failAlways,
  failSometimes,
  type Spec,
  saveAll,
  sendAll,
  Tally,
  until,
} from './load.ts';
import {
  loadPawl,
  type PawlEngine,
  type PawlJob,
  type PawlQueue,
  type PawlUnit,
  type PawlWorker,
  type WorkOptions,
} from './pawl-api.ts';
import { serve } from './protocol.ts';

const QUEUE = 'bench';
/** How long the handler of a `slow` job takes. */
const SLOW_MS = 20;

const PROFILES: Record<string, WorkOptions> = {
  lease: { hold: 'lease', concurrency: 100, prefetch: 2000 },
  transaction: { hold: 'transaction', concurrency: 10 },
  shared: { hold: 'lease', concurrency: 20 },
  merge: { hold: 'lease', concurrency: 20 },
  // As `merge`, with the options of `lease`.
  'merge-wide': { hold: 'lease', concurrency: 100, prefetch: 2000 },
  // As `lease`, with the shortest wait before each retry.
  retry: { hold: 'lease', concurrency: 100, prefetch: 2000 },
  // One of many workers that are mostly idle. A short poll would cause as many commits as the jobs.
  idle: { hold: 'lease', concurrency: 10, poll: '60s' },
  single: { hold: 'lease', concurrency: 1, prefetch: 1 },
  // As `lease`, on a queue with a unique kind (one outstanding job for each key), or with a debounced kind.
  unique: { hold: 'lease', concurrency: 100, prefetch: 2000 },
  debounce: { hold: 'lease', concurrency: 100, prefetch: 2000 },
  // `groups` is as `lease`, on a queue whose groups never reach their limit. In the other two each group has one place: `groups-single` is as
  // `single`, and `groups-hall` has as many slots as there are groups.
  groups: { hold: 'lease', concurrency: 100, prefetch: 2000 },
  'groups-single': { hold: 'lease', concurrency: 1, prefetch: 1 },
  'groups-hall': { hold: 'lease', concurrency: 10_000, prefetch: 0 },
};

const PER_GROUP: Record<string, number> = { groups: 10_000, 'groups-single': 1, 'groups-hall': 1 };

interface Session {
  readonly engine: PawlEngine;
  readonly queue: PawlQueue;
  readonly options: WorkOptions;
  readonly kinds: readonly string[];
  readonly tally: Tally;
  readonly monitor: pg.Client;
  workers: PawlWorker[];
}

let opened: Session | undefined;

function current(): Session {
  if (opened === undefined) throw new Error('open first');
  return opened;
}

function start(onUnit?: () => void): void {
  const self = current();
  const { tally } = self;
  const handlers: Record<string, (unit: PawlUnit) => Promise<void>> = {
    noop: async (unit) => {
      onUnit?.();
      tally.count(unit.payload);
    },
    once: async (unit) => tally.count(unit.payload),
    save: async (unit) => tally.count(unit.payload, unit.jobs.length),
    merge: async (unit) => tally.count(unit.payload, unit.jobs.length),
    slow: async (unit) => {
      await sleep(SLOW_MS);
      tally.count(unit.payload);
    },
    fail: async () => {
      throw new Error('this job always fails');
    },
    doomed: async (unit) => {
      tally.count(unit.payload);
      failAlways();
    },
    flaky: async (unit) => {
      tally.count(unit.payload);
      failSometimes(unit.payload, unit.attempt);
    },
    hold: async (unit) => {
      tally.count(unit.payload);
      await once(unit.signal, 'abort');
    },
  };
  const mine = Object.entries(handlers).filter(([kind]) => self.kinds.includes(kind));
  self.workers.push(self.queue.work(Object.fromEntries(mine), self.options));
}

async function stopWorker(): Promise<void> {
  const self = current();
  // A handler of `hold` ends only when its signal aborts, after this timeout.
  await Promise.all(self.workers.splice(0).map((worker) => worker.stop({ timeout: '100ms' })));
}

function toJob({ kind, payload, key, group, runAt }: Spec): PawlJob {
  const job: PawlJob = { kind, payload };
  if (key !== undefined) job.key = key;
  if (group !== undefined) job.group = group;
  if (runAt !== undefined) job.runAt = runAt;
  return job;
}

async function isSettled({ queue }: Session): Promise<boolean> {
  const stats = await queue.stats();
  return stats.new === 0 && stats['in-progress'] === 0;
}

/**
 * The latency of one claim, seen from outside. A worker that takes one job at a time runs `count` jobs. Each sample is the
 * time between two handler calls, which is one settlement and one claim. The bars compare such samples only with each other.
 */
async function measureClaims(count: number): Promise<number[]> {
  const ms: number[] = [];
  let last: number | undefined;
  start(() => {
    const now = performance.now();
    if (last !== undefined && ms.length < count) ms.push(now - last);
    last = now;
  });
  await until(() => ms.length >= count, 5);
  await stopWorker();
  return ms;
}

serve({
  async open({ url, profile }) {
    const options = PROFILES[profile];
    if (options === undefined) throw new Error(`pawl has no profile "${profile}"`);
    const { postgres, createQueue } = await loadPawl();
    const engine = postgres(url, { max: 14 });
    await engine.migrate();
    const payload = v.object({ n: v.string() });
    const kinds = profile.startsWith('merge')
      ? { merge: { payload, coalesce: 'all' } }
      : {
          noop: { payload },
          slow: { payload },
          hold: { payload },
          doomed: { payload, attempts: ATTEMPTS },
          flaky: { payload, attempts: ATTEMPTS },
          // So many attempts that the job fails for as long as a measurement lasts.
          fail: { payload, attempts: 1000 },
          ...(profile === 'unique' && { once: { payload, unique: { by: 'key' } } }),
          // The wait is longer than all saves together take, so that they become one run.
          ...(profile === 'debounce' && { save: { payload, coalesce: 'all', debounce: { wait: '2s', max: '2m' } } }),
        };
    const queue = createQueue(engine, QUEUE, {
      kinds,
      ...(profile === 'retry' && { retry: { backoff: { kind: 'fixed', min: '1ms' } } }),
      shards: 1,
      concurrency: { perKey: 1, ...(PER_GROUP[profile] !== undefined && { perGroup: PER_GROUP[profile] }) },
    });
    const monitor = new pg.Client(url);
    await monitor.connect();
    opened = { engine, queue, options, kinds: Object.keys(kinds), tally: new Tally(), monitor, workers: [] };
  },

  async enqueue(args) {
    const { queue } = current();
    return { ms: await enqueueAll(args, (specs) => queue.enqueueMany(specs.map(toJob))) };
  },

  async drain({ count }) {
    const self = current();
    const before = self.tally.jobs;
    const begin = performance.now();
    start();
    await until(() => self.tally.jobs - before >= count, 2);
    await until(() => isSettled(self), 2);
    const ms = performance.now() - begin;
    await stopWorker();
    return { ms, units: self.tally.units };
  },

  async exhaust({ count }) {
    const self = current();
    const before = self.tally.jobs;
    const begin = performance.now();
    start();
    await until(() => self.tally.jobs - before >= count * ATTEMPTS, 2);
    await until(() => isSettled(self), 2);
    const ms = performance.now() - begin;
    await stopWorker();
    return { ms, units: self.tally.units };
  },

  async work({ workers = 1 } = {}) {
    for (let nth = 0; nth < workers; nth++) start();
    await Promise.all(current().workers.map(({ started }) => started));
  },

  async handled() {
    const { jobs, units } = current().tally;
    return { jobs, units };
  },

  async settle() {
    const self = current();
    const begin = performance.now();
    await until(() => isSettled(self), 10);
    const ms = performance.now() - begin;
    const { rows } = await self.monitor.query<{ n: string }>(
      `select count(*) as n from pawl.job where queue = $1 and status = 'complete'`,
      [QUEUE],
    );
    return { ms, complete: Number(rows[0]?.n) };
  },

  async send(args) {
    const { queue } = current();
    await sendAll(args, (payload, key) => queue.enqueue('noop', payload, key === undefined ? {} : { key }));
  },

  async runs(args) {
    const { queue } = current();
    const ms: number[] = [];
    await sendAll(args, async (payload) => {
      const begin = performance.now();
      await queue.run('noop', payload);
      ms.push(performance.now() - begin);
    });
    return { ms };
  },

  async members({ count }) {
    const { queue } = current();
    const batch = await queue.batch({ onDone: { kind: 'noop', payload: { n: 'done' } } });
    await enqueueAll({ count, ...BULK }, (specs) => batch.enqueueMany(specs.map(toJob)));
    await batch.seal();
  },

  async dag(args) {
    await current().queue.flow(dagOf(args).map((node) => ({ ...node, kind: 'noop' })));
  },

  async saves({ kind, ...args }) {
    const { queue } = current();
    return { ms: await saveAll(args, (payload) => queue.enqueue(kind, payload, kind === 'save' ? { key: 'k' } : {})) };
  },

  async pickups() {
    return { ms: current().tally.takeLatencies() };
  },

  async claims({ count }) {
    return { ms: await measureClaims(count) };
  },

  async close() {
    const self = current();
    await stopWorker();
    opened = undefined;
    await self.engine.stop();
    await self.monitor.end();
  },
});
