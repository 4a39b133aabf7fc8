import { BULK } from './harness/bulk.ts';
import { type Bench, type Context, inDatabase, interleave } from './harness/context.ts';
import { atLeast, fastest, ratio } from './harness/figures.ts';
import { vacuum } from './harness/server.ts';
import type { Side } from './harness/side.ts';
import { ATTEMPTS } from './sides/load.ts';
import type { Kind } from './sides/protocol.ts';

const FULL = { warmUp: 2000, failing: 20_000, drain: 300_000 };
const QUICK = { warmUp: 500, failing: 5000, drain: 100_000 };
/** Fewer jobs of the peers fail, because they take long. graphile-worker also takes longer for each job if there are more of them. */
const FEWER = 5000;

/** As when a third party is down: jobs that fail in all of their attempts, and a queue in which a hundredth of the jobs fail once. */
export const retry: Bench = async (context) => {
  const size = context.quick ? QUICK : FULL;
  const { rounds, peersOnly } = context;
  const graphile = context.side('graphile');
  const pgBoss = context.side('pg-boss');
  const pawl = peersOnly ? undefined : context.side('pawl');

  // Each side compiles its code here. Otherwise the first round is slower than the others.
  if (pawl) await exhaust(context, pawl, 'retry', size.warmUp);
  await exhaust(context, graphile, 'local-queue', QUICK.warmUp);
  await exhaust(context, pgBoss, 'retry', size.warmUp);
  const failing = await interleave(context, rounds, 'failing', {
    ...(pawl && { pawl: () => exhaust(context, pawl, 'retry', size.failing) }),
    'graphile-local-queue': () => exhaust(context, graphile, 'local-queue', FEWER),
    'pg-boss': () => exhaust(context, pgBoss, 'retry', FEWER),
    'pg-boss-one-error': () => exhaust(context, pgBoss, 'retry-batch', size.failing),
  });
  const figures = failing.figures({ attempts: 'attempts/s' });
  if (pawl === undefined) return { figures, bars: {} };

  const mixed = await interleave(context, rounds, 'drain', {
    'pawl-calm': () => drain(context, pawl, 'noop', size.drain),
    'pawl-hundredth-fails': () => drain(context, pawl, 'flaky', size.drain),
  });
  // Not pg-boss with one error for all jobs of a batch: it writes one failure, and its rows do not say with which error a job failed.
  const peer = fastest(failing.of('graphile-local-queue', 'attempts'), failing.of('pg-boss', 'attempts'));
  return {
    figures: { ...figures, ...mixed.figures({ drain: 'jobs/s' }) },
    bars: {
      retry: atLeast(2, ratio(failing.of('pawl', 'attempts'), peer)),
      hundredth: atLeast(0.8, ratio(mixed.of('pawl-hundredth-fails', 'drain'), mixed.of('pawl-calm', 'drain'))),
    },
  };
};

/** Attempts per second of jobs that fail in each attempt. */
function exhaust(context: Context, side: Side, profile: string, count: number): Promise<{ attempts: number }> {
  return inDatabase(context, side, profile, async (url) => {
    await side.call('enqueue', { count, kind: 'doomed', ...BULK });
    await vacuum(url);
    await context.server.checkpoint();
    const { ms } = await side.call('exhaust', { count });
    return { attempts: ((count * ATTEMPTS) / ms) * 1000 };
  });
}

/** Jobs per second until the last job is settled and needs no retry. */
function drain(context: Context, side: Side, kind: Kind, count: number): Promise<{ drain: number }> {
  return inDatabase(context, side, 'retry', async (url) => {
    await side.call('enqueue', { count, kind, ...BULK });
    await vacuum(url);
    await context.server.checkpoint();
    const { ms } = await side.call('drain', { count });
    return { drain: (count / ms) * 1000 };
  });
}
