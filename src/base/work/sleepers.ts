/** Waits that end when all are woken or when their time is over. Once it is closed, every wait ends at once. */
export class Sleepers {
  readonly #wakes = new Set<() => void>();
  #count = 0;
  #isClosed = false;

  /** How often all were woken. Read it before searching for work: a wait must not sleep through a later wake-up. */
  get count(): number {
    return this.#count;
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  wakeAll(): void {
    this.#count += 1;
    for (const wake of Array.from(this.#wakes)) wake();
  }

  close(): void {
    this.#isClosed = true;
    this.wakeAll();
  }

  sleep(ms: number): Promise<void> {
    if (this.#isClosed) return Promise.resolve();
    return new Promise((resolve) => {
      const end = (): void => {
        clearTimeout(timer);
        this.#wakes.delete(end);
        resolve();
      };
      const timer = setTimeout(end, ms);
      this.#wakes.add(end);
    });
  }
}
