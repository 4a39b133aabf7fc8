import { ConnectionFailed, DatabaseError, StatementTimeout } from '../../../base/errors.ts';
import { faults } from '../../../base/fault.ts';
import type { Offer } from '../../../base/handoff/handoff.ts';
import { probe } from '../../../base/probe.ts';
import { delay } from '../../../base/time/backoff.ts';
import { sleep } from '../../../base/time/clock.ts';
import type { JobFailure, SettleAnswer, Settlement } from '../../store.ts';
import type { AttemptResult } from '../run/attempt.ts';
import type { Unit } from '../run/unit.ts';
import { append, PostponedOutcomes, partition } from './postponed.ts';
import {
  countFitting,
  hasText,
  isLarge,
  join,
  type PendingSettlement,
  recordSettled,
  split,
  toPending,
  toSettlement,
  withoutText,
} from './settlement.ts';

export interface SettlerOptions {
  readonly queue: number;
  readonly settle: (settlement: Settlement, offer: Offer | undefined) => Promise<SettleAnswer>;
  /** The offer to send with a statement: called once for each statement, and not again for its repetitions. */
  readonly offer: () => Offer | undefined;
  /** Called with claims that no longer belonged to the worker: nothing was written for them. */
  readonly onStale: (claims: readonly number[]) => void;
  /** Called when the database refused a unit's result, or the text of its errors, with the new outcomes of its jobs. */
  readonly onRefused: (unit: Unit, failed: readonly JobFailure[]) => void;
  readonly onError: (error: unknown) => void;
  /** Called after a settlement that may lead to work: a retried job, or the next job of a key. */
  readonly onMore: () => void;
}

const BACKOFF = { kind: 'exponential', min: 50, max: 2000, factor: 2, jitter: 0.5 } as const;
/** How often a unit may exceed the deadline, sent alone, before its text is removed. */
const UNANSWERED = 3;

/**
 * Writes outcomes, many at a time, one statement after another: outcomes that arrive during a statement go with the next one. A
 * single job is written at once; under load the batches grow. A claim whose jobs are all complete costs the database one deleted
 * and one inserted row, however many jobs it has.
 *
 * Every statement is conditional on the claim, so that it can be repeated after a lost answer. A failed statement is halved until
 * the outcome that cannot be written is alone; see `#isolate`. No statement waits for a transaction of a handler that guards its
 * unit: the outcome of that unit is postponed until the transaction has ended.
 */
export class Settler {
  readonly #options: SettlerOptions;
  /** Outcomes to write, by shard. */
  #pending = new Map<number, PendingSettlement[]>();
  /** By shard: outcomes that did not fit into the last statement. */
  #overflow = new Map<number, readonly PendingSettlement[]>();
  #flushing: Promise<void> | undefined;
  readonly #postponed: PostponedOutcomes;
  /** The most units per statement: halved after each failure, and raised after each success. */
  #unitLimit = Infinity;
  /** The factor of the raise: a refusal is the fault of one unit, while a slow statement would be slow again. */
  #growth = 1;
  /** The number of failures in a row. */
  #failures = 0;
  #worker = 0;
  #isDropped = false;

