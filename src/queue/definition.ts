import type { InferInput, InferOutput, StandardSchemaV1 } from '../base/options/schema.ts';
import type { Backoff, BackoffOption } from '../base/time/backoff.ts';
import type { Duration } from '../base/time/duration.ts';
import type { Debounce, DebounceOptions, UniqueOptions, UniqueRule } from './declare/unique.ts';

/** Options of one kind of jobs. */
export interface KindOptions {
  /**
   * Any Standard Schema (zod, valibot, arktype…). It checks the payload at enqueue and again when the job runs. So if a job comes
   * from an older version of the program, or from SQL, the handler never gets a payload of a shape that it does not expect.
   * Default: no check.
   */
  readonly payload?: StandardSchemaV1 | undefined;
  /**
   * At most one of these jobs exists. A second enqueue returns the id and the status of the existing job, and `duplicate: true`.
   * `'key'` is short for `{ by: 'key', while: 'ever' }`. Of two concurrent enqueues, the first to commit creates the job: the
   * second waits for the first transaction to end.
   */
  readonly unique?: 'key' | UniqueOptions | undefined;
  /** At most one job of a key in this time. Further enqueues are answered like duplicates. It needs a key. */
  readonly throttle?: Duration | undefined;
  /**
   * A job of this kind waits until no further job of its key has come for this long, at the latest until `max` (default: ten times as
   * long). All jobs that wait are then one unit: the handler gets the newest payload, or all of them with `coalesce: 'all'`. Each
   * enqueue only adds a job, so producers do not wait for each other. It needs a key, and sets `runAt`.
   */
  readonly debounce?: Duration | DebounceOptions | undefined;
  /**
   * `'all'`: all outstanding jobs of this kind and key are one unit (at most 10,000), each with its own row, outcome and
   * history. `'latest'`: the same, and the handler gets only the newest job. Default `'none'`: each job is a unit.
   */
  readonly coalesce?: 'none' | 'latest' | 'all' | undefined;
  /** Predecessor kinds: a job of this kind waits while a job of one of these kinds with the same key is outstanding. */
  readonly after?: readonly string[] | undefined;
  /**
   * What happens to a job whose predecessor (`after`) ended in `error`: it runs anyway (`'run'`, the default), or ends
   * in `error`, too.
   */
  readonly afterError?: 'run' | 'error' | undefined;
  /** The number of attempts of a job of this kind. Default: the queue's `retry.attempts`. */
  readonly attempts?: number | undefined;
  /** The wait between two attempts at a job of this kind. Default: the queue's `retry.backoff`. */
  readonly backoff?: BackoffOption | undefined;
  /**
   * The kind of the dead letters. If a job of this kind ends in `error`, for whatever reason, the same transaction enqueues a job
   * of the kind `onError` in the same queue, exactly one for each such end. Its payload is a {@link DeadLetter}, and its key is
   * that of the failed job, if there is one.
   */
  readonly onError?: string | undefined;
  /**
   * `'required'`: a job of this kind without a key is refused, so that no program can forget the key. Default: only kinds with
   * `unique`, `coalesce` or `after` need a key.
   */
  readonly key?: 'required' | undefined;
  /**
   * How long one attempt may take. After that, `unit.signal` is aborted and the attempt has failed, whatever its handler returns.
   * The failure is written when the handler has ended, at most 5 s later. Default: no limit.
   */
  readonly timeout?: Duration | undefined;
  /**
   * How long a handler may run without calling `unit.progress()`. After that its attempt has failed, as after `timeout`. Default:
   * no limit.
   */
  readonly idle?: Duration | undefined;
  /** The largest payload and result of a job of this kind, as JSON in UTF-8. Default 4 MiB; at most 32 MiB. */
  readonly maxBytes?: number | undefined;
  /**
   * The handler of this kind gets an array of up to `size` units, see `UnitBatch`, and takes one slot for all of them. Each unit
   * has its own outcome. Only for workers with `hold: 'lease'`. Default: the handler gets one unit.
   */
  readonly batch?: BatchOptions | undefined;
}

/** How many units a batch handler gets. */
export interface BatchOptions {
  /** The largest number of units, 1 to 10,000. */
  readonly size: number;
  /**
   * How long the first unit waits for others if a slot is free and there are fewer than `size`; up to a minute. Units that wait
   * count as in progress. Default `'50ms'`.
   */
  readonly wait?: Duration | undefined;
}

/** The declaration of a queue. */
export interface QueueOptions<K extends Kinds = Kinds> {
  /** The kinds of jobs, by name. */
  readonly kinds: K;
  /**
   * The number of independent parts of the queue; jobs are ordered within each part. A key always has the same shard. Default
   * 1, which is strict FIFO; at most 256. It can be changed only while no job is outstanding.
   */
  readonly shards?: number | undefined;
  readonly retry?: RetryOptions | undefined;
  /** How long a settled job and its history are kept: a duration, or `'forever'`. Default `'90d'`. */
  readonly history?: Duration | undefined;
  readonly concurrency?: QueueConcurrency | undefined;
  readonly rate?: QueueRate | undefined;
  /**
   * What happens to the later jobs of a key if one of its jobs ends in `error`. `'continue'` (default): they go on. `'block'`:
   * the key stops, and its jobs wait until somebody calls `queue.retry(id)` or `queue.skip(id)` for the failed job. The key stops
   * in the transaction that ends the job, also if the job was lost with its worker. A job that ends without an attempt does not
   * stop its key: it was cancelled, has expired, or its predecessors (`after` at its enqueue) failed. `'block'` needs
   * `concurrency: { perKey: 1 }`, and no kind may have `onError`, because a dead letter would wait behind the key.
   */
  readonly keyOnError?: 'continue' | 'block' | undefined;
}

