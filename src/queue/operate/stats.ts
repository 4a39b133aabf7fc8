/** Counts go no further than this: a value of 10,000 means "10,000 or more", and costs no more than that. */
export const COUNT_LIMIT = 10_000;

/** A queue's figures at one moment, all of one snapshot. Counts stop at {@link COUNT_LIMIT}. */
export interface QueueStats {
  /** Ready, delayed and parked together. A job held by an open transaction (`hold: 'transaction'`) counts as ready. */
  readonly new: number;
  readonly 'in-progress': number;
  readonly error: number;
  readonly cancelled: number;
  /** May run now. */
  readonly ready: number;
  /** Asked for later, or backing off after a failure. */
  readonly delayed: number;
  /** Behind another job of their key. */
  readonly parked: number;
  /** The same as `in-progress`, for who prefers a property. */
  readonly inProgress: number;
  /** Jobs completed within the last minute; of a very busy minute, scaled up from its last 1,000 batches. */
  readonly completePerMinute: number;
  /** How long the oldest ready job has been waiting; null when none is ready. */
  readonly oldestReadyMs: number | null;
  readonly paused: boolean;
  readonly pausedAt: Date | null;
  /** Live workers. */
  readonly workers: number;
  /** Their concurrency, added up. */
  readonly slots: number;
}

/** A queue as it is declared: see the view pawl.queue. */
export interface QueueRecord {
  readonly name: string;
  readonly shards: number;
  /** At most one unit of a key at a time. */
  readonly keyed: boolean;
  readonly attempts: number;
  /** How long settled jobs are kept; null: for ever. */
  readonly historyMs: number | null;
  readonly pausedAt: Date | null;
  readonly createdAt: Date;
  readonly kinds: readonly string[];
  /** Live workers. */
  readonly workers: number;
}

/** A worker that lives, or that was lost a moment ago: see the view pawl.worker. */
export interface WorkerRecord {
  readonly id: string;
  readonly queue: string;
  readonly host: string;
  readonly pid: number;
  readonly hold: 'lease' | 'transaction';
  readonly concurrency: number;
  /** Jobs it holds, those that wait for their turn in it included. */
  readonly inProgress: number;
  readonly startedAt: Date;
  readonly beatAt: Date;
  readonly isLive: boolean;
}
