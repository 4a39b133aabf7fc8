import { setTimeout as sleep } from 'node:timers/promises';
import type { PostgresEngine } from '../../../../src/engine/postgres/index.ts';
import { type ClaimedUnit, cancelled, NoRetry, type Queue, retryAfter, snooze } from '../../../../src/queue/index.ts';
import { note } from '../../member/member-side.ts';
import { type Orders, RETRY_AFTER_MS, SNOOZE_MS } from '../declaration.ts';
import { takeEffect } from '../effect.ts';
import { beginOf, type WorkerEvent } from '../history.ts';
import type { Hand } from './hand.ts';

/** The longest work of a client on one unit. */
const MOST_MS = 300;

/** The result of a unit, as its client reports it. */
interface PulledResult {
  readonly how: string;
  readonly settle: () => Promise<unknown>;
}

/** A program that is no worker: it claims by a call, works on one unit after another, and reports each outcome. */
export class Client {
  readonly #engine: PostgresEngine;
  readonly #queue: Queue;
  readonly #answered: <T>(work: Promise<T>) => Promise<T>;
  readonly #snoozed = new Set<string>();

  constructor(engine: PostgresEngine, queue: Queue, answered: <T>(work: Promise<T>) => Promise<T>) {
    this.#engine = engine;
    this.#queue = queue;
    this.#answered = answered;
  }

  async pull({ limit, leaseMs, dies }: Extract<Hand, { readonly do: 'pull' }>): Promise<void> {
    const units = await this.#answered(this.#queue.claim({ limit, lease: leaseMs }));
    for (const unit of units) keep(unit);
    for (const unit of units) {
      note<WorkerEvent>(beginOf(unit, 'pull'));
      if (dies) process.kill(process.pid, 'SIGKILL');
      try {
        await this.#answered(unit.extend(leaseMs));
        for (const other of units.slice(units.indexOf(unit))) keep(other, unit.expiresAt);
        const { how, settle } = await this.#answered(this.#work(unit));
        note<WorkerEvent>({ do: 'end', process: unit.processId, how });
        await this.#answered(settle());
      } catch {
        // The lease has ended, or the answer was lost: the history has the outcome.
      }
    }
  }

  /** @returns how the work ended, and the call that reports it to the server */
  async #work(unit: ClaimedUnit): Promise<PulledResult> {
    const { ms = 0, how: manner = 'well', times = 0, lateMs = 0 } = unit.payload as Partial<Orders>;
    const how = unit.attempt <= times ? manner : 'well';
    await sleep(Math.min(ms, MOST_MS));
    const fail = (error: Error): PulledResult => ({
      how: `asked for ${how}`,
      settle: () => unit.fail(error, { retryIn: 50 }),
    });
    if (how === 'deaf' || how === 'block') return { how: 'released', settle: () => unit.release() };
    if (how.includes('throw')) return fail(new Error('as it was told to'));
    if (how === 'refuse' || how === 'discard') return fail(new NoRetry('as it was told to'));
    if (how === 'cancel') return fail(cancelled('as it was told to'));
    if (how === 'retry after') return { how: 'asked for retry', settle: () => unit.fail(retryAfter(RETRY_AFTER_MS)) };
    if (how.startsWith('snooze') && !this.#snoozed.has(unit.job.id)) {
      this.#snoozed.add(unit.job.id);
      return { how: 'asked for release', settle: () => unit.fail(snooze(SNOOZE_MS)) };
    }
    await this.#engine.transaction(async (tx) => {
      await takeEffect(unit, tx);
      await sleep(Math.min(lateMs, MOST_MS));
      await unit.guard(tx);
    });
    return { how: 'well', settle: () => unit.complete() };
  }
}

/** Notes until when the lease certainly lasts. */
function keep({ processId: process, expiresAt }: ClaimedUnit, until: Date = expiresAt): void {
  note<WorkerEvent>({ do: 'kept', process, until: until.getTime() });
}
