/** What sleeps until it is woken, or its time is over; and nothing sleeps any more once it is closed. */
export class Sleepers {
  readonly #wakes = new Set<() => void>();
  #count = 0;
  #isClosed = false;

  /** How often all were woken. Read before looking for work: a wake-up that came since then must not be slept through. */
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
