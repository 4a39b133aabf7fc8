import { setTimeout as sleep } from 'node:timers/promises';
import { type Bench, type Context, inDatabase, interleave } from './harness/context.ts';
import { atMost, median, percentile, ratio } from './harness/figures.ts';
import type { Side } from './harness/side.ts';
import type { Kind } from './sides/protocol.ts';

const FULL = 10_000;
const QUICK = 2000;
const PRODUCERS = 50;

/** Debounced saves of one key by many producers at the same time, which become one run, compared with as many jobs that are due at once. */
export const debounce: Bench = async (context) => {
  const count = context.quick ? QUICK : FULL;
  const worker = context.side('pawl');
  const sender = context.side('pawl');
  await save(context, worker, sender, 'noop', 1000);
  const series = await interleave(context, context.rounds, 'save', {
    debounced: () => save(context, worker, sender, 'save', count),
    plain: () => save(context, worker, sender, 'noop', count),
  });
  return {
    figures: series.figures({ save_p50: 'ms', save_p99: 'ms', units: 'runs' }),
    bars: {
      runs: atMost(2, median(series.of('debounced', 'units'))),
      producers: atMost(1.1, ratio(series.of('debounced', 'save_p99'), series.of('plain', 'save_p99'))),
    },
  };
};

function save(
  context: Context,
  worker: Side,
  sender: Side,
  kind: Kind,
  count: number,
): Promise<Record<string, number>> {
  return inDatabase(context, worker, 'debounce', async (url) => {
    await sender.call('open', { url, profile: 'debounce' });
    try {
      await worker.call('work');
      const { ms } = await sender.call('saves', { count, producers: PRODUCERS, kind });
      while ((await worker.call('handled')).jobs < count) await sleep(20);
      await worker.call('settle');
      const { units } = await worker.call('handled');
      return { save_p50: percentile(ms, 50), save_p99: percentile(ms, 99), units };
    } finally {
      await sender.call('close');
    }
  });
}
