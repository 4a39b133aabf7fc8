import type { DeadlockStep } from '../base/errors.ts';
import type { ConditionCheckItem } from '../engine/dynamodb/index.ts';

/** One request in the store: its names, sorted and without duplicates, and the nonce by which a repetition is recognised. */
export interface RequestKey {
  readonly space: string;
  readonly names: readonly string[];
  readonly nonce: string;
  /** How many holders this claim allows at a time: 1 is exclusive, {@link SHARED} is shared. */
  readonly capacity: number;
  /** Infinity: held until it is released or broken. */
  readonly leaseMs: number;
}

/** The capacity of a shared claim. */
export const SHARED = 2_147_483_647;

/** A held lock: the key of every later statement about it. */
export interface GrantKey {
  readonly space: string;
  readonly names: readonly string[];
  readonly token: bigint;
  readonly capacity: number;
  /** The nonce of the claim to which it was granted. */
  readonly nonce: string;
}

/** A lock that its owner keeps while it waits for another one. If the user names it by its token, only the token is known. */
export type GrantRef = Pick<GrantKey, 'token'> & Partial<GrantKey>;

export interface AcquireCall extends RequestKey {
  /** How long the place in the queue is kept without a renewal; undefined: take no place. */
  readonly waiterMs: number | undefined;
  /** The place in the queue, once it is known. */
  readonly ticket: bigint | undefined;
  /** True: an earlier call with this nonce may have been carried out, although its answer was lost. */
  readonly isRetry: boolean;
  /** The locks that the caller keeps while it waits. */
  readonly holds: readonly GrantRef[];
  /** Grant only if the last run that `finish` counted began at least this long ago. */
  readonly periodMs: number | undefined;
}

/** The answer to an attempt. */
export type AcquireAnswer =
  | {
      readonly kind: 'granted';
      readonly token: bigint;
      /** How long the lock is held without a heartbeat, from before the statement was sent; undefined: for its lease. */
      readonly firstMs?: number | undefined;
    }
  | {
      readonly kind: 'waiting';
      readonly ticket: bigint;
      /** How many waiters are before this one, counted up to 8 per name. */
      readonly ahead: number;
      /** How long until a lease of a holder or waiter before it may have ended; undefined if none can. */
      readonly retryMs: number | undefined;
      /**
       * How long the place is certainly kept, from before the statement was sent; a direct hand-off to it is valid as long. 0
       * in a store without direct hand-off.
       */
      readonly placeMs: number;
      /** This call has taken the place. */
      readonly isNew: boolean;
    }
  | { readonly kind: 'held'; readonly holder: string | undefined }
  | { readonly kind: 'done'; readonly retryMs: number }
  | { readonly kind: 'cycle'; readonly cycle: readonly DeadlockStep[] };

/** A run of `oncePer` that is counted when its lock is released. */
export interface CountedRun {
  readonly outcome: 'success' | 'failure';
  /** How long it keeps other runs from starting. */
  readonly periodMs: number;
}

/** The result of giving up a lock or a place. */
export interface ReleaseResult {
  /** False when it was not held any more, or not in all of its names. */
  readonly isReleased: boolean;
  /** Waiters of this process whose turn has come; waiters of other processes are notified. */
  readonly wakeUps: readonly WakeUp[];
}

/** The result of a renewal, by indexes of the list. Entries in neither of the two are lost. */
export interface RenewResult {
  readonly renewed: ReadonlySet<number>;
  /** Entries whose state is unknown, with the error. */
  readonly unknown: ReadonlyMap<number, unknown>;
}

/** A waiter whose turn it is. */
export interface WakeUp {
  readonly nonce: string;
  /**
   * The token of a direct hand-off, which is valid as long as the place would have been kept. Undefined: the waiter has to
   * take the lock itself.
   */
  readonly token: bigint | undefined;
}

/** Limits of one call to the store. */
export interface CallOptions {
  /** Without an answer in this time the connection is closed and the call fails with ConnectionFailed. */
  readonly timeoutMs: number;
  /** True: use a reserved connection if handlers hold every connection of the pool. */
  readonly isUrgent?: boolean;
  readonly signal?: AbortSignal | undefined;
}

/** A holder of a name now. Times are the store's. */
export interface Holder {
  readonly name: string;
  readonly mode: 'exclusive' | 'shared' | 'permit';
  /** The number of permits of a semaphore. */
  readonly permits: number | null;
  readonly token: bigint;
  readonly host: string;
  readonly pid: number;
  /** The job whose handler took it; on Postgres, if its queue was made on the same engine. */
  readonly job: string | null;
  readonly since: Date;
  /** Null when the lease never ends. */
  readonly expiresAt: Date | null;
  readonly leaseLeftMs: number | null;
  readonly lastHeartbeatAt: Date | null;
}

/** A waiter for a name, in the order of `ticket`. */
export interface Waiter {
  readonly name: string;
  readonly mode: 'exclusive' | 'shared' | 'permit';
  readonly permits: number | null;
  readonly ticket: bigint;
  readonly host: string;
  readonly pid: number;
  /** The job whose handler waits; see {@link Holder}. */
  readonly job: string | null;
  readonly since: Date;
  readonly waitedMs: number;
}

