import { setMaxListeners } from 'node:events';
import { type InspectOptions, inspect } from 'node:util';
import { Cancelled, InvalidInput, LeaseLost, NotSupported, TimedOut } from '../../base/errors.ts';
import { toJson } from '../../base/storable.ts';
import type { OpenTransaction, Transaction } from '../../engine/postgres/index.ts';
import type { ScheduledFor } from '../operate/schedule.ts';
import type { Origin } from '../store.ts';

/** A batch claimed in one statement; its id is the fencing token. */
export interface Claim {
  readonly id: number;
  readonly shard: number;
  readonly processId: string;
  /** Its jobs were taken to start at once, before what waits. */
  readonly isAlone: boolean;
  /** Jobs of it of which the database does not know yet what became of them. */
  left: number;
}

/** What a unit asks of the worker that runs it. */
export interface UnitOwner {
  readonly queueName: string;
  /** @param json  what is to be noted */
  progress(unit: Unit, job: Job, json: string): Promise<void>;
  guard(unit: Unit, tx: unknown): Promise<void>;
}

/** One job, as a handler sees it. */
export class Job<P = unknown> {
  /** Which attempt this is: 1 for the first. */
  readonly attempt: number;
  /** @internal */
  readonly number: number;
  /** @internal */
  readonly claim: Claim;
  readonly #origin: Origin;
  #payload: P;
  #unit: Unit<P> | undefined;

  /** @internal */
  constructor(number: number, claim: Claim, attempt: number, origin: Origin, payload: P) {
    this.number = number;
    this.claim = claim;
    this.attempt = attempt;
    this.#origin = origin;
    this.#payload = payload;
  }

  get payload(): P {
    return this.#payload;
  }

  /** The schema's output takes the place of what was stored: its defaults and transformations are what a handler sees. @internal */
  accept(payload: P): void {
    this.#payload = payload;
  }

  get id(): string {
    return String(this.number);
  }