  constructor(options: SettlerOptions) {
    this.#options = options;
    this.#postponed = new PostponedOutcomes((outcomes) => {
      for (const [shard, list] of outcomes) this.#addOverflow(shard, list);
      if (outcomes.size > 0) this.#start();
    });
  }

  /** Starts for a new worker id, and forgets what is pending for the one before. */
  startFor(worker: number): void {
    this.#worker = worker;
    this.#forget();
    this.#isDropped = false;
  }

  /** Forgets pending outcomes: with the lease the worker has lost the right to write them. */
  drop(): void {
    this.#forget();
    this.#isDropped = true;
  }

  /**
   * Adds the outcome of a unit; `givesUp` when no other unit of its key follows. Add jobs of a key that are given back before
   * the unit that gives up the key: they may be written before it.
   */
  add(unit: Unit, outcome: AttemptResult, givesUp: boolean): void {
    if (this.#isDropped) return;
    const { shard } = unit.job.claim;
    if (!join(this.#pending.get(shard)?.at(-1), unit, outcome)) {
      const settled = toPending(unit, outcome, givesUp);
      if (isLarge(settled)) for (const part of split(settled)) append(this.#pending, shard, part);
      else append(this.#pending, shard, settled);
    }
    this.#start();
  }

  /** Gives back jobs that never started. */
  release(unit: Unit, reason: string, givesUp: boolean, wait?: number): void {
    const failed = unit.jobs.map(
      (job): JobFailure => ({ claim: job.claim.id, id: job.number, to: 'release', reason, wait }),
    );
    this.add(unit, { failed, complete: [], result: undefined, isLost: false, isRetried: true }, givesUp);
  }

  /** Resolves when every outcome so far is written, postponed, or dropped. */
  async attempted(): Promise<void> {
    while (this.#flushing !== undefined) await this.#flushing;
  }

  /** Whether an outcome is still to be written. */
  get isBusy(): boolean {
    return this.#flushing !== undefined || this.#postponed.waiting !== undefined;
  }

  /** Resolves when every outcome so far is written or dropped. */
  async flushed(): Promise<void> {
    for (;;) {
      const busy = this.#flushing ?? this.#postponed.waiting;
      if (busy === undefined) return;
      await busy;
    }
  }

  #forget(): void {
    this.#pending = new Map();
    this.#overflow = new Map();
    this.#postponed.clear();
  }

  #start(): void {
    this.#flushing ??= this.#flush().finally(() => {
      this.#flushing = undefined;
      if (this.#pending.size > 0 || this.#overflow.size > 0) this.#start();
    });
  }

  /** Sends one statement for each shard. */
  async #flush(): Promise<void> {
    // Handlers that finish in the same turn of the event loop go with it.
    await new Promise<void>((resolve) => setImmediate(resolve));
    const worker = this.#worker;
    for (const [shard, pending] of this.#nextBatch()) {
      const isMine = (): boolean => !this.#isDropped && worker === this.#worker;
      if (!isMine()) return;
      const rest = await this.#write(shard, pending);
      if (isMine()) this.#addOverflow(shard, rest);
    }
  }

  #addOverflow(shard: number, settled: readonly PendingSettlement[]): void {
    if (settled.length > 0) this.#overflow.set(shard, [...settled, ...(this.#overflow.get(shard) ?? [])]);
  }

  /**
   * The next batch. New outcomes wait for at most one statement of the overflow, not for all of it. Outcomes of a key keep
   * their order, also behind postponed ones, since the last one gives up the key.
   */
  #nextBatch(): Map<number, readonly PendingSettlement[]> {
    const pending = this.#pending;
    const rests = this.#overflow;
    this.#pending = new Map();
    this.#overflow = new Map();
    if (rests.size === 0 && this.#postponed.isEmpty) return pending;
    const all = new Map<number, readonly PendingSettlement[]>();
    for (const shard of new Set([...rests.keys(), ...pending.keys()])) {
      const recent = this.#postponed.addBehind(shard, pending.get(shard) ?? []);
      const [first, ...rest] = rests.get(shard) ?? [];
      const [behind, free] = partition(recent, rest);
      const turn = first === undefined ? recent : [first, ...free, ...rest, ...behind];
      if (turn.length > 0) all.set(shard, turn);
    }
    return all;
  }

  /** @returns the outcomes that are still to be written: usually none */
  async #write(shard: number, pending: readonly PendingSettlement[]): Promise<readonly PendingSettlement[]> {
    const part = pending.slice(0, countFitting(pending, this.#unitLimit));
    let guarded: readonly number[];
    try {
      guarded = await this.#send(toSettlement({ queue: this.#options.queue, shard, worker: this.#worker }, part), part);
    } catch (error) {
      return this.#retry(shard, pending, part, error);
    }
    if (guarded.length > 0) return this.#postponeGuarded(shard, pending, guarded);
    for (const settled of part) recordSettled(settled);
    this.#unitLimit *= this.#growth;
    this.#failures = 0;
    return pending.slice(part.length);
  }

  /** Called when the statement of a part has failed. */
  async #retry(
    shard: number,
    pending: readonly PendingSettlement[],
    part: readonly PendingSettlement[],
    error: unknown,
  ): Promise<readonly PendingSettlement[]> {
    this.#failures += 1;
    this.#options.onError(error);
    for (const settled of part) settled.wasSent = true;
    const isRefused = isRefusal(error);
    // A database that refuses does answer: no pause is needed before the next statement.
    if (!isRefused) await sleep(delay(BACKOFF, this.#failures, Math.random()));
    if (part.length > 1) this.#halve(part.length, isRefused);
    else if (isRefused || this.#failures > 1) return this.#isolate(shard, pending, error);
    return pending;
  }

  /** A first failure counts as one of the connection. */
  #halve(units: number, isRefused: boolean): void {
    if (!isRefused && this.#failures === 1 && this.#unitLimit === Infinity) return;
    this.#unitLimit = Math.ceil(units / 2);
    this.#growth = isRefused ? 2 : 1.1;
  }

  /** @returns jobs that are still guarded: if there is one, nothing was written */
  async #send(settlement: Settlement, part: readonly PendingSettlement[]): Promise<readonly number[]> {
    const { settle, offer, onStale, onMore } = this.#options;
    const isRepeated = part.some(({ wasSent }) => wasSent);
    if (faults.armed) await faults.reach('queue.before_settle');
    const { stale, guarded, hasNext } = await settle(settlement, isRepeated ? undefined : offer());
    if (faults.armed) await faults.reach('queue.after_settle');
    if (guarded.length > 0) return guarded;
    if (probe.listening) probe.hit('queue.settled', { ...settlement, stale });
    // After a lost answer the rows may be gone because the first statement has settled them.
    if (stale.length > 0 && !isRepeated) onStale(stale);
    if (settlement.failed.length > 0 || hasNext) onMore();
    return guarded;
  }

  /** Postpones units that an open transaction guards. @returns the outcomes that are still to be written now */
  #postponeGuarded(
    shard: number,
    pending: readonly PendingSettlement[],
    jobs: readonly number[],
  ): readonly PendingSettlement[] {
    if (probe.listening) probe.hit('queue.put_off', { jobs });
    const ids = new Set(jobs);
    const guarded = pending.filter(({ unit }) => unit.isGuarded && unit.jobs.some(({ number }) => ids.has(number)));
    return this.#postponed.add(shard, pending, guarded);
  }

  /**
   * Called when the first outcome could not be written although it was sent alone. If its text is the reason, the text is
   * removed; otherwise the outcome is postponed behind everything else. @returns the outcomes that are still to be written
   */
  async #isolate(
    shard: number,
    pending: readonly PendingSettlement[],
    error: unknown,
  ): Promise<readonly PendingSettlement[]> {
    const [settled, ...rest] = pending;
    if (settled === undefined) return rest;
    if (!(await this.#isRefused(settled, error))) {
      return this.#postponed.add(shard, pending, [settled]);
    }
    if (settled.isBare) {
      this.#options.onError(notWritten(settled.unit, error));
      return rest;
    }
    const without = withoutText(settled, error instanceof Error ? error.message : String(error));
    this.#options.onRefused(settled.unit, without.failed);
    return [without, ...rest];
  }

  /** Whether the content of the outcome is the reason of the failure, and not the state of the database. */
  async #isRefused(settled: PendingSettlement, error: unknown): Promise<boolean> {
    if (!hasText(settled)) return false;
    if (isRefusal(error)) return true;
    if (!(error instanceof ConnectionFailed || error instanceof StatementTimeout)) return false;
    if (await this.#isAnswered()) settled.unanswered += 1;
    return settled.unanswered >= UNANSWERED;
  }

  /** Whether the database answers a settlement of nothing. */
  async #isAnswered(): Promise<boolean> {
    const nothing = toSettlement({ queue: this.#options.queue, shard: 0, worker: this.#worker }, []);
    return this.#options.settle(nothing, undefined).then(
      () => true,
      () => false,
    );
  }
}

function notWritten({ jobs }: Unit, cause: unknown): DatabaseError {
  const ids = jobs.slice(0, 10).map(({ id }) => id);
  const which = `job ${ids.join(', ')}${jobs.length > ids.length ? ` and ${jobs.length - ids.length} more` : ''}`;
  return new DatabaseError(`the outcome of ${which} cannot be written; it is left to the rescue of this worker`, {
    cause,
  });
}

/**
 * Whether an error says that the data cannot be written: invalid data (22), a limit of the server (54, XX000) or of its
 * memory, or of strings in this process.
 */
export function isRefusal(error: unknown): boolean {
  if (error instanceof DatabaseError) return /^(?:22|54|XX|53200)/.test(error.sqlState ?? '');
  return error instanceof RangeError;
}
