import { after } from '../time/clock.ts';

/** A worker claims ahead as many units as would have run in this time. */
const PREFETCH_MS = 50;
/** The shortest time for measuring a rate; and the time after a wrong guess. */
const SAMPLE_MS = 10;
const CAREFUL_MS = 1000;
/** Five times the time for which units were claimed ahead: no guess is that wrong by chance. */
const STALLED_MS = 250;

export interface PrefetchOptions {
  /** A fixed number of units ahead, or as many as the last 50 ms would have run. */
  readonly count: number | 'auto';
  /** The upper bound of `'auto'`. */
  readonly max: number;
  /** Units are claimed ahead for this many milliseconds. Default 50; more if a round trip takes longer. */
  readonly aheadMs?: number | undefined;
  /** How many units that were claimed ahead wait for a slot. */
  readonly waiting: () => number;
  /** Gives back all waiting units except the first `kept`. */
  readonly onStalled: (kept: number) => void;
}

/**
 * How many units a worker claims ahead of its free slots, so that a short unit need not wait for a round trip.
 *
 * The number is a guess from the previous units. If the running units take the slots for longer, the others would wait behind
 * them while other workers sleep. So only as many units may go on waiting as have begun in the last 250 ms. The rest is given
 * back.
 */
export class AdaptivePrefetch {
  readonly #options: PrefetchOptions;
  #started = 0;
  #finished = 0;
  #sample = { at: performance.now(), finished: 0, perMs: 0 };
  #sampleMs = SAMPLE_MS;
  #isWatching = false;

  constructor(options: PrefetchOptions) {
    this.#options = options;
  }

  /** How many units to claim ahead now. */
  get count(): number {
    const { count, max, aheadMs = PREFETCH_MS } = this.#options;
    if (count !== 'auto') return count;
    const at = performance.now();
    const passed = at - this.#sample.at;
    if (passed >= this.#sampleMs) {
      const perMs = (this.#finished - this.#sample.finished) / passed;
      const before = passed > 1000 ? 0 : this.#sample.perMs / 2;
      this.#sample = { at, finished: this.#finished, perMs: Math.max(perMs, before) };
      this.#sampleMs = Math.max(SAMPLE_MS, this.#sampleMs / 2);
    }
    return Math.min(max, Math.floor(this.#sample.perMs * aheadMs));
  }

  recordStart(): void {
    this.#started += 1;
  }

  recordEnd(units: number): void {
    this.#finished += units;
  }

  /** Claims nothing ahead until a rate was measured again. */
  reset(): void {
    this.#sample = { at: performance.now(), finished: this.#finished, perMs: 0 };
  }

  /** Called when units may wait: makes sure that they do not wait for long. */
  watch(): void {
    const { count, waiting, onStalled } = this.#options;
    if (count !== 'auto' || this.#isWatching || waiting() === 0) return;
    this.#isWatching = true;
    const before = this.#started;
    const look = (): void => {
      this.#isWatching = false;
      const kept = this.#started - before;
      if (waiting() <= kept) return this.watch();
      this.reset();
      // Units that end in waves look fast for a moment. Measured for a shorter time, they would be claimed and given back each
      // time.
      this.#sampleMs = CAREFUL_MS;
      onStalled(kept);
      this.watch();
    };
    after(STALLED_MS, look, { unref: true });
  }
}
