import { setTimeout as sleep } from 'node:timers/promises';
import { BULK } from './harness/bulk.ts';
import { type Bench, type Context, inDatabase, interleave } from './harness/context.ts';
import { atLeast, ratio } from './harness/figures.ts';
import { vacuum } from './harness/server.ts';
import type { Side } from './harness/side.ts';

const FULL = { rows: 100_000, keys: 5000 };
const QUICK = { rows: 20_000, keys: 1000 };

/** Updates that are merged while their producers run, compared with a drain of as many jobs of as many keys that were enqueued before. */
export const coalesce: Bench = async (context) => {
  const size = context.quick ? QUICK : FULL;
  const worker = context.side('pawl');
  const sender = context.side('pawl');
  await live(context, worker, sender, QUICK);
  const series = await interleave(context, context.rounds, 'coalesce', {
    live: () => live(context, worker, sender, size),
    keyed: () => drain(context, worker, size),
  });
  return {
    figures: series.figures({ rows: 'rows/s', enqueued: 'rows/s', units: 'units' }),
    bars: { coalesce: atLeast(0.5, ratio(series.of('live', 'rows'), series.of('keyed', 'rows'))) },
  };
};

type Size = typeof FULL;

/** Rows per second from the first enqueue until all rows are settled. Updates arrive key by key, as those of an editor do. */
function live(context: Context, worker: Side, sender: Side, { rows, keys }: Size): Promise<Record<string, number>> {
  return inDatabase(context, worker, 'merge-wide', async (url) => {
    await sender.call('open', { url, profile: 'merge-wide' });
    try {
      await worker.call('work');
      const begin = performance.now();
      const run = rows / keys;
      const enqueued = await sender.call('enqueue', { count: rows, kind: 'merge', keys, run, ...BULK });
      while ((await worker.call('handled')).jobs < rows) await sleep(10);
      const handled = performance.now();
      const { complete, ms: settling } = await worker.call('settle');
      const ms = handled - begin + settling;
      if (complete !== rows) throw new Error(`of ${rows} rows ${complete} are complete`);
      const { units } = await worker.call('handled');
      return { rows: (rows / ms) * 1000, enqueued: (rows / enqueued.ms) * 1000, units };
    } finally {
      await sender.call('close');
    }
  });
}

function drain(context: Context, worker: Side, { rows, keys }: Size): Promise<Record<string, number>> {
  return inDatabase(context, worker, 'lease', async (url) => {
    await worker.call('enqueue', { count: rows, keys, ...BULK });
    await vacuum(url);
    await context.server.checkpoint();
    const { ms } = await worker.call('drain', { count: rows });
    return { rows: (rows / ms) * 1000 };
  });
}
