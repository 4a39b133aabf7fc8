import { setMaxListeners } from 'node:events';
import { Conflict, type Interrupted, LeaseLost } from '../../base/errors.ts';

/**
 * Whether the body of a turn may go on, and the signal that tells it to end. A body that does not use the signal pays nothing for
 * it.
 */
export class TurnLife {
  readonly #name: string;
  #interruption: Interrupted | undefined;
  #abort: AbortController | undefined;
  #reason: unknown;
  #isOver = false;

  /** @param name  the name of the actor for messages */
  constructor(name: string) {
    this.#name = name;
  }

  get signal(): AbortSignal {
    if (this.#abort === undefined) {
      this.#abort = new AbortController();
      setMaxListeners(0, this.#abort.signal);
      const reason = this.#reason ?? this.#interruption;
      if (reason !== undefined) this.#abort.abort(reason);
    }
    return this.#abort.signal;
  }

  /** Why the turn has to end. An interruption does not count. */
  get reason(): unknown {
    return this.#reason;
  }

  /** Aborts the signal. The body still decides about the outcome. */
  interrupt(reason: Interrupted): void {
    this.#interruption ??= reason;
    this.#abort?.abort(reason);
  }

  abort(reason: unknown): void {
    this.#reason ??= reason;
    this.#abort?.abort(this.#reason);
  }

  throwIfAborted(): void {
    if (this.#reason === undefined) return;
    // An interruption may have aborted the signal before.
    AbortSignal.abort(this.#reason).throwIfAborted();
  }

  /** From now on, nothing that the body does counts. */
  end(): void {
    this.#isOver = true;
  }

  /** @throws LeaseLost, Conflict  no further effect of the body can be committed */
  check(): void {
    if (this.#reason instanceof LeaseLost) throw this.#reason;
    if (this.#isOver) {
      throw new Conflict(`this turn of ${this.#name} is over; a body must await all its work before it returns`);
    }
  }
}
