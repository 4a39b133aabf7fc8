import { ConnectionFailed, LeaseLost, LockNotAvailable } from '../../../base/errors.ts';
import { type AnswerOptions, type Backend, endBackend } from '../../../engine/postgres/index.ts';
import type { PostgresQueueStore } from '../../postgres/store.ts';
import type { Charge, Charged } from '../../store.ts';
import { isRefusal } from '../settler.ts';
import type { Unit } from '../unit.ts';
import type { UnconfirmedUnit } from './lane.ts';

export interface LostTransactionsOptions {
  readonly store: PostgresQueueStore;
  readonly answer: AnswerOptions;
  /** An attempt was spent by the loss of its transaction. */
  readonly onCharged: (unit: Unit, charged: readonly Charged[], error: string) => void;
  readonly onError: (error: unknown) => void;
}

/** A job that ran for longer than this when its transaction was lost has spent an attempt. */
export const MOMENT_MS = 100;

/**
 * What is still to be done about transactions that were lost, until the server has answered: their processes are ended, which
 * may not have heard of it, and the attempts charged that were rolled back with them.
 */
export class LostTransactions {
  readonly #options: LostTransactionsOptions;
  readonly #backends = new Set<Backend>();
  readonly #charges = new Map<Charge, Unit>();
  #settling: Promise<void> | undefined;

  constructor(options: LostTransactionsOptions) {
    this.#options = options;
  }

  /** A lane was given up over an error. @param backend  what serves it, where that may still hold the transaction */
  async add(backend: Backend | undefined, owed: UnconfirmedUnit | undefined, error: unknown): Promise<void> {
    if (backend !== undefined) this.#backends.add(backend);
    const charge = owed && chargeOf(owed, error);
    if (owed !== undefined && charge !== undefined) this.#charges.set(charge, owed.held.unit);
    await this.settle();
  }

  /** Tries all of it again. */
  async settle(): Promise<void> {
    // What was added meanwhile may have come too late for the one that is under way.
    await this.#settling;
    this.#settling ??= this.#settleNow().finally(() => {
      this.#settling = undefined;
    });
    await this.#settling;
  }

  async #settleNow(): Promise<void> {
    const { store, answer, onCharged, onError } = this.#options;
    try {
      for (const backend of Array.from(this.#backends)) {
        await endBackend(store.engine, backend, answer);
        this.#backends.delete(backend);
      }
      for (const [charge, unit] of Array.from(this.#charges)) {
        const charged = await store.charge(charge).catch((error: unknown) => {
          // Somebody else is at the job just now.
          if (error instanceof LockNotAvailable) return undefined;
          if (!(error instanceof ConnectionFailed)) this.#charges.delete(charge);
          throw error;
        });
        if (charged === undefined) continue;
        this.#charges.delete(charge);
        onCharged(unit, charged, charge.error);
      }
    } catch (error) {
      onError(error);
    }
  }
}

/** @returns undefined where the attempt is not spent: it was over in a moment, or its outcome spends none */
function chargeOf({ held, since, ranMs, outcome, isSent }: UnconfirmedUnit, error: unknown): Charge | undefined {
  const { unit, queue, shard, worker } = held;
  const isRefused = isSent && isRefusal(error);
  // A handler that came across a lease of another kind would do so again, and at once.
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
    ends: lostResult,
    reason: lostResult ? 'result refused' : (failed?.reason ?? 'transaction lost'),
    error: isRefused
      ? `the database refused what this attempt came to: ${why}`
      : (failed?.error ?? `the transaction that held the job was lost: ${why}`),
  };
}
