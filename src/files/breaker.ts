import { ConnectionFailed, StoreUnavailable } from '../base/errors.ts';
import { now } from '../base/time/clock.ts';
import { formatDuration } from '../base/time/duration.ts';

/** Failures in a row after which a store is left alone for a while. One or two are any network's. */
const PATIENCE = 5;
const SHORTEST_MS = 1000;
const LONGEST_MS = 30_000;

/**
 * Keeps calls away from a store that fails: after five failures in a row they fail at once, for a second, and each time
 * the one call that is then let through fails, twice as long. Whoever calls spends no socket, no memory and no time.
 */
export class Breaker {
  readonly #where: string;
  #failures = 0;
  #openUntil = 0;
  #pauseMs = SHORTEST_MS;
  #isTrying = false;

  constructor(where: string) {
    this.#where = where;
  }

  get isOpen(): boolean {
    return this.#failures >= PATIENCE && (now() < this.#openUntil || this.#isTrying);
  }

  /** Runs a call, unless the store is left alone now. @throws StoreUnavailable */
  async run<T>(call: () => Promise<T>): Promise<T> {
    if (this.isOpen) throw this.#refusal();
    const isTrial = this.#failures >= PATIENCE;
    this.#isTrying ||= isTrial;
    try {
      const result = await call();
      this.#succeeded();
      return result;
    } catch (error) {
      if (error instanceof StoreUnavailable) this.failed();
      // Where the database could not be asked the store was not, either.
      else if (!(error instanceof ConnectionFailed)) this.#succeeded();
      throw error;
    } finally {
      if (isTrial) this.#isTrying = false;
    }
  }

  /** A transfer that had begun well has broken. */
  failed(): void {
    this.#failures++;
    // What was under way when it was opened fails, too, and says nothing new.
    if (this.#failures < PATIENCE || now() < this.#openUntil) return;
    this.#openUntil = now() + this.#pauseMs;
    this.#pauseMs = Math.min(this.#pauseMs * 2, LONGEST_MS);
  }

  #succeeded(): void {
    this.#failures = 0;
    this.#pauseMs = SHORTEST_MS;
  }

  #refusal(): StoreUnavailable {
    const left = formatDuration(Math.max(1, this.#openUntil - now()));
    return new StoreUnavailable(
      `the store ${this.#where} has failed ${this.#failures} times in a row and is left alone for another ${left}`,
    );
  }
}
