/**
 * For this long, an actor that was lost twice has the process for itself: if its turn kills or blocks the process, it does so
 * soon.
 */
const EXCLUSIVE_MS = 60_000;

/**
 * The actors that, as far as this worker knows, lost their process twice in a row: it died or hung. They run one at a
 * time, and alone, so that a crash affects no other actor. If the process dies a third time, the actor is the cause.
 */
export class Isolation {
  /** True: such an actor is due, as far as this worker knows. */
  #isWaiting = false;
  #actor = 0;
  #epoch = 0;
  #until = 0;

  get isWaiting(): boolean {
    return this.#isWaiting && this.#actor === 0;
  }

  /** True: no other turn may begin here. */
  get isExclusive(): boolean {
    return this.#actor !== 0 && performance.now() < this.#until;
  }

  noteWaiting(): void {
    this.#isWaiting = true;
  }

  noteAsked(): void {
    this.#isWaiting = false;
  }

  /** @param isAlone  no other turn runs here @returns milliseconds after which other turns may begin at the same time */
  take(actor: number, epoch: number, isAlone: boolean): number {
    const ms = isAlone ? EXCLUSIVE_MS : 0;
    this.#actor = actor;
    this.#epoch = epoch;
    this.#until = performance.now() + ms;
    return ms;
  }

  /** Called when that turn is over. @returns true if it was the one that ran alone: another one may wait */
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
