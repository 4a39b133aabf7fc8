import { setMaxListeners } from 'node:events';
import { Cancelled, InvalidInput, LeaseLost, NotSupported, TimedOut } from '../../../base/errors.ts';
import { toJson } from '../../../base/storable.ts';
import type { ConditionCheckItem } from '../../../engine/dynamodb/index.ts';
import type { OpenTransaction, Transaction } from '../../../engine/postgres/index.ts';
import type { ParentRecord } from '../../job.ts';
import type { ScheduledFor } from '../../operate/schedule.ts';
import { type Job, showAs } from './claimed-job.ts';

/** The interface of a worker for its units. */
export interface UnitOwner {
  readonly queueName: string;
  /** @param json  the progress as JSON */
  progress(unit: Unit, job: Job, json: string): Promise<void>;
  guard(unit: Unit, tx: unknown): Promise<void>;
  /** The same for many units, in one round trip. If it is missing, the units are guarded one after another. */
  guardAll?(units: readonly Unit[], tx: unknown): Promise<void>;
  parents(job: Job): Promise<readonly ParentRecord[]>;
  /** On DynamoDB only. */
  guardItems?(unit: Unit): readonly ConditionCheckItem[];
}

/**
 * The argument of a handler: one job, or all outstanding jobs of one key if the kind coalesces. While `signal` is not aborted, no
 * other worker has the key. A process that was paused may outlive its lease without noticing. So pass `token` with each write
 * outside of the database, or call `guard(tx)` in your own transaction.
 */
export class Unit<P = unknown> {
  readonly kind: string;
  readonly key: string | null;
  /** The jobs, oldest first; a single one, unless the kind coalesces. */
  readonly jobs: readonly Job<P>[];
  /** The next unit of the same key, held by the same worker. @internal */
  next: Unit | undefined;
  /** The epoch under which the key is held. @internal */
  readonly epoch: number | null;
  /** For a kind that fails with its predecessor: the predecessor that ended in error. @internal */
  brokenBy: number | null;
  /** Jobs that the handler failed by `fail()`. @internal */
  failed: Map<Job, unknown> | undefined;
  /** Cancelled jobs, with the reason. @internal */
  cancelled: Map<number, string> | undefined;
  /** True: the unit was settled without its handler, because its time or its lease was over. @internal */
  isOver = false;
  /** Called when its handler calls `progress`, which shows that the handler is alive. @internal */
  onProgress: (() => void) | undefined;
  /** True: its handler has called `guard`, so that a transaction of the handler may hold the unit's jobs. @internal */
  isGuarded = false;
  #controller: AbortController | undefined;
  #abortedWith: unknown;
  readonly #owner: UnitOwner;
  readonly #tx: Transaction | undefined;
  #hasUsedTx = false;
  readonly #isCoalesced: boolean;

  /** @internal */
  constructor(owner: UnitOwner, kind: string, key: string | null, jobs: readonly Job<P>[], held: UnitHold) {
    this.#owner = owner;
    this.kind = kind;
    this.key = key;
    this.jobs = jobs;
    this.epoch = held.epoch;
    this.brokenBy = held.brokenBy;
    this.#tx = held.tx;
    this.#isCoalesced = held.isCoalesced;
    for (const job of jobs) job.attachTo(this);
  }

  get queue(): string {
    return this.#owner.queueName;
  }

  /** The form for `JSON.stringify`, and so for logs. */
  toJSON(): object {
    const { processId, jobs } = this;
    return { processId, jobs };
  }

  /** The newest job: the only one, unless the kind coalesces. */
  get job(): Job<P> {
    const job = this.jobs[this.jobs.length - 1];
    if (job === undefined) throw new Error('a unit always has a job');
    return job;
  }

  /** The newest job's payload. */
  get payload(): P {
    return this.job.payload;
  }

  /**
   * The schedule and the tick of the newest job; undefined if no schedule enqueued it. If the tick was missed and made up later,
   * `schedule.at` is well before `job.enqueuedAt`.
   */
  get schedule(): ScheduledFor | undefined {
    return this.job.schedule;
  }

  /** The group of its job, as passed to `enqueue`; null for none. Kinds that coalesce have no groups. */
  get group(): string | null {
    return this.job.group;
  }

  /** The highest attempt number of its jobs. */
  get attempt(): number {
    let most = 0;
    for (const { attempt } of this.jobs) most = Math.max(most, attempt);
    return most;
  }

  /** The id of this attempt at this unit; in the history it is `process_id`. */
  get processId(): string {
    const { processId } = this.job.claim;
    return this.#isCoalesced ? processId : processIdOf(processId, this.job.number);
  }

  /**
   * The fencing token. It rises with every claim of the key (or of the job, if it has no key): refuse writes with a lower token.
   */
  get token(): bigint {
    return BigInt(this.epoch ?? this.job.claim.id);
  }

  /**
   * Aborted when the work should end: the job was cancelled, the lease was lost, the time is over, or the worker stops. Its
   * `reason` is an error that says which.
   */
  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      setMaxListeners(0, this.#controller.signal);
      if (this.#abortedWith !== undefined) this.#controller.abort(this.#abortedWith);
    }
    return this.#controller.signal;
  }

  /**
   * With `hold: 'transaction'`, the transaction in which the job is claimed: writes through it and the job's outcome are
   * committed together.
   * @throws NotSupported with `hold: 'lease'`, which has no open transaction
   */
  get tx(): Transaction {
    if (this.#tx === undefined) {
      throw new NotSupported(
        "unit.tx exists only in workers with hold: 'transaction'; under a lease use engine.transaction() and unit.guard(tx)",
      );
    }
    this.#hasUsedTx = true;
    return this.#tx;
  }

