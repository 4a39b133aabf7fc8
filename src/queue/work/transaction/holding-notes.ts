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
 * Records the jobs of open transactions for the rescue, since other processes cannot see these claims. A job is recorded once
 * it has run for a moment; after a worker of the queue has died lately, as soon as it begins, since a job that kills its
 * process within a moment would do so for ever.
 */
export class HoldingNotes {
  readonly #options: HoldingNotesOptions;
  #timer: NodeJS.Timeout | undefined;
  #noted = '';
  #isWary = false;
  #isNoting = false;

  constructor(options: HoldingNotesOptions) {
    this.#options = options;
  }

  start(): void {
    this.#timer = setInterval(() => this.#note(), MOMENT_MS * 2).unref();
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  set isWary(isWary: boolean) {
    this.#isWary = isWary;
  }

  /** Called when a handler begins. */
  recordStart(): void {
    if (this.#isWary) this.#note();
  }

  /** The ids of the jobs to record. */
  holding(): number[] {
    const past = this.#isWary ? Infinity : performance.now() - MOMENT_MS;
    return [...this.#options.running()]
      .filter(([, { since }]) => since < past)
      .flatMap(([unit]) => unit.jobs.map((job) => job.number));
  }

  #note(): void {
    const holding = this.holding().join();
    if (holding === this.#noted || this.#isNoting) return;
    this.#noted = holding;
    this.#isNoting = true;
    this.#options
      .beatNow()
      .catch((error: unknown) => this.#options.onError(error))
      .finally(() => {
        this.#isNoting = false;
        if (this.#isWary) this.#note();
      });
  }
}
