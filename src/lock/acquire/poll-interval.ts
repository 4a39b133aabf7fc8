/** The position of a waiter whose turn has not come. */
export interface QueuePosition {
  /** How many waiters are before it. */
  readonly ahead: number;
  /** How long until a lease before it may have run out; undefined if none can. */
  readonly retryMs: number | undefined;
}

// With notifications a poll only makes up for a lost one; without them it is the only way to get the lock.
const FIRST_TOLD_MS = 1000;
const FIRST_UNTOLD_MS = 25;
const LONGEST_UNTOLD_MS = 500;
const SOONEST_MS = 20;

/**
 * How long until the next poll of a waiter, which also renews its place. The first in line polls as soon as the lease of the
 * holder may have run out; the second watches the first in the same way. Those behind only renew their place, and read their
 * own row and one row before it.
 * @param isNotified  whether notifications arrive
 */
export function delayBeforePoll(
  position: QueuePosition,
  waiterMs: number,
  isNotified: boolean,
  random: number,
): number {
  const { ahead, retryMs = Infinity } = position;
  const renewal = waiterMs / 3;
  const told = ahead === 0 ? FIRST_TOLD_MS : renewal;
  const untold = Math.min(FIRST_UNTOLD_MS * (1 + ahead), LONGEST_UNTOLD_MS);
  const floor = Math.min(isNotified ? told : untold, renewal);
  const expiry = ahead <= 1 ? Math.max(retryMs + 2, SOONEST_MS) : Infinity;
  // Waiters that came at the same time must not poll at the same time for ever.
  return Math.min(floor * (0.8 + 0.2 * random), expiry);
}

/** How long until the next attempt of a request without a place in the queue, after so many refusals. */
export function delayBeforeRetry(refusals: number, random: number): number {
  return Math.min(10 * 1.5 ** refusals, 250) * (0.5 + 0.5 * random);
}
