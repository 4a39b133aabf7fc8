/**
 * The least time that a stranger waits for a refusal after too many requests; a random time of up to the same length is added.
 */
const HOLD_MS = 1000;
/** The most refusals that are held at a time. Each holds a connection, so further ones are sent immediately. */
const MOST_HELD = 500;

/**
 * Holds the refusals of strangers that send too many requests. A program that guesses tokens sends its next request when it has
 * an answer. If refusals are held for a second, three hundred such programs cost as much as one with immediate answers. Each is
 * held for a different time: if refusals were sent together, the next requests would come together, and a known caller would wait
 * for all of them.
 */
export class Tarpit {
  readonly #held = new Set<() => void>();
  #isStopped = false;

  /** Returns after one to two seconds; sooner if too many are held already, or if the server stops. */
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
