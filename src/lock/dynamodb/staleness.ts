import { now } from '../../base/time/clock.ts';

/** Keys that are not observed for this long are forgotten. A watched lease is at most a day. */
const FORGET_MS = 26 * 3_600_000;
const MOST = 20_000;

/**
 * A holder or waiter counts as dead after this many times its lease without a change. Its owner counts on a hundredth less
 * than the lease. So clocks of different machines may differ in speed by a tenth.
 */
const SLACK = 1.1;

/** A state of a holder or waiter, and when it was first seen. */
interface ObservedState {
  readonly state: string;
  readonly since: number;
}

/**
 * The states of others that this process has seen, by its own monotonic clock. Each renewal changes the state. So if a state
 * has not changed for a lease, it was not renewed for a lease, whatever any other clock says. States are kept between attempts.
 * So a client that never waits, and tries again and again, can take over from a dead holder, too.
 */
export class Staleness {
  readonly #seen = new Map<string, ObservedState>();

  /**
   * Notes a state that was just read. Call it after the answer has arrived, since the state is older than the answer.
   * @returns how much longer the state must stay unchanged until its owner is certainly dead; 0 if it is
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

  /** Iterates from the oldest entry, which is the order of insertion. */
  #forget(): void {
    for (const [key, { since }] of this.#seen) {
      if (this.#seen.size <= MOST / 2 && now() - since < FORGET_MS) return;
      this.#seen.delete(key);
    }
  }
}
