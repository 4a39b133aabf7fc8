/** For the network, in addition to the time that the server may take for the statement. */
const WAY_MS = 5_000;

/**
 * The server ends a worker's statement after its timeout. A statement without an answer after that was sent on a dead
 * connection. Nothing else would show it: the worker would wait for ever.
 */
export function answerDeadlineMs(timeoutMs: number): number {
  return timeoutMs + WAY_MS;
}

/** For making and dropping partitions of the log: a partition may be large. */
export const PARTITIONS_MS = 60_000;

/** A stop waits no longer than this for the batches that are under way. The database rolls back those that are left. */
export const STOP_MS = 5_000;
