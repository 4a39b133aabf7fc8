import { NotSupported, Stopped } from '../base/errors.ts';
import { Events } from '../base/events.ts';
import { checkOptions, integer, optional, text } from '../base/options/options.ts';
import { after, within } from '../base/time/clock.ts';
import type { Duration } from '../base/time/duration.ts';
import { acquireLock } from './acquire/acquisition.ts';
import type { AcquireOutcome } from './acquire/lock-request.ts';
import { lockTimeout } from './acquire/unserved.ts';
import { LockClient, type LockEngine } from './client.ts';
import { grantsInContext } from './held-context.ts';
import { HeldLock, type Lock, type LockEvents } from './lease.ts';
import { type LockName, parseName, parseNames } from './name.ts';
import { type OncePerOptions, type OncePerResult, oncePer } from './once.ts';
import {
  type AcquireOptions,
  type HoldOptions,
  type LockOptions,
  type LocksOptions,
  type ParsedLocksOptions,
  parseHoldOptions,
  parseLockOptions,
  parseLocksOptions,
  parsePermits,
} from './options.ts';
import { type RequestArguments, readRequest, runWith } from './request.ts';
import { NamedSemaphore, type Semaphore } from './semaphore.ts';
import { type BrokenHolder, type Explanation, type PastHolder, SHARED, type Snapshot } from './store.ts';

/**
 * Locks across machines, in the database of the engine. Every method checks its arguments before it does anything. Make as
 * many of these as you like: all of one engine share one heartbeat and one listening connection.
 * @throws InvalidInput, NotSupported
 */
export function createLocks(engine: LockEngine, options?: LocksOptions): Locks {
  return new Locks(LockClient.of(engine), parseLocksOptions(options));
}

/** How long a cancelled wait may still take: enough for an answer, and for the withdrawal. */
const ANSWER_MS = 1000;

/** The longest time that `stop()` waits for releases. */
const STOP_MS = 5000;

/** The locks of one namespace; made by {@link createLocks}. */
export class Locks implements AsyncDisposable {
  readonly #client: LockClient;
  readonly #space: string;
  readonly #waiterMs: number;
  readonly #historyMs: number;
  readonly #events = new Events<LockEvents>();
  readonly #held = new Set<HeldLock>();
  readonly #waiting = new Set<(reason: Stopped) => void>();
  /** Calls for a lock that have not ended. */
  readonly #asking = new Set<Promise<unknown>>();
  #stopped: Stopped | undefined;

  /** @internal */
  constructor(client: LockClient, options: ParsedLocksOptions) {
    this.#client = client;
    this.#space = options.namespace;
    this.#waiterMs = options.waiterLease;
    this.#historyMs = options.history;
  }

  /**
   * Runs `fn` while holding the lock, and returns its result. The lock is released when `fn` has ended in any way; an error
   * of `fn` is thrown unchanged.
   * @param name  1 to 255 bytes; or several names, which are taken together or not at all
   * @throws LockTimeout  the lock was not granted within `wait`
   * @throws Deadlock  inside another request, waiting for this lock would close a circle
   * @throws LeaseLost  `fn` has ended without an error, but the lock was lost meanwhile
   */
  request<T>(name: LockName, fn: (lock: Lock) => T | Promise<T>): Promise<T>;
  request<T>(name: LockName, options: LockOptions, fn: (lock: Lock) => T | Promise<T>): Promise<T>;
  async request<T>(name: LockName, ...rest: RequestArguments<LockOptions, T>): Promise<T> {
    const { options, fn } = readRequest('request', rest);
    const lock = await this.#take(parseNames('request', name), parseLockOptions('request', options), undefined);
    return runWith(lock, fn);
  }

  /**
   * Takes the lock and holds it until it is released: `await using lock = await locks.acquire('a')`. When the lock is free:
   * one statement, one round trip.
   * @param name  1 to 255 bytes; or several names, which are taken together or not at all, and whose order does not matter:
   * sets never deadlock with each other
   * @throws LockTimeout, Deadlock  like {@link Locks.request}
   */
  async acquire(name: LockName, options?: LockOptions): Promise<Lock> {
    return this.#take(parseNames('acquire', name), parseLockOptions('acquire', options), undefined);
  }

