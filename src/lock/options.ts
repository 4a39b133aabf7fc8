import { InvalidInput } from '../base/errors.ts';
import {
  bool,
  checkOptions,
  contradiction,
  duration,
  integer,
  type OptionValues,
  oneOf,
  optional,
  signal,
  text,
} from '../base/options/options.ts';
import type { Shape } from '../base/options/shape.ts';
import type { Duration } from '../base/time/duration.ts';
import { formatDuration } from '../base/time/duration.ts';

/** Options of {@link createLocks}. */
export interface LocksOptions {
  /** Separates the names of one program from equal names of others; up to 255 bytes. Default: none. */
  readonly namespace?: string | undefined;
  /**
   * How long a waiter keeps its place without a renewal: a dead waiter delays the queue no longer than that. 500 ms to 10
   * minutes. Default `'6s'`.
   */
  readonly waiterLease?: Duration | undefined;
  /** How long ended holds stay in the history. Default `'7d'`. */
  readonly history?: Duration | undefined;
}

/** Options of taking a lock without waiting. */
export interface HoldOptions {
  /**
   * How long the lock stays held after its process has died: 100 ms to 24 h. It is renewed as long as the process lives. With
   * Infinity the lock never ends by itself: after a crash it stays held until somebody breaks it. Default `'30s'`.
   */
  readonly lease?: Duration | undefined;
  /** How often the lease is renewed: at most half of it. Default: a third of the lease, so that two renewals may fail. */
  readonly heartbeat?: Duration | undefined;
  /** Shared locks are held at the same time, an exclusive lock alone. Default `'exclusive'`. */
  readonly mode?: 'exclusive' | 'shared' | undefined;
}

/** Options of taking a lock. */
export interface LockOptions extends HoldOptions {
  /** How long to wait for the lock; 0 does not wait, Infinity waits without a limit. Default Infinity. */
  readonly wait?: Duration | undefined;
  /** Ends the wait with the signal's reason; it has no effect once the lock is held. */
  readonly signal?: AbortSignal | undefined;
  /**
   * Whether waiters are served in the order in which they came. If false, the waiter takes no place in the queue and polls
   * from time to time, behind all waiters in the queue: it costs no row and no notification, and has no guarantee when it is
   * served. Default true.
   */
  readonly fair?: boolean | undefined;
  /**
   * True: this request belongs to the callback of `request` in which it is made, so that lock stays held during the wait. False:
   * the work was started there but is not awaited. Default true.
   */
  readonly nested?: boolean | undefined;
  /**
   * Other locks that the caller keeps while it waits for this one. If the wait would close a circle with them, it is refused with
   * Deadlock.
   */
  readonly holding?: readonly { readonly token: bigint }[] | undefined;
}

/** Checked options of one acquisition. */
export interface AcquireOptions {
  readonly leaseMs: number;
  readonly everyMs: number | undefined;
  readonly isShared: boolean;
  readonly waitMs: number;
  readonly signal: AbortSignal | undefined;
  readonly isFair: boolean;
  readonly isNested: boolean;
  readonly holding: readonly { readonly token: bigint }[];
}

const SHORTEST_LEASE = 100;

const LEASE = {
  lease: duration({ min: SHORTEST_LEASE, max: '24h', infinite: true, default: '30s' }),
  heartbeat: optional(duration({ min: 10, max: '24h' })),
} satisfies Shape;

const MODE = {
  mode: oneOf(['exclusive', 'shared'], { default: 'exclusive' }),
} satisfies Shape;

const WAIT = {
  wait: duration({ infinite: true, default: Infinity }),
  signal,
  fair: bool({ default: true }),
  nested: bool({ default: true }),
} satisfies Shape;

/** Checked options of {@link createLocks}. */
export interface ParsedLocksOptions {
  readonly namespace: string;
  readonly waiterLease: number;
  readonly history: number;
}

/** @throws InvalidInput */
export function parseLocksOptions(options: LocksOptions | undefined): ParsedLocksOptions {
  const checked = checkOptions('createLocks', options, {
    namespace: text({ max: 255, default: '' }),
    waiterLease: duration({ min: 500, max: '10m', default: '6s' }),
    history: duration({ min: '1m', default: '7d' }),
  });
  if (Buffer.byteLength(checked.namespace) > 255) {
    throw new InvalidInput('option "namespace" for createLocks must be at most 255 bytes', { field: 'namespace' });
  }
  return checked;
}