/** How many jobs with the same key or group run at a time, over all processes. */
export interface QueueConcurrency {
  /** 1 (default): the jobs of a key run one after another, in order. `Infinity`: a key is only a label for searches. */
  readonly perKey?: number | undefined;
  /**
   * How many jobs of a `group` run at a time, over all workers and processes: 1 to 10,000. A job of a group is admitted first,
   * and keeps its place until it ends or waits for its next attempt. A job that waits for a place takes no slot of a worker. The
   * latest declaration counts: a larger number admits more jobs at once; with a smaller one, no job is admitted until enough jobs
   * have ended. Default: jobs have no groups.
   */
  readonly perGroup?: number | undefined;
}

/** How many runs of jobs of the same group begin in a period, over all processes. */
export interface QueueRate {
  /**
   * How many runs of the jobs of a `group` begin in a period, over all workers and processes: `limit` runs at once, and then one
   * run each `per / limit`, by the database's clock. Any time T has at most `limit + ceil(T × limit / per)` begins. Each run
   * counts, also the next attempt of a job and a run after a crash. A job that waits for the rate takes no slot of a worker, and
   * no attempt is charged. The latest declaration counts. Workers of such a queue claim nothing ahead of free slots. Not on
   * DynamoDB. Default: any number.
   */
  readonly perGroup?: RateLimit | undefined;
}

export interface RateLimit {
  /** How many runs may begin at once: 1 to 10,000. */
  readonly limit: number;
  /** The period of `limit` runs: `'1s'` to `'366d'`. */
  readonly per: Duration;
}

export interface RetryOptions {
  /**
   * The number of attempts of a job, including the first one. Default 15: with the default `backoff` the last attempt begins an
   * hour and a half to three hours after the first. So if an outage of an hour fails each attempt, no job ends in error. A job
   * that was lost with its worker five times in a row ends in error, even if it has attempts left.
   */
  readonly attempts?: number | undefined;
  /** The wait between two attempts. Default exponential: 1 s, doubled each time, at most 1 h, half of it random. */
  readonly backoff?: BackoffOption | undefined;
}

export type Kinds = Readonly<Record<string, KindOptions>>;

/** The payload that a producer passes for a kind. */
export type PayloadIn<K extends KindOptions> = K extends { readonly payload: infer S extends StandardSchemaV1 }
  ? InferInput<S>
  : unknown;

/** The payload that a handler gets for a kind. */
export type PayloadOut<K extends KindOptions> = K extends { readonly payload: infer S extends StandardSchemaV1 }
  ? InferOutput<S>
  : unknown;

/** The payload of a dead letter: a job of the kind that `onError` names. */
export interface DeadLetter<P = unknown> {
  /** The id of the job that ended in error. */
  readonly job: string;
  readonly queue: string;
  readonly kind: string;
  readonly key: string | null;
  /** How many attempts the job had. */
  readonly attempts: number;
  readonly error: string;
  /** The payload as it is stored, before any schema; null if it is omitted. */
  readonly payload: P | null;
  /** True: the payload is larger than 64 kB, or very many jobs ended at once. `queue.get(job)` returns the payload. */
  readonly isPayloadOmitted: boolean;
}

/** One kind with all defaults. */
export interface Kind {
  readonly name: string;
  readonly schema: StandardSchemaV1 | undefined;
  readonly unique: UniqueRule | undefined;
  readonly debounce: Debounce | undefined;
  readonly coalesce: 'none' | 'latest' | 'all';
  readonly after: readonly string[];
  readonly afterError: 'run' | 'error';
  readonly attempts: number;
  readonly backoff: Backoff;
  readonly needsKey: boolean;
  readonly onError: string | undefined;
  readonly timeoutMs: number;
  readonly idleMs: number;
  readonly maxBytes: number;
  readonly batch: { readonly size: number; readonly waitMs: number } | undefined;
  /** If a job of the kind ends in error, it stops its key. */
  readonly blocksKey: boolean;
}

/** A queue's declaration, checked and with all defaults. */
export interface Definition {
  readonly name: string;
  readonly kinds: ReadonlyMap<string, Kind>;
  readonly shards: number;
  readonly attempts: number;
  readonly historyMs: number;
  readonly keyed: boolean;
  /** How many jobs of a group may be admitted; undefined: jobs have no groups. */
  readonly perGroup: number | undefined;
  /** How many runs of a group may begin in a period; undefined: any number. */
  readonly rate: { readonly limit: number; readonly perMs: number } | undefined;
  /** If a job ends in error, it stops its key. */
  readonly blocksKeys: boolean;
}
