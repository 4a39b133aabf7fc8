import { Cron } from 'croner';
import { InvalidInput } from '../../base/errors.ts';

/** When, and what, to enqueue again and again. */
export interface ScheduleOptions {
  /**
   * Five fields (minute, hour, day, month, weekday), six with seconds before them, or `@daily` and the like. At most 100
   * characters. Where a clock is put forward, a fixed time that does not exist runs right after; where it is put back, once.
   */
  readonly cron: string;
  /** An IANA time zone, such as `Europe/Berlin`. Default `UTC`. */
  readonly timezone?: string | undefined;
  readonly kind: string;
  readonly payload?: unknown;
  readonly key?: string | undefined;
  readonly priority?: number | undefined;
  /**
   * What becomes of ticks that nobody saw within a minute, because no worker was running: `'skip'` forgets them, `'one'`
   * (default) enqueues one job for all of them, for the last one, `'all'` one for each, 100 at a time.
   */
  readonly missed?: 'skip' | 'one' | 'all' | undefined;
}

/** A schedule as it is kept. */
export interface ScheduleRecord {
  readonly queue: string;
  readonly name: string;
  readonly cron: string;
  readonly timezone: string;
  readonly kind: string;
  readonly key: string | null;
  readonly priority: number;
  readonly payload: unknown;
  readonly missed: 'skip' | 'one' | 'all';
  /** Null while it is paused, and when the pattern has no tick any more. */
  readonly nextAt: Date | null;
  /** The last tick for which a job was enqueued. */
  readonly lastAt: Date | null;
  /** Since when it is paused; null when it is not. */
  readonly pausedAt: Date | null;
}

/** What a job of a schedule is for. */
export interface ScheduledFor {
  /** The schedule's name. */
  readonly name: string;
  /**
   * The tick: the time that the pattern names, whenever the job is enqueued. Where the schedule was run by hand, the time of that. With
   * `missed: 'one'`, the last of the ticks that were missed.
   */
  readonly at: Date;
}

/** What is due, by the database's clock; times in ms. */
export interface Due {
  readonly now: number;
  readonly due: readonly DueSchedule[];
  /** Until the next tick; null when there is none. */
  readonly wait: number | null;
}

export interface DueSchedule {
  readonly queue: number;
  readonly name: string;
  readonly cron: string;
  readonly timezone: string;
  readonly missed: 'skip' | 'one' | 'all';
  /** The first tick that nobody has dealt with. */
  readonly next: number;
}

/** What to do about it. */
export interface Tick {
  readonly queue: number;
  readonly name: string;
  readonly cron: string;
  readonly seen: number;
  /** The ticks to enqueue a job for, in order. */
  readonly ticks: readonly number[];
  /** The next tick to come; null: never. */
  readonly next: number | null;
}

/** A tick that is seen later than this was missed. */
const MISSED_MS = 60_000;
/** Jobs of one schedule enqueued in one transaction. */
const AT_ONCE = 100;

/**
 * The first tick after `afterMs`, in ms; undefined when there is none.
 * @throws InvalidInput  the pattern or the zone cannot be understood
 */
export function nextTick(cron: string, timezone: string, afterMs: number): number | undefined {
  return ticksOf(cron, timezone).nextRun(new Date(afterMs))?.getTime();
}

/** A schedule's next ticks, from one that is known on. Empty when there is none. */
export function nextTicks(cron: string, timezone: string, from: Date | null, count: number): Date[] {
  if (from === null) return [];
  return [from, ...ticksOf(cron, timezone).nextRuns(count - 1, from)].slice(0, count);
}

/** Reckons for which ticks of a schedule a job is due, and its next tick. */
export function planTick(schedule: DueSchedule, now: number): Tick {
  const { queue, name, cron, timezone, missed, next } = schedule;
  const pattern = ticksOf(cron, timezone);
  const following = (ms: number): number | null => pattern.nextRun(new Date(ms))?.getTime() ?? null;
  const ticks: number[] = [];
  let at: number | null = next;
  if (next < now - MISSED_MS && missed !== 'all') {
    at = following(now - MISSED_MS);
    if (missed === 'one') ticks.push(lastBefore(pattern, at ?? now) ?? next);
  }
  while (at !== null && at <= now && ticks.length < AT_ONCE) {
    ticks.push(at);
    at = following(at);
  }
  return { queue, name, cron, seen: next, ticks, next: at };
}

function lastBefore(pattern: Cron, ms: number): number | undefined {
  // Up to a millisecond before: what falls into the same second as that moment counts.
  return pattern.previousRuns(1, new Date(ms - 1))[0]?.getTime();
}

function ticksOf(cron: string, timezone: string): Cron {
  if (!/^(@[a-z]+|\S+(\s+\S+){4,5})$/i.test(cron)) {
    throw new InvalidInput(`cron "${cron}" must have five fields, six with seconds, or be @daily and the like`, {
      field: 'cron',
    });
  }
  try {
    new Intl.DateTimeFormat('en', { timeZone: timezone });
  } catch (cause) {
    throw new InvalidInput(
      `"${timezone}" is no time zone that is known here; give an IANA name, such as Europe/Berlin`,
      {
        field: 'timezone',
        cause,
      },
    );
  }
  try {
    return new Cron(cron, { timezone, mode: '5-or-6-parts', paused: true });
  } catch (cause) {
    const why = cause instanceof Error ? cause.message.replace(/^CronPattern: /, '') : String(cause);
    throw new InvalidInput(`cron "${cron}" cannot be understood: ${why}`, { field: 'cron', cause });
  }
}
