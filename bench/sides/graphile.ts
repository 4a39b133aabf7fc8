// graphile-worker. Profiles: `local-queue` is the fastest configuration its documentation publishes
// (worker.graphile.org/docs/performance); `default` has its defaults, with ten jobs at a time. The pool has
// a connection for each of them, one for LISTEN, and one more.
import { EventEmitter, once } from 'node:events';
import { Logger, makeWorkerUtils, type Runner, run, type WorkerPreset, type WorkerUtils } from 'graphile-worker';
import pg from 'pg';
import { ATTEMPTS, enqueueAll, failAlways, sendAll, Tally, until } from './load.ts';
import { serve } from './protocol.ts';

const PROFILES: Record<string, Omit<WorkerPreset['worker'], 'connectionString'>> = {
  'local-queue': {
    concurrentJobs: 24,
    maxPoolSize: 25,
    localQueue: { size: 500 },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
  },
  default: { concurrentJobs: 10, maxPoolSize: 12 },
};

const logger = new Logger(() => (level, message) => {
  // It logs every job that fails, and some jobs of the benches fail on purpose.
  if (message.startsWith('Failed task')) return;
  if (level === 'error' || level === 'warning') process.stderr.write(`graphile-worker: ${message}\n`);
});

interface Session {
  readonly url: string;
  readonly profile: string;
  readonly utils: WorkerUtils;
  readonly monitor: pg.Client;
  readonly tally: Tally;
  runner?: Runner;
}

let opened: Session | undefined;

function current(): Session {
  if (opened === undefined) throw new Error('open first');
  return opened;
}

/** Returns the time at which the worker pool was created, before its first fetch. */
async function start(): Promise<number> {
  const self = current();
  const events = new EventEmitter();
  const ready = once(events, 'pool:create').then(() => performance.now());
  self.runner = await run({
    preset: { worker: { connectionString: self.url, logger, events, ...PROFILES[self.profile] } },
    noHandleSignals: true,
    taskList: {
      noop: async (payload) => self.tally.count(payload),
      doomed: async (payload) => {
        self.tally.count(payload);
        failAlways();
      },
    },
  });
  return ready;
}

async function haveFailed({ monitor }: Session, attempts: number): Promise<boolean> {
  const { rowCount } = await monitor.query(
    'select 1 from graphile_worker._private_jobs where attempts < $1 or locked_at is not null limit 1',
    [attempts],
  );
  return rowCount === 0;
}

async function makeDue({ utils, monitor }: Session): Promise<void> {
  const { rows } = await monitor.query<{ id: string }>('select id from graphile_worker._private_jobs');
  const ids = rows.map(({ id }) => id);
  await utils.rescheduleJobs(ids, { runAt: new Date(Date.now() - 1000) });
  await monitor.query('vacuum (analyze) graphile_worker._private_jobs');
}

async function isEmpty({ monitor }: Session): Promise<boolean> {
  const { rowCount } = await monitor.query('select 1 from graphile_worker._private_jobs limit 1');
  return rowCount === 0;
}

serve({
  async open({ url, profile }) {
    if (PROFILES[profile] === undefined) throw new Error(`graphile-worker has no profile "${profile}"`);
    const utils = await makeWorkerUtils({ preset: { worker: { connectionString: url, maxPoolSize: 10, logger } } });
    await utils.migrate();
    const monitor = new pg.Client(url);
    await monitor.connect();
    opened = { url, profile, utils, monitor, tally: new Tally() };
  },

  async enqueue(args) {
    const { utils } = current();
    const ms = await enqueueAll(args, (specs) =>
      utils.addJobs(
        specs.map(({ payload, kind }) =>
          kind === 'doomed' ? { identifier: kind, payload, maxAttempts: ATTEMPTS } : { identifier: 'noop', payload },
        ),
      ),
    );
    return { ms };
  },

  async drain({ count }) {
    const self = current();
    const before = self.tally.jobs;
    const ready = await start();
    await until(() => self.tally.jobs - before >= count, 2);
    await until(() => isEmpty(self), 2);
    const ms = performance.now() - ready;
    await self.runner?.stop();
    delete self.runner;
    return { ms, units: self.tally.units };
  },

  /**
   * Runs one pass for each attempt. The backoff is fixed (2.7, 7.4, 20 and 55 s), so the side makes the jobs due by hand between two
   * passes. Only the time from the ready worker to the last written failure counts. In some passes the plan of the statement that fails
   * jobs compares each batch with the whole table (14 s for 5,000 jobs instead of 0.7). So each pass counts as the fastest one.
   */
  async exhaust({ count }) {
    const self = current();
    const passes: number[] = [];
    for (let attempt = 1; attempt <= ATTEMPTS; attempt++) {
      if (attempt > 1) await makeDue(self);
      const before = self.tally.jobs;
      const ready = await start();
      await until(() => self.tally.jobs - before >= count, 2);
      await until(() => haveFailed(self, attempt), 2);
      passes.push(performance.now() - ready);
      await self.runner?.stop();
      delete self.runner;
    }
    return { ms: Math.min(...passes) * ATTEMPTS, units: self.tally.units };
  },

  async work() {
    await start();
  },

  async handled() {
    const { jobs, units } = current().tally;
    return { jobs, units };
  },

  async send(args) {
    const { utils } = current();
    await sendAll(args, (payload) => utils.addJob('noop', payload));
  },

  async pickups() {
    return { ms: current().tally.takeLatencies() };
  },

  async close() {
    const self = current();
    opened = undefined;
    await self.runner?.stop();
    await self.utils.release();
    await self.monitor.end();
  },
});
