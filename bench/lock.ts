import { setTimeout as sleep } from 'node:timers/promises';
import { type Bench, type Context, inDatabase, interleave, type Measure } from './harness/context.ts';
import { atLeast, atMost, median, percentile, ratio } from './harness/figures.ts';
import type { Side } from './harness/side.ts';
import type { HeldOnce } from './sides/protocol.ts';

const FULL = {
  warmUp: 3000,
  pairs: 2000,
  handoffs: 300,
  rushMs: 6000,
  idleMs: 12_000,
  intervals: 6,
  beatLeaseMs: 6000,
  crowdWarmUpMs: 2000,
};
const QUICK: typeof FULL = {
  warmUp: 300,
  pairs: 300,
  handoffs: 40,
  rushMs: 1000,
  idleMs: 1700,
  intervals: 2,
  beatLeaseMs: 2000,
  crowdWarmUpMs: 1200,
};
/**
 * How long a side runs before it is measured, so that plans are prepared and code is compiled. `warmUp` says the same as a number of
 * pairs. `crowdWarmUpMs` is longer, because ten processes with three connections each take longer to start.
 */
const WARM_UP_MS = 500;
/** How long a process holds the lock in the hand-offs: long enough that the other process waits when the hold ends. */
const HOLD_MS = [8, 24] as const;
/** The crowd: 100 waiters. */
const PROCESSES = 10;
const WAITERS_EACH = 10;
/** How often a waiter polls although it will be notified: after a third of its own lease of 6 s, or up to a fifth sooner. */
const LOOK_EVERY_MS = 2000 * 0.8;
const HELD = 1000;

/** The cost of a lock compared with plain writes, the time of a hand-over to the next waiter, the cost of a crowd, and of heartbeats. */
export const lock: Bench = async (context) => {
  const size = context.quick ? QUICK : FULL;
  if (context.peersOnly) return { figures: {}, bars: {} };
  const one = context.side('pawl-locks');
  const crowd = Array.from({ length: PROCESSES }, () => context.side('pawl-locks'));
  const series = await interleave(context, context.rounds, 'lock', {
    uncontended: uncontended(context, one, size),
    handoff: handoff(context, crowd.slice(0, 2), size.handoffs),
    herd: herd(context, one, crowd, size),
  });
  // These measurements count statements, so one round is enough.
  const counts = await interleave(context, 1, 'lock', {
    idle: idle(context, one, crowd, size.idleMs),
    heartbeats: heartbeats(context, one, size.beatLeaseMs, size.intervals),
  });
  const of = (what: string, who: string): readonly number[] => series.of(who, what);
  return {
    figures: {
      ...series.figures({
        pair: 'ms',
        two_writes: 'ms',
        handoff_p50: 'ms',
        handoff_p99: 'ms',
        write: 'ms',
        grants: '1/s',
        alone: '1/s',
      }),
      ...counts.figures({ looks: 'per waiter and poll', beats: 'per interval' }),
    },
    bars: {
      uncontended: atMost(1.3, ratio(of('pair', 'uncontended'), of('two_writes', 'uncontended'))),
      handoff_p50: atMost(3, ratio(of('handoff_p50', 'handoff'), of('write', 'handoff'))),
      handoff_p99: atMost(20, median(of('handoff_p99', 'handoff'))),
      herd: atLeast(0.5, ratio(of('grants', 'herd'), of('alone', 'herd'))),
      // One poll. The tenth is for the first in line, which polls more often, and for the beginning and the end of the measurement.
      herd_looks: atMost(1.1, median(counts.of('idle', 'looks'))),
      heartbeats: atMost(1, median(counts.of('heartbeats', 'beats'))),
    },
  };
};

/** Milliseconds of an acquire with its release, and of two single-statement writes on the same connection. */
function uncontended(context: Context, side: Side, size: { warmUp: number; pairs: number }): Measure {
  return () =>
    inDatabase(context, side, 'single', async () => {
      await side.call('pairs', { count: size.warmUp });
      const { pairs, writes } = await side.call('pairs', { count: size.pairs });
      return { pair: median(pairs), two_writes: median(writes) };
    });
}

