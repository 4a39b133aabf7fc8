import type { Unit } from '../run/unit.ts';
import { MOMENT_MS } from './lost-transactions.ts';

export interface HoldingNotesOptions {
  /** Units whose handlers run, each with the time of its start by the monotonic clock. */
  readonly running: () => Iterable<readonly [Unit, { readonly since: number }]>;
  /** Sends a heartbeat, which stores the jobs of {@link HoldingNotes.holding}. */
  readonly beatNow: () => Promise<void>;
  readonly onError: (error: unknown) => void;
}

/**
 * Records the jobs of open transactions for the rescue, because other processes cannot see these claims. A job is recorded once
 * it has run for a moment. If a worker of the queue has died lately, a job is recorded before it begins, at the cost of a
 * heartbeat. Otherwise a job that kills its process within a moment, or in the first step of its handler, would do so for ever.
 */
export class HoldingNotes {
  readonly #options: HoldingNotesOptions;
  #timer: NodeJS.Timeout | undefined;
  #noted = '';
  #isWary = false;
  #noting: Promise<void> | undefined;

  constructor(options: HoldingNotesOptions) {
    this.#options = options;
  }

  start(): void {
    this.#timer = setInterval(() => void this.#note(), MOMENT_MS * 2).unref();
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  set isWary(isWary: boolean) {
    this.#isWary = isWary;
  }

  /**
   * Called before a handler begins.
   * @returns a promise that resolves when its job is recorded; undefined if the handler need not wait
   */
  recordStart(): Promise<void> | undefined {
    return this.#isWary ? this.#note() : undefined;
  }

  /** The ids of the jobs to record. */
  holding(): number[] {
    const past = this.#isWary ? Infinity : performance.now() - MOMENT_MS;
    return [...this.#options.running()]
      .filter(([, { since }]) => since < past)
      .flatMap(([unit]) => unit.jobs.map((job) => job.number));
  }

  /** Lanes that begin at the same time share a heartbeat. */
  async #note(): Promise<void> {
    while (this.#noting !== undefined) await this.#noting;
    const holding = this.holding().join();
    if (holding === this.#noted) return;
    this.#noted = holding;
    this.#noting = this.#options
      .beatNow()
      .catch((error: unknown) => this.#options.onError(error))
      .finally(() => {
        this.#noting = undefined;
        if (this.#isWary) void this.#note();
      });
    await this.#noting;
  }
}
