import { ConnectionFailed, LeaseLost, LockNotAvailable } from '../../../base/errors.ts';
import { type AnswerOptions, type Backend, endBackend } from '../../../engine/postgres/index.ts';
import type { Charge, ChargedJob } from '../../lost-jobs.ts';
import type { PostgresQueueStore } from '../../postgres/store.ts';
import type { Unit } from '../run/unit.ts';
import { isRefusal } from '../settle/settler.ts';
import type { UnconfirmedUnit } from './lane.ts';

export interface LostTransactionsOptions {
  readonly store: PostgresQueueStore;
  readonly answer: AnswerOptions;
  /** Called when the loss of its transaction has spent an attempt. */
  readonly onCharged: (unit: Unit, charged: readonly ChargedJob[], error: string) => void;
  readonly onError: (error: unknown) => void;
}

/** A job that had run for longer than this when its transaction was lost has spent an attempt. */
export const MOMENT_MS = 100;

/**
 * The work that lost transactions leave, repeated until the server has answered: it ends their server processes, which may
 * still hold them open, and charges the attempts that were rolled back with them.
 */
export class LostTransactions {
  readonly #options: LostTransactionsOptions;
  readonly #backends = new Set<Backend>();
  readonly #charges = new Map<Charge, Unit>();
  #settling: Promise<void> | undefined;

  constructor(options: LostTransactionsOptions) {
    this.#options = options;
  }

  /**
   * Adds a lane that was given up after an error. @param backend  its server process, if that may still hold the transaction
   */
  async add(backend: Backend | undefined, owed: UnconfirmedUnit | undefined, error: unknown): Promise<void> {
    if (backend !== undefined) this.#backends.add(backend);
    const charge = owed && chargeOf(owed, error);
    if (owed !== undefined && charge !== undefined) this.#charges.set(charge, owed.held.unit);
    await this.settle();
  }

  /** Tries all open work again. */
  async settle(): Promise<void> {
    // Work that was added meanwhile may have come too late for the run that is under way.
    await this.#settling;
    this.#settling ??= this.#settleNow().finally(() => {
      this.#settling = undefined;
    });
    await this.#settling;
  }

  async #settleNow(): Promise<void> {
    const { store, answer, onCharged } = this.#options;
    await this.#each(this.#backends, async (backend) => {
      await endBackend(store.engine, backend, answer);
      this.#backends.delete(backend);
    });
    await this.#each(this.#charges, async ([charge, unit]) => {
      const charged = await store.charge(charge).catch((error: unknown) => {
        // Another transaction holds the job now.
        if (error instanceof LockNotAvailable) return undefined;
        if (!(error instanceof ConnectionFailed)) this.#charges.delete(charge);
        throw error;
      });
      if (charged === undefined) return;
      this.#charges.delete(charge);
      onCharged(unit, charged, charge.error);
    });
  }

  /** What cannot be settled delays no other, such as a process that the role may not end; where the server is away, all wait. */
  async #each<T>(all: Iterable<T>, settle: (one: T) => Promise<void>): Promise<void> {
    for (const one of Array.from(all)) {
      try {
        await settle(one);
      } catch (error) {
        this.#options.onError(error);
        if (error instanceof ConnectionFailed) return;
      }
    }
  }
}

/** @returns undefined when the attempt is not spent: it lasted only a moment, or its outcome does not spend it */
function chargeOf({ held, since, ranMs, outcome, isSent }: UnconfirmedUnit, error: unknown): Charge | undefined {
  const { unit, queue, shard, worker } = held;
  const isRefused = isSent && isRefusal(error);
  // A LeaseLost of another lock or unit, thrown by the handler, would come again at once.
  const isOwn = outcome?.isLost === true && !(unit.abortReason instanceof LeaseLost);
  if (!isRefused && !isOwn && (ranMs ?? performance.now() - since) < MOMENT_MS) return undefined;
  const failed = outcome?.failed[0];
  const lostResult = isRefused && failed === undefined;
  if (failed !== undefined && failed.to !== 'retry' && failed.to !== 'error') return undefined;
  const why = error instanceof Error ? error.message : String(error);
  return {
    queue,
    shard,
    worker,
    ids: unit.jobs.map(({ number }) => number),
    attempts: isSent ? unit.jobs.map(({ attempt }) => attempt) : null,
    // What is not to be tried again, as by NoRetry, is not: that it says so needs nothing of what was rolled back.
    ends: lostResult || failed?.to === 'error',
    reason: lostResult ? 'result refused' : (failed?.reason ?? 'transaction lost'),
    error: isRefused
      ? `the database refused the outcome of this attempt: ${why}`
      : (failed?.error ?? `the transaction that held the job was lost: ${why}`),
  };
}
