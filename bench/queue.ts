import { setTimeout as sleep } from 'node:timers/promises';
import { BULK } from './harness/bulk.ts';
import { type Bench, type Context, inDatabase, interleave, type Measure } from './harness/context.ts';
import { atLeast, atMost, type Bar, fastest, percentile, ratio } from './harness/figures.ts';
import { takePickups } from './harness/pickups.ts';
import { vacuum } from './harness/server.ts';
import type { Side } from './harness/side.ts';

const FULL = { warmUp: 20_000, drain: 100_000, transaction: 10_000, processes: 20_000, pickups: 300 };
const QUICK = { warmUp: 2000, drain: 20_000, transaction: 3000, processes: 6000, pickups: 50 };
/** Jobs that are sent before the pick-ups are measured, so that plans are prepared and code is compiled. */
const WARM_UP = 20;
/** The pause between two jobs: long enough that the worker is idle again, and random, so that a job meets any moment of a poll interval. */
const GAP_MS = [8, 24] as const;

/** Worker processes that drain one queue in transactions. */
const PROCESSES = 4;
/** The pause between two counts of the handled jobs. Each count costs every process time that it could spend on jobs. */
const POLL_MS = 25;

/**
 * Jobs without keys, compared with graphile-worker and pg-boss: enqueue, drain, drain in transactions by one process and by several, and
 * pick-up by an idle worker.
 */
export const queue: Bench = async (context) => {
  const size = context.quick ? QUICK : FULL;
  const { rounds, peersOnly } = context;
  const graphile = context.side('graphile');
  const pgBoss = context.side('pg-boss');
  const pawl = peersOnly ? undefined : context.side('pawl');

  const bulkDrain =
    (side: Side, profile: string): Measure =>
    async () =>
      drain(context, side, profile, size.drain);
  const transactionDrain =
    (side: Side, profile: string): Measure =>
    async () => {
      const { drain: rate } = await drain(context, side, profile, size.transaction);
      return { transaction_drain: rate };
    };
  // Each side compiles its code here. Otherwise the first round is slower than the others.
  if (pawl) await drain(context, pawl, 'lease', size.warmUp);
  await drain(context, graphile, 'local-queue', size.warmUp);
  await drain(context, pgBoss, 'batch', size.warmUp);
  const bulk = await interleave(context, rounds, 'drain', {
    ...(pawl && { pawl: bulkDrain(pawl, 'lease') }),
    'graphile-local-queue': bulkDrain(graphile, 'local-queue'),
    'pg-boss-batch': bulkDrain(pgBoss, 'batch'),
  });
  const transaction = await interleave(context, rounds, 'transaction drain', {
    ...(pawl && { pawl: transactionDrain(pawl, 'transaction') }),
    'graphile-default': transactionDrain(graphile, 'default'),
  });
  const processes = await interleave(context, rounds, 'transaction drain by processes', {
    ...(pawl && {
      'pawl-one': drainByProcesses(context, [pawl], 'transaction', size.processes),
      'pawl-four': drainByProcesses(context, processesOf(context, pawl), 'transaction', size.processes),
    }),
    'graphile-four': drainByProcesses(context, processesOf(context, graphile), 'default', size.processes),
  });
  const pickups = await interleave(context, rounds, 'pick-up', {
    ...(pawl && { pawl: pickup(context, pawl, 'lease', size.pickups) }),
    'graphile-default': pickup(context, graphile, 'default', size.pickups),
    ...(!context.quick && {
      'graphile-local-queue': pickup(context, graphile, 'local-queue', size.pickups),
      'pg-boss-notify': pickup(context, pgBoss, 'notify', size.pickups),
    }),
  });

  const peer = (what: string): readonly number[] =>
    fastest(bulk.of('graphile-local-queue', what), bulk.of('pg-boss-batch', what));
  const bars: Record<string, Bar> = {
    drain: atLeast(3, ratio(bulk.of('pawl', 'drain'), peer('drain'))),
    transaction_drain: atLeast(
      1.5,
      ratio(transaction.of('pawl', 'transaction_drain'), transaction.of('graphile-default', 'transaction_drain')),
    ),
    transaction_processes: atLeast(
      0.95,
      ratio(processes.of('pawl-four', 'transaction_drain'), processes.of('pawl-one', 'transaction_drain')),
    ),
    transaction_processes_peer: atLeast(
      1.5,
      ratio(processes.of('pawl-four', 'transaction_drain'), processes.of('graphile-four', 'transaction_drain')),
    ),
    enqueue: atLeast(1.5, ratio(bulk.of('pawl', 'enqueue'), peer('enqueue'))),
    pickup: atMost(0.6, ratio(pickups.of('pawl', 'pickup_p50'), pickups.of('graphile-default', 'pickup_p50'))),
  };
  return {
    figures: {
      ...bulk.figures({ drain: 'jobs/s', enqueue: 'jobs/s' }),
      ...transaction.figures({ transaction_drain: 'jobs/s' }),
      ...processes.figures({ transaction_drain: 'jobs/s' }),
      ...pickups.figures({ pickup_p50: 'ms', pickup_p95: 'ms' }),
    },
    bars: peersOnly ? {} : bars,
  };
};

