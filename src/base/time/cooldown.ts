const COOLDOWN_MS = 10_000;

/**
 * Leaves out for a while what took long twice in a row. A search steps over each deleted offer, and each claimed row, that an old
 * snapshot keeps alive: a producer that went on searching for workers to hand over to would make their number grow without end.
 */
export class Cooldown {
  #wasSlow = false;
  #againAt = -Infinity;

  get isOver(): boolean {
    return performance.now() >= this.#againAt;
  }

  /** A search has ended. */
  record(isSlow: boolean): void {
    // Once may be a busy machine.
    if (isSlow && this.#wasSlow) this.#againAt = performance.now() + COOLDOWN_MS;
    this.#wasSlow = isSlow;
  }
}
