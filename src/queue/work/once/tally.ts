import type { AttemptResult } from '../run/attempt.ts';

/** How many jobs a worker has run, by the outcome of the attempt. */
export interface OnceResult {
  readonly complete: number;
  /** Jobs that failed, and will be tried again later. */
  readonly retried: number;
  /** Jobs that failed for good. */
  readonly error: number;
  readonly cancelled: number;
}

/** The same, while the worker runs. */
export type Tally = { -readonly [K in keyof OnceResult]: OnceResult[K] };

export function newTally(): Tally {
  return { complete: 0, retried: 0, error: 0, cancelled: 0 };
}

/** Counts the outcome of one attempt. Jobs that were given back or lost are not counted. */
export function countOutcome(tally: Tally, { complete, failed }: AttemptResult): void {
  tally.complete += complete.length;
  for (const { to } of failed) {
    if (to === 'retry') tally.retried += 1;
    else if (to === 'error') tally.error += 1;
    else if (to === 'cancelled') tally.cancelled += 1;
  }
}
