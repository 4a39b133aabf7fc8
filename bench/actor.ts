import { setTimeout as sleep } from 'node:timers/promises';
import { besides } from './actor-idle.ts';
import { BULK } from './harness/bulk.ts';
import { type Bench, type Context, inDatabase, interleave, type Measure } from './harness/context.ts';
import { atLeast, atMost, median, percentile, ratio } from './harness/figures.ts';
import { takePickups } from './harness/pickups.ts';
import { vacuum } from './harness/server.ts';
import type { Side } from './harness/side.ts';

const FULL = {
  actors: 5000,
  turnsMs: 8000,
  drain: 100_000,
  wakes: 300,
  idle: 1_000_000,
  idleMs: 30_000,
  claims: 300,
  warmUpMs: 2000,
};
const QUICK: typeof FULL = {
  actors: 5000,
  turnsMs: 1500,
  drain: 20_000,
  wakes: 60,
  idle: 100_000,
  idleMs: 8000,
  claims: 200,
  warmUpMs: 1500,
};
/** The most rounds of a quick run. */
const QUICK_ROUNDS = 2;
const FEW = 10;
/** How long the bench waits for the bodies of the last raises, which a slow disk may delay. After that, the measurement fails. */
const LAST_MS = 5000;
const GAP_MS = [8, 24] as const;

/**
 * Turns a second, and the time from the raise of a semaphore to the start of a body, both compared with Pawl's own queue. Also the cost of
 * sleeping actors.
 */
export const actor: Bench = async (context) => {
  if (context.peersOnly) return { figures: {}, bars: {} };
  const size = context.quick ? QUICK : FULL;
  const rounds = context.quick ? Math.min(context.rounds, QUICK_ROUNDS) : context.rounds;
  const [actors, sender, queue, producer] = [
    context.side('pawl-actor'),
    context.side('pawl-actor'),
    context.side('pawl'),
    context.side('pawl'),
  ];
  const rates = await interleave(context, rounds, 'rate', {
    actor: turns(context, actors, size),
    queue: drain(context, queue, size.drain),
  });
  const waits = await interleave(context, rounds, 'wake', {
    actor: wake(context, actors, sender, size),
    queue: pickup(context, queue, producer, size.wakes),
  });
  const [few, many] = [String(FEW), String(size.idle)];
  const idle = await besides(context, { [few]: actors, [many]: sender }, size);
  return {
    figures: {
      ...rates.figures({ rate: 'turns or jobs/s' }),
      ...waits.figures({ p50: 'ms', p95: 'ms' }),
      ...idle.figures({ statements: '/s', claim: 'ms' }),
    },
    bars: {
      turns: atLeast(wanted(rates.of('queue', 'rate')), median(rates.of('actor', 'rate'))),
      wake: atMost(1.5, ratio(waits.of('actor', 'p50'), waits.of('queue', 'p50'))),
      idle: atMost(1.05, ratio(idle.of(many, 'statements'), idle.of(few, 'statements'))),
      idle_claim: atMost(1.5, ratio(idle.of(many, 'claim'), idle.of(few, 'claim'))),
    },
  };
};

/** The bar in turns a second: what two cores allow. If other programs use the cores too, it is half the jobs a second of the queue. */
function wanted(jobs: readonly number[]): number {
  return Math.min(10_000, Math.round(median(jobs) / 2));
}

function turns(context: Context, side: Side, { actors, turnsMs, warmUpMs }: typeof FULL): Measure {
  return () =>
    inDatabase(context, side, 'turns', async (url) => {
      await side.call('enqueue', { count: actors, ...BULK });
      await vacuum(url);
      await context.server.checkpoint();
      await side.call('work');
      await sleep(warmUpMs);
      const [before, begin] = [(await side.call('handled')).units, performance.now()];
      await sleep(turnsMs);
      const after = (await side.call('handled')).units;
      return { rate: ((after - before) / (performance.now() - begin)) * 1000 };
    });
}

function drain(context: Context, side: Side, count: number): Measure {
  return () =>
    inDatabase(context, side, 'lease', async (url) => {
      await side.call('enqueue', { count, ...BULK });
      await vacuum(url);
      await context.server.checkpoint();
      return { rate: (count / (await side.call('drain', { count })).ms) * 1000 };
    });
}

/** Milliseconds from just before `incr` in one process to the start of the body in another process, which is idle. */
function wake(context: Context, worker: Side, sender: Side, { wakes, warmUpMs }: typeof FULL): Measure {
  return () =>
    inDatabase(context, worker, 'wake', async (url) => {
      await sender.call('open', { url, profile: 'wake' });
      try {
        await worker.call('enqueue', { count: 100, ...BULK });
        await worker.call('work');
        await sleep(warmUpMs);
        await wakeEach(sender, worker, 20);
        const ms = await wakeEach(sender, worker, wakes);
        return { p50: percentile(ms, 50), p95: percentile(ms, 95) };
      } finally {
        await sender.call('close');
      }
    });
}

async function wakeEach(sender: Side, worker: Side, count: number): Promise<number[]> {
  await sender.call('send', { count, gapMs: GAP_MS });
  const raised = (await sender.call('pickups')).ms;
  const started: number[] = [];
  const end = performance.now() + LAST_MS;
  for (;;) {
    started.push(...(await worker.call('pickups')).ms);
    const ms = waits(raised, started);
    if (ms.length === count) return ms;
    if (performance.now() > end) throw new Error(`only ${ms.length} of ${count} raised actors ran`);
    await sleep(50);
  }
}

/** Milliseconds from each raise to the next start of a body of its actor. If the machine stands still, one start may serve two raises. */
function waits(raised: readonly number[], started: readonly number[]): number[] {
  return pairs(raised).flatMap(([actor, at]) => {
    const next = pairs(started).find(([id, begin]) => id === actor && begin >= at);
    return next === undefined ? [] : [next[1] - at];
  });
}

/** Reads a flat list as pairs of an actor and a time. */
function pairs(list: readonly number[]): [actor: number, at: number][] {
  return Array.from({ length: list.length / 2 }, (_, n) => [list[2 * n] ?? 0, list[2 * n + 1] ?? 0]);
}

function pickup(context: Context, worker: Side, sender: Side, count: number): Measure {
  return () =>
    inDatabase(context, worker, 'lease', async (url) => {
      await sender.call('open', { url, profile: 'lease' });
      try {
        await worker.call('work');
        await takePickups(sender, worker, { count: 20, gapMs: GAP_MS });
        const ms = await takePickups(sender, worker, { count, gapMs: GAP_MS });
        return { p50: percentile(ms, 50), p95: percentile(ms, 95) };
      } finally {
        await sender.call('close');
      }
    });
}
