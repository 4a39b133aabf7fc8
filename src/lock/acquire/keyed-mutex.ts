/**
 * A mutex per key within the process. Requests without a place in the store's queue wait here, so that only one of many in a
 * process asks the store. Fair requests do not wait here: a place in this queue has no rank among other processes, and a later
 * request elsewhere would be served first.
 */
export class KeyedMutex {
  readonly #tails = new Map<string, Promise<void>>();

  /** Waits for the requests before it, or until `until` settles. @returns a function that lets the next one in */
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
