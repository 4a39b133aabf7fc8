/** For this long an actor that was lost twice has its process for itself: what kills it, or stands still, does so soon. */
const EXCLUSIVE_MS = 60_000;

/**
 * The actors whose processes died with them, or stood still, twice in a row, as one worker sees them. They run one at a time, and
 * alone, so that they take no others along. If the process dies a third time, they are to blame.
 */
export class Isolation {
  /** Such an actor is due, as far as this worker knows. */
  #isWaiting = false;
  #actor = 0;
  #epoch = 0;
  #until = 0;

  get isWaiting(): boolean {
    return this.#isWaiting && this.#actor === 0;
  }

  /** Nothing else may begin here. */
  get isExclusive(): boolean {
    return this.#actor !== 0 && performance.now() < this.#until;
  }

  noteWaiting(): void {
    this.#isWaiting = true;
  }

  noteAsked(): void {
    this.#isWaiting = false;
  }

  /** @param isAlone  nothing else runs here @returns milliseconds after which others may begin at the same time */
  take(actor: number, epoch: number, isAlone: boolean): number {
    const ms = isAlone ? EXCLUSIVE_MS : 0;
    this.#actor = actor;
    this.#epoch = epoch;
    this.#until = performance.now() + ms;
    return ms;
  }

  /** That turn is over. @returns whether it was the one that ran alone: there may be another one */
  release(actor: number, epoch: number): boolean {
    if (actor !== this.#actor || epoch !== this.#epoch) return false;
    this.#actor = 0;
    this.#isWaiting = true;
    return true;
  }

  forget(): void {
    this.#actor = 0;
    this.#isWaiting = false;
  }
}
