import { LeaseLost, LockNotAvailable } from '../../base/errors.ts';
import { faults } from '../../base/fault.ts';
import type { Offer } from '../../base/handoff/handoff.ts';
import { probe } from '../../base/probe.ts';
import { sleep } from '../../base/time/clock.ts';
import type { Transaction } from '../../engine/postgres/index.ts';
import type { PostgresActorStore } from '../postgres/store.ts';
import type { CommitAnswer, TurnCommit } from '../store.ts';
import type { TurnStore, TurnWriter } from './ports.ts';
import { asOrphaning, asRefused, type TurnResult } from './run/turn-result.ts';

export interface SettlerOptions {
  readonly store: Pick<TurnStore, 'commitAndOffer' | 'engine'>;
  readonly writer: TurnWriter;
  readonly leaseMs: number;
  /** Returns the offer to send with a commit; called once for each try. */
  readonly offer: () => Offer | undefined;
  readonly onDone: (settled: TurnCommit, error: unknown) => void;
  readonly onStale: (turns: readonly TurnCommit[]) => void;
  /** These turns are over, but it is unknown whether they were written: the answer to their commit was lost. */
  readonly onUnknown: (turns: readonly TurnCommit[]) => void;
  /** An actor is due after this many milliseconds. */
  readonly onDue: (ms: number) => void;
  readonly onError: (error: unknown) => void;
}

interface WithEffects extends TurnResult {
  readonly worker: number;
}

/** The most turns of one commit: a few milliseconds of the server's time. */
const BATCH = 500;
/** The most commits at the same time of turns with effects. */
const EFFECTS_AT_ONCE = 4;
/** The pause after a commit that failed. */
const RETRY_MS = 200;
/** The pause after a commit whose row is locked, for example by a guard() in a transaction that is still open. */
const LOCKED_MS = 2000;

/**
 * Commits the outcomes of turns. One statement is under way at a time. Outcomes that arrive meanwhile go with the next one, so
 * batches grow with the load, and a lone turn is written at once. A turn with effects has a transaction of its own.
 */
export class Settler {
  readonly #options: SettlerOptions;
  #worker = 0;
  #plain: TurnResult[] = [];
  #withEffects: WithEffects[] = [];
  #effectsUnderWay = 0;
  /** The number of turns to try again because their rows were locked. */
  #postponed = 0;
  #isWriting = false;
  #life = new AbortController();
  #whenFlushed: (() => void)[] = [];

  constructor(options: SettlerOptions) {
    this.#options = options;
  }

  startFor(worker: number): void {
    this.#worker = worker;
  }

  add(finished: TurnResult): void {
    const worker = this.#worker;
    if (finished.effects === undefined) {
      this.#plain.push(finished);
      if (!this.#isWriting) {
        this.#isWriting = true;
        // Other turns that finish in this turn of the event loop go with this commit.
        queueMicrotask(() => void this.#write(worker, this.#life.signal));
      }
    } else {
      this.#withEffects.push({ ...finished, worker });
      this.#pumpEffects();
    }
  }

  /**
   * Called when the lease is lost: forgets everything that was not written. A commit that is under way may hang for long, on a
   * silent connection; later commits do not wait for it.
   */
  drop(): void {
    this.#plain = [];
    this.#withEffects = [];
    this.#isWriting = false;
    this.#effectsUnderWay = 0;
    this.#postponed = 0;
    this.#life.abort();
    this.#life = new AbortController();
    this.#notifyFlushed();
  }

  /** Resolves when nothing is left to write. */
  flushed(): Promise<void> {
    return this.#isFlushed() ? Promise.resolve() : new Promise((resolve) => this.#whenFlushed.push(resolve));
  }

  async #write(worker: number, life: AbortSignal): Promise<void> {
    while (this.#plain.length > 0 && !life.aborted) await this.#commit(worker, this.#plain.splice(0, BATCH), life);
    if (life.aborted) return;
    this.#isWriting = false;
    this.#notifyFlushed();
  }

  /** Repeats the commit until its answer is known: a second commit of the same turn finds the first, and changes nothing. */
  async #commit(worker: number, batch: readonly TurnResult[], life: AbortSignal): Promise<void> {
    for (let tries = 1; !life.aborted; tries += 1) {
      try {
        if (faults.armed) await faults.reach('actor.before_commit');
        const turns = batch.map(({ settled }) => settled);
        const answer = await this.#options.store.commitAndOffer(worker, turns, this.#options.offer());
        if (faults.armed) await faults.reach('actor.after_commit');
        if (life.aborted) return;
        return this.#committed(batch, answer, tries > 1);
      } catch (error) {
        if (life.aborted) return;
        this.#options.onError(error);
        if (!this.#options.store.engine.isTransient(error)) {
          return this.#isolate(worker, batch, error, life);
        }
        await sleep(RETRY_MS * Math.min(tries, 10), life);
      }
    }
  }

