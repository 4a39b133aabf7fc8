import { InvalidInput } from '../../base/errors.ts';
import { bool, checkOptions, custom, duration, optional, text } from '../../base/options/options.ts';
import { refusal } from '../../base/options/refusal.ts';
import type { Duration } from '../../base/time/duration.ts';
import type { TimerTable, TimerTimes } from '../store.ts';

/** From when a timer counts, and whether it comes again. */
export interface VisitTimerOptions {
  /**
   * From when it counts, in time of the database: `a.now`, the `at` of a message. Default: since the actor entered its state, or since
   * the timer was cancelled. Of no effect once the timer runs.
   */
  readonly from?: Date | undefined;
  /** It passes again and again, after each such time; what passed several times before a turn came counts once. Default false. */
  readonly repeat?: boolean | undefined;
}

/** Of one visit. They are part of each claim of the actor. */
const MOST = 100;

const moment = custom('a Date', (value, place): Date => {
  if (value instanceof Date && !Number.isNaN(value.getTime())) return value;
  throw refusal(place, value, 'a Date, such as a.now');
});

const timerShape = {
  name: text({ min: 1, max: 100 }),
  duration: duration({ min: '10ms' }),
  from: optional(moment),
  repeat: bool({ default: false }),
};

/** The timers of a visit, as one turn finds and leaves them. */
export class Timers {
  readonly #nowMs: number;
  readonly #enteredMs: number;
  readonly #table: Map<string, TimerTimes>;
  /** What this turn was told. */
  readonly #told = new Map<string, boolean>();
  #isChanged = false;
  /** That had passed when the turn began, in the order in which they did. */
  readonly fired: readonly string[];

  constructor(table: TimerTable | undefined, nowMs: number, enteredMs: number) {
    this.#nowMs = nowMs;
    this.#enteredMs = enteredMs;
    this.#table = new Map(Object.entries(table ?? {}));
    this.fired = [...this.#table]
      .flatMap(([name, [, due]]) => (due !== null && due <= nowMs ? [{ name, due }] : []))
      .sort((a, b) => a.due - b.due)
      .map(({ name }) => name);
  }

  /** @returns whether it has passed @throws InvalidInput */
  hasPassed(name: string, after: Duration, options: VisitTimerOptions): boolean {
    const { duration: ms, from, repeat } = checkOptions('timer', { ...options, name, duration: after }, timerShape);
    const told = this.#told.get(name);
    if (told !== undefined) return told;
    const [known, due] = this.#table.get(name) ?? [this.#enteredMs, null];
    const since = due === null ? (from?.getTime() ?? known) : known;
    const hasPassed = since + ms <= this.#nowMs;
    // One that comes again counts on from its last time, and not from when the turn came.
    const next = repeat && hasPassed ? this.#nowMs - ((this.#nowMs - since) % ms) : since;
    this.#set(name, [next, next + ms]);
    this.#told.set(name, hasPassed);
    return hasPassed;
  }

  /** @returns whether it was there */
  cancel(name: string): boolean {
    checkOptions('cancelTimer', { name }, { name: timerShape.name });
    this.#told.delete(name);
    const runs = (this.#table.get(name)?.[1] ?? null) !== null;
    // Asked for again, it counts from here, and not from the beginning of the visit.
    if (runs) this.#set(name, [this.#nowMs, null]);
    return runs;
  }

  /** As JSON, if this turn has changed any. */
  get changed(): string | undefined {
    return this.#isChanged ? JSON.stringify(Object.fromEntries(this.#table)) : undefined;
  }

  /** When the first of those passes that have not; those that have were told to a turn. */
  get nextMs(): number | undefined {
    const coming = [...this.#table.values()].flatMap(([, due]) => (due !== null && due > this.#nowMs ? [due] : []));
    return coming.length === 0 ? undefined : Math.min(...coming);
  }

  #set(name: string, times: TimerTimes): void {
    const known = this.#table.get(name);
    if (known?.[0] === times[0] && known[1] === times[1]) return;
    if (known === undefined && this.#table.size >= MOST) {
      throw new InvalidInput(
        `a visit of a state has at most ${MOST} timers, and "${name}" is one more; use fewer names`,
        { field: 'name' },
      );
    }
    this.#table.set(name, times);
    this.#isChanged = true;
  }
}
