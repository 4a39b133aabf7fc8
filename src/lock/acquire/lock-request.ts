import type { Moment } from '../../base/time/clock.ts';
import type { GrantKey, GrantRef } from '../store.ts';

/** A request for a lock. */
export interface LockRequest {
  readonly space: string;
  readonly names: readonly string[];
  readonly capacity: number;
  readonly leaseMs: number;
  readonly waitMs: number;
  readonly waiterMs: number;
  readonly isFair: boolean;
  readonly holds: readonly GrantRef[];
  readonly periodMs: number | undefined;
  readonly signal: AbortSignal | undefined;
  /** The reason to give up the request, once there is one; the waiter is then woken. */
  readonly stopped: () => Error | undefined;
  /** Called when the store could not be asked; it will be asked again. */
  readonly onError: (error: unknown) => void;
}

/** The outcome of a request. */
export type AcquireOutcome =
  | {
      readonly kind: 'granted';
      readonly grant: GrantKey;
      readonly since: Moment;
      /** How long the lock is held without a renewal, from `since`: the lease, or less for a request that has waited. */
      readonly firstMs: number;
      readonly waitedMs: number;
    }
  /** Another client holds the lock; only for a request that does not wait. */
  | { readonly kind: 'held'; readonly holder: string | undefined }
  /** The run of this period is done already. */
  | { readonly kind: 'done'; readonly retryMs: number };
