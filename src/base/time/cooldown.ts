const COOLDOWN_MS = 10_000;

/**
 * Skips a search for a while if it was slow twice in a row. A search steps over each deleted offer, and each claimed row, that an
 * old snapshot keeps alive. If a producer went on searching for workers to hand over to, their number would grow without end.
 */
export class Cooldown {
  #wasSlow = false;
  #againAt = -Infinity;

  get isOver(): boolean {
    return performance.now() >= this.#againAt;
  }

  /** Called when a search has ended. */
  record(isSlow: boolean): void {
    // A single slow search may be due to a busy machine.
    if (isSlow && this.#wasSlow) this.#againAt = performance.now() + COOLDOWN_MS;
    this.#wasSlow = isSlow;
  }
}