  /** By the database's clock. */
  get enqueuedAt(): Date {
    return new Date(typeof this.#origin === 'number' ? this.#origin : this.#origin.enqueuedAt);
  }

  /** Which tick of which schedule it is for; undefined for a job that no schedule enqueued. */
  get schedule(): ScheduledFor | undefined {
    if (typeof this.#origin === 'number') return undefined;
    const { schedule, tickAt } = this.#origin;
    return { name: schedule, at: new Date(tickAt) };
  }

  /** @internal */
  attachTo(unit: Unit<P>): void {
    this.#unit = unit;
  }

  /** What `JSON.stringify`, and so a log, makes of it. */
  toJSON(): object {
    const { id, attempt, enqueuedAt, schedule, payload } = this;
    const { queue, kind, key } = this.#unit ?? {};
    return { id, queue, kind, key, attempt, enqueuedAt, schedule, payload };
  }
}

/**
 * What a handler is called with: one job, or all outstanding jobs of one key where the kind coalesces. No other worker
 * has the key meanwhile, as long as `signal` is not aborted; a process that was paused may outlive its lease without
 * noticing, so give `token` to what you write outside, or call `guard(tx)` in your own transaction.
 */
export class Unit<P = unknown> {
  readonly kind: string;
  readonly key: string | null;
  /** Oldest first. One, unless the kind coalesces. */
  readonly jobs: readonly Job<P>[];
  /** The next unit of the same key, held by the same worker. @internal */
  next: Unit | undefined;
  /** The epoch under which the key is held. @internal */
  readonly epoch: number | null;
  /** The predecessor that ended in error, where the kind wants to fail then. @internal */
  brokenBy: number | null;
  /** Jobs that the handler gave up on by `fail()`. @internal */
  failed: Map<Job, unknown> | undefined;
  /** Jobs that somebody cancelled, and in which words. @internal */
  cancelled: Map<number, string> | undefined;
  /** Settled without its handler: the time ran out, or the lease. @internal */
  isOver = false;
  /** Its handler has called `guard`: a transaction of its own may hold the unit's jobs. @internal */
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

  /** What `JSON.stringify`, and so a log, makes of it. */
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
   * Which tick of which schedule the newest job is for; undefined where no schedule enqueued it. A tick that is made up for is told
   * by its time: `schedule.at` lies well before `job.enqueuedAt`.
   */
  get schedule(): ScheduledFor | undefined {
    return this.job.schedule;
  }

  /** The attempt of the job that has been tried most often. */
  get attempt(): number {
    let most = 0;
    for (const { attempt } of this.jobs) most = Math.max(most, attempt);
    return most;
  }

  /** The same for everything that happens to this unit in this attempt; in the history it is `process_id`. */
  get processId(): string {
    const { processId } = this.job.claim;
    return this.#isCoalesced ? processId : processIdOf(processId, this.job.number);
  }

  /** Rises with every claim of the key (or of the job, when it has no key), for ever: refuse writes with a lower one. */
  get token(): bigint {
    return BigInt(this.epoch ?? this.job.claim.id);
  }

  /**
   * Aborts when the work should end: the job was cancelled, the lease was lost, the time ran out, the worker stops. Its
   * `reason` is the error that says why.
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
   * With `hold: 'transaction'`, the transaction in which the job is claimed: what you write through it and the job's
   * outcome are committed together.
   * @throws NotSupported under `hold: 'lease'`, where there is no open transaction
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
   * Gives up on one job of a coalesced unit: it is retried, or ends in `error`, by itself, while the others complete when
   * the handler returns.
   * @throws InvalidInput when the job is not of this unit
   */
  fail(job: Job<P>, error: unknown): void {
    if (!this.jobs.includes(job)) throw new InvalidInput(`job ${job.id} is not one of this unit`, { field: 'job' });
    this.failed ??= new Map();
    this.failed.set(job, error);
  }

  /**
   * Notes how far a job is, for its readers; any JSON. One round trip, committed at once.
   * @throws LeaseLost when the unit is over, or no longer this worker's @throws InvalidInput for what cannot be stored
   */
  async progress(value: unknown, job: Job<P> = this.job): Promise<void> {
    this.#requireOpen();
    await this.#owner.progress(this as Unit, job, toJson(value, 'progress'));
  }

  /**
   * Inside your own transaction, under `hold: 'lease'`: fails unless this unit, in this attempt, is still this worker's, and
   * keeps it so until your transaction ends: until then no other worker is given its jobs, nor others of its key, whatever becomes
   * of this process. One round trip, and none once the unit is over: timed out, given up, cancelled, or its lease lost. Call it
   * last, since your unit is not settled before your transaction has ended; what else the worker has does not wait for it.
   *
   * Under `hold: 'transaction'` it takes `unit.tx` alone, in which nothing can be committed that is not this worker's, and asks
   * the database nothing: it fails where this process knows that the unit is over.
   * @throws LeaseLost the unit is over, or no longer this worker's: roll back
   * @throws NotSupported under `hold: 'transaction'`, for any other transaction: that could be committed without the claim
   */
  async guard(tx: OpenTransaction): Promise<void> {
    this.#requireOpen();
    await this.#owner.guard(this as Unit, tx);
  }

  #requireOpen(): void {
    if (!this.isOver && !(this.#abortedWith instanceof TimedOut)) return;
    const why = this.#abortedWith;
    throw new LeaseLost(
      `attempt ${this.attempt} of job ${this.job.id} is over${why instanceof Error ? ` (${why.message})` : ''}: nothing may be written for it any more`,
      { cause: why },
    );
  }

  /** One of the jobs was cancelled: the unit ends, and the others are run again. @internal */
  cancel(job: number, reason: string | null): void {
    const words = `job ${job} was cancelled${reason === null ? '' : `: ${reason}`}`;
    this.cancelled ??= new Map();
    this.cancelled.set(job, words);
    this.abort(new Cancelled(words));
  }

  /** Why the unit was told to end, if it was. @internal */
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

/** What `console.log` shows: what a person wants to know, under the name of the class. */
function showAs<T>(kind: { readonly name: string; readonly prototype: T }, fields: (shown: T) => object): void {
  const value = function (this: T, depth: number, options: InspectOptions): string {
    return depth < 0 ? `[${kind.name}]` : `${kind.name} ${inspect(fields(this), { ...options, depth })}`;
  };
  Object.defineProperty(kind.prototype as object, inspect.custom, { value });
}

showAs(Job, (job) => job.toJSON());
showAs(Unit, ({ job, jobs, token, processId }) => {
  return { ...job.toJSON(), token, processId, ...(jobs.length > 1 && { jobs }) };
});

/** Of these units the one whose handler works on the job. */
export function unitOf(task: object | undefined, units: Iterable<Unit>): Unit | undefined {
  if (task === undefined) return undefined;
  for (const unit of units) if (unit.job === task) return unit;
  return undefined;
}

/** What a unit is held by. */
export interface UnitHold {
  readonly epoch: number | null;
  readonly brokenBy: number | null;
  /** Of a kind that coalesces: all jobs have the batch's process id, even where there is only one. */
  readonly isCoalesced: boolean;
  readonly tx?: Transaction | undefined;
}

/** One job's process id within a claimed batch: the batch's, with the job's number for its last twelve digits. */
export function processIdOf(batch: string, job: number): string {
  return batch.slice(0, 24) + (job % 2 ** 48).toString(16).padStart(12, '0');
}
