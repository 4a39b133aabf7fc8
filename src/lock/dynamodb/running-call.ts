import { moment, waitedFor } from '../../base/time/clock.ts';
import type { CallLimits, DynamoEngine } from '../../engine/dynamodb/index.ts';
import type { ProcessIdentity } from '../identity.ts';
import type { AcquireCall, CallOptions } from '../store.ts';
import type { DeadlockDetector } from './deadlock.ts';
import type { Grants } from './grants.ts';
import type { Head } from './head.ts';
import type { Heads } from './heads.ts';
import { lockKey, shortNonce } from './items/key.ts';
import type { Staleness } from './staleness.ts';
import type { LocalWaiter, LocalWaiters } from './waiting/local-waiters.ts';
import type { WaiterQueue } from './waiting/waiter-queue.ts';

/** The state that all attempts of one process share. */
export interface CallParts {
  readonly engine: DynamoEngine;
  readonly self: ProcessIdentity;
  readonly heads: Heads;
  readonly queue: WaiterQueue;
  readonly deadlocks: DeadlockDetector;
  readonly staleness: Staleness;
  readonly waiters: LocalWaiters;
  readonly grants: Grants;
}

/** One call of `acquire`: its request, its time, and its place if it has one. */
export class RunningCall {
  readonly parts: CallParts;
  readonly request: AcquireCall;
  readonly options: CallOptions;
  readonly pks: readonly string[];
  readonly nonce: string;
  readonly #start = moment();

  constructor(parts: CallParts, request: AcquireCall, options: CallOptions) {
    this.parts = parts;
    this.request = request;
    this.options = options;
    this.pks = request.names.map((name) => lockKey(request.space, name));
    this.nonce = shortNonce(request.nonce);
  }

  get waiter(): LocalWaiter | undefined {
    return this.parts.waiters.get(this.request.nonce);
  }

  async read(): Promise<readonly Head[]> {
    return Promise.all(this.pks.map((pk) => this.parts.heads.read(pk, this.limits())));
  }

  get isLate(): boolean {
    return waitedFor(this.#start) > this.options.timeoutMs;
  }

  /** The time that is left for this call. */
  limits(): CallLimits {
    const leftMs = Math.max(1, this.options.timeoutMs - waitedFor(this.#start));
    return { timeoutMs: leftMs, signal: this.options.signal };
  }
}
