import type { Claimed, Cursor } from './store.ts';

/**
 * After so long somebody looks again from the start, like a pass: what came due since, goes first, or was committed late, with
 * a lower id or as the job of a key, waits no longer than this.
 */
const PASS_MS = 100;

/** For so long a lane waits for another one's look, whose connection may be dead; then it looks itself. */
export const LOOK_MS = 100;

/** How many rows a look may show: it costs 1 µs for each. */
const ROWS = { min: 16, max: 512 } as const;

/**
 * Jobs without a key that stood in a row when a lane last looked, and which all lanes of a worker take one after another
 * without looking any further. Each begins behind what the others took, instead of stepping over the rows they hold. One
 * lane looks again before the others have taken everything.
 */
export class Stretch {
  /** Everything up to here was taken by a lane, or was passed over. */
  from: Cursor = { priority: 0, id: 0 };
  to: Cursor = { priority: 0, id: 0 };
  readonly #lanes: number;
  #left = 0;
  /** Takes that are not answered yet. */
  #open = 0;
  #taken = 0;
  #rows: number = ROWS.min;
  #isLookedAt = false;
  #isFruitful = true;
  #lookedAt = -Infinity;
  #looking: Promise<void> | undefined;
  #endLook: (() => void) | undefined;
  /** The last look showed where it ends: another one would show no more of it. */
  #isWhole = false;
  #passAt = -Infinity;

  constructor(lanes: number) {
    this.#lanes = lanes;
  }

  /** Whether to take from here. If not, it is for the caller to look. */
  get hasMore(): boolean {
    if (this.#left <= 0) return false;
    return this.#isLookedAt || ((this.#left >= 2 * this.#lanes || this.#isWhole) && !this.isOld);
  }

  /** Whether the next look should be one from the start. */
  get isOld(): boolean {
    return performance.now() - this.#passAt > PASS_MS;
  }

  /**
   * The look of another lane, where it is better to wait for its end: a look costs as much as four takes, and the first one
   * of a connection as much as a hundred. Not where looks show less than something for each lane, as with jobs that have
   * keys: each looks for itself then.
   */
  get looking(): Promise<void> | undefined {
    if (!this.#isLookedAt || !this.#isFruitful || this.hasMore) return undefined;
    return performance.now() - this.#lookedAt < LOOK_MS ? this.#looking : undefined;
  }

  /** Begins a look. @returns how many rows it should show; 0: another lane is at it */
  look(): number {
    if (this.#isLookedAt) return 0;
    const { isOld } = this;
    this.#rows = Math.max(ROWS.min, Math.min(ROWS.max, isOld ? this.#taken * 3 : this.#rows * 2));
    this.#isLookedAt = true;
    this.#lookedAt = performance.now();
    this.#looking = new Promise((resolve) => {
      this.#endLook = resolve;
    });
    if (isOld) this.#passAt = performance.now();
    this.#taken = 0;
    return this.#rows;
  }

  /** Ends a look, with what it showed, if anything. */
  see(answer: Claimed | undefined): void {
    const [priority, id, n] = answer?.until ?? [];
    const last = answer?.last;
    this.#isLookedAt = false;
    this.#endLook?.();
    this.#left = 0;
    // A run that was taken apart is something to take.
    this.#isFruitful = answer?.again === true;
    if (last === undefined || priority === undefined || id === undefined || n === undefined) return;
    this.from = { priority: last[0], id: last[1] };
    this.to = { priority, id };
    this.#left = n - this.#open;
    this.#isFruitful = this.#left >= this.#lanes;
    this.#isWhole = n < this.#rows;
  }

  take(): void {
    this.#left -= 1;
    this.#open += 1;
  }

  /** Ends a take. Without an answer: nothing can be had here any more. */
  took(answer: Claimed | undefined): void {
    this.#open -= 1;
    if (answer?.last === undefined) {
      this.#left = 0;
      return;
    }
    this.#taken += 1;
    const [priority, id] = answer.last;
    if (priority > this.from.priority || (priority === this.from.priority && id > this.from.id)) {
      this.from = { priority, id };
    }
  }
}
