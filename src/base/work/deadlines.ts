/** How long a handler may go on after it was told to end, before its work is settled without it. */
export const GRACE_MS = 5_000;

/**
 * What a stop takes at most beyond its `timeout`, whatever the database does: the grace of handlers that were told to end, and
 * as long again for what is to be written. With the default of 15 s it fits into the 30 s that supervisors leave a process.
 */
export const END_MS: number = 2 * GRACE_MS;

/** A stop does not wait longer than this for each thing that is only tidy to wait for. */
export const STOP_MS = 2_000;

/** After this long without an idle poll, producers need not notify a worker. */
export const BUSY_MS = 500;

/** How often a worker that stays busy writes so again: the write may be lost, or a heartbeat that was sent before may come after it. */
export const BUSY_AGAIN_MS = 5_000;

/**
 * How long a worker waits for the answer to a statement of its own before it takes the connection for dead: half its lease, so
 * that what a lost answer left in between is back within one lease; milliseconds. At least what a busy server may take, at
 * most what no operator would want to wait for.
 */
export function answerDeadline(leaseMs: number): number {
  return Math.min(Math.max(leaseMs / 2, 2_000), 30_000);
}
