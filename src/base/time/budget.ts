import { within } from './clock.ts';

/** The time that several waits may take in total, one after another. */
export class Budget {
  readonly #since = performance.now();
  readonly #ms: number;

  constructor(ms: number) {
    this.#ms = ms;
  }

  get leftMs(): number {
    return Math.max(0, this.#ms - (performance.now() - this.#since));
  }

  /**
   * Waits for the work, no longer than the remaining time. @param spareMs  how much of that time to leave for other work
   * @returns whether it ended in time; rejects if the work does
   */
  wait(work: Promise<unknown> | undefined, spareMs = 0): Promise<boolean> {
    return within(Math.max(0, this.leftMs - spareMs), work ?? Promise.resolve());
  }
}
