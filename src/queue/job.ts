import type { ScheduledFor } from './operate/schedule.ts';

/**
 * The status of a job:
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

/** A job, as the view pawl.job shows it. */
export interface JobRecord {
  readonly id: string;
  readonly queue: string;
  readonly kind: string;
  readonly key: string | null;
  /** The group whose places the job shares; null for none. */
  readonly group: string | null;
  readonly status: JobStatus;
  readonly priority: number;
  /** The number of attempts that have begun. */
  readonly attempt: number;
  readonly payload: unknown;
  readonly enqueuedAt: Date;
  /** The earliest time to run; null if that is the time of the enqueue. */
  readonly runAt: Date | null;
  readonly claimedAt: Date | null;
  readonly settledAt: Date | null;
  readonly processId: string | null;
  readonly error: string | null;
  readonly progress: unknown;
  readonly result: unknown;
  /** The schedule that enqueued the job, and the tick; null if no schedule did. */
  readonly schedule: ScheduledFor | null;
  /** The number of attempts that the job may have. */
  readonly attempts: number;
  /** If the job has not begun by this time, it ends as cancelled; null for a job without such a time. */
  readonly expiresAt: Date | null;
  readonly tags: readonly string[];
  /** The `meta` of its enqueue; null when none was given. */
  readonly meta: Readonly<Record<string, unknown>> | null;
}

/** One transition of a job. */
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

/** A job that another job comes after, once it has ended. */
export interface ParentRecord {
  readonly id: string;
  readonly queue: string;
  readonly kind: string;
  readonly key: string | null;
  readonly status: JobStatus;
  readonly payload: unknown;
  readonly result: unknown;
  readonly error: string | null;
}
