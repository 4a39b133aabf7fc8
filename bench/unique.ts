import { BULK } from './harness/bulk.ts';
import { type Bench, type Context, inDatabase, interleave } from './harness/context.ts';
import { atLeast, ratio } from './harness/figures.ts';
import type { Side } from './harness/side.ts';
import type { Kind } from './sides/protocol.ts';

const FULL = 100_000;
const QUICK = 20_000;

/** Enqueues of a unique kind (one outstanding job for each key), compared with jobs of as many keys that are not unique. */
export const unique: Bench = async (context) => {
  const count = context.quick ? QUICK : FULL;
  const pawl = context.side('pawl');
  await enqueue(context, pawl, 'once', 2000);
  const series = await interleave(context, context.rounds, 'enqueue', {
    unique: () => enqueue(context, pawl, 'once', count),
    plain: () => enqueue(context, pawl, 'noop', count),
  });
  return {
    figures: series.figures({ enqueue: 'jobs/s' }),
    bars: { unique: atLeast(0.6, ratio(series.of('unique', 'enqueue'), series.of('plain', 'enqueue'))) },
  };
};

function enqueue(context: Context, side: Side, kind: Kind, count: number): Promise<{ enqueue: number }> {
  return inDatabase(context, side, 'unique', async () => {
    await context.server.checkpoint();
    const { ms } = await side.call('enqueue', { count, kind, keys: count, ...BULK });
    return { enqueue: (count / ms) * 1000 };
  });
}
