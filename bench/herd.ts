import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { type Bench, type Context, inDatabase, interleave } from './harness/context.ts';
import { atMost, percentile, ratio } from './harness/figures.ts';
import type { Side } from './harness/side.ts';

const FULL = { jobs: 200, warmUp: 30, idleMs: 10_000 };
const QUICK = { jobs: 60, warmUp: 20, idleMs: 5000 };
const PROCESSES = 2;
const EACH = 50;
/** Wide enough that whoever ran the last job rests again. */
const GAP_MS = [30, 60] as const;
/** The server counts the commits of a session once a second at the most, and of one that rests after a while. */
const COUNTED_MS = 3000;

/** Many workers that mostly rest: what one job costs all of them, and how long it waits. */
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

interface Given {
  readonly jobs: number;
  readonly warmUp: number;
  readonly idleMs: number;
  /** In each process; one in all where it is 1. */
  readonly workers: number;
  readonly keyed: boolean;
}

function measure(
  context: Context,
  [first, ...others]: readonly Side[],
  sender: Side,
  { jobs, warmUp, idleMs, workers, keyed }: Given,
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
      const idle = await commitsWithin(monitor, () => sleep(idleMs));
      const busy = await commitsWithin(monitor, () => take(jobs, 'key'));
      const perMs = idle.commits / idle.ms;
      return {
        commits: (busy.commits - perMs * busy.ms) / jobs,
        idle: perMs * 1000,
        pickup_p50: percentile(busy.value as number[], 50),
      };
    } finally {
      await monitor.end();
      for (const side of [sender, ...more]) await side.call('close');
    }
  });
}

/** Commits of the whole database while `fn` runs and its sessions come to rest. */
async function commitsWithin<T>(
  monitor: pg.Client,
  fn: () => Promise<T>,
): Promise<{ commits: number; ms: number; value: T }> {
  await sleep(COUNTED_MS);
  const begin = performance.now();
  const before = await commitsOf(monitor);
  const value = await fn();
  await sleep(COUNTED_MS);
  return { commits: (await commitsOf(monitor)) - before, ms: performance.now() - begin, value };
}

async function commitsOf(monitor: pg.Client): Promise<number> {
  const { rows } = await monitor.query<{ n: string }>(
    'select xact_commit as n from pg_stat_database where datname = current_database()',
  );
  return Number(rows[0]?.n);
}

/** As `takePickups`, from several processes. */
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
