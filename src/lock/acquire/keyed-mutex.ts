/**
 * A queue within the process: one at a time passes for each key. Requests without a place in the store's queue wait here,
 * so that of many in one process only one asks the store. Fair requests do not: a place taken here is none among those of
 * other processes, and whoever came later elsewhere would be served first.
 */
export class KeyedMutex {
  readonly #tails = new Map<string, Promise<void>>();

  /** Waits for those before, or until `until` settles. @returns opens it for the next one */
  async enter(key: string, until: Promise<unknown>): Promise<() => void> {
    const before = this.#tails.get(key) ?? Promise.resolve();
    let leave = (): void => {};
    const left = new Promise<void>((resolve) => {
      leave = resolve;
    });
    const tail = before.then(() => left);
    this.#tails.set(key, tail);
    void tail.then(() => this.#tails.get(key) === tail && this.#tails.delete(key));
    await Promise.race([before, until]);
    return leave;
  }
}