/** Jobs per second of an enqueue in bulk, and of the drain by one worker process after it. */
async function drain(
  context: Context,
  side: Side,
  profile: string,
  count: number,
): Promise<{ enqueue: number; drain: number }> {
  return inDatabase(context, side, profile, async (url) => {
    const enqueued = await side.call('enqueue', { count, ...BULK });
    await vacuum(url);
    await context.server.checkpoint();
    const drained = await side.call('drain', { count });
    return { enqueue: (count / enqueued.ms) * 1000, drain: (count / drained.ms) * 1000 };
  });
}

/** Several processes of one library: `first` and new ones. */
function processesOf(context: Context, first: Side): Side[] {
  return [first, ...Array.from({ length: PROCESSES - 1 }, () => context.side(first.name))];
}

/** Jobs per second of all workers together. The time begins when every worker runs and all jobs are enqueued, and ends with the last job. */
function drainByProcesses(context: Context, sides: readonly Side[], profile: string, count: number): Measure {
  const [first, ...others] = sides;
  if (first === undefined) throw new Error('a drain needs a process');
  const handled = async (): Promise<number> => {
    const tallies = await Promise.all(sides.map((side) => side.call('handled')));
    return tallies.reduce((sum, { jobs }) => sum + jobs, 0);
  };
  const untilHandled = async (jobs: number): Promise<void> => {
    while ((await handled()) < jobs) await sleep(POLL_MS);
  };
  return () =>
    inDatabase(context, first, profile, async (url) => {
      await Promise.all(others.map((side) => side.call('open', { url, profile })));
      try {
        await Promise.all(sides.map((side) => side.call('work')));
        // Each process first runs count / 4 jobs. So the time in which it compiles its code does not count against several processes.
        const warmUp = (count / 4) * sides.length;
        await first.call('enqueue', { count: warmUp, ...BULK });
        await untilHandled(warmUp);
        await first.call('enqueue', { count, ...BULK });
        const [before, begin] = [await handled(), performance.now()];
        await untilHandled(warmUp + count);
        return { transaction_drain: ((warmUp + count - before) / (performance.now() - begin)) * 1000 };
      } finally {
        await Promise.all(others.map((side) => side.call('close')));
      }
    });
}

/** Milliseconds from just before the enqueue call in one process to the start of the handler in another process, which is idle. */
function pickup(context: Context, worker: Side, profile: string, count: number): Measure {
  const sender = context.side(worker.name);
  return () =>
    inDatabase(context, worker, profile, async (url) => {
      await sender.call('open', { url, profile });
      try {
        await worker.call('work');
        await takePickups(sender, worker, { count: WARM_UP, gapMs: GAP_MS });
        const ms = await takePickups(sender, worker, { count, gapMs: GAP_MS });
        return { pickup_p50: percentile(ms, 50), pickup_p95: percentile(ms, 95) };
      } finally {
        await sender.call('close');
      }
    });
}
