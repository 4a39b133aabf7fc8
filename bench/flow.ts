import { BULK } from './harness/bulk.ts';
import { type Bench, type Context, inDatabase, interleave } from './harness/context.ts';
import { atLeast, atMost, percentile, ratio } from './harness/figures.ts';
import { takePickups } from './harness/pickups.ts';
import { vacuum } from './harness/server.ts';
import type { Side } from './harness/side.ts';

const FULL = { waits: 300, members: 10_000, dag: { layers: 20, width: 500 } };
const QUICK = { waits: 50, members: 4000, dag: { layers: 20, width: 100 } };
const WARM_UP = 20;
/** As in the pick-ups of the bench `queue`. */
const GAP_MS = [8, 24] as const;

/** Jobs with a waiter, compared with jobs without one. The waiter is a caller of `run`, the callback of a batch, or the next jobs of a graph. */
export const flow: Bench = async (context) => {
  const size = context.quick ? QUICK : FULL;
  const { rounds, peersOnly } = context;
  const pgBoss = context.side('pg-boss');
  const pawl = peersOnly ? undefined : context.side('pawl');
  const jobs = size.dag.layers * size.dag.width;

  // Each side compiles its code here. Otherwise the first round is slower than the others.
  if (pawl) await drain(context, pawl, 'lease', (side) => side.call('dag', { ...QUICK.dag, after: 'two' }), 2000);
  await drain(context, pgBoss, 'flow', (side) => side.call('dag', { ...QUICK.dag, after: 'two' }), 2000);
  const graphs = await interleave(context, rounds, 'graph', {
    ...(pawl && {
      pawl: () => drain(context, pawl, 'lease', (side) => side.call('dag', { ...size.dag, after: 'two' }), jobs),
      // One watch for each layer. The peer would write a row for each of the 5 million edges.
      'pawl-layers': () =>
        drain(context, pawl, 'lease', (side) => side.call('dag', { ...size.dag, after: 'all' }), jobs),
      'pawl-plain': () => drain(context, pawl, 'lease', (side) => side.call('enqueue', { count: jobs, ...BULK }), jobs),
    }),
    'pg-boss': () => drain(context, pgBoss, 'flow', (side) => side.call('dag', { ...size.dag, after: 'two' }), jobs),
  });
  const graphFigures = graphs.figures({ drain: 'jobs/s' });
  if (pawl === undefined) return { figures: graphFigures, bars: {} };

  const { members } = size;
  const batches = await interleave(context, rounds, 'batch', {
    // The callback is a job too.
    members: () => fan(context, pawl, (side) => side.call('members', { count: members }), members + 1),
    alone: () => fan(context, pawl, (side) => side.call('enqueue', { count: members, ...BULK }), members),
  });
  const waits = await interleave(context, rounds, 'wait', { pawl: () => wait(context, pawl, size.waits) });
  return {
    figures: {
      ...graphFigures,
      ...batches.figures({ fan: 'jobs/s' }),
      ...waits.figures({ wait_p50: 'ms', wait_p95: 'ms', pickup_p50: 'ms' }),
    },
    bars: {
      wait: atMost(2, ratio(waits.of('pawl', 'wait_p50'), waits.of('pawl', 'pickup_p50'))),
      fan_in: atLeast(0.6, ratio(batches.of('members', 'fan'), batches.of('alone', 'fan'))),
      dag_layers: atLeast(0.6, ratio(graphs.of('pawl-layers', 'drain'), graphs.of('pawl-plain', 'drain'))),
      dag: atLeast(0.6, ratio(graphs.of('pawl', 'drain'), graphs.of('pawl-plain', 'drain'))),
      dag_peer: atLeast(3, ratio(graphs.of('pawl', 'drain'), graphs.of('pg-boss', 'drain'))),
    },
  };
};

/** Jobs per second of one worker, after all jobs are enqueued. */
function drain(
  context: Context,
  side: Side,
  profile: string,
  enqueue: (side: Side) => Promise<unknown>,
  count: number,
): Promise<{ drain: number }> {
  return inDatabase(context, side, profile, async (url) => {
    await enqueue(side);
    await vacuum(url);
    await context.server.checkpoint();
    const { ms } = await side.call('drain', { count });
    return { drain: (count / ms) * 1000 };
  });
}

async function fan(
  context: Context,
  side: Side,
  enqueue: (side: Side) => Promise<unknown>,
  count: number,
): Promise<{ fan: number }> {
  return { fan: (await drain(context, side, 'lease', enqueue, count)).drain };
}

/** Milliseconds from the call in one process to the result of a handler in another one, and to the start of the handler. */
function wait(context: Context, worker: Side, count: number): Promise<Record<string, number>> {
  const sender = context.side(worker.name);
  return inDatabase(context, worker, 'lease', async (url) => {
    await sender.call('open', { url, profile: 'lease' });
    try {
      await worker.call('work');
      await sender.call('runs', { count: WARM_UP, gapMs: GAP_MS });
      await worker.call('pickups');
      const begun = await takePickups(sender, worker, { count, gapMs: GAP_MS });
      const { ms } = await sender.call('runs', { count, gapMs: GAP_MS });
      return { wait_p50: percentile(ms, 50), wait_p95: percentile(ms, 95), pickup_p50: percentile(begun, 50) };
    } finally {
      await sender.call('close');
    }
  });
}
