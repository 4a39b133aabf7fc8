import type { HeldLock, Lock } from './lease.ts';
import {
  type AcquireOptions,
  type HoldOptions,
  type LockOptions,
  parseHoldOptions,
  parseLockOptions,
} from './options.ts';
import { type RequestArguments, readRequest, runWith } from './request.ts';

/** Options of a permit: a semaphore has no modes. */
export type PermitOptions = Omit<LockOptions, 'mode'>;

/** A semaphore: at most `permits` clients hold it at the same time; waiters are served in order. */
export interface Semaphore {
  readonly name: string;
  readonly permits: number;
  /** Like `locks.request`. */
  request<T>(fn: (lock: Lock) => T | Promise<T>): Promise<T>;
  request<T>(options: PermitOptions, fn: (lock: Lock) => T | Promise<T>): Promise<T>;
  /** Like `locks.acquire`. */
  acquire(options?: PermitOptions): Promise<Lock>;
  /** Like `locks.tryAcquire`. */
  tryAcquire(options?: Omit<HoldOptions, 'mode'>): Promise<Lock | undefined>;
}

/** How a permit is taken. */
export interface Permits {
  take(options: AcquireOptions): Promise<HeldLock>;
  tryTake(options: AcquireOptions): Promise<HeldLock | undefined>;
}

/** A {@link Semaphore} whose permits are taken from the locks of its name. */
export class NamedSemaphore implements Semaphore {
  readonly name: string;
  readonly permits: number;
  readonly #from: Permits;

  constructor(name: string, permits: number, from: Permits) {
    this.name = name;
    this.permits = permits;
    this.#from = from;
  }

  async request<T>(...rest: RequestArguments<PermitOptions, T>): Promise<T> {
    const { options, fn } = readRequest('semaphore.request', rest);
    return runWith(await this.#from.take(parseLockOptions('semaphore.request', options, false)), fn);
  }

  async acquire(options?: PermitOptions): Promise<Lock> {
    return this.#from.take(parseLockOptions('semaphore.acquire', options, false));
  }

  async tryAcquire(options?: Omit<HoldOptions, 'mode'>): Promise<Lock | undefined> {
    return this.#from.tryTake(parseHoldOptions('semaphore.tryAcquire', options, false));
  }
}
