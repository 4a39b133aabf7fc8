import { LeaseLost } from '../../base/errors.ts';
import { faults } from '../../base/fault.ts';
import { type Loop, startLoop } from '../../base/loop.ts';
import { probe } from '../../base/probe.ts';
import { type Renewal, startRenewal } from '../../base/renewal.ts';
import { sleep } from '../../base/time/clock.ts';
import type { PostgresActorStore } from '../postgres/store.ts';

/** A worker, as its keeper sees it. */
export interface LeaseHolder {
  readonly workerId: number | undefined;
  readonly wantsNotify: boolean;
  /** The lease is gone: everything claimed belongs to somebody else now. */
  lost(reason: LeaseLost): void;
  onError(error: unknown): void;
}

/** Who is told of what became of others. */
export interface RescueListener {
  /** Actors of a lost worker are free again. */
  rescued(): void;
  /** Of these types an actor is due that is to be run alone. */
  suspected(types: readonly number[]): void;
}

/** How often it is looked for workers that died; with the lease it bounds how long their actors wait. */
const RESCUE_MS = 5000;
const PRUNE_MS = 60_000;

/**
 * Keeps the leases of the workers of a process: one heartbeat statement for all of them, on a connection beside the pool,
 * so that busy bodies cannot starve it. Looks for lost workers, for deadlines that have passed, and for history that is over.
 */
export class Keeper {
  readonly #store: PostgresActorStore;
  readonly #leaseMs: number;
  readonly #workers = new Set<LeaseHolder>();
  readonly #listeners = new Set<RescueListener>();
  #renewal: Renewal | undefined;
  #chores: Loop | undefined;
  #deadlines: Loop | undefined;
  readonly #pruneMs: number;
  #prunedAt: number;

  /** @param pruneMs  how often history that is over is looked for */
  constructor(store: PostgresActorStore, leaseMs: number, pruneMs: number = PRUNE_MS) {
    this.#store = store;
    this.#leaseMs = leaseMs;
    this.#pruneMs = pruneMs;
    this.#prunedAt = performance.now() - pruneMs / 2;
  }

  /** @param watcher  looks after others, too, and is told what that found; without it a worker only keeps its lease */
  add(worker: LeaseHolder, watcher?: RescueListener): void {
    this.#workers.add(worker);
    if (this.#renewal === undefined) this.#start();
    if (watcher === undefined) return;
    this.#listeners.add(watcher);
    const onError = (error: unknown): void => this.#report(error);
    this.#chores ??= startLoop({ name: 'actor.rescue', run: () => this.#runChores(), onError, unref: true });
    this.#deadlines ??= startLoop({ name: 'actor.deadlines', run: () => this.#checkDeadlines(), onError, unref: true });
  }

  async remove(worker: LeaseHolder): Promise<void> {
    this.#workers.delete(worker);
    if (this.#workers.size > 0) return;
    const ending = [this.#renewal, this.#chores, this.#deadlines];
    this.#renewal = undefined;
    this.#chores = undefined;
    this.#deadlines = undefined;
    this.#listeners.clear();
    await Promise.all(ending.map(async (one) => one?.stop()));
  }

  /** Whether the leases are certainly not over yet, even if no timer could run. */
  get hasLease(): boolean {
    return this.#renewal !== undefined && this.#renewal.remainingMs() > 0;
  }

  #start(): void {
    this.#renewal = startRenewal({
      what: `this process's actor workers`,
      leaseMs: this.#leaseMs,
      beat: (signal) => this.#beat(signal),
      onError: (error) => this.#report(error),
      onLost: (reason) => {
        // The workers register anew, each at its own pace, and are kept from then on.
        this.#start();
        for (const worker of Array.from(this.#workers)) worker.lost(reason);
      },
      unref: true,
    });
  }

  async #beat(signal: AbortSignal): Promise<'kept'> {
    const kept = new Map<number, LeaseHolder>();
    for (const worker of this.#workers) if (worker.workerId !== undefined) kept.set(worker.workerId, worker);
    if (kept.size === 0) return 'kept';
    if (faults.armed) await faults.reach('actor.before_beat');
    const alive = await this.#send(kept, signal);
    if (probe.listening) probe.hit('actor.beat', { workers: kept.size });
    for (const [id, worker] of kept) {
      if (alive.has(id) || worker.workerId !== id) continue;
      worker.lost(
        new LeaseLost(`worker ${id} was taken for dead: its heartbeat came later than its lease; stop working`),
      );
    }
    return 'kept';
  }

  /** Gives up when the signal aborts: a connection that went dead says nothing for minutes, and the next beat needs another. */
  async #send(kept: ReadonlyMap<number, LeaseHolder>, signal: AbortSignal): Promise<ReadonlySet<number>> {
    const session = await this.#store.engine.connectReserved();
    const workers = [...kept].map(([id, { wantsNotify }]) => ({ id, wants: wantsNotify }));
    const done = new AbortController();
    const answer = this.#store.beat(workers, session);
    try {
      const givenUp = sleep(Infinity, AbortSignal.any([signal, done.signal])).then(() => undefined);
      const first = await Promise.race([answer, givenUp]);
      if (first === undefined) throw signal.reason;
      session.release();
      return first;
    } catch (error) {
      answer.catch(() => {});
      session.release(true);
      throw error;
    } finally {
      done.abort();
    }
  }

  async #runChores(): Promise<number> {
    const { actors, suspects } = await this.#store.rescue();
    if (actors > 0) probe.hit('actor.rescued', { actors });
    for (const watcher of this.#listeners) {
      if (suspects.length > 0) watcher.suspected(suspects);
      if (actors > 0) watcher.rescued();
    }
    if (performance.now() - this.#prunedAt > this.#pruneMs) {
      // Not all in one go: a stop need not wait for it.
      if ((await this.#store.prune()) > 0) return 0;
      this.#prunedAt = performance.now();
    }
    return Math.min(RESCUE_MS, this.#leaseMs / 2) * (0.75 + Math.random() / 2);
  }

  async #checkDeadlines(): Promise<number> {
    return Math.min(await this.#store.deadlines(), RESCUE_MS) * (0.75 + Math.random() / 2);
  }

  #report(error: unknown): void {
    for (const worker of this.#workers) worker.onError(error);
  }
}