  /** Called if one of the turns cannot be written: the others must not fail with it. */
  async #isolate(worker: number, batch: readonly TurnResult[], error: unknown, life: AbortSignal): Promise<void> {
    for (const one of batch) {
      if (batch.length === 1 && error instanceof LockNotAvailable) this.#postpone({ ...one, worker }, life);
      else if (batch.length > 1) await this.#commit(worker, [one], life);
      else if (one.settled.kind !== 'failed') await this.#commit(worker, [asRefused(one, error)], life);
      else this.#options.onUnknown([one.settled]);
    }
  }

  #committed(batch: readonly TurnResult[], { stale, refused: orphans, due }: CommitAnswer, isRepeated: boolean): void {
    if (probe.listening) probe.hit('actor.committed', { turns: batch.length, stale: stale.length });
    if (due !== undefined) this.#options.onDue(due);
    if (stale.length > 0) {
      const turns = batch.map(({ settled }) => settled).filter(({ id }) => stale.includes(id));
      // After a lost answer, it is unknown whether this worker had written them.
      if (isRepeated) this.#options.onUnknown(turns);
      else this.#options.onStale(turns);
    }
    for (const finished of batch) {
      const { settled, error } = orphans.includes(finished.settled.id) ? asOrphaning(finished) : finished;
      if (!stale.includes(settled.id)) this.#options.onDone(settled, error);
    }
  }

  /** From now on this turn is committed apart from all others, so that they do not wait for the lock. */
  #postpone(turn: WithEffects, life: AbortSignal): void {
    this.#postponed += 1;
    void sleep(LOCKED_MS, life).then((isTime) => {
      if (!isTime) return;
      this.#postponed -= 1;
      this.#withEffects.push(turn);
      this.#pumpEffects();
    });
  }

  #pumpEffects(): void {
    for (const next of this.#withEffects.splice(0, EFFECTS_AT_ONCE - this.#effectsUnderWay)) {
      this.#effectsUnderWay += 1;
      const life = this.#life.signal;
      void this.#commitWithEffects(next, life).finally(() => {
        if (life.aborted) return;
        this.#effectsUnderWay -= 1;
        this.#pumpEffects();
        this.#notifyFlushed();
      });
    }
  }

  async #commitWithEffects(turn: WithEffects, life: AbortSignal): Promise<void> {
    for (let tries = 1; !life.aborted; tries += 1) {
      try {
        const answer = await this.#options.writer.commit(turn.worker, turn, this.#options.leaseMs);
        if (life.aborted) return;
        return this.#committed([turn], answer, false);
      } catch (error) {
        if (life.aborted) return;
        if (error instanceof RowLocked) return this.#postpone(turn, life);
        if (error instanceof LeaseLost) {
          // Our own commit may have succeeded, although its answer was lost.
          if (tries > 1) this.#options.onUnknown([turn.settled]);
          else this.#options.onStale([turn.settled]);
          return;
        }
        const isPassing = this.#options.store.engine.isTransient(error);
        this.#options.onError(error);
        if (!isPassing) return this.#commit(turn.worker, [asRefused(turn, error)], life);
        await sleep(RETRY_MS * Math.min(tries, 10), life);
      }
    }
  }

  #isFlushed(): boolean {
    const waiting = this.#plain.length + this.#withEffects.length + this.#effectsUnderWay + this.#postponed;
    return !this.#isWriting && waiting === 0;
  }

  #notifyFlushed(): void {
    if (this.#isFlushed()) for (const resolve of this.#whenFlushed.splice(0)) resolve();
  }
}

/** The actor's own row is locked, and not a key or a tag of one of its effects: the commit may be tried again. */
export class RowLocked extends LockNotAvailable {}

/**
 * Commits the turn and all its effects, in one transaction.
 * @param within  the transaction in which the body ran; or how long a new transaction may be idle
 * @throws LeaseLost  another worker owns the actor by now @throws RowLocked  the actor's row is locked; nothing was written
 */
export async function commitWithEffects(
  store: PostgresActorStore,
  worker: number,
  { settled, effects }: TurnResult,
  within: { readonly tx: Transaction } | { readonly idleMs: number },
): Promise<CommitAnswer> {
  const write = async (tx: Transaction): Promise<CommitAnswer> => {
    if (faults.armed) await faults.reach('actor.before_commit');
    const answer = await store.commit(worker, [settled], tx).catch((error: unknown) => {
      throw error instanceof LockNotAvailable ? new RowLocked(error.message, { cause: error }) : error;
    });
    if (answer.stale.length > 0) {
      throw new LeaseLost(`this worker no longer owns the turn of actor ${settled.id}; nothing of it was written`);
    }
    if (!answer.refused.includes(settled.id)) await effects?.write(store, tx, settled.id);
    if (faults.armed) await faults.reach('actor.before_commit_sent');
    return answer;
  };
  if ('tx' in within) return write(within.tx);
  return store.transaction(write, within.idleMs, effects !== undefined && effects.callbacks.length > 0);
}
