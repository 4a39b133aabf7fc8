import { NotSupported } from '../base/errors.ts';
import { type Moment, moment, sleep, waitedFor } from '../base/time/clock.ts';
import { DynamoEngine } from '../engine/dynamodb/index.ts';
import { PostgresEngine } from '../engine/postgres/index.ts';
import { Gate } from './acquire/keyed-mutex.ts';
import { PlaceKeeper } from './acquire/place-keeper.ts';
import { Turns } from './acquire/wake-ups.ts';
import { DynamoLockStore } from './dynamodb/index.ts';
import { identify } from './identity.ts';
import { Keeper } from './keeper.ts';
import { PostgresLockStore } from './postgres/store.ts';
import type { Call, Claim, LockStore, NoticeStream } from './store.ts';

/** An engine that locks can be made on. */
export type LockEngine = PostgresEngine | DynamoEngine;

const SWEEP_MS = 3_600_000;
const LISTEN_ON_MS = 30_000;
const CLEAN_UP_TRY_MS = 5000;

function storeOn(engine: LockEngine): LockStore {
  if (engine instanceof PostgresEngine) return new PostgresLockStore(engine, identify());
  if (engine instanceof DynamoEngine) return new DynamoLockStore(engine, identify());
  throw new NotSupported(
    'createLocks takes an engine: postgres(url), postgres(pool), postgres() for an own server, or dynamodb(client, { table })',
  );
}

/** What all locks of one engine have in common in this process: one keeper, one stream of notices, one crowd of waiters. */
export class LockClient {
  static readonly #clients = new WeakMap<LockEngine, LockClient>();
  readonly store: LockStore;
  readonly keeper: Keeper;
  readonly turns: Turns = new Turns();
  readonly gate: Gate = new Gate();
  readonly places: PlaceKeeper;
  #notices: Promise<NoticeStream | undefined> | undefined;
  #isTold = (): boolean => false;
  #sweptAt: Moment;
  #sweepMs: number;

  constructor(store: LockStore) {
    this.store = store;
    this.keeper = new Keeper(store);
    this.places = new PlaceKeeper(store);
    this.#sweptAt = moment();
    // Processes that live for a moment must do their share, too, and those that start together not all at once.
    this.#sweepMs = Math.random() < 0.02 ? 0 : Math.random() * SWEEP_MS;
  }

  /** The one of an engine. @throws NotSupported  for something else */
  static of(engine: LockEngine): LockClient {
    let client = LockClient.#clients.get(engine);
    if (client === undefined) {
      client = new LockClient(storeOn(engine));
      LockClient.#clients.set(engine, client);
    }
    return client;
  }

  /** Whether waiters are notified when their turn comes. Begins to listen at the first call. */
  get isTold(): boolean {
    this.hear();
    return this.#isTold();
  }

  /** Listens from now on, until nothing is waited for or held for a while: who holds hears at once that it was broken. */
  hear(): void {
    this.#notices ??= this.#listen();
  }

  /** To be called when something is held: a connection is not opened for that alone. */
  onHeld(): void {
    if (this.#notices === undefined && this.store.canHear === true) this.hear();
  }

  /** Wakes these waiters. */
  callTurns(calls: readonly Call[]): void {
    for (const { nonce, token } of calls) this.turns.call(nonce, token);
  }

  /** Ends the listening some time after there was somebody to be told. */
  async #linger(notices: NoticeStream): Promise<void> {
    do await sleep(LISTEN_ON_MS, undefined, { unref: true });
    while (this.turns.size > 0 || this.keeper.size > 0);
    this.#notices = undefined;
    this.#isTold = () => false;
    // An engine that was stopped meanwhile has ended it already.
    await notices.stop().catch(() => {});
  }

  /** Gives up the place of a claim, and what it may have been granted; tries until nothing can be left of it. */
  async leave(claim: Claim, waiterMs: number): Promise<string | undefined> {
    const start = moment();
    const leaseMs = Math.min(claim.leaseMs, SWEEP_MS);
    for (let tries = 0; ; tries++) {
      try {
        const { holder, called } = await this.store.leave(claim, { timeoutMs: CLEAN_UP_TRY_MS });
        this.callTurns(called);
        return holder;
      } catch (error) {
        const isOver = waitedFor(start) > Math.max(waiterMs, leaseMs);
        if (isOver || !this.store.isTransient(error)) return undefined;
        await sleep(Math.min(50 * 2 ** tries, 2000), undefined, { unref: true });
      }
    }
  }

  /** Once an hour, on the occasion of somebody's release: no timer runs for it. */
  sweep(keepMs: number): void {
    if (waitedFor(this.#sweptAt) < this.#sweepMs) return;
    this.#sweptAt = moment();
    this.#sweepMs = SWEEP_MS;
    // Nobody waits for it, and the next one makes up for it.
    this.store.sweep(keepMs).catch(() => {});
  }

  async #listen(): Promise<NoticeStream | undefined> {
    try {
      const notices = await this.store.notices({
        onTurn: ({ nonce, token }) => this.turns.call(nonce, token),
        onLost: (token) => this.keeper.onLost(token),
        onGap: () => this.turns.callAll(),
      });
      this.#isTold = () => notices.isReliable;
      // What came before is gone.
      this.turns.callAll();
      void this.#linger(notices);
      return notices;
    } catch {
      // Without notices waiters look for themselves; the next waiter tries again.
      this.#notices = undefined;
      return undefined;
    }
  }
}
