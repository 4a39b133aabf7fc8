/**
 * Finds out when a worker has nothing to do: a whole round of polls has brought nothing, and during these polls no work of its
 * own was under way, which might have led to more.
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

  /** Called when a poll begins. @param isBusy  the worker's own work is under way */
  recordPoll(isBusy: boolean): void {
    if (isBusy) this.#wasBusy = true;
  }

  /** Called when a round has brought nothing. @returns whether the waiting calls need another round */
  recordEmptyRound(): boolean {
    const isDone = !this.#wasBusy;
    this.#wasBusy = false;
    if (isDone) for (const resolve of this.#waiting.splice(0)) resolve();
    return this.isAwaited;
  }
}
