/** Kinds with `debounce`: until when the jobs of a key rest, since younger jobs of their kind may come. */
import type { Debounce } from '../../declare/unique.ts';

/** A unit has at most this many jobs. A key that has as many does not rest. */
const MOST = 1000;

/** An untried job of the key. */
export interface RestingJob {
  readonly id: number;
  readonly kind: number;
  /** By the service's clock. */
  readonly enqueuedAt: number;
}

/** @param tried  kinds of which a job was tried before: their other jobs go with it @returns the jobs that rest, each with its time */
export function restingOf(
  jobs: readonly RestingJob[],
  debounced: ReadonlyMap<number, Debounce>,
  tried: ReadonlySet<number>,
  now: number,
): Map<number, number> {
  const resting = new Map<number, number>();
  for (const [kind, { waitMs, maxMs }] of debounced) {
    const some = tried.has(kind) ? [] : jobs.filter((job) => job.kind === kind);
    const times = some.map(({ enqueuedAt }) => enqueuedAt);
    const until = Math.ceil(Math.min(Math.max(...times) + waitMs, Math.min(...times) + maxMs));
    if (some.length === 0 || some.length >= MOST || until <= now) continue;
    for (const { id } of some) resting.set(id, until);
  }
  return resting;
}
