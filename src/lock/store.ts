import type { DeadlockStep } from '../base/errors.ts';
import type { ConditionCheckItem } from '../engine/dynamodb/index.ts';

/** One acquisition as the store knows it: its names, sorted and without doubles, and the nonce that makes it known again. */
export interface RequestKey {
  readonly space: string;
  readonly names: readonly string[];
  readonly nonce: string;
  /** How many may hold at once, by this claim: 1 is exclusive, {@link SHARED} is shared. */
  readonly capacity: number;
  /** Infinity: until released or broken. */
  readonly leaseMs: number;
}

/** Of a shared claim. */
export const SHARED = 2_147_483_647;

/** What is held: the key of every later statement about it. */
export interface GrantKey {
  readonly space: string;
  readonly names: readonly string[];
  readonly token: bigint;
  readonly capacity: number;
  /** Of the claim that it was granted to. */
  readonly nonce: string;
}

/** Something held while something else is waited for; what the user names by its token alone is known by no more. */
export type GrantRef = Pick<GrantKey, 'token'> & Partial<GrantKey>;

export interface AcquireCall extends RequestKey {
  /** How long a place in the queue is kept without a renewal; undefined takes no place. */
  readonly waiterMs: number | undefined;
  /** The place, once it is known. */
  readonly ticket: bigint | undefined;
  /** An earlier call of this nonce may have come through though its answer was lost. */
  readonly isRetry: boolean;
  /** What is kept while waiting. */
  readonly holds: readonly GrantRef[];
  /** Only when the last run counted by `finish` began at least so long ago. */
  readonly periodMs: number | undefined;
}

/** What became of an attempt. */
export type AcquireAnswer =
  | { readonly kind: 'granted'; readonly token: bigint }
  | {
      readonly kind: 'waiting';
      readonly ticket: bigint;
      /** How many wait before this one, counted up to 8 per name. */
      readonly ahead: number;
      /** When somebody's lease may have run out, from now; undefined when nobody's will. */
      readonly retryMs: number | undefined;
      /**
       * How long the place is certainly kept, from before the statement was sent; a grant told by a notice as long. 0 in a store
       * that hands nothing over.
       */
      readonly placeMs: number;
      /** The place was taken by this call. */
      readonly isNew: boolean;
    }
  | { readonly kind: 'held'; readonly holder: string | undefined }
  | { readonly kind: 'done'; readonly retryMs: number }
  | { readonly kind: 'cycle'; readonly cycle: readonly DeadlockStep[] };

/** A run of `oncePer` that is counted when its lock is released. */
export interface CountedRun {
  readonly outcome: 'success' | 'failure';
  /** How long it keeps others from running. */
  readonly periodMs: number;
}

/** What giving up a lock or a place came to. */
export interface ReleaseResult {
  /** False when it was not held any more, or not in all of its names. */
  readonly isReleased: boolean;
  /** Waiters of this process whose turn it is now; those of others are notified. */
  readonly wakeUps: readonly WakeUp[];
}

/** What renewing came to. What is in neither of the two is lost. Both by places in the list. */
export interface RenewResult {
  readonly renewed: ReadonlySet<number>;
  /** What nobody knows of, with why. */
  readonly unknown: ReadonlyMap<number, unknown>;
}

/** A waiter whose turn it is. */
export interface WakeUp {
  readonly nonce: string;
  /** It was granted the lock already, for as long as its place would have been kept; else it has to take it itself. */
  readonly token: bigint | undefined;
}

/** Limits of one call to the store. */
export interface CallOptions {
  /** When no answer came until then, the connection is given up and the call fails as ConnectionFailed. */
  readonly timeoutMs: number;
  /** Past handlers that hold every connection of the pool. */
  readonly isUrgent?: boolean;
  readonly signal?: AbortSignal | undefined;
}

/** A holder of a name now. Times are the store's. */
export interface Holder {
  readonly name: string;
  readonly mode: 'exclusive' | 'shared' | 'permit';
  /** Of a semaphore. */
  readonly permits: number | undefined;
  readonly token: bigint;
  readonly host: string;
  readonly pid: number;
  /** The job whose handler took it, on Postgres, where its queue was made on the same engine. */
  readonly job: string | undefined;
  readonly since: Date;
  /** Undefined when the lease never ends. */
  readonly expiresAt: Date | undefined;
  readonly leaseLeftMs: number | undefined;
  readonly lastHeartbeatAt: Date | undefined;
}

/** A waiter for a name, in the order of `ticket`. */
export interface Waiter {
  readonly name: string;
  readonly mode: 'exclusive' | 'shared' | 'permit';
  readonly permits: number | undefined;
  readonly ticket: bigint;
  readonly host: string;
  readonly pid: number;
  /** The job whose handler waits; see {@link Holder}. */
  readonly job: string | undefined;
  readonly since: Date;
  readonly waitedMs: number;
}

