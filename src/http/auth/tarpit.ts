/** How long a stranger waits for a refusal when there were too many, at least, and as much more at random. */
const HOLD_MS = 1000;
/** Refusals that are held at once. Each holds a connection, so beyond this they are answered at once. */
const MOST_HELD = 500;

/**
 * Holds the refusals of strangers who ask too often. A program that guesses tokens sends its next request when it has an answer: held
 * for a second, three hundred of them cost as much as one that is answered at once. Each is held for another time, since refusals that
 * are given together come back together, and a known caller would wait for all of them.
 */
export class Tarpit {
  readonly #held = new Set<() => void>();
  #isStopped = false;

  /** Returns after one to two seconds, or sooner: when too many are held already, and when the server stops. */
  async hold(): Promise<void> {
    if (this.#isStopped || this.#held.size >= MOST_HELD) return;
    await new Promise<void>((resolve) => {
      const release = (): void => {
        clearTimeout(timer);
        this.#held.delete(release);
        resolve();
      };
      const timer = setTimeout(release, HOLD_MS * (1 + Math.random()));
      this.#held.add(release);
    });
  }

  stop(): void {
    this.#isStopped = true;
    for (const release of this.#held) release();
  }
}
