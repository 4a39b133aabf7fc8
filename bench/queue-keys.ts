import { setTimeout as sleep } from 'node:timers/promises';
import { BULK } from './harness/bulk.ts';
import { type Bench, type Context, inDatabase, interleave, type Series } from './harness/context.ts';
import { atLeast, atMost, type Bar, fastest, percentile, ratio } from './harness/figures.ts';
import { takePickups } from './harness/pickups.ts';
import { vacuum } from './harness/server.ts';
import type { Side } from './harness/side.ts';

const FULL = { jobs: 100_000, keys: 10_000, hot: 100_000, otherKeys: 1000, merged: 5000 };
const QUICK = { jobs: 20_000, keys: 2000, hot: 20_000, otherKeys: 200, merged: 1000 };
/** Updates of each key in `coalesce`. */
const UPDATES = 20;
/** Jobs of the key whose jobs always fail. */
const FAILING = 100;

/** Jobs with keys: their cost, a comparison with pg-boss's strict order, the effect of one bad key on the others, and merged updates. */
export const queueKeys: Bench = async (context) => {
  const size = context.quick ? QUICK : FULL;
  const { peersOnly } = context;
  const drains = await measureDrains(context, size);
  const figures = drains.figures({ drain: 'jobs/s' });
  if (peersOnly) return { figures, bars: {} };

  // The faster profile of pg-boss counts: here one loop with batches of 10,000 is faster than four with batches of 500.
  const strictFifo = fastest(drains.of('pg-boss-strict-fifo', 'drain'), drains.of('pg-boss-strict-fifo-wide', 'drain'));
  const hot = await measureHotKey(context, size);
  const merged = await measureCoalesce(context, size.merged);
  return {
    figures: {
      ...figures,
      ...hot.figures({ pickup_p50: 'ms', pickup_p95: 'ms' }),
      ...merged.figures({ coalesce_units: 'units', coalesce_settled: 'rows', coalesce: 'rows/s' }),
    },
    bars: {
      keyed: atLeast(0.4, ratio(drains.of('pawl-keyed', 'drain'), drains.of('pawl-unkeyed', 'drain'))),
      keyed_peer: atLeast(3, ratio(drains.of('pawl-keyed', 'drain'), strictFifo)),
      hot_key: atMost(2, ratio(hot.of('pawl-hot', 'pickup_p95'), hot.of('pawl-calm', 'pickup_p95'))),
      coalesce: coalesceBar(merged, size.merged),
    },
  };
};

type Size = typeof FULL;

async function measureDrains(context: Context, { jobs, keys }: Size): Promise<Series> {
  const drain = async (side: Side, profile: string, spread: { keys?: number }): Promise<{ drain: number }> =>
    inDatabase(context, side, profile, async (url) => {
      await side.call('enqueue', { count: jobs, ...spread, ...BULK });
      await vacuum(url);
      await context.server.checkpoint();
      const { ms } = await side.call('drain', { count: jobs });
      return { drain: (jobs / ms) * 1000 };
    });
  const pgBoss = context.side('pg-boss');
  const pawl = context.peersOnly ? undefined : context.side('pawl');
  return interleave(context, context.rounds, 'drain', {
    ...(pawl && {
      'pawl-keyed': () => drain(pawl, 'lease', { keys }),
      'pawl-unkeyed': () => drain(pawl, 'lease', {}),
    }),
    'pg-boss-strict-fifo': () => drain(pgBoss, 'strict-fifo', { keys }),
    'pg-boss-strict-fifo-wide': () => drain(pgBoss, 'strict-fifo-wide', { keys }),
  });
}

/** Pick-up of many keys with one job each: alone, and while another key has a long backlog and a third one always fails. */
async function measureHotKey(context: Context, { hot, otherKeys }: Size): Promise<Series> {
  const worker = context.side('pawl');
  const sender = context.side('pawl');
  const pickups = async (trouble: boolean): Promise<Record<string, number>> =>
    inDatabase(context, worker, 'shared', async (url) => {
      await sender.call('open', { url, profile: 'shared' });
      try {
        if (trouble) {
          await worker.call('enqueue', { count: hot, kind: 'slow', keys: 1, prefix: 'hot', ...BULK });
          await worker.call('enqueue', { count: FAILING, kind: 'fail', keys: 1, prefix: 'failing', ...BULK });
          await vacuum(url);
        }
        await worker.call('work');
        if (trouble) await untilHandled(worker, 1);
        await takePickups(sender, worker, { count: 20, gapMs: [2, 6] });
        const ms = await takePickups(sender, worker, { count: otherKeys, gapMs: [2, 6], prefix: 'other' });
        return { pickup_p50: percentile(ms, 50), pickup_p95: percentile(ms, 95) };
      } finally {
        await sender.call('close');
      }
    });
  return interleave(context, context.rounds, 'hot key', {
    'pawl-calm': () => pickups(false),
    'pawl-hot': () => pickups(true),
  });
}

/**
 * Updates arrive key by key while the worker runs. The size of a batch is no multiple of the updates of a key. So the updates of
 * some keys are committed in two parts and may become two units.
 */
async function measureCoalesce(context: Context, keys: number): Promise<Series> {
  const worker = context.side('pawl');
  const sender = context.side('pawl');
  const count = keys * UPDATES;
  const merge = async (): Promise<Record<string, number>> =>
    inDatabase(context, worker, 'merge', async (url) => {
      await sender.call('open', { url, profile: 'merge' });
      try {
        await worker.call('work');
        const begin = performance.now();
        await sender.call('enqueue', { count, kind: 'merge', keys, run: UPDATES, batch: 990, connections: 4 });
        await untilHandled(worker, count);
        const handled = performance.now();
        const { complete, ms: settling } = await worker.call('settle');
        const ms = handled - begin + settling;
        const { units } = await worker.call('handled');
        return { coalesce_units: units, coalesce_settled: complete, coalesce: (count / ms) * 1000 };
      } finally {
        await sender.call('close');
      }
    });
  return interleave(context, context.rounds, 'coalesce', { pawl: merge });
}

/** The round with the most units counts, and every round must have settled every row. */
function coalesceBar(merged: Series, keys: number): Bar {
  const units = merged.of('pawl', 'coalesce_units');
  const bar = atMost(2 * keys, Math.max(...units));
  const all = merged.of('pawl', 'coalesce_settled').every((rows) => rows === keys * UPDATES);
  return { ...bar, holds: bar.holds && Math.min(...units) >= keys && all };
}

async function untilHandled(worker: Side, jobs: number): Promise<void> {
  while ((await worker.call('handled')).jobs < jobs) await sleep(10);
}
