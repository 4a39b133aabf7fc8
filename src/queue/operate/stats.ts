import type { PausedPart } from '../paused-part.ts';

/** Counting stops at this number, which bounds its cost: 10,000 means "10,000 or more". */
export const COUNT_LIMIT = 10_000;

/** A queue's figures at one moment, all from one snapshot. Counts stop at {@link COUNT_LIMIT}. */
export interface QueueStats {
  /** Ready, delayed and parked together. A job held by an open transaction (`hold: 'transaction'`) counts as ready. */
  readonly new: number;
  readonly 'in-progress': number;
  readonly error: number;
  readonly cancelled: number;
  /** Jobs that may run now. */
  readonly ready: number;
  /** Jobs that are enqueued for later, and jobs in backoff after a failure. */
  readonly delayed: number;
  /** Jobs behind another job of their key, and jobs that wait for a place of their group. */
  readonly parked: number;
  /** The same as `in-progress`, under a name that needs no quotes. */
  readonly inProgress: number;
  /** Jobs completed within the last minute; for a very busy minute, extrapolated from its last 1,000 batches. */
  readonly completePerMinute: number;
  /** How long the oldest ready job has been waiting; null if none is ready. */
  readonly oldestReadyMs: number | null;
  readonly paused: boolean;
  readonly pausedAt: Date | null;
  /** Paused parts of the queue; a job of such a part counts as delayed once a worker has found it. */
  readonly pausedParts: readonly PausedPart[];
  /** Keys that are stopped behind a job that ended in error (`keyOnError: 'block'`). */
  readonly blockedKeys: number;
  /** The number of live workers. */
  readonly workers: number;
  /** The sum of their concurrency. */
  readonly slots: number;
}

/** The declaration of a queue: see the view pawl.queue. */
export interface QueueRecord {
  readonly name: string;
  readonly shards: number;
  /** True: at most one unit of a key runs at a time. */
  readonly keyed: boolean;
  /** How many jobs of a group run at a time; null: no limit. */
  readonly perGroup: number | null;
  /** How many runs of a group may begin in how many milliseconds; null: no limit. */
  readonly rate: { readonly limit: number; readonly perMs: number } | null;
  readonly attempts: number;
  /** How long settled jobs are kept; null: for ever. */
  readonly historyMs: number | null;
  readonly pausedAt: Date | null;
  /** Parts of it that are paused. */
  readonly pausedParts: readonly PausedPart[];
  /** Keys that are stopped behind a job that ended in error (`keyOnError: 'block'`); counting stops at {@link COUNT_LIMIT}. */
  readonly blockedKeys: number;
  readonly createdAt: Date;
  readonly kinds: readonly string[];
  /** The number of live workers. */
  readonly workers: number;
}

/** A live worker, or one that was lost a moment ago: see the view pawl.worker. */
export interface WorkerRecord {
  readonly id: string;
  readonly queue: string;
  readonly host: string;
  readonly pid: number;
  readonly hold: 'lease' | 'transaction';
  readonly concurrency: number;
  /** The number of jobs that it holds, including prefetched ones. */
  readonly inProgress: number;
  readonly startedAt: Date;
  readonly beatAt: Date;
  readonly isLive: boolean;
}
