import { InvalidInput } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import { show } from '../base/options/refusal.ts';
import { type Moment, moment, sleep, waitedFor } from '../base/time/clock.ts';
import { FailureLog } from '../base/work/failure-log.ts';
import { DynamoEngine } from '../engine/dynamodb/index.ts';
import { PostgresEngine } from '../engine/postgres/index.ts';
import { KeyedMutex } from './acquire/keyed-mutex.ts';
import { PlaceKeeper } from './acquire/place-keeper.ts';
import { SendingLine } from './acquire/sending-line.ts';
import { WakeUps } from './acquire/wake-ups.ts';
import { DynamoLockStore } from './dynamodb/index.ts';
import { identify } from './identity.ts';
import { Keeper } from './keeper.ts';
import { PostgresLockStore } from './postgres/store.ts';
import type { LockStore, NoticeStream, RequestKey, WakeUp } from './store.ts';

/** An engine that locks can be made on. */
export type LockEngine = PostgresEngine | DynamoEngine;

const SWEEP_MS = 3_600_000;
const LISTEN_ON_MS = 30_000;
const CLEAN_UP_TRY_MS = 5000;

function storeOn(engine: LockEngine): LockStore {
  if (engine instanceof PostgresEngine) return new PostgresLockStore(engine, identify());
  if (engine instanceof DynamoEngine) return new DynamoLockStore(engine, identify());
  const given: unknown = engine;
  const what = typeof given === 'string' ? 'a text; write createLocks(postgres(url))' : show(given);
  throw new InvalidInput(`createLocks takes the result of postgres() or dynamodb(), but was given ${what}`, {
    field: 'engine',
  });
}

/** The state that all locks of one engine share in this process: one keeper, one stream of notices, one set of waiters. */
export class LockClient {
  static readonly #clients = new WeakMap<LockEngine, LockClient>();
  readonly store: LockStore;
  readonly keeper: Keeper;
  readonly wakeUps: WakeUps = new WakeUps();
  readonly mutex: KeyedMutex = new KeyedMutex();
  readonly sendingLine: SendingLine = new SendingLine();
  readonly places: PlaceKeeper;
  /** Failures of waits, which continue while the store cannot be asked. */
  readonly failures: FailureLog;
  #notices: Promise<NoticeStream | undefined> | undefined;
  #isNotified = (): boolean => false;
  #sweptAt: Moment;
  #sweepMs: number;

  constructor(store: LockStore, logger: Logger) {
    this.store = store;
    this.failures = new FailureLog(logger, 'lock');
    this.keeper = new Keeper(store);
    this.places = new PlaceKeeper(store);
    this.#sweptAt = moment();
    // Random, so that short-lived processes sweep, too, and processes that start together do not all sweep at once.
    this.#sweepMs = Math.random() < 0.02 ? 0 : Math.random() * SWEEP_MS;
  }

  /** The client of an engine. @throws InvalidInput  for a value that is no engine */
  static of(engine: LockEngine): LockClient {
    let client = LockClient.#clients.get(engine);
    if (client === undefined) {
      client = new LockClient(
        storeOn(engine),
        engine instanceof PostgresEngine ? engine.options.logger : engine.logger,
      );
      LockClient.#clients.set(engine, client);
    }
    return client;
  }

  /** Whether waiters are notified when their turn comes. The first call starts listening. */
  get isNotified(): boolean {
    this.startListening();
    return this.#isNotified();
  }

  /**
   * Listens until this process has neither waited for nor held a lock for a while: a holder then learns at once that its lock
   * was broken.
   */
  startListening(): void {
    this.#notices ??= this.#listen();
  }

  /** Called when a lock is granted: opens no connection for that alone. */
  onHeld(): void {
    if (this.#notices === undefined && this.store.isListening === true) this.startListening();
  }

  /** Wakes these waiters. */
  wake(wakeUps: readonly WakeUp[]): void {
    for (const { nonce, token } of wakeUps) this.wakeUps.wake(nonce, token);
  }

  /** Stops listening some time after the last waiter or holder. */
  async #stopListeningWhenIdle(notices: NoticeStream): Promise<void> {
    do await sleep(LISTEN_ON_MS, undefined, { unref: true });
    while (this.wakeUps.size > 0 || this.keeper.size > 0);
    this.#notices = undefined;
    this.#isNotified = () => false;
    // An engine that was stopped meanwhile has ended the stream already.
    await notices.stop().catch(() => {});
  }

  /**
   * Gives up the place of a claim, and a lock that it may have been granted; repeats this until nothing can be left of it.
   */
  async withdraw(key: RequestKey, waiterMs: number): Promise<string | undefined> {
    const start = moment();
    const leaseMs = Math.min(key.leaseMs, SWEEP_MS);
    for (let tries = 0; ; tries++) {
      try {
        const { holder, wakeUps } = await this.store.withdraw(key, { timeoutMs: CLEAN_UP_TRY_MS });
        this.wake(wakeUps);
        return holder;
      } catch (error) {
        const isOver = waitedFor(start) > Math.max(waiterMs, leaseMs);
        if (isOver || !this.store.isTransient(error)) return undefined;
        await sleep(Math.min(50 * 2 ** tries, 2000), undefined, { unref: true });
      }
    }
  }

  /** Sweeps at most once an hour, at a release: no timer runs for it. */
  sweep(keepMs: number): void {
    if (waitedFor(this.#sweptAt) < this.#sweepMs) return;
    this.#sweptAt = moment();
    this.#sweepMs = SWEEP_MS;
    // Nothing waits for a sweep, and the next one makes up for a failure.
    this.store.sweep(keepMs).catch(() => {});
  }

  async #listen(): Promise<NoticeStream | undefined> {
    try {
      const notices = await this.store.notices({
        onWakeUp: ({ nonce, token }) => this.wakeUps.wake(nonce, token),
        onLost: (token) => this.keeper.onLost(token),
        onGap: () => this.wakeUps.wakeAll(),
      });
      this.#isNotified = () => notices.isReliable;
      // Notices from before may be lost.
      this.wakeUps.wakeAll();
      void this.#stopListeningWhenIdle(notices);
      return notices;
    } catch {
      // Without notices waiters poll; the next waiter tries to listen again.
      this.#notices = undefined;
      return undefined;
    }
  }
}
