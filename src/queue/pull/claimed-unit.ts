import type { Backoff } from '../../base/time/backoff.ts';
import type { Duration } from '../../base/time/duration.ts';
import type { OpenTransaction } from '../../engine/postgres/index.ts';
import type { ParentRecord } from '../job.ts';
import type { Job } from '../work/run/claimed-job.ts';
import type { Unit } from '../work/run/unit.ts';
import type { ExtendedLease, FailedTo, FailOptions, PulledUnit, Puller, ReleasedTo } from './pull.ts';

/**
 * One job that `claim()` returned, or all outstanding jobs of one key if the kind coalesces. The unit is yours until you settle
 * it by one call of `complete`, `fail` or `release`, or until its lease ends. If the lease ends, the unit is given back and
 * charged like the job of a lost worker. Units of one `claim()` share their lease.
 */
export class ClaimedUnit<P = unknown> {
  /** Names this unit in another process, or in a program in another language: see `POST /claims/complete`. */
  readonly handle: string;
  #expiresAt: Date;
  readonly #unit: Unit<P>;
  readonly #puller: Puller;
  readonly #settings: { readonly backoff?: Backoff | undefined; readonly maxBytes?: number | undefined };

  /** @internal */
  constructor(
    { unit, handle, expiresAt }: PulledUnit,
    puller: Puller,
    settings: { readonly backoff?: Backoff | undefined; readonly maxBytes?: number | undefined } = {},
  ) {
    this.handle = handle;
    this.#expiresAt = expiresAt;
    this.#unit = unit as Unit<P>;
    this.#puller = puller;
    this.#settings = settings;
  }

  get queue(): string {
    return this.#unit.queue;
  }

  get kind(): string {
    return this.#unit.kind;
  }

  get key(): string | null {
    return this.#unit.key;
  }

  /** The jobs, oldest first; a single one, unless the kind coalesces. */
  get jobs(): readonly Job<P>[] {
    return this.#unit.jobs;
  }

  /** The newest job. */
  get job(): Job<P> {
    return this.#unit.job;
  }

  /** The newest job's payload. */
  get payload(): P {
    return this.#unit.payload;
  }

  /** The highest attempt number of its jobs: 1 the first time. */
  get attempt(): number {
    return this.#unit.attempt;
  }

  /** The fencing token. It rises with every claim of the key, or of the job if it has no key. */
  get token(): bigint {
    return this.#unit.token;
  }

  /** The id of this attempt; in the history it is `process_id`. */
  get processId(): string {
    return this.#unit.processId;
  }

  /** The end of the lease, by the database's clock. */
  get expiresAt(): Date {
    return this.#expiresAt;
  }

  /**
   * Completes the unit's jobs, each with this result. One round trip.
   * @throws LeaseLost  the unit was settled before, or its lease has ended: nothing was written
   * @throws InvalidInput  the result cannot be stored; nothing was written
   * @throws LockNotAvailable  an open transaction of yours guards the unit
   */
  complete(result?: unknown): Promise<void> {
    return this.#puller.complete(this.handle, result, this.#unit.isGuarded, this.#settings.maxBytes);
  }

  /**
   * Says that the attempt has failed. The jobs are tried again after the backoff of the queue, or after `retryIn`, unless this
   * was the last attempt. A `NoRetry` ends the jobs in error at once. `snooze()`, `retryAfter()`, `cancelled()` and `discard()`
   * have the same effect as in a handler. A job that was cancelled meanwhile ends as cancelled. @returns the outcome
   * @throws LeaseLost, InvalidInput, LockNotAvailable  as `complete`
   */
  fail(error: unknown, options: FailOptions = {}): Promise<FailedTo> {
    const { backoff } = this.#settings;
    return this.#puller.fail(this.handle, error, options, {
      isGuarded: this.#unit.isGuarded,
      ...(backoff && { backoff }),
    });
  }

  /**
   * Gives the jobs back, uncharged: they are ready again at once. A job that was cancelled meanwhile ends as cancelled.
   * @returns the outcome @throws LeaseLost, LockNotAvailable  as `complete`
   */
  release(): Promise<ReleasedTo> {
    return this.#puller.release(this.handle, this.#unit.isGuarded);
  }

  /**
   * Renews the lease from now on, for all units of its `claim()`. The answer also says whether the job was cancelled.
   * @param lease  from 1 s to 24 h; default: as long as before @throws LeaseLost  the lease has ended: stop working on the unit
   */
  async extend(lease?: Duration): Promise<ExtendedLease> {
    const extended = await this.#puller.extend(this.handle, lease);
    this.#expiresAt = extended.expiresAt;
    return extended;
  }

  /** Stores the progress of a job; readers of the job see it. @throws LeaseLost, InvalidInput */
  progress(value: unknown, job: Job<P> = this.job): Promise<void> {
    return this.#unit.progress(value, job);
  }

  /** The jobs that this job comes after (`after`), by id, with their results. One round trip. */
  parents(job: Job<P> = this.job): Promise<readonly ParentRecord[]> {
    return this.#unit.parents(job);
  }

  /**
   * In your own transaction: fails unless the unit, in this attempt, is still yours, and keeps it yours until the transaction
   * ends. Call it last; settle the unit after the commit. @throws LeaseLost
   */
  guard(tx: OpenTransaction): Promise<void> {
    return this.#unit.guard(tx);
  }

  /** The form for `JSON.stringify`, with everything that a program in another language needs. */
  toJSON(): object {
    const { handle, queue, kind, key, attempt, processId, expiresAt, jobs } = this;
    return { handle, queue, kind, key, attempt, token: String(this.token), processId, expiresAt, jobs };
  }
}