  /** Whether this is the transaction in which the unit is claimed, or its connection. @internal */
  isHeldBy(tx: unknown): boolean {
    return this.#tx !== undefined && (tx === this.#tx || tx === this.#tx.client);
  }

  /** Whether the handler asked for `tx`. @internal */
  get hasUsedTx(): boolean {
    return this.#hasUsedTx;
  }

  /**
   * Fails one job of a coalesced unit: only this job is retried or ends in `error`; the others complete when the handler returns.
   * @throws InvalidInput if the job is not of this unit
   */
  fail(job: Job<P>, error: unknown): void {
    if (!this.jobs.includes(job)) throw new InvalidInput(`job ${job.id} is not one of this unit`, { field: 'job' });
    this.failed ??= new Map();
    this.failed.set(job, error);
  }

  /**
   * Stores the progress of a job, any JSON value; readers of the job see it. One round trip, committed at once.
   * @throws LeaseLost if the unit is over, or no longer this worker's @throws InvalidInput if the value cannot be stored
   */
  async progress(value: unknown, job: Job<P> = this.job): Promise<void> {
    this.#requireOpen();
    this.onProgress?.();
    await this.#owner.progress(this as Unit, job, toJson(value, 'progress'));
  }

  /**
   * The jobs that the unit's newest job comes after (`after`), by id, with their results: all of them have ended. Empty if the
   * job comes after none. Jobs whose history is over are left out. One round trip.
   */
  parents(job: Job<P> = this.job): Promise<readonly ParentRecord[]> {
    return this.#owner.parents(job);
  }

  /**
   * With `hold: 'lease'`, call it in your own transaction: it fails unless this unit, in this attempt, is still this worker's.
   * Until your transaction ends, no other worker gets the unit's jobs or other jobs of its key, even if this process dies. One
   * round trip; none if the unit is over: timed out, given up, cancelled, or its lease lost. Call it last, because the unit is
   * not settled before your transaction has ended. Other jobs of the worker do not wait for it.
   *
   * With `hold: 'transaction'` it accepts only `unit.tx`, in which only this worker can commit. It sends nothing to the database,
   * and fails if this process knows that the unit is over.
   * @throws LeaseLost the unit is over, or no longer this worker's: roll back
   * @throws NotSupported with `hold: 'transaction'`, for any other transaction, because it could be committed without the claim
   */
  async guard(tx: OpenTransaction): Promise<void> {
    this.#requireOpen();
    await this.#owner.guard(this as Unit, tx);
  }

  /** `guard` for the units of a batch handler. @internal */
  static async guardAll(units: readonly Unit[], tx: OpenTransaction): Promise<void> {
    for (const unit of units) unit.#requireOpen();
    const [first] = units;
    if (first === undefined) return;
    const owner = first.#owner;
    if (owner.guardAll !== undefined) await owner.guardAll(units, tx);
    else for (const unit of units) await unit.guard(tx);
  }

  /**
   * On DynamoDB: returns the parts for your own `TransactWriteItems`, which then fails unless this unit, in this attempt, is
   * still this worker's. Two write units; this call sends nothing.
   * @throws LeaseLost  the unit is over, or no longer this worker's
   * @throws NotSupported  on Postgres, where `guard(tx)` does this
   */
  guardItems(): readonly ConditionCheckItem[] {
    this.#requireOpen();
    const items = this.#owner.guardItems?.(this as Unit);
    if (items === undefined)
      throw new NotSupported('unit.guardItems() is for DynamoDB; on Postgres call unit.guard(tx)');
    return items;
  }

  #requireOpen(): void {
    if (!this.isOver && !(this.#abortedWith instanceof TimedOut)) return;
    const why = this.#abortedWith;
    throw new LeaseLost(
      `attempt ${this.attempt} of job ${this.job.id} is over${why instanceof Error ? ` (${why.message})` : ''}: nothing more can be written for it`,
      { cause: why },
    );
  }

  /** Called when one of the jobs was cancelled: the unit ends, and its other jobs run again. @internal */
  cancel(job: number, reason: string | null): void {
    const words = `job ${job} was cancelled${reason === null ? '' : `: ${reason}`}`;
    this.cancelled ??= new Map();
    this.cancelled.set(job, words);
    this.abort(new Cancelled(words));
  }

  /** The reason of the abort, if the unit was aborted. @internal */
  get abortReason(): unknown {
    return this.#abortedWith;
  }

  /** @internal */
  abort(reason: Error): void {
    if (this.#abortedWith !== undefined) return;
    this.#abortedWith = reason;
    this.#controller?.abort(reason);
  }
}

showAs(Unit, ({ job, jobs, token, processId }) => {
  return { ...job.toJSON(), token, processId, ...(jobs.length > 1 && { jobs }) };
});

/** The one of these units whose handler works on the job `task`. */
export function unitOf(task: object | undefined, units: Iterable<Unit>): Unit | undefined {
  if (task === undefined) return undefined;
  for (const unit of units) if (unit.job === task) return unit;
  return undefined;
}

/** The hold of a unit. */
export interface UnitHold {
  readonly epoch: number | null;
  readonly brokenBy: number | null;
  /** True for a kind that coalesces: all jobs have the process id of the batch, even a single one. */
  readonly isCoalesced: boolean;
  readonly tx?: Transaction | undefined;
}

/** The process id of one job in a claimed batch: that of the batch, with the job's number as its last twelve digits. */
export function processIdOf(batch: string, job: number): string {
  return batch.slice(0, 24) + (job % 2 ** 48).toString(16).padStart(12, '0');
}
