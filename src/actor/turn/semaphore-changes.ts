/** The changes of a turn to the semaphores of its own actor. Nothing is written before its commit. */
export class SemaphoreChanges {
  readonly #claimed: Readonly<Record<string, number>>;
  readonly #lowered = new Set<string>();
  readonly #raised = new Map<string, number>();

  /** @param claimed  how often each semaphore was raised at the claim of the turn */
  constructor(claimed: Readonly<Record<string, number>>) {
    this.#claimed = claimed;
  }

  value(semaphore: string): number {
    return this.#lowered.has(semaphore) ? 0 : (this.#claimed[semaphore] ?? 0);
  }

  lower(semaphore: string): void {
    this.#lowered.add(semaphore);
  }

  raise(semaphore: string): void {
    this.#raised.set(semaphore, (this.#raised.get(semaphore) ?? 0) + 1);
  }

  /** The numbers that the commit adds to the semaphores; negative ones lower them. */
  get delta(): Record<string, number> | undefined {
    if (this.#lowered.size + this.#raised.size === 0) return undefined;
    const delta: Record<string, number> = {};
    for (const name of this.#lowered) delta[name] = -(this.#claimed[name] ?? 0);
    for (const [name, n] of this.#raised) delta[name] = (delta[name] ?? 0) + n;
    return delta;
  }
}