/** All holders and waiters at one moment. */
export interface Snapshot {
  readonly held: readonly Holder[];
  readonly waiting: readonly Waiter[];
}

/** A database connection that waits for others, for rows, tables or advisory locks. */
export interface BlockedBackend {
  readonly pid: number;
  readonly applicationName: string;
  readonly query: string;
  readonly blockedBy: readonly number[];
}

/** Everything known about one name. */
export interface Explanation {
  readonly name: string;
  readonly holders: readonly Holder[];
  /** Waiters in the order in which they will get the lock. */
  readonly waiters: readonly Waiter[];
  /** Pids of database backends whose open transaction guards the lock: until they end, no other client can get it. */
  readonly guardedBy: readonly number[];
  /** The chains of waiting owners that begin at this name: `a (host:pid) → b (host:pid)`. */
  readonly blocking: readonly string[];
  /** Backends of this database that wait for others, row locks included. */
  readonly backends: readonly BlockedBackend[];
  /** Circles in `blocking` or `backends`, each as the list of its members. */
  readonly cycles: readonly (readonly string[])[];
}

/** A holder of the past. */
export interface PastHolder {
  readonly name: string;
  readonly mode: 'exclusive' | 'shared' | 'permit';
  readonly permits: number | null;
  readonly token: bigint;
  readonly host: string;
  readonly pid: number;
  /** See {@link Holder}. */
  readonly job: string | null;
  readonly grantedAt: Date;
  readonly endedAt: Date;
  readonly outcome: 'released' | 'broken' | 'expired';
  /** The reason that was given when it was broken. */
  readonly reason: string | null;
}

/** Handlers of the notices that the store sends to a process. */
export interface NoticeHandlers {
  /** It may be the turn of this waiter. */
  onWakeUp(call: WakeUp): void;
  /** The lock with this token was broken. */
  onLost(token: string): void;
  /** Notices may have been lost. */
  onGap(): void;
}

/** A stream of notices. */
export interface NoticeStream {
  /** False when notices do not arrive, so that waiters have to poll. */
  readonly isReliable: boolean;
  stop(): Promise<void>;
}

/**
 * The port to a database. Every method is one atomic step there. If it throws, the step may or may not have been carried out. A
 * step is durable before it is answered, except a step whose loss would only delay others by a lease. Only the store's own clock
 * decides about leases.
 */
export interface LockStore {
  /** The most permits of a semaphore. */
  readonly mostPermits: number;
  /** Takes the names, all or none, or a place in their queues. It may always be repeated with the same nonce. */
  acquire(call: AcquireCall, options: CallOptions): Promise<AcquireAnswer>;
  /** Gives up the place of the nonce, and a lock that it was granted meanwhile. Returns a holder that still has the lock. */
  withdraw(
    claim: RequestKey,
    options: CallOptions,
  ): Promise<{ holder: string | undefined; wakeUps: readonly WakeUp[] }>;
  /**
   * Renews places that are not near their turn, in a store that notifies of direct hand-offs. @returns the nonces of renewed
   * places with two living ones before them; the other waiters have to poll.
   */
  renewPlaces?(
    places: readonly { readonly nonce: string; readonly waiterMs: number }[],
    options: CallOptions,
  ): Promise<ReadonlySet<string>>;
  /** Renews the locks that are still held. */
  renew(held: readonly GrantKey[], options: CallOptions): Promise<RenewResult>;
  /** Releases the names that are held with the token; does not change others. `finish` counts the run for `periodMs`. */
  release(held: GrantKey, finish: CountedRun | undefined, options: CallOptions): Promise<ReleaseResult>;
  /** How a lock ended: who broke it and why; undefined if its lease ended. */
  howEnded(held: GrantKey, options: CallOptions): Promise<PastHolder | undefined>;
  /**
   * In the caller's transaction: fails unless the token is the current one, and keeps it current until the transaction ends.
   */
  guard(tx: unknown, held: GrantKey): Promise<void>;
  /** The same, as parts of a transaction that the caller sends. @throws NotSupported  in a store without such transactions */
  checks(held: GrantKey): readonly ConditionCheckItem[];
  /** Takes a name away from its holders. @returns the former holders */
  break(space: string, name: string, reason: string): Promise<readonly BrokenHolder[]>;
  snapshot(space: string): Promise<Snapshot>;
  explain(space: string, name: string): Promise<Explanation>;
  history(space: string, name: string | undefined, limit: number): Promise<readonly PastHolder[]>;
  /** Removes old rows of waiters and history. */
  sweep(keepMs: number): Promise<void>;
  notices(to: NoticeHandlers): Promise<NoticeStream>;
  /** True when a connection listens already, so that notices cost no other one. */
  readonly isListening?: boolean;
  /** True when the same call may succeed a moment later. */
  isTransient(error: unknown): boolean;
}

/** A former holder of a lock that was broken. */
export interface BrokenHolder {
  readonly token: bigint;
  readonly host: string;
  readonly pid: number;
  readonly since: Date;
}
