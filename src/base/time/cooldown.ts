const COOLDOWN_MS = 10_000;

/**
 * Whether a producer should look for somebody to hand over to. Deleted offers, and claimed rows, that an old snapshot keeps
 * alive are stepped over by each look; so after two in a row that took long it is left for a while, and their number has an end.
 */
export class Cooldown {
  #wasSlow = false;
  #againAt = -Infinity;

  get isOver(): boolean {
    return performance.now() >= this.#againAt;
  }

  /** A look has ended. */
  record(isSlow: boolean): void {
    // Once may be a busy machine.
    if (isSlow && this.#wasSlow) this.#againAt = performance.now() + COOLDOWN_MS;
    this.#wasSlow = isSlow;
  }
}
