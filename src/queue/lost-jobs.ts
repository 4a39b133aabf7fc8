import type { Origin } from './job-options.ts';

/** An attempt that is charged outside of its lost transaction: see pawl.queue_charge(). */
export interface Charge {
  readonly queue: number;
  readonly shard: number;
  readonly worker: number;
  readonly ids: readonly number[];
  /** Only jobs that are still in this attempt; null: in any attempt. */
  readonly attempts: readonly number[] | null;
  /** True: the jobs end in error, however many attempts they have left. */
  readonly ends: boolean;
  readonly reason: string;
  readonly error: string;
}

export interface ChargedJob {
  readonly id: number;
  readonly to: 'new' | 'error';
}

/** A job that ended without a worker that could tell it. */
export interface EndedJob {
  readonly id: number;
  readonly kind: string;
  readonly key: string | null;
  readonly attempt: number;
  readonly status: 'complete' | 'error' | 'cancelled';
  /** Null for a complete job, and for one that was cancelled without a reason. */
  readonly error: string | null;
  readonly origin: Origin;
  /** The process id of its last attempt; null if the crash has rolled back the claim. */
  readonly process: string | null;
  readonly payload: unknown;
}

/** Jobs that ended without their worker, and how many more did than are listed. */
export interface EndedJobs {
  readonly jobs: readonly EndedJob[];
  readonly more: number;
}

export interface RescueAnswer {
  /** Jobs that were taken from lost workers. */
  readonly jobs: number;
  /** Those of them that ended in error, and how many more did than are listed. */
  readonly ended: EndedJobs | null;
  /** Pids of server processes with transactions of lost workers that this role may not end. */
  readonly unended: readonly number[];
}
