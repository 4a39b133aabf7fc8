/**
 * The requests of this process for one lock, in the order of their calls. Each request is sent when the previous one has its
 * answer, and so its place in the store's queue. If they were sent at the same time, on several connections, they would reach the
 * store in any order. A request that is alone waits for nothing.
 */
export class SendingLine {
  readonly #last = new Map<string, Promise<void>>();

  /** Takes the next place in the line of a lock. */
  join(key: string): LinePlace {
    const before = this.#last.get(key);
    let leave = (): void => {};
    const answered = new Promise<void>((resolve) => {
      leave = resolve;
    });
    this.#last.set(key, answered);
    return {
      before,
      leave: () => {
        if (this.#last.get(key) === answered) this.#last.delete(key);
        leave();
      },
    };
  }
}

export interface LinePlace {
  /** Resolves when the previous request has left the line; undefined if there is none. */
  readonly before: Promise<void> | undefined;
  /** Lets the next one be sent. May be called more than once. */
  readonly leave: () => void;
}
