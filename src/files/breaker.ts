import { ConnectionFailed, StoreUnavailable } from '../base/errors.ts';
import { now } from '../base/time/clock.ts';
import { formatDuration } from '../base/time/duration.ts';

/** Failures in a row that open the circuit. One or two happen on any network. */
const PATIENCE = 5;
const SHORTEST_MS = 1000;
const LONGEST_MS = 30_000;

/**
 * A circuit breaker for a store. After five failures in a row, calls fail at once for a second, without using a socket,
 * memory or time. Then one call is let through as a probe; each time the probe fails, the pause doubles.
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

  /** Runs a call, unless the circuit is open. @throws StoreUnavailable */
  async run<T>(call: () => Promise<T>): Promise<T> {
    const result = await this.begin(call);
    this.succeeded();
    return result;
  }

  /**
   * Runs a call that opens a transfer. A store may begin an answer that it never ends, so the open transfer is no success yet: its
   * end is reported by `succeeded` or `failed`. A probe is over once its transfer is open, and further calls are then let through:
   * if no reader reads the stream, its end may never be reported, and the circuit must not stay open because of that.
   */
  async begin<T>(call: () => Promise<T>): Promise<T> {
    if (this.isOpen) throw this.#refusal();
    const isTrial = this.#failures >= PATIENCE;
    this.#isTrying ||= isTrial;
    try {
      return await call();
    } catch (error) {
      if (error instanceof StoreUnavailable) this.failed();
      // If the database could not be reached, the store was not called.
      else if (!(error instanceof ConnectionFailed)) this.succeeded();
      throw error;
    } finally {
      if (isTrial) this.#isTrying = false;
    }
  }

  /** Counts the failure of a transfer that had started well. */
  failed(): void {
    this.#failures++;
    // Calls that were under way when the circuit opened fail, too; they do not count again.
    if (this.#failures < PATIENCE || now() < this.#openUntil) return;
    this.#openUntil = now() + this.#pauseMs;
    this.#pauseMs = Math.min(this.#pauseMs * 2, LONGEST_MS);
  }

  /** Counts failures from the beginning again. */
  succeeded(): void {
    this.#failures = 0;
    this.#pauseMs = SHORTEST_MS;
  }

  #refusal(): StoreUnavailable {
    const left = formatDuration(Math.max(1, this.#openUntil - now()));
    return new StoreUnavailable(
      `the store ${this.#where} has failed ${this.#failures} times in a row; the next call to it is allowed in ${left}`,
    );
  }
}