/** Options of a call that may wait. `isModal`: whether it takes a mode. @throws InvalidInput */
export function parseLockOptions(what: string, options: unknown, isModal = true): AcquireOptions {
  return options === undefined ? DEFAULTS : readLockOptions(what, options, isModal);
}

const DEFAULTS: AcquireOptions = readLockOptions('acquire', {}, true);

function readLockOptions(what: string, options: unknown, isModal: boolean): AcquireOptions {
  refuseIfAvailable(what, options);
  const { holding, rest } = takeHolding(what, options);
  const checked = isModal
    ? checkOptions(what, rest, { ...LEASE, ...WAIT, ...MODE })
    : { ...checkOptions(what, rest, { ...LEASE, ...WAIT }), mode: undefined };
  return { ...hold(what, checked), ...waiting(checked), holding };
}

const INSTANTLY: AcquireOptions = { ...DEFAULTS, waitMs: 0 };

/** Options of a call that never waits. @throws InvalidInput */
export function parseHoldOptions(what: string, options: unknown, isModal = true): AcquireOptions {
  if (options === undefined) return INSTANTLY;
  refuseIfAvailable(what, options);
  if (options instanceof Object && 'wait' in options && options.wait !== undefined) {
    throw new InvalidInput(`${what} never waits, so it takes no wait; use acquire or request to wait`, {
      field: 'wait',
    });
  }
  const checked = isModal
    ? checkOptions(what, options, { ...LEASE, ...MODE })
    : { ...checkOptions(what, options, LEASE), mode: undefined };
  return {
    ...hold(what, checked),
    waitMs: 0,
    signal: undefined,
    isFair: true,
    isNested: true,
    holding: [],
  };
}

/** Checks the options of {@link Locks.semaphore}. @throws InvalidInput */
export function parsePermits(options: unknown): number {
  return checkOptions('semaphore', options, { permits: integer({ min: 1, max: 1_000_000 }) }).permits;
}

interface Hold {
  readonly lease: number;
  readonly heartbeat: number | undefined;
  readonly mode: 'exclusive' | 'shared' | undefined;
}

function hold(what: string, options: Hold): Pick<AcquireOptions, 'leaseMs' | 'everyMs' | 'isShared'> {
  const { lease, heartbeat, mode } = options;
  if (heartbeat !== undefined && lease < 2 * heartbeat) {
    throw contradiction(
      { what, field: 'heartbeat' },
      `is ${formatDuration(heartbeat)}, but a lease of ${formatDuration(lease)} must be at least two heartbeats long, ` +
        `or one late renewal loses it; give a lease of ${formatDuration(2 * heartbeat)} or more, or a shorter heartbeat`,
    );
  }
  return { leaseMs: lease, everyMs: heartbeat, isShared: mode === 'shared' };
}

function waiting(
  options: OptionValues<typeof WAIT>,
): Pick<AcquireOptions, 'waitMs' | 'signal' | 'isFair' | 'isNested'> {
  const { wait, signal: pending, fair, nested } = options;
  return { waitMs: wait, signal: pending, isFair: fair, isNested: nested };
}

/** Refuses options that only the Web Locks API has. */
function refuseIfAvailable(what: string, options: unknown): void {
  for (const field of ['ifAvailable', 'steal']) {
    if (!(options instanceof Object) || !(field in options) || Reflect.get(options, field) === undefined) continue;
    const instead = field === 'steal' ? 'break the lock first, with a reason' : 'use tryAcquire, or give { wait: 0 }';
    throw new InvalidInput(`${what} has no option "${field}"; ${instead}`, { field });
  }
}

function takeHolding(
  what: string,
  options: unknown,
): { holding: readonly { readonly token: bigint }[]; rest: unknown } {
  if (!(options instanceof Object) || !('holding' in options)) return { holding: [], rest: options };
  const { holding, ...rest } = options;
  if (holding === undefined) return { holding: [], rest };
  if (!Array.isArray(holding) || holding.some((lock) => typeof Object(lock).token !== 'bigint')) {
    throw new InvalidInput(`option "holding" for ${what} must be an array of locks that are held`, {
      field: 'holding',
    });
  }
  return { holding, rest };
}
