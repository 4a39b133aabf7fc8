import { NotSupported, Stopped } from '../base/errors.ts';
import { Events } from '../base/events.ts';
import { checkOptions, integer, optional, text } from '../base/options/options.ts';
import { after, within } from '../base/time/clock.ts';
import type { Duration } from '../base/time/duration.ts';
import { type AcquireOutcome, acquireLock } from './acquire/acquisition.ts';
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
 * Locks across machines, on the database that the engine speaks to. Every method checks what it is given before it does
 * anything. Make as many of these as you like: all of one engine share one heartbeat and one listening connection.
 * @throws InvalidInput, NotSupported
 */
export function createLocks(engine: LockEngine, options?: LocksOptions): Locks {
  return new Locks(LockClient.of(engine), parseLocksOptions(options));
}

/** How long a wait goes on that was ended: enough for an answer, and for cleaning up. */
const ANSWER_MS = 1000;

/** A stop waits no longer for what is to be released. */
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
  #stopped: Stopped | undefined;

  /** @internal */
  constructor(client: LockClient, options: ParsedLocksOptions) {
    this.#client = client;
    this.#space = options.namespace;
    this.#waiterMs = options.waiterLease;
    this.#historyMs = options.history;
  }

  /**
   * Runs `fn` while holding the lock, and gives what it gives. The lock is released when `fn` is done, however it ends; an
   * error of `fn` is thrown as it is.
   * @param name  1 to 255 bytes; or several, which are then taken together or not at all
   * @throws LockTimeout  when it was not had within `wait`
   * @throws Deadlock  when, inside another request, waiting for it would close a circle
   * @throws LeaseLost  when `fn` came to its end, but the lock was lost meanwhile
   */
  request<T>(name: LockName, fn: (lock: Lock) => T | Promise<T>): Promise<T>;
  request<T>(name: LockName, options: LockOptions, fn: (lock: Lock) => T | Promise<T>): Promise<T>;
  async request<T>(name: LockName, ...rest: RequestArguments<LockOptions, T>): Promise<T> {
    const { options, fn } = readRequest('request', rest);
    const lock = await this.#take(parseNames('request', name), parseLockOptions('request', options), undefined);
    return runWith(lock, fn);
  }

  /**
   * Takes the lock; it is held until released: `await using lock = await locks.acquire('a')`. One statement, one round trip
   * when it is free.
   * @param name  1 to 255 bytes; or several, which are then taken together or not at all, and in no order lock each other out
   * @throws LockTimeout, Deadlock  as {@link Locks.request}
   */
  async acquire(name: LockName, options?: LockOptions): Promise<Lock> {
    return this.#take(parseNames('acquire', name), parseLockOptions('acquire', options), undefined);
  }

  /** Takes the lock if it is free and nobody waits for it; undefined when not. Never waits, leaves nothing behind. */
  async tryAcquire(name: LockName, options?: HoldOptions): Promise<Lock | undefined> {
    return this.#tryTake(parseNames('tryAcquire', name), parseHoldOptions('tryAcquire', options), undefined);
  }

  /**
   * Runs `fn` unless it was run, here or anywhere, within the last `period`, counted from when that run began, or is
   * running now. Exactly one run per period succeeds; one that crashed does not count.
   * @throws what `fn` throws; with `onError: 'release'`, which is the default, the next caller may then try at once, with
   *   `'keep'` only after the period
   * @throws LeaseLost  when the lock was lost before the run could be counted: somebody else may have begun another
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
   * A semaphore of that name. All who use it should give the same number; of two, the smaller one counts.
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

  /** Everything held and waited for in this namespace now. */
  async query(): Promise<Snapshot> {
    return this.#client.store.snapshot(this.#space);
  }

  /** Who holds a lock, who waits for it in which order, and what they in turn wait for. For people: it looks everywhere. */
  async explain(name: string): Promise<Explanation> {
    return this.#client.store.explain(this.#space, parseName('explain', name));
  }

  /**
   * Takes the lock from all its holders, whoever they are; the next in line has it at once. They are told, at the latest by
   * their next heartbeat, and their guards fail; what they do outside of the database goes on until they look.
   * @returns who they were; empty when nobody held it
   */
  async break(name: string, options: { reason: string }): Promise<readonly BrokenHolder[]> {
    const checked = parseName('break', name);
    const { reason } = checkOptions('break', options, { reason: text({ min: 1, max: 1000 }) });
    return this.#client.store.break(this.#space, checked, reason);
  }

  /** Who held what until when, and how it ended, newest first. Of all names, or of one; 100 unless `limit` says else. */
  async history(options?: { name?: string; limit?: number }): Promise<readonly PastHolder[]> {
    const { name, limit } = checkOptions('history', options, {
      name: optional(text({ min: 1, max: 255 })),
      limit: integer({ min: 1, max: 10_000, default: 100 }),
    });
    return this.#client.store.history(this.#space, name, limit);
  }

  /** Opens a connection to hear at once when something held is broken, where the store can tell. @internal */
  startListening(): void {
    this.#client.startListening();
  }

  /** Hears what happens to the locks taken here. @returns ends that */
  on<K extends keyof LockEvents>(event: K, listener: (payload: LockEvents[K]) => unknown): () => void {
    return this.#events.on(event, listener);
  }

  /**
   * Releases everything taken here, and ends all waiting with {@link Stopped}, that within a second also where the store does not
   * answer. What cannot be released within 5 s is tried on behind, until its lease is over. Safe to call twice; never rejects.
   */
  async stop(): Promise<void> {
    this.#stopped ??= this.#endWaits();
    // Those of other locks look again and wait on.
    this.#client.wakeUps.wakeAll();
    const released = Promise.all([...this.#held].map((lock) => lock.release().catch(() => {})));
    await within(STOP_MS, released);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  /** Of a store that does not answer nothing more is expected; what it was asked is cleaned up behind. */
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

  async #acquire(
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
    // While the answer was on its way, too.
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
