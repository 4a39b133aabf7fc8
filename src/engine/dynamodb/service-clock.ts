import { now } from '../../base/time/clock.ts';

/** An hour at a thousandth of difference in speed would be 4 s; so what was learnt is forgotten after a while. */
const KEEP_MS = 600_000;
/** Looking at an answer costs a little, and after some of them there is not much to be learnt. */
const ENOUGH = 20;
const PAUSE_MS = 5000;

/**
 * The time of the service, from the Date that it sends with every answer. That tells seconds; each answer narrows down what
 * it can be. As long as this machine's own clock fits in between, it gives the milliseconds.
 */
export class ServiceClock {
  /** Bounds of what is to be added to the monotonic clock. */
  #atLeast = Number.NEGATIVE_INFINITY;
  #atMost = Number.POSITIVE_INFINITY;
  #since = 0;
  #count = 0;
  #seenAt = 0;

  /** Whether an answer was seen lately. */
  get isSet(): boolean {
    return this.#atMost !== Number.POSITIVE_INFINITY && now() - this.#since < KEEP_MS;
  }

  /** Whether the next answer is worth looking at. */
  get isCurious(): boolean {
    return this.#count < ENOUGH || now() - this.#seenAt > PAUSE_MS;
  }

  /** Milliseconds since 1970; this machine's own as long as nothing is known. */
  now(): number {
    const own = Date.now() - now();
    return Math.round(now() + Math.min(Math.max(own, this.#atLeast), this.#atMost));
  }

  /** Takes in an answer. @param sentAt  by the monotonic clock */
  observe(date: string, sentAt: number): void {
    const second = Date.parse(date);
    if (Number.isNaN(second)) return;
    this.#count += 1;
    this.#seenAt = now();
    const [atLeast, atMost] = [second - now(), second + 1000 - sentAt];
    // Whether it is old, or the clock of one of the two was set: start again.
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
