/** How a waiter stands, after it was told that it is not its turn. */
export interface QueuePosition {
  /** How many wait before it. */
  readonly ahead: number;
  /** When somebody's lease may have run out; undefined when nobody's will. */
  readonly retryMs: number | undefined;
}

// With notifications, looking again only makes up for a lost one; without them it is how the lock is had.
const FIRST_TOLD_MS = 1000;
const FIRST_UNTOLD_MS = 25;
const LONGEST_UNTOLD_MS = 500;
const SOONEST_MS = 20;

/**
 * How long until a waiter looks again, which also renews its place. The first in line looks as soon as what stands in its
 * way may have run out; the second watches the first in the same way; those behind only keep their place, and what they
 * read is their own row and one of somebody before them.
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
  // Waiters that came at once shall not look at once for ever.
  return Math.min(floor * (0.8 + 0.2 * random), expiry);
}

/** How long until a request without a place in the queue tries again, after it was refused so many times. */
export function delayBeforeRetry(refusals: number, random: number): number {
  return Math.min(10 * 1.5 ** refusals, 250) * (0.5 + 0.5 * random);
}
