import { now } from '../../base/time/clock.ts';

/** What is not seen again for so long is forgotten: a watched lease is at most a day. */
const FORGET_MS = 26 * 3_600_000;
const MOST = 20_000;

/**
 * By how much longer than a lease a thing is watched before it counts as dead. Whoever keeps it reckons with a hundredth
 * less than the lease; between the two, clocks of different machines may differ in speed by a tenth.
 */
const SLACK = 1.1;

/** When which state of a thing was seen first. */
interface ObservedState {
  readonly state: string;
  readonly since: number;
}

/**
 * What this process has seen of others, by its own monotonic clock. Whoever renews changes what is seen; so what has not
 * changed for a lease has not been renewed for a lease, whatever any other clock says. Kept between attempts: then also who
 * never waits, but comes again, can take over from the dead.
 */
export class Staleness {
  readonly #seen = new Map<string, ObservedState>();

  /**
   * Notes a state that was just read. To be called after the answer came: the thing was in this state before that.
   * @returns how long it must still stay so to be certainly dead; 0 when it is
   */
  observe(key: string, state: string, leaseMs: number): number {
    const seen = this.#seen.get(key);
    if (seen?.state !== state) {
      this.#seen.delete(key);
      this.#seen.set(key, { state, since: now() });
      if (this.#seen.size > MOST) this.#forget();
      return leaseMs * SLACK;
    }
    return Math.max(0, seen.since + leaseMs * SLACK - now());
  }

  forget(key: string): void {
    this.#seen.delete(key);
  }

  /** The oldest first, which is the order in which they were put in. */
  #forget(): void {
    for (const [key, { since }] of this.#seen) {
      if (this.#seen.size <= MOST / 2 && now() - since < FORGET_MS) return;
      this.#seen.delete(key);
    }
  }
}
