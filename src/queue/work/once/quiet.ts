/**
 * Tells when a worker has nothing to do: a whole round of polls has brought nothing, and nothing of its own was under way at
 * any of them, which might have led to more.
 */
export class Quiet {
  #waiting: (() => void)[] = [];
  #wasBusy = false;

  /** Resolves at the end of the next such round. */
  wait(): Promise<void> {
    this.#wasBusy = true; // the round that is under way has begun before
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  get isAwaited(): boolean {
    return this.#waiting.length > 0;
  }

  /** A poll begins. @param isBusy  something of the worker's own is under way */
  recordPoll(isBusy: boolean): void {
    if (isBusy) this.#wasBusy = true;
  }

  /** A round has brought nothing. @returns whether another one is needed for those who wait */
  recordEmptyRound(): boolean {
    const isDone = !this.#wasBusy;
    this.#wasBusy = false;
    if (isDone) for (const resolve of this.#waiting.splice(0)) resolve();
    return this.isAwaited;
  }
}