  /** Takes the lock if it is free and has no waiters; else returns undefined. Never waits, and leaves no waiter behind. */
  async tryAcquire(name: LockName, options?: HoldOptions): Promise<Lock | undefined> {
    return this.#tryTake(parseNames('tryAcquire', name), parseHoldOptions('tryAcquire', options), undefined);
  }

  /**
   * Runs `fn` unless a run has begun within the last `period`, or is under way now, in this or any other process. Exactly one
   * run per period succeeds; a crashed run does not count.
   * @throws what `fn` throws; with `onError: 'release'`, the default, the next caller may then try at once; with
   *   `'keep'`, only after the period
   * @throws LeaseLost  the lock was lost before the run could be counted: another client may have begun a run
   */
  async oncePer<T>(
    name: string,
    period: Duration,
    fn: (lock: Lock) => T | Promise<T>,
    options?: OncePerOptions,
  ): Promise<OncePerResult<T>> {
    const take = (wanted: AcquireOptions, periodMs: number): Promise<HeldLock | AcquireOutcome> =>
      this.#acquire([parseName('oncePer', name)], wanted, undefined, periodMs);
    return oncePer(take, period, fn, options);
  }

  /**
   * A semaphore of that name. All clients should use the same number of permits; of different numbers, the smallest one
   * counts.
   * @throws NotSupported  for more permits than the engine can keep: 500 on DynamoDB
   */
  semaphore(name: string, options: { permits: number }): Semaphore {
    const names = [parseName('semaphore', name)];
    const permits = parsePermits(options);
    const { mostPermits } = this.#client.store;
    if (permits > mostPermits) {
      throw new NotSupported(`a semaphore on this engine has at most ${mostPermits} permits, not ${permits}`);
    }
    return new NamedSemaphore(name, permits, {
      take: (wanted) => this.#take(names, wanted, permits),
      tryTake: (wanted) => this.#tryTake(names, wanted, permits),
    });
  }

  /** All holders and waiters in this namespace now. */
  async query(): Promise<Snapshot> {
    return this.#client.store.snapshot(this.#space);
  }

  /**
   * Who holds a lock, who waits for it in which order, and what these owners wait for themselves. For people: it is expensive.
   */
  async explain(name: string): Promise<Explanation> {
    return this.#client.store.explain(this.#space, parseName('explain', name));
  }

  /**
   * Takes the lock away from all its holders; the next waiter gets it at once. The holders learn of it at the latest at their
   * next heartbeat, and their guards fail. Their work outside of the database continues until they check the lock's signal.
   * @returns the former holders; empty when the lock was free
   */
  async break(name: string, options: { reason: string }): Promise<readonly BrokenHolder[]> {
    const checked = parseName('break', name);
    const { reason } = checkOptions('break', options, { reason: text({ min: 1, max: 1000 }) });
    return this.#client.store.break(this.#space, checked, reason);
  }

  /** Past holds of one name or of all names: holder, times, and how each hold ended, newest first. `limit`: default 100. */
  async history(options?: { name?: string; limit?: number }): Promise<readonly PastHolder[]> {
    const { name, limit } = checkOptions('history', options, {
      name: optional(text({ min: 1, max: 255 })),
      limit: integer({ min: 1, max: 10_000, default: 100 }),
    });
    return this.#client.store.history(this.#space, name, limit);
  }

  /**
   * Opens a connection for notices, if the store has notices, so that a holder learns at once that its lock was broken.
   * @internal
   */
  startListening(): void {
    this.#client.startListening();
  }

  /** Adds a listener for events of the locks that are taken here. @returns a function that removes it */
  on<K extends keyof LockEvents>(event: K, listener: (payload: LockEvents[K]) => unknown): () => void {
    return this.#events.on(event, listener);
  }

