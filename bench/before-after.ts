import { BULK } from './harness/bulk.ts';
import { type Bench, type Context, inDatabase, interleave, type Measure } from './harness/context.ts';
import { atLeast, atMost, type Bar, percentile, ratio } from './harness/figures.ts';
import { takePickups } from './harness/pickups.ts';
import { processorMs } from './harness/processor.ts';
import { vacuum } from './harness/server.ts';
import type { Side } from './harness/side.ts';

const FULL = { drain: 300_000, keys: 3000, transaction: 20_000, pickups: 300 };
const QUICK = { drain: 20_000, keys: 200, transaction: 3000, pickups: 50 };
const WARM_UP = 20;
const GAP_MS = [8, 24] as const;
const UNITS = { drain: 'jobs/s', enqueue: 'jobs/s', drain_cpu: 'µs/job', enqueue_cpu: 'µs/job' };

/** The jobs of a drain: their number, the number of their keys, and the profile of the side. */
interface Load {
  readonly profile: string;
  readonly count: number;
  readonly keys?: number;
}

/**
 * Compares this checkout with another one, in turns on one server. Each change of the queue must pass this bench. It says nothing about
 * peers. Each checkout runs its own build, its own schema and its own side.
 */
export const beforeAfter: Bench = async (context) => {
  const { rounds, sideBefore, quick } = context;
  if (sideBefore === undefined) throw new Error('before-after needs --before DIR, the other checkout, built');
  const size = quick ? QUICK : FULL;
  const after = context.side('pawl');
  const before = sideBefore('pawl');
  const loads: Record<string, Load> = {
    drain: { profile: 'lease', count: size.drain },
    keyed: { profile: 'lease', count: size.drain, keys: size.keys },
    transaction: { profile: 'transaction', count: size.transaction },
  };
  const figures = {};
  const bars: Record<string, Bar> = {};
  for (const [name, load] of Object.entries(loads)) {
    // Each side compiles its code here. Otherwise the first round is slower than the others.
    for (const side of [after, before]) await drain(context, side, { ...load, count: load.count / 5 });
    const series = await interleave(context, rounds, name, {
      after: () => drain(context, after, load),
      before: () => drain(context, before, load),
    });
    for (const what of ['drain', 'enqueue']) {
      bars[`${name}_${what}`] = atLeast(0.97, ratio(series.of('after', what), series.of('before', what)));
      const cost = `${what}_cpu`;
      if (series.of('after', cost).length === 0) continue;
      bars[`${name}_${cost}`] = atMost(1.03, ratio(series.of('after', cost), series.of('before', cost)));
    }
    for (const [what, figure] of Object.entries(series.figures(UNITS))) {
      Object.assign(figures, { [`${name}_${what}`]: figure });
    }
  }
  const pickups = await interleave(context, rounds, 'pick-up', {
    after: pickup(context, after, context.side('pawl'), size.pickups),
    before: pickup(context, before, sideBefore('pawl'), size.pickups),
  });
  bars['pickup'] = atMost(1.03, ratio(pickups.of('after', 'pickup_p50'), pickups.of('before', 'pickup_p50')));
  return { figures: { ...figures, ...pickups.figures({ pickup_p50: 'ms' }) }, bars };
};

/** Jobs per second of an enqueue in bulk and of a drain by one worker process; and microseconds of processor time a job, of process and server. */
function drain(context: Context, side: Side, { profile, count, keys }: Load): Promise<Record<string, number>> {
  return inDatabase(context, side, profile, async (url) => {
    const enqueue = { count, ...(keys !== undefined && { keys }), ...BULK };
    const enqueued = await costOf(context, side, () => side.call('enqueue', enqueue));
    await vacuum(url);
    await context.server.checkpoint();
    const drained = await costOf(context, side, () => side.call('drain', { count }));
    return {
      enqueue: (count / enqueued.ms) * 1000,
      drain: (count / drained.ms) * 1000,
      ...(enqueued.cpuMs !== undefined && { enqueue_cpu: (enqueued.cpuMs / count) * 1000 }),
      ...(drained.cpuMs !== undefined && { drain_cpu: (drained.cpuMs / count) * 1000 }),
    };
  });
}

/** The answer of a command, and the processor time that the side and the server used for it, if /proc has it. */
async function costOf(
  { server: { pid } }: Context,
  side: Side,
  run: () => Promise<{ readonly ms: number }>,
): Promise<{ readonly ms: number; readonly cpuMs: number | undefined }> {
  if (pid === undefined) return { ...(await run()), cpuMs: undefined };
  const spent = async (): Promise<number> => (await processorMs(pid)) + (await processorMs(side.pid));
  const before = await spent();
  const { ms } = await run();
  return { ms, cpuMs: (await spent()) - before };
}

/** Milliseconds from just before the enqueue call in one process to the start of the handler in another process, which is idle. */
function pickup(context: Context, worker: Side, sender: Side, count: number): Measure {
  return () =>
    inDatabase(context, worker, 'lease', async (url) => {
      await sender.call('open', { url, profile: 'lease' });
      try {
        await worker.call('work');
        await takePickups(sender, worker, { count: WARM_UP, gapMs: GAP_MS });
        return { pickup_p50: percentile(await takePickups(sender, worker, { count, gapMs: GAP_MS }), 50) };
      } finally {
        await sender.call('close');
      }
    });
}
