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

  /** Waits for the work, no longer than the remaining time. @returns whether it ended in time; rejects if the work does */
  wait(work: Promise<unknown> | undefined): Promise<boolean> {
    return within(this.leftMs, work ?? Promise.resolve());
  }
}