/** Milliseconds from just before the release in one process to the grant in another that waits. */
function handoff(context: Context, sides: readonly Side[], count: number): Measure {
  return () =>
    inCrowd(context, sides, async () => {
      const take = async (turns: number): Promise<HeldOnce[]> => {
        const args = { name: 'turns', count: turns, gapMs: HOLD_MS };
        const answers = await Promise.all(sides.map((side) => side.call('turns', args)));
        return answers.flatMap(({ holds }) => holds).sort((a, b) => a.grantedAt - b.grantedAt);
      };
      await take(20);
      const holds = await take(count);
      const ms = holds.slice(1).map(({ grantedAt }, index) => grantedAt - (holds[index]?.releasedAt ?? Number.NaN));
      return {
        handoff_p50: percentile(ms, 50),
        handoff_p99: percentile(ms, 99),
        write: median(holds.map(({ writeMs }) => writeMs)),
      };
    });
}

/**
 * Grants per second among 100 waiters that want one lock all the time, and of one process that has a lock for itself. That process is
 * measured before and after the crowd, because the time of a flush to the disk changes within seconds.
 */
function herd(
  context: Context,
  one: Side,
  crowd: readonly Side[],
  { rushMs: ms, crowdWarmUpMs }: { rushMs: number; crowdWarmUpMs: number },
): Measure {
  const window = (fromMs: number): { fromMs: number; ms: number } => ({ fromMs, ms: fromMs + ms });
  const perSecond = (rushes: readonly { grants: number }[]): number =>
    (rushes.reduce((sum, { grants }) => sum + grants, 0) / ms) * 1000;
  return () =>
    inCrowd(context, [one, ...crowd], async () => {
      const alone = async (): Promise<number> =>
        perSecond([await one.call('rush', { name: 'alone', waiters: 1, ...window(WARM_UP_MS) })]);
      const before = await alone();
      const args = { name: 'herd', waiters: WAITERS_EACH, ...window(crowdWarmUpMs) };
      const grants = perSecond(await Promise.all(crowd.map((side) => side.call('rush', args))));
      return { alone: (before + (await alone())) / 2, grants };
    });
}

/** Statements that each of 100 waiters sends in one poll interval while nothing happens. */
function idle(context: Context, one: Side, crowd: readonly Side[], ms: number): Measure {
  return () =>
    inCrowd(context, [one, ...crowd], async () => {
      await one.call('hold', { name: 'idle' });
      return { looks: await looksWhile(crowd, ms) };
    });
}

async function looksWhile(crowd: readonly Side[], ms: number): Promise<number> {
  const looks = async (): Promise<number> => {
    const counts = await Promise.all(crowd.map((side) => side.call('looks')));
    return counts.reduce((sum, { count }) => sum + count, 0);
  };
  await Promise.all(crowd.map((side) => side.call('queue', { name: 'idle', waiters: WAITERS_EACH })));
  await sleep(LOOK_EVERY_MS);
  const before = await looks();
  await sleep(ms);
  const sent = (await looks()) - before;
  await Promise.all(crowd.map((side) => side.call('leave')));
  return sent / (PROCESSES * WAITERS_EACH) / (ms / LOOK_EVERY_MS);
}

/** Statements per interval that renew 1,000 locks of one process. */
function heartbeats(context: Context, side: Side, leaseMs: number, intervals: number): Measure {
  return () =>
    inDatabase(context, side, 'crowd', async () => {
      const { perInterval } = await side.call('heartbeats', { locks: HELD, leaseMs, intervals });
      return { beats: perInterval };
    });
}

/** Opens several sides on one empty database. */
async function inCrowd<T>(context: Context, sides: readonly Side[], run: () => Promise<T>): Promise<T> {
  const [first, ...others] = sides;
  if (first === undefined) throw new Error('a crowd needs somebody');
  return inDatabase(context, first, 'crowd', async (url) => {
    await Promise.all(others.map((side) => side.call('open', { url, profile: 'crowd' })));
    try {
      return await run();
    } finally {
      await Promise.all(others.map((side) => side.call('close')));
    }
  });
}
