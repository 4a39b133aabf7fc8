/** Locks across machines: `createLocks(postgres(url))`. */

export { Deadlock, type DeadlockStep, LeaseLost, LockTimeout, type LossReason } from '../base/errors.ts';
export type { Duration } from '../base/time/duration.ts';
export { type RemoteLease, RemoteLocks, type RemoteRequest } from './acquire/remote.ts';
export type { LockEngine } from './client.ts';
export type { Lock, LockEvents } from './lease.ts';
export { createLocks, type Locks } from './locks.ts';
export type { LockName } from './name.ts';
export type { OncePerOptions, OncePerResult } from './once.ts';
export type { HoldOptions, LockOptions, LocksOptions } from './options.ts';
export { type JobLock, locksOfJobs } from './postgres/of-jobs.ts';
export { type LockFilter, LockOverview } from './postgres/overview.ts';
/** Rows of your own tables, locked or captured inside your own transaction, and named locks that end with it. */
export { type LockKeyOptions, lockKey, lockKeyNumber } from './rows/advisory.ts';
export { type CapturedRow, type CaptureOptions, captureRows, type OrderBy, type RowClaim } from './rows/claim.ts';
export {
  type IfLocked,
  type KeyValue,
  type LockedRows,
  type LockRowsOptions,
  lockRows,
  type RowId,
} from './rows/lock.ts';
export { extendRows, type SettleOptions, type SettleResult, settle } from './rows/settle.ts';
export type { ColumnValue, EngineOrTransaction, TableName } from './rows/table.ts';
export { type ColumnComparison, type ColumnConditions, type SqlCondition, sql, type Where } from './rows/where.ts';
export type { PermitOptions, Semaphore } from './semaphore.ts';
export type {
  BlockedBackend,
  BrokenHolder,
  Explanation,
  Holder,
  PastHolder,
  Snapshot,
  Waiter,
} from './store.ts';
