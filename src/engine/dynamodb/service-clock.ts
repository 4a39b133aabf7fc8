import { now } from '../../base/time/clock.ts';

/** How long the bounds are kept. If the speeds of two clocks differ by a thousandth, they differ by 4 s after an hour. */
const KEEP_MS = 600_000;
/** How many answers are read without a pause. To read an answer costs a little, and later answers tell little more. */
const ENOUGH = 20;
const PAUSE_MS = 5000;

/**
 * The time of the service, from the Date of its answers. The Date has whole seconds, and each answer narrows the bounds of the
 * time. As long as this machine's own clock is within the bounds, it gives the milliseconds.
 */
export class ServiceClock {
  /** The bounds of the difference between the service's clock and the monotonic clock. */
  #atLeast = Number.NEGATIVE_INFINITY;
  #atMost = Number.POSITIVE_INFINITY;
  #since = 0;
  #count = 0;
  #seenAt = 0;

  /** Whether the bounds are known, and not too old. */
  get isSet(): boolean {
    return this.#atMost !== Number.POSITIVE_INFINITY && now() - this.#since < KEEP_MS;
  }

  /** Whether the next answer is worth reading. */
  get isCurious(): boolean {
    return this.#count < ENOUGH || now() - this.#seenAt > PAUSE_MS;
  }

  /** Milliseconds since 1970, by this machine's own clock as long as no bounds are known. */
  now(): number {
    const own = Date.now() - now();
    return Math.round(now() + Math.min(Math.max(own, this.#atLeast), this.#atMost));
  }

  /** Narrows the bounds by the Date of an answer. @param sentAt  the time of the request by the monotonic clock */
  observe(date: string, sentAt: number): void {
    const second = Date.parse(date);
    if (Number.isNaN(second)) return;
    this.#count += 1;
    this.#seenAt = now();
    const [atLeast, atMost] = [second - now(), second + 1000 - sentAt];
    // If the bounds are old, or one of the two clocks was set, start again.
    if (now() - this.#since > KEEP_MS || atLeast > this.#atMost || atMost < this.#atLeast) {
      this.#atLeast = atLeast;
      this.#atMost = atMost;
      this.#since = now();
      return;
    }
    this.#atLeast = Math.max(this.#atLeast, atLeast);
    this.#atMost = Math.min(this.#atMost, atMost);
  }
}
