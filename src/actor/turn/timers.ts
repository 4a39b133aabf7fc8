import { InvalidInput } from '../../base/errors.ts';
import { bool, checkOptions, custom, duration, optional, text } from '../../base/options/options.ts';
import { refusal } from '../../base/options/refusal.ts';
import type { Duration } from '../../base/time/duration.ts';
import type { TimerTable, TimerTimes } from '../store.ts';

/** When a timer begins, and whether it repeats. */
export interface VisitTimerOptions {
  /**
   * The time at which the timer begins, by the database's clock: `a.now`, the `at` of a message. Default: when the actor entered
   * its state, or when the timer was cancelled. It has no effect once the timer runs.
   */
  readonly from?: Date | undefined;
  /**
   * True: the timer passes again and again, each time after this duration. If it passed several times before a turn began, that
   * counts once. Default false.
   */
  readonly repeat?: boolean | undefined;
}

/** The most timers of one visit. They are part of each claim of the actor. */
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

/** The timers of a visit: those at the beginning of a turn, with the turn's changes. */
export class Timers {
  readonly #nowMs: number;
  readonly #enteredMs: number;
  readonly #table: Map<string, TimerTimes>;
  /** The answers to this turn. */
  readonly #told = new Map<string, boolean>();
  #isChanged = false;
  /** The timers that had passed when the turn began, in the order in which they passed. */
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
    // A repeated timer continues from its last time, and not from the beginning of the turn.
    const next = repeat && hasPassed ? this.#nowMs - ((this.#nowMs - since) % ms) : since;
    this.#set(name, [next, next + ms]);
    this.#told.set(name, hasPassed);
    return hasPassed;
  }

  /** @returns whether there was such a timer */
  cancel(name: string): boolean {
    checkOptions('cancelTimer', { name }, { name: timerShape.name });
    this.#told.delete(name);
    const runs = (this.#table.get(name)?.[1] ?? null) !== null;
    // If the turn asks for the timer again, it begins now, and not at the beginning of the visit.
    if (runs) this.#set(name, [this.#nowMs, null]);
    return runs;
  }

  /** The timers as JSON, if this turn has changed any. */
  get changed(): string | undefined {
    return this.#isChanged ? JSON.stringify(Object.fromEntries(this.#table)) : undefined;
  }

  /** The time of the first timer that has not passed yet; turns already know the others. */
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
