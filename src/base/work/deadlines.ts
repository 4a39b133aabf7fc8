/** How long a handler may go on after it was told to end. After that its work is settled without it. */
export const GRACE_MS = 5_000;

/**
 * The longest time of a stop beyond its `timeout`, even if the database does not answer: the grace of handlers that were told to
 * end, and the same time for the outcomes to be written. With the default timeout of 15 s it fits into the 30 s that supervisors
 * allow.
 */
export const END_MS: number = 2 * GRACE_MS;

/** The longest time that a stop waits for each step that is not necessary. */
export const STOP_MS = 2_000;

/** After this long without an idle poll, producers need not notify a worker. */
export const BUSY_MS = 500;

/**
 * How often a busy worker writes again that it needs no notifications: the write may be lost, or an older heartbeat may come
 * after it.
 */
export const BUSY_AGAIN_MS = 5_000;

/**
 * How long a worker waits for the answer to its own statement before it treats the connection as dead, in milliseconds: half its
 * lease, so that work of a lost answer is given back within one lease. At least the time that a busy server may take, at most the
 * time that an operator would wait.
 */
export function answerDeadline(leaseMs: number): number {
  return Math.min(Math.max(leaseMs / 2, 2_000), 30_000);
}
