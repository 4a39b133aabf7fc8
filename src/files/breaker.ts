import { Conflict, CorruptObject, NotFound, StoreRefused, StoreUnavailable } from '../base/errors.ts';
import { now } from '../base/time/clock.ts';
import { formatDuration } from '../base/time/duration.ts';

/** Failures in a row that open the circuit. One or two happen on any network. */
const PATIENCE = 5;
const SHORTEST_MS = 1000;
const LONGEST_MS = 30_000;

/** What a store throws that answers. */
const ANSWERS = [StoreRefused, CorruptObject, Conflict, NotFound];

/** A call that its caller can abort. */
interface GivenUp {
  readonly wasGivenUp: boolean;
}

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
  async run<T>(call: () => Promise<T>, transfer: GivenUp): Promise<T> {
    const result = await this.begin(call, transfer);
    this.succeeded();
    return result;
  }

  /**
   * Runs a call that opens a transfer. A store may begin an answer that it never ends, so the open transfer is no success yet: its
   * end is reported by `succeeded` or `failed`. A probe is over once its transfer is open, and further calls are then let through:
   * if no reader reads the stream, its end may never be reported, and the circuit must not stay open because of that.
   */
  async begin<T>(call: () => Promise<T>, transfer: GivenUp): Promise<T> {
    if (this.isOpen) throw this.#refusal();
    const isTrial = this.#failures >= PATIENCE;
    this.#isTrying ||= isTrial;
    try {
      return await call();
    } catch (error) {
      if (!transfer.wasGivenUp) this.#count(error);
      throw error;
    } finally {
      if (isTrial) this.#isTrying = false;
    }
  }

  /** Errors of the database, of a source and of a caller say nothing about the store: they count as neither. */
  #count(error: unknown): void {
    if (error instanceof StoreUnavailable) this.failed();
    else if (ANSWERS.some((answer) => error instanceof answer)) this.succeeded();
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