  /**
   * Releases all locks that were taken here, and ends all waits with {@link Stopped}: within a second even if the store does
   * not answer. It resolves when the places of the waits, and locks that were granted meanwhile, are given back. What takes longer
   * than that second, or a release than 5 s, continues in the background until the lease is over. Safe to call twice; never rejects.
   */
  async stop(): Promise<void> {
    this.#stopped ??= this.#endWaits();
    // Waiters of other `Locks` of this engine check their state and continue to wait.
    this.#client.wakeUps.wakeAll();
    const releases = [...this.#held].map((lock) => lock.release());
    // An engine that is stopped next sends no withdrawal any more: a lock that was granted meanwhile would be held for its lease.
    await within(STOP_MS, Promise.allSettled([...releases, ...this.#asking]));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  /** Ends the waits. It does not wait for a store that does not answer; withdrawals continue in the background. */
  #endWaits(): Stopped {
    const stopped = new Stopped('the locks were stopped');
    const end = (): void => {
      for (const reject of this.#waiting) reject(stopped);
    };
    after(ANSWER_MS, end, { unref: true });
    return stopped;
  }

  #unlessStopped<T>(work: Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      this.#waiting.add(reject);
      work.then(
        (value) => {
          this.#waiting.delete(reject);
          resolve(value);
        },
        (error: unknown) => {
          this.#waiting.delete(reject);
          reject(error);
        },
      );
    });
  }

  async #take(names: readonly string[], options: AcquireOptions, permits: number | undefined): Promise<HeldLock> {
    const outcome = await this.#acquire(names, options, permits, undefined);
    if (outcome instanceof HeldLock) return outcome;
    throw lockTimeout(names, options.waitMs, outcome.kind === 'held' ? outcome : {});
  }

  async #tryTake(
    names: readonly string[],
    options: AcquireOptions,
    permits: number | undefined,
  ): Promise<HeldLock | undefined> {
    const outcome = await this.#acquire(names, options, permits, undefined);
    return outcome instanceof HeldLock ? outcome : undefined;
  }

  #acquire(
    names: readonly string[],
    options: AcquireOptions,
    permits: number | undefined,
    periodMs: number | undefined,
  ): Promise<HeldLock | AcquireOutcome> {
    const asking = this.#obtain(names, options, permits, periodMs);
    const end = (): void => void this.#asking.delete(asking);
    this.#asking.add(asking);
    asking.then(end, end);
    return asking;
  }

  async #obtain(
    names: readonly string[],
    options: AcquireOptions,
    permits: number | undefined,
    periodMs: number | undefined,
  ): Promise<HeldLock | AcquireOutcome> {
    this.#refuseIfStopped();
    const { leaseMs, everyMs, isShared } = options;
    const outcome = await this.#waitFor(options, permits, periodMs, names);
    if (outcome.kind !== 'granted') return outcome;
    const { grant, since, firstMs, waitedMs } = outcome;
    const mode = permits === undefined ? (isShared ? 'shared' : 'exclusive') : 'permit';
    const lock = new HeldLock(this.#client, { grant, leaseMs, everyMs, since, firstMs }, mode, (event, payload) => {
      if (event !== 'granted') this.#held.delete(lock);
      this.#events.emit(event, payload);
    });
    this.#held.add(lock);
    this.#client.onHeld();
    // `stop()` may also have been called while the answer was under way.
    if (this.#stopped !== undefined) await lock.release().catch(() => {});
    this.#refuseIfStopped();
    this.#client.sweep(this.#historyMs);
    this.#events.emit('granted', { lock, waitedMs });
    return lock;
  }

  #refuseIfStopped(): void {
    if (this.#stopped !== undefined) throw this.#stopped;
  }

  async #waitFor(
    options: AcquireOptions,
    permits: number | undefined,
    periodMs: number | undefined,
    names: readonly string[],
  ): Promise<AcquireOutcome> {
    const { leaseMs, isShared, waitMs, isFair, isNested, holding, signal } = options;
    const obtaining = acquireLock(this.#client, {
      space: this.#space,
      names,
      capacity: permits ?? (isShared ? SHARED : 1),
      leaseMs,
      waitMs,
      waiterMs: this.#waiterMs,
      isFair,
      holds: [
        ...(isNested ? grantsInContext() : []),
        ...holding.map((lock) => (lock instanceof HeldLock ? lock.grant : lock)),
      ],
      periodMs,
      signal,
      stopped: () => this.#stopped,
      onError: (error) => this.#events.emit('error', { names, error }),
    });
    return this.#unlessStopped(obtaining);
  }
}
