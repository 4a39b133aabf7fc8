import { setMaxListeners } from 'node:events';
import { Conflict, type Interrupted, LeaseLost } from '../../base/errors.ts';

/** How a turn ends: whether its body may go on, and what tells it to end. A body that does not ask for the signal pays nothing for it. */
export class TurnLife {
  readonly #name: string;
  #interruption: Interrupted | undefined;
  #abort: AbortController | undefined;
  #reason: unknown;
  #isOver = false;

  /** @param name  the actor, for people */
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

  /** Why the turn was told to end. An interruption does not count. */
  get reason(): unknown {
    return this.#reason;
  }

  /** Tells the body. The outcome is still the body's to decide. */
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
    // The signal may have been aborted by an interruption before.
    AbortSignal.abort(this.#reason).throwIfAborted();
  }

  /** Nothing that the body does from here on counts. */
  end(): void {
    this.#isOver = true;
  }

  /** @throws LeaseLost, Conflict  nothing that the body asks for can be committed any more */
  check(): void {
    if (this.#reason instanceof LeaseLost) throw this.#reason;
    if (this.#isOver) {
      throw new Conflict(`this turn of ${this.#name} is over; what a body does must be awaited before it returns`);
    }
  }
}
