import type { Draw } from '../../../../support/random.ts';
import { DEBOUNCE, THROTTLE_MS } from '../../declaration.ts';
import type { Job, QueueHistory } from '../../history.ts';
import { Addition } from './addition.ts';

/** Bugs with unique, throttled and debounced jobs. */
export const UNIQUE_BUGS = [
  'two are outstanding',
  'a job is outstanding again next to another one',
  'two wait',
  'two wait, and the second has replaced nothing',
  'a replacement is forgotten',
  'what was rolled back is run',
  'a throttled key has two jobs in its time',
  'debounced jobs do not wait for rest',
  'a debounced job is left behind',
] as const;

/** The history with added unique, throttled and debounced jobs. */
export function withUnique(history: QueueHistory, draw: Draw, bug: string | undefined): QueueHistory {
  const more = new Unique(history, draw, bug);
  more.addOutstanding();
  more.addAgain();
  more.addWaiting();
  more.addReplaced();
  more.addThrottled();
  more.addDebounced();
  return more.history();
}

class Unique extends Addition {
  readonly #bug: string | undefined;

  constructor(before: QueueHistory, draw: Draw, bug: string | undefined) {
    super(before, draw, 2_000_000);
    this.#bug = bug;
  }

  addOutstanding(): void {
    let at = 1000;
    for (let n = this.draw.int(1, 4); n > 0; n -= 1) {
      const job = this.add('only', at, 'only');
      const ended = this.run(job, at + this.draw.int(6, 40));
      this.ask([job]);
      at = ended + (this.#bug === 'two are outstanding' ? -1 : this.draw.int(0, 20));
    }
  }

  /** A job is cancelled, and becomes new again by hand when no other one is outstanding. */
  addAgain(): void {
    const [first, second] = [this.add('only', 1000, 'again'), this.add('only', 1100, 'again')];
    this.rest(first, 'new', 'cancelled', 'cancel', 1050);
    const ended = this.run(second, 1110);
    const again = ended + (this.#bug === 'a job is outstanding again next to another one' ? -3 : this.draw.int(0, 20));
    this.rest(first, 'cancelled', 'new', 'retry by hand', again);
    this.run(first, again + 10);
    this.ask([first]);
    this.ask([second]);
  }

  /** A job may wait behind a running one. Jobs that are enqueued meanwhile are its duplicates. */
  addWaiting(): void {
    const first = this.add('waiting', 1000, 'waiting');
    const begun = 1000 + this.draw.int(10, 40);
    const second = this.add('waiting', begun + (this.#bug === 'two wait' ? -7 : this.draw.int(0, 20)), 'waiting');
    const ended = this.run(first, begun + (this.#bug === 'two wait' ? 12 : 0));
    this.run(second, Math.max(ended, second.committedAt + 6));
    const third = { ...this.job('waiting', second.committedAt + 5, 'waiting'), id: second.id };
    for (const job of [first, second]) this.ask([job]);
    this.ask([third], undefined, false, [third.n]);
  }

  /** A waiting job gets the payload of the next request. Behind a running job, another one waits. */
  addReplaced(): void {
    const first = this.job('replaced', 1000, 'replaced');
    const second = { ...this.job('replaced', 1040, 'replaced'), id: first.id };
    const undone = this.job('replaced', 1060, 'replaced');
    this.put({ ...first, n: second.n });
    const begun = 1080 + this.draw.int(0, 40);
    const bad = this.#bug === 'what was rolled back is run' ? undone : undefined;
    const version = (this.#bug === 'a replacement is forgotten' ? first : (bad ?? second)).n;
    const ended = this.runAll([first], { begunAt: begun, version });
    const isEarly = this.#bug === 'two wait, and the second has replaced nothing';
    const third = this.add('replaced', isEarly ? begun - 10 : begun + this.draw.int(4, 9), 'replaced');
    this.runAll([third], { begunAt: ended + 10, version: third.n });
    this.askAs([first], { replaces: true });
    this.askAs([second], { replaces: true, duplicates: new Set([second.n]) });
    this.askAs([third], { replaces: true });
    this.askAs([undone], { replaces: true, how: 'rolled back', outcome: 'refused', ids: [] });
  }

  addThrottled(): void {
    let createdAt = 1000;
    for (let n = this.draw.int(1, 3); n > 0; n -= 1) {
      const job = this.put({ ...this.job('throttled', createdAt + this.draw.int(0, 9), 'throttled'), createdAt });
      this.run(job, job.committedAt + 6);
      this.ask([job]);
      createdAt += this.#bug === 'a throttled key has two jobs in its time' ? THROTTLE_MS - 5 : THROTTLE_MS;
    }
  }

  /** A burst is one unit. A job that arrives as the unit begins is in the next unit. */
  addDebounced(): void {
    const burst = this.#saves(1000, this.draw.int(2, 6));
    const last = Math.max(...burst.map(({ createdAt }) => createdAt));
    const isEarly = this.#bug === 'debounced jobs do not wait for rest';
    // At the latest when the first job has waited for the longest time, even without a rest.
    const rested = Math.min(last + DEBOUNCE.wait, Math.max(1000 + DEBOUNCE.max, last + 1));
    const begun = isEarly ? last + 20 : rested + this.draw.int(0, 50);
    const left = this.#bug === 'a debounced job is left behind' ? burst.splice(0, 1) : [];
    const ended = this.runAll(burst, { begunAt: begun, claimedMs: this.draw.int(0, 4) });
    const more = [...left, ...this.#saves(begun, 1)];
    this.runAll(more, { begunAt: Math.max(ended, begun + DEBOUNCE.wait) + 10 });
  }

  #saves(from: number, n: number): Job[] {
    let createdAt = from;
    return Array.from({ length: n }, () => {
      const job = this.put({ ...this.job('saved', createdAt + 1, 'saved'), createdAt, isDelayed: true });
      this.ask([job]);
      createdAt += this.draw.int(3, DEBOUNCE.wait - 10);
      return job;
    });
  }
}
