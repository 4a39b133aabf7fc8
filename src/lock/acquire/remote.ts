import { LeaseLost } from '../../base/errors.ts';
import { moment, waitedFor } from '../../base/time/clock.ts';
import type { PostgresEngine } from '../../engine/postgres/index.ts';
import { LockClient } from '../client.ts';
import { parseName } from '../name.ts';
import { parseLocksOptions } from '../options.ts';
import { HELD_BY } from '../postgres/statements.ts';
import { type GrantKey, SHARED } from '../store.ts';
import { acquireLock, notifyReleased } from './acquisition.ts';
import { lockTimeout } from './unserved.ts';

export interface RemoteRequest {
  readonly leaseMs: number;
  /** How long to wait; 0 does not wait. */
  readonly waitMs: number;
  readonly isShared: boolean;
  /** Ends the wait; a lock that was granted meanwhile is released. */
  readonly signal: AbortSignal;
}

/** A lock that another program holds through the HTTP API. */
export interface RemoteLease {
  /** The fencing token. */
  readonly token: bigint;
  /** A secret that allows its bearer to renew and release. Unlike the token it is shown only to the holder. */
  readonly handle: string;
  readonly leaseMs: number;
  /** The end of the lease by the server's clock; never later than its real end. */
  readonly expiresAt: Date;
}

const ANSWER_MS = 5000;

/**
 * Locks for programs that do not use this library. Nothing here renews them: they end with their lease unless the caller
 * renews them. They share queues and fencing tokens with all other locks.
 */
export class RemoteLocks {
  readonly #engine: PostgresEngine;
  readonly #client: LockClient;
  readonly #space: string;
  readonly #waiterMs: number;

  constructor(engine: PostgresEngine, namespace: string) {
    const { namespace: space, waiterLease } = parseLocksOptions({ namespace });
    this.#engine = engine;
    this.#client = LockClient.of(engine);
    this.#space = space;
    this.#waiterMs = waiterLease;
  }

  /** @throws LockTimeout  the lock was not granted in time; and the reason of the signal */
  async acquire(name: string, { leaseMs, waitMs, isShared, signal }: RemoteRequest): Promise<RemoteLease> {
    const names = [parseName('acquire', name)];
    const outcome = await acquireLock(this.#client, {
      space: this.#space,
      names,
      capacity: isShared ? SHARED : 1,
      leaseMs,
      waitMs,
      waiterMs: this.#waiterMs,
      isFair: true,
      holds: [],
      periodMs: undefined,
      signal,
      stopped: () => undefined,
      onError: () => {},
    });
    if (outcome.kind !== 'granted') {
      throw lockTimeout(names, waitMs, outcome.kind === 'held' ? outcome : {});
    }
    const { grant } = outcome;
    try {
      signal.throwIfAborted();
      // A lock from a direct hand-off has the lease of its place in the queue until its first renewal.
      const lease = await this.renew(name, grant.nonce);
      signal.throwIfAborted();
      return lease;
    } catch (error) {
      // No program gets the handle: the lock would stay held until its lease is over.
      await this.#release(grant).catch(() => {});
      throw error;
    }
  }

  /** Renews the lease from now on. @throws LeaseLost */
  async renew(name: string, handle: string): Promise<RemoteLease> {
    const begun = moment();
    const { grant, leaseMs, now } = await this.#find(name, handle);
    const { renewed } = await this.#client.store.renew([grant], { timeoutMs: ANSWER_MS });
    if (!renewed.has(0)) throw leaseLost(name);
    // The time was read before the lease was renewed.
    if (waitedFor(begun) > leaseMs) throw leaseLost(name);
    return { token: grant.token, handle, leaseMs, expiresAt: new Date(now.getTime() + leaseMs) };
  }

  /** @returns the token of the lock @throws LeaseLost */
  async release(name: string, handle: string): Promise<bigint> {
    const { grant } = await this.#find(name, handle);
    if (!(await this.#release(grant))) throw leaseLost(name);
    return grant.token;
  }

  async #release(grant: GrantKey): Promise<boolean> {
    const { isReleased, wakeUps } = await this.#client.store.release(grant, undefined, { timeoutMs: ANSWER_MS });
    this.#client.wake(wakeUps);
    notifyReleased(this.#client, grant);
    return isReleased;
  }

  async #find(name: string, handle: string): Promise<{ grant: GrantKey; leaseMs: number; now: Date }> {
    const [row] = await this.#engine.query<{ token: string; capacity: number; leaseMs: number; now: Date }>(HELD_BY, [
      this.#space,
      parseName('renew', name),
      handle,
    ]);
    if (row === undefined) throw leaseLost(name);
    const { token, capacity, leaseMs, now } = row;
    const grant = { space: this.#space, names: [name], token: BigInt(token), capacity, nonce: handle };
    return { grant, leaseMs, now };
  }
}

function leaseLost(name: string): LeaseLost {
  return new LeaseLost(
    `lock ${JSON.stringify(name)} is no longer held by this handle: its lease ran out, it was broken, or it was released`,
    { reason: 'expired' },
  );
}
