import { type Loop, startLoop } from '../../base/loop.ts';
import { probe } from '../../base/probe.ts';
import { LeaseKeeper } from '../../base/work/lease-keeper.ts';
import type { Session } from '../../engine/postgres/index.ts';
import type { PostgresActorStore } from '../postgres/store.ts';
import type { KeeperPort, LeaseHolder, RescueListener } from './ports.ts';

interface HeartbeatAnswer {
  readonly alive: readonly number[];
}

/** How often the keeper checks for dead workers. With the lease, it bounds how long their actors wait. */
const RESCUE_MS = 5000;
const PRUNE_MS = 60_000;

/**
 * Keeps the leases of the workers of a process: one heartbeat statement for all of them. Its connection is not of the pool, so
 * busy bodies cannot starve it. It also checks for lost workers, for passed deadlines, and for history to remove.
 */
export class Keeper implements KeeperPort {
  readonly #store: PostgresActorStore;
  readonly #leaseMs: number;
  readonly #lease: LeaseKeeper<LeaseHolder, HeartbeatAnswer>;
  readonly #listeners = new Set<RescueListener>();
  /** The connection of the current heartbeat. */
  #session: Session | undefined;
  #chores: Loop | undefined;
  #deadlines: Loop | undefined;
  readonly #pruneMs: number;
  #prunedAt: number;

  /** @param pruneMs  the interval between two removals of old history */
  constructor(store: PostgresActorStore, leaseMs: number, pruneMs: number = PRUNE_MS) {
    this.#store = store;
    this.#leaseMs = leaseMs;
    this.#pruneMs = pruneMs;
    this.#prunedAt = performance.now() - pruneMs / 2;
    this.#lease = new LeaseKeeper({
      name: 'actor',
      leaseMs,
      send: (workers) => this.#send(workers),
      giveUp: () => this.#session?.release(true),
    });
  }

  /** @param watcher  the worker that is notified of the rescue's results; without it, the keeper only keeps the lease */
  add(worker: LeaseHolder, watcher?: RescueListener): void {
    this.#lease.add(worker);
    if (watcher === undefined) return;
    this.#listeners.add(watcher);
    const onError = (error: unknown): void => this.#lease.report(error);
    this.#chores ??= startLoop({ name: 'actor.rescue', run: () => this.#runChores(), onError, unref: true });
    this.#deadlines ??= startLoop({ name: 'actor.deadlines', run: () => this.#checkDeadlines(), onError, unref: true });
  }

  async remove(worker: LeaseHolder): Promise<void> {
    if (!this.#lease.remove(worker)) return;
    const ending = [this.#lease, this.#chores, this.#deadlines];
    this.#chores = undefined;
    this.#deadlines = undefined;
    this.#listeners.clear();
    await Promise.all(ending.map(async (one) => one?.stop()));
  }

  /** See {@link LeaseKeeper.hasLease}. */
  get hasLease(): boolean {
    return this.#lease.hasLease;
  }

  /** See {@link LeaseKeeper.problem}. */
  get problem(): string | undefined {
    return this.#lease.problem;
  }

  async #send(workers: ReadonlyMap<number, LeaseHolder>): Promise<HeartbeatAnswer> {
    const session = await this.#store.engine.connectReserved();
    this.#session = session;
    try {
      const alive = await this.#store.beat(
        [...workers].map(([id, { wantsNotify }]) => ({ id, wants: wantsNotify })),
        session,
      );
      session.release();
      return { alive };
    } catch (error) {
      session.release(true);
      throw error;
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
      // Not everything in one step, so that a stop does not wait for it.
      if ((await this.#store.prune()) > 0) return 0;
      this.#prunedAt = performance.now();
    }
    return Math.min(RESCUE_MS, this.#leaseMs / 2) * (0.75 + Math.random() / 2);
  }

  async #checkDeadlines(): Promise<number> {
    return Math.min(await this.#store.deadlines(), RESCUE_MS) * (0.75 + Math.random() / 2);
  }
}
