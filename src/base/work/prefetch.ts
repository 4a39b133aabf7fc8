import { after } from '../time/clock.ts';

/** As much is claimed ahead as this long would have run. */
const PREFETCH_MS = 50;
/** A rate is measured for at least this long; and after a guess that was wrong, for this long. */
const SAMPLE_MS = 10;
const CAREFUL_MS = 1000;
/** Five times what it was claimed for: no guess is that far off by chance. */
const STALLED_MS = 250;

export interface PrefetchOptions {
  /** A number that is kept ahead whatever happens, or as many as the last 50 ms would have run. */
  readonly count: number | 'auto';
  /** The most that `'auto'` comes to. */
  readonly max: number;
  /** Milliseconds: as much is claimed ahead as these would have run. Default 50; more where a round trip takes longer. */
  readonly aheadMs?: number | undefined;
  /** How many units that were claimed ahead wait for a slot. */
  readonly waiting: () => number;
  /** Gives back all that wait but the first `kept`. */
  readonly onStalled: (kept: number) => void;
}

/**
 * How much a worker claims ahead of its free slots: what ends at once need not wait for a round trip each.
 *
 * That is a guess from what ran before. When what runs now takes the slots for longer, the rest would wait behind it while other
 * workers sleep. So only as much may go on waiting as has begun in the last 250 ms, and the rest is given back.
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

  /** How much to claim ahead now. */
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

  /** Nothing is claimed ahead until a rate has been measured anew. */
  reset(): void {
    this.#sample = { at: performance.now(), finished: this.#finished, perMs: 0 };
  }

  /** Something may be waiting: sees to it that it does not do so for long. */
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
      // Whatever ends in waves looks fast for a moment: measured for so short a time it would be claimed and given back each time.
      this.#sampleMs = CAREFUL_MS;
      onStalled(kept);
      this.watch();
    };
    after(STALLED_MS, look, { unref: true });
  }
}