/** What is held and waited for at one moment. */
export interface Snapshot {
  readonly held: readonly Holder[];
  readonly waiting: readonly Waiter[];
}

/** A connection to the database that waits for others there, be it for rows, tables or advisory locks. */
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
  /** In the order in which they will get it. */
  readonly waiters: readonly Waiter[];
  /** Pids of the database's own backends whose open transaction guards it: until they end, nobody else can get it. */
  readonly guardedBy: readonly number[];
  /** Which owners wait for which, from this name on: `a (host:pid) → b (host:pid)`. */
  readonly blocking: readonly string[];
  /** Backends of this database that wait for others, row locks included. */
  readonly backends: readonly BlockedBackend[];
  /** Circles in either of the two, each as the list of its members. */
  readonly cycles: readonly (readonly string[])[];
}

/** A holder that is no more. */
export interface PastHolder {
  readonly name: string;
  readonly mode: 'exclusive' | 'shared' | 'permit';
  readonly permits: number | undefined;
  readonly token: bigint;
  readonly host: string;
  readonly pid: number;
  /** See {@link Holder}. */
  readonly job: string | undefined;
  readonly grantedAt: Date;
  readonly endedAt: Date;
  readonly outcome: 'released' | 'broken' | 'expired';
  /** Given by whoever broke it. */
  readonly reason: string | undefined;
}

/** What the store tells a process without being asked. */
export interface NoticeHandlers {
  /** It may be the turn of that waiter. */
  onWakeUp(call: WakeUp): void;
  /** The lock with this token was broken. */
  onLost(token: string): void;
  /** Whatever was told meanwhile is gone. */
  onGap(): void;
}

/** A stream of notices. */
export interface NoticeStream {
  /** False when notices do not arrive, and only looking finds out. */
  readonly isReliable: boolean;
  stop(): Promise<void>;
}

/**
 * The port to a database. Every method is one atomic step there; when it throws, the step may have happened or not. It is
 * durable before it answers, but for what would only delay others by a lease if it were undone. Nothing but the store's own
 * clock decides about leases.
 */
export interface LockStore {
  /** How many permits a semaphore may have. */
  readonly mostPermits: number;
  /** Takes the names, all or none, or a place in their queues. Calling it again with the same nonce is always right. */
  acquire(call: AcquireCall, options: CallOptions): Promise<AcquireAnswer>;
  /** Gives up the place of the nonce, and whatever it was granted meanwhile. Says who is in the way. */
  withdraw(
    claim: RequestKey,
    options: CallOptions,
  ): Promise<{ holder: string | undefined; wakeUps: readonly WakeUp[] }>;
  /**
   * Keeps places of which nothing is to be decided yet, in a store that tells whoever is handed a lock. @returns the nonces of those
   * that were kept and still have two living ones before them; whoever is not among them has to look.
   */
  renewPlaces?(
    places: readonly { readonly nonce: string; readonly waiterMs: number }[],
    options: CallOptions,
  ): Promise<ReadonlySet<string>>;
  /** Renews what is still held. */
  renew(held: readonly GrantKey[], options: CallOptions): Promise<RenewResult>;
  /** Gives up those of the names that are held with the token; changes nothing about others. `finish` counts the run for `periodMs`. */
  release(held: GrantKey, finish: CountedRun | undefined, options: CallOptions): Promise<ReleaseResult>;
  /** How a lock ended that is no longer held: by whom it was broken and why, or undefined when it just ran out. */
  howEnded(held: GrantKey, options: CallOptions): Promise<PastHolder | undefined>;
  /** In the caller's transaction: fails unless the token is the current one, and keeps it so until that ends. */
  guard(tx: unknown, held: GrantKey): Promise<void>;
  /** The same, as parts of a transaction that the caller sends himself. @throws NotSupported  where those are no such thing */
  checks(held: GrantKey): readonly ConditionCheckItem[];
  /** Takes a name from its holders. @returns who they were */
  break(space: string, name: string, reason: string): Promise<readonly BrokenHolder[]>;
  snapshot(space: string): Promise<Snapshot>;
  explain(space: string, name: string): Promise<Explanation>;
  history(space: string, name: string | undefined, limit: number): Promise<readonly PastHolder[]>;
  /** Removes what nobody asks for any more. */
  sweep(keepMs: number): Promise<void>;
  notices(to: NoticeHandlers): Promise<NoticeStream>;
  /** Whether listening for notices costs no connection, as there is one that listens already. */
  readonly isListening?: boolean;
  /** True when the same call may succeed a moment later. */
  isTransient(error: unknown): boolean;
}

/** Who lost a lock that was broken. */
export interface BrokenHolder {
  readonly token: bigint;
  readonly host: string;
  readonly pid: number;
  readonly since: Date;
}
