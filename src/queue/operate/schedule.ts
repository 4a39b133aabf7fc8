import { Cron } from 'croner';
import { InvalidInput } from '../../base/errors.ts';
import type { Duration } from '../../base/time/duration.ts';

/** Which job to enqueue again and again, and when. */
export interface ScheduleOptions {
  /**
   * Five fields (minute, hour, day, month, weekday), six with seconds first, or `@daily` and the like. At most 100 characters. If
   * the clocks are put forward, a fixed time that does not exist runs right after the gap. If they are put back, it runs once.
   */
  readonly cron: string;
  /** An IANA time zone, such as `Europe/Berlin`. Default `UTC`. */
  readonly timezone?: string | undefined;
  readonly kind: string;
  readonly payload?: unknown;
  readonly key?: string | undefined;
  /** The group of its jobs: at most n jobs of one group run at a time, where n is `concurrency: { perGroup }` of the queue. */
  readonly group?: string | undefined;
  readonly priority?: number | undefined;
  /**
   * What happens to ticks that no worker saw within a minute. `'skip'` enqueues nothing for them. `'last'` (default) enqueues a
   * single job, for the last of them. `'all'` enqueues one job for each, 100 at a time; `{ all: '1d' }` does so only for the
   * ticks of the last day.
   */
  readonly missed?: 'skip' | 'last' | 'all' | { readonly all: Duration } | undefined;
  /**
   * What a tick does while a job of this schedule is outstanding (new or in progress): `'queue'` (default) enqueues another one
   * anyway, `'skip'` enqueues none. A run by hand enqueues a job in any case.
   */
  readonly overlap?: 'queue' | 'skip' | undefined;
  /**
   * Each job waits for a random part of this time after its tick, so that jobs of schedules with the same pattern do not begin
   * together. Default: none.
   */
  readonly jitter?: Duration | undefined;
}

/** A schedule as it is stored. */
export interface ScheduleRecord {
  readonly queue: string;
  readonly name: string;
  readonly cron: string;
  readonly timezone: string;
  readonly kind: string;
  readonly key: string | null;
  readonly group: string | null;
  readonly priority: number;
  readonly payload: unknown;
  readonly missed: 'skip' | 'last' | 'all';
  /** With `missed: { all }`: the age of the oldest tick that is made up; null without a limit. */
  readonly missedForMs: number | null;
  readonly overlap: 'queue' | 'skip';
  readonly jitterMs: number | null;
  /** Null while it is paused, and if the pattern has no further tick. */
  readonly nextAt: Date | null;
  /** The last tick for which a job was enqueued. */
  readonly lastAt: Date | null;
  /** Since when it is paused; null when it is not. */
  readonly pausedAt: Date | null;
  /** True: the schedule is of the set that a program declares by `schedules()`; only that program can change it. */
  readonly ofSet: boolean;
}

/** The schedule and the tick of a job. */
export interface ScheduledFor {
  /** The schedule's name. */
  readonly name: string;
  /**
   * The tick: the time by the pattern, however late the job is enqueued. If the schedule was run by hand, the time of that run.
   * With `missed: 'last'`, the last of the missed ticks.
   */
  readonly at: Date;
}

/** Due schedules, by the database's clock; times in ms. */
export interface Due {
  readonly now: number;
  readonly due: readonly DueSchedule[];
  /** How long until the next tick; null if there is none. */
  readonly wait: number | null;
}

export interface DueSchedule {
  readonly queue: number;
  readonly name: string;
  readonly cron: string;
  readonly timezone: string;
  readonly missed: 'skip' | 'last' | 'all';
  /** With `all`: the age of the oldest tick that is made up. */
  readonly missedFor?: number | null;
  /** The first tick that has not been handled. */
  readonly next: number;
}

/** The next step for a due schedule. */
export interface Tick {
  readonly queue: number;
  readonly name: string;
  readonly cron: string;
  readonly seen: number;
  /** The ticks for which to enqueue a job, in order. */
  readonly ticks: readonly number[];
  /** The next tick to come; null: never. */
  readonly next: number | null;
}

/** A tick that a worker finds later than this counts as missed. */
const MISSED_MS = 60_000;
/** The most jobs of one schedule per transaction. */
const AT_ONCE = 100;

/**
 * The first tick after `afterMs`, in ms; undefined if there is none.
 * @throws InvalidInput  the pattern or the zone is malformed
 */
export function nextTick(cron: string, timezone: string, afterMs: number): number | undefined {
  return ticksOf(cron, timezone).nextRun(new Date(afterMs))?.getTime();
}

/** A schedule's next ticks, starting with a known one. Empty if there is none. */
export function nextTicks(cron: string, timezone: string, from: Date | null, count: number): Date[] {
  if (from === null) return [];
  return [from, ...ticksOf(cron, timezone).nextRuns(count - 1, from)].slice(0, count);
}

/** Computes the ticks of a schedule for which a job is due, and its next tick. */
export function planTick(schedule: DueSchedule, now: number): Tick {
  const { queue, name, cron, timezone, missed, missedFor, next } = schedule;
  const pattern = ticksOf(cron, timezone);
  const following = (ms: number): number | null => pattern.nextRun(new Date(ms))?.getTime() ?? null;
  const ticks: number[] = [];
  let at: number | null = next;
  if (next < now - MISSED_MS && missed !== 'all') {
    at = following(now - MISSED_MS);
    if (missed === 'last') ticks.push(lastBefore(pattern, at ?? now) ?? next);
  }
  const oldest = now - (missedFor ?? Infinity);
  if (missed === 'all' && next < oldest) at = following(oldest - 1);
  while (at !== null && at <= now && ticks.length < AT_ONCE) {
    ticks.push(at);
    at = following(at);
  }
  return { queue, name, cron, seen: next, ticks, next: at };
}

function lastBefore(pattern: Cron, ms: number): number | undefined {
  // Starts a millisecond before, so that a tick within the same second counts.
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
    throw new InvalidInput(`"${timezone}" is no known time zone; give an IANA name, such as Europe/Berlin`, {
      field: 'timezone',
      cause,
    });
  }
  try {
    return new Cron(cron, { timezone, mode: '5-or-6-parts', paused: true });
  } catch (cause) {
    const why = cause instanceof Error ? cause.message.replace(/^CronPattern: /, '') : String(cause);
    throw new InvalidInput(`cron "${cron}" is invalid: ${why}`, { field: 'cron', cause });
  }
}
