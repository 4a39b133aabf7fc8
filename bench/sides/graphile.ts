// graphile-worker. Profiles: `local-queue` is the fastest configuration its documentation publishes
// (worker.graphile.org/docs/performance); `default` has its defaults, with ten jobs at a time and
// connections for them, for LISTEN and one to spare.
import { EventEmitter, once } from 'node:events';
import { Logger, makeWorkerUtils, type Runner, run, type WorkerPreset, type WorkerUtils } from 'graphile-worker';
import pg from 'pg';
import { enqueueAll, sendAll, Tally, until } from './load.ts';
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
  if (level === 'error' || level === 'warning') process.stderr.write(`graphile-worker: ${message}\n`);
});

interface Opened {
  readonly url: string;
  readonly profile: string;
  readonly utils: WorkerUtils;
  readonly monitor: pg.Client;
  readonly tally: Tally;
  runner?: Runner;
}

let opened: Opened | undefined;

function current(): Opened {
  if (opened === undefined) throw new Error('open first');
  return opened;
}

/** Returns the moment at which the worker pool was there, before its first fetch. */
async function start(): Promise<number> {
  const self = current();
  const events = new EventEmitter();
  const ready = once(events, 'pool:create').then(() => performance.now());
  self.runner = await run({
    preset: { worker: { connectionString: self.url, logger, events, ...PROFILES[self.profile] } },
    noHandleSignals: true,
    taskList: {
      noop: async (payload) => self.tally.count(payload),
    },
  });
  return ready;
}

async function isEmpty({ monitor }: Opened): Promise<boolean> {
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
      utils.addJobs(specs.map(({ payload }) => ({ identifier: 'noop', payload }))),
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

  async work() {
    await start();
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
