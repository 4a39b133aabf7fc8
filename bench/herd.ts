import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { type Bench, type Context, inDatabase, interleave } from './harness/context.ts';
import { atMost, percentile, ratio } from './harness/figures.ts';
import type { Side } from './harness/side.ts';

const FULL = { jobs: 300, warmUp: 30 };
const QUICK = { jobs: 100, warmUp: 20 };
const PROCESSES = 2;
const EACH = 50;
/** The pause between two jobs: long enough that the worker that ran the last job sleeps again. */
const GAP_MS = [30, 60] as const;
/** The server's statistics include the commits of an idle session after ten seconds. */
const COUNTED_MS = 11_000;

/**
 * Many workers that are mostly idle: how many commits one job causes in all of them, and how long it waits. Idle workers also commit polls
 * and heartbeats, whatever the number of jobs. The bench measures these commits first, subtracts them, and prints them separately.
 */
export const herd: Bench = async (context) => {
  const size = context.quick ? QUICK : FULL;
  const sides = Array.from({ length: PROCESSES }, () => context.side('pawl'));
  const sender = context.side('pawl');
  const run = (workers: number, keyed: boolean) => () => measure(context, sides, sender, { ...size, workers, keyed });
  const series = await interleave(context, context.rounds, 'herd', {
    'herd-keyed': run(EACH, true),
    'herd-unkeyed': run(EACH, false),
    'one-keyed': run(1, true),
    'one-unkeyed': run(1, false),
  });
  const commits = (who: string): number => Math.max(...series.of(who, 'commits'));
  return {
    figures: series.figures({ commits: 'a job', idle: 'commits/s', pickup_p50: 'ms' }),
    bars: {
      commits_keyed: atMost(4, commits('herd-keyed')),
      commits_unkeyed: atMost(4, commits('herd-unkeyed')),
      pickup_keyed: atMost(1.5, ratio(series.of('herd-keyed', 'pickup_p50'), series.of('one-keyed', 'pickup_p50'))),
      pickup_unkeyed: atMost(
        1.5,
        ratio(series.of('herd-unkeyed', 'pickup_p50'), series.of('one-unkeyed', 'pickup_p50')),
      ),
    },
  };
};

interface Load {
  readonly jobs: number;
  readonly warmUp: number;
  /** Workers of each process. If there is 1, only one process runs. */
  readonly workers: number;
  readonly keyed: boolean;
}

function measure(
  context: Context,
  [first, ...others]: readonly Side[],
  sender: Side,
  { jobs, warmUp, workers, keyed }: Load,
): Promise<Record<string, number>> {
  if (first === undefined) throw new Error('there is no process');
  return inDatabase(context, first, 'idle', async (url) => {
    const more = workers > 1 ? others : [];
    for (const side of [sender, ...more]) await side.call('open', { url, profile: 'idle' });
    const monitor = new pg.Client(url);
    await monitor.connect();
    try {
      for (const side of [first, ...more]) await side.call('work', { workers });
      const take = (count: number, prefix: string): Promise<number[]> =>
        pickUps(sender, [first, ...more], { count, gapMs: GAP_MS, ...(keyed && { prefix }) });
      await take(warmUp, 'warm');
      await sleep(COUNTED_MS);
      const rest = await commitsOf(monitor);
      await sleep(2 * COUNTED_MS);
      const before = await commitsOf(monitor);
      const ms = await take(jobs, 'key');
      await sleep(COUNTED_MS);
      const after = await commitsOf(monitor);
      const idle = (before.n - rest.n) / (before.at - rest.at);
      return {
        commits: (after.n - before.n - idle * (after.at - before.at)) / jobs,
        idle: idle * 1000,
        pickup_p50: percentile(ms, 50),
      };
    } finally {
      await monitor.end();
      for (const side of [sender, ...more]) await side.call('close');
    }
  });
}

/** Commits of the whole database so far, and the time at which they were read. */
async function commitsOf(monitor: pg.Client): Promise<{ n: number; at: number }> {
  const { rows } = await monitor.query<{ n: string }>(
    'select xact_commit as n from pg_stat_database where datname = current_database()',
  );
  return { n: Number(rows[0]?.n), at: performance.now() };
}

/** As `takePickups`, for several processes with workers. */
async function pickUps(
  sender: Side,
  sides: readonly Side[],
  args: { count: number; gapMs: readonly [number, number]; prefix?: string },
): Promise<number[]> {
  await sender.call('send', args);
  const ms: number[] = [];
  for (let waited = 0; ms.length < args.count; waited++) {
    for (const side of sides) ms.push(...(await side.call('pickups')).ms);
    if (waited > 2000) throw new Error(`picked up ${ms.length} of ${args.count} jobs`);
    await sleep(20);
  }
  return ms;
}
