import type { ScheduledFor } from './operate/schedule.ts';

/**
 * Where a job is:
 * ```
 *            ┌──────── retry, release, worker lost ────────┐
 *            ▼                                             │
 *   enqueue  new ───── claim ─────▶ in-progress ── settle ─┼──▶ complete
 *            │                          │                  └──▶ error ──── retry() ──▶ new
 *            └─ cancel() ─▶ cancelled ◀─┘ cancel()                cancelled ─ retry() ─▶ new
 * ```
 */
export type JobStatus = 'new' | 'in-progress' | 'complete' | 'error' | 'cancelled';

export const JOB_STATUSES: readonly JobStatus[] = ['new', 'in-progress', 'complete', 'error', 'cancelled'];

/** A job as it is read: see the view pawl.job. */
export interface JobRecord {
  readonly id: string;
  readonly queue: string;
  readonly kind: string;
  readonly key: string | null;
  readonly status: JobStatus;
  readonly priority: number;
  /** Attempts begun so far. */
  readonly attempt: number;
  readonly payload: unknown;
  readonly enqueuedAt: Date;
  /** When it may run, if that is later than it was enqueued. */
  readonly runAt: Date | null;
  readonly claimedAt: Date | null;
  readonly settledAt: Date | null;
  readonly processId: string | null;
  readonly error: string | null;
  readonly progress: unknown;
  readonly result: unknown;
  /** Which tick of which schedule it is for; null for a job that no schedule enqueued. */
  readonly schedule: ScheduledFor | null;
}

/** One move of a job. */
export interface JobTransition {
  readonly at: Date;
  readonly from: JobStatus | null;
  readonly to: JobStatus;
  readonly attempt: number;
  readonly processId: string | null;
  readonly worker: string | null;
  /** `enqueue`, `claim`, `complete`, `retry`, `release`, `error`, `cancel`, `worker lost`, `retry by hand`… */
  readonly reason: string;
  readonly error: string | null;
}
