import { Interrupted } from '../../../base/errors.ts';
import { type Loop, startLoop } from '../../../base/loop.ts';
import type { TurnStore } from '../ports.ts';
import type { RunningTurn } from '../run/attempt.ts';

export interface InterruptsOptions {
  readonly store: TurnStore;
  /** The longest delay after a lost notification. */
  readonly pollMs: number;
  /** By actor. */
  readonly running: ReadonlyMap<number, RunningTurn>;
  readonly onError: (error: unknown) => void;
}

/**
 * Tells running bodies about semaphores that interrupt them. A notification is only a hint; the database says whether a semaphore
 * was raised since the claim of the turn. Turns that have run for a poll interval are checked without a notification, because the
 * raise may have come before the answer to their claim, or its notification may be lost. Shorter turns cost nothing.
 */
export class Interrupts {
  readonly #options: InterruptsOptions;
  readonly #told = new Set<number>();
  #ranBefore: ReadonlySet<RunningTurn> = new Set();
  #loop: Loop | undefined;

  constructor(options: InterruptsOptions) {
    this.#options = options;
  }

  start(): void {
    this.#loop ??= startLoop({
      name: 'actor.interrupts',
      run: () => this.#look(),
      onError: this.#options.onError,
      unref: true,
    });
  }

  /** Called when a semaphore of this actor was raised. */
  note(actor: number): void {
    if (!this.#options.running.has(actor)) return;
    this.#told.add(actor);
    this.#loop?.wake();
  }

  /** Called when notifications were lost: they may have been about any running turn. */
  noteAll(): void {
    for (const actor of this.#options.running.keys()) this.note(actor);
  }

  async stop(): Promise<void> {
    await this.#loop?.stop();
  }

  async #look(): Promise<number> {
    const { running, pollMs } = this.#options;
    const told = [...this.#told];
    this.#told.clear();
    const may = [...running.values()].filter(({ interrupts }) => interrupts.length > 0);
    const asked = may.filter((turn) => told.includes(turn.id) || this.#ranBefore.has(turn));
    this.#ranBefore = new Set(may);
    if (asked.length > 0) await this.#ask(asked);
    return pollMs;
  }

  async #ask(turns: readonly RunningTurn[]): Promise<void> {
    const raised = await this.#options.store.raised(turns.map(({ id }) => id));
    for (const turn of turns) {
      const now = raised[String(turn.id)] ?? {};
      const heard = turn.interrupts.find((name) => (now[name] ?? 0) > (turn.raised[name] ?? 0));
      if (heard !== undefined)
        turn.interrupt(new Interrupted(`the semaphore "${heard}" was raised while the turn ran`));
    }
  }
}
