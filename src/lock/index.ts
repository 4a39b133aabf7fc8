/** Locks across machines: `createLocks(postgres(url))`. */

export { Deadlock, type DeadlockStep, LeaseLost, LockTimeout, type LossReason } from '../base/errors.ts';
export type { Duration } from '../base/time/duration.ts';
/** Rows of your own tables, locked or captured inside your own transaction, and named locks that end with it. */
export { type LockKeyOptions, lockKey, lockKeyNumber } from './advisory.ts';
export { type CapturedRow, type CaptureOptions, type Claim, captureRows, type OrderBy } from './capture.ts';
export type { LockEngine } from './client.ts';
export { type ColumnConditions, type Comparison, type SqlCondition, sql, type Where } from './condition.ts';
export type { Lock, LockEvents } from './lease.ts';
export { createLocks, type Locks } from './locks.ts';
export type { LockName } from './name.ts';
export { type JobLock, locksOfJobs } from './of-jobs.ts';
export type { OncePerOptions, OncePerResult } from './once.ts';
export type { HoldOptions, LockOptions, LocksOptions } from './options.ts';
export { type RemoteLease, RemoteLocks, type RemoteRequest } from './remote.ts';
export { type IfLocked, type KeyValue, type LockedRows, type LockRowsOptions, lockRows, type RowId } from './row.ts';
export type { PermitOptions, Semaphore } from './semaphore.ts';
export { extendRows, type Settled, type SettleOptions, settle } from './settle.ts';
export type {
  BlockedBackend,
  Broken,
  Explanation,
  Holder,
  PastHolder,
  Snapshot,
  Waiter,
} from './store.ts';
export type { ColumnValue, Handle, TableName } from './table.ts';
