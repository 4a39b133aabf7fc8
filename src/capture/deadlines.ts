/** The way of an answer, beside what the server is given for the statement. */
const WAY_MS = 5_000;

/**
 * The server ends a worker's statement after its timeout, so whatever has not been answered by then is on a connection that went dead
 * without a word. Nothing else would ever tell: a worker would wait for ever.
 */
export function answerDeadlineMs(timeoutMs: number): number {
  return timeoutMs + WAY_MS;
}

/** For looking after the log, where a partition may be large. */
export const PARTITIONS_MS = 60_000;

/** A stop waits no longer than this for the batches that are under way: a database that went silent rolls them back. */
export const STOP_MS = 5_000;
