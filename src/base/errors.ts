/**
 * Base class of every error that Pawl throws. There is one class for each different reaction of a caller. `code` is stable and
 * documented in docs/errors.md. `message` is for people and says what happened, with which value, and what to do next.
 */
export abstract class PawlError extends Error {
  /** Stable, lower snake case; safe to switch on. */
  abstract readonly code: string;

  constructor(message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** An argument, option or payload was refused. Nothing was done. */
export class InvalidInput extends PawlError {
  readonly code = 'invalid_input';
  /** The path of the refused field, e.g. `retry.attempts`, or undefined when the whole value was refused. */
  readonly field: string | undefined;

  constructor(message: string, options?: { cause?: unknown; field?: string }) {
    super(message, options);
    this.field = options?.field;
  }
}

/** This engine, or this combination of options, cannot keep the promise that was asked for. */
export class NotSupported extends PawlError {
  readonly code = 'not_supported';
}

/** The named queue, job, kind, lock… does not exist. */
export class NotFound extends PawlError {
  readonly code = 'not_found';
}

/** The object exists, but its state does not allow the call. Example: `retry()` of a job that is running. */
export class Conflict extends PawlError {
  readonly code = 'conflict';
}

/** The database could not be reached, or the connection broke. */
export class ConnectionFailed extends PawlError {
  readonly code = 'connection_failed';
  /**
   * `'nothing_written'`: the failure came before a commit was possible, so you may repeat the call.
   * `'unknown'`: the write may or may not have been committed; read the data before you repeat the call.
   */
  readonly outcome: 'nothing_written' | 'unknown';

  constructor(message: string, options?: { cause?: unknown; outcome?: 'nothing_written' | 'unknown' }) {
    super(message, options);
    this.outcome = options?.outcome ?? 'unknown';
  }
}

/**
 * The service refused a request for lack of capacity, again and again until the time for the request was over. Nothing was
 * written.
 */
export class Throttled extends PawlError {
  readonly code = 'throttled';
}

/** Another transaction held a row or lock (SQLSTATE 55P03). */
export class LockNotAvailable extends PawlError {
  readonly code = 'lock_not_available';
}

/** The transaction conflicted with a concurrent one (40001, 40P01), and its retries are used up. Nothing was written. */
export class SerializationFailed extends PawlError {
  readonly code = 'serialization_failed';
}

/** A unique constraint refused the row (23505). */
export class DuplicateKey extends PawlError {
  readonly code = 'duplicate_key';
  readonly constraint: string | undefined;

  constructor(message: string, options?: { cause?: unknown; constraint?: string }) {
    super(message, options);
    this.constraint = options?.constraint;
  }
}

/** The statement exceeded statement_timeout, or an operator cancelled it (57014). Nothing was written. */
export class StatementTimeout extends PawlError {
  readonly code = 'statement_timeout';
}

/** The database refused a statement for any other reason; `sqlState` and `cause` say which. */
export class DatabaseError extends PawlError {
  readonly code = 'database_error';
  readonly sqlState: string | undefined;

  constructor(message: string, options?: { cause?: unknown; sqlState?: string }) {
    super(message, options);
    this.sqlState = options?.sqlState;
  }
}

/** The schema in the database does not fit this version of the code: missing, older, newer, or changed by hand. */
export class SchemaMismatch extends PawlError {
  readonly code = 'schema_mismatch';
}

/**
 * Why an owner lost its lease. `expired`: the lease ended, or another owner took over. `broken`: an operator ended it.
 * `unreachable`: no renewal was confirmed in time, so Pawl must assume that the lease ended. `blocked`: the event loop was
 * blocked, or the machine was suspended, until after the end of the lease.
 */
export type LossReason = 'expired' | 'broken' | 'unreachable' | 'blocked';

/**
 * The caller's claim is no longer the current one: its lease ended, or another owner took over. The refused call wrote nothing.
 */
export class LeaseLost extends PawlError {
  readonly code = 'lease_lost';
  readonly reason: LossReason;

  constructor(message: string, options?: { cause?: unknown; reason?: LossReason }) {
    super(message, options);
    this.reason = options?.reason ?? 'expired';
  }
}

/** The caller did not get the lock within `wait`. With `wait: 0`: the lock was not free. The request leaves nothing behind. */
export class LockTimeout extends PawlError {
  readonly code = 'lock_timeout';
  /** The holder, if known: `db-1 (pid 4711)`. */
  readonly holder: string | undefined;

  constructor(message: string, options?: { cause?: unknown; holder?: string | undefined }) {
    super(message, options);
    this.holder = options?.holder;
  }
}

/** The wait for the lock would have closed a circle of owners that wait for each other. The request leaves nothing behind. */
export class Deadlock extends PawlError {
  readonly code = 'deadlock';
  /** The owners in the circle. The first one is the owner that this request waits for; the last one waits for this request. */
  readonly cycle: readonly DeadlockStep[];

  constructor(message: string, options: { cause?: unknown; cycle: readonly DeadlockStep[] }) {
    super(message, options);
    this.cycle = options.cycle;
  }
}

/** One owner in a circle, and the lock for which the owner before it waits. */
export interface DeadlockStep {
  readonly name: string;
  /** The token of the holder; undefined if this owner is itself a waiter, ahead in the queue. */
  readonly token: bigint | undefined;
  readonly host: string;
  readonly pid: number;
}

/**
 * The work was cancelled: by hand, by its handler, since it expired, or with a job that it comes after. This is the reason of
 * `unit.signal`, and the error of a wait for the job.
 */
export class Cancelled extends PawlError {
  readonly code = 'cancelled';
}

/** A wait or a handler exceeded its timeout. */
export class TimedOut extends PawlError {
  readonly code = 'timed_out';
}

/**
 * The reason of an actor's `a.signal`: a semaphore was raised that interrupts a running turn. The turn is not lost: the value
 * that its body returns counts.
 */
export class Interrupted extends PawlError {
  readonly code = 'interrupted';
}

/** The worker, lock or engine is stopping, or has been stopped. */
export class Stopped extends PawlError {
  readonly code = 'stopped';
}

/** Throw it in a handler: this job cannot succeed, however often it is tried. The job ends in `error` at once. */
export class NoRetry extends PawlError {
  readonly code = 'no_retry';
}

/** A caller waited for a job, and the job ended in `error`. `jobError` is the error of its last attempt. */
export class JobFailed extends PawlError {
  readonly code = 'job_failed';
  readonly id: string;
  readonly jobError: string;

  constructor(message: string, fields: { readonly id: string; readonly jobError: string }) {
    super(message);
    this.id = fields.id;
    this.jobError = fields.jobError;
  }
}

/** The document has another version than `ifVersion` of the caller. Nothing was changed, and the transaction can go on. */
export class VersionConflict extends PawlError {
  readonly code = 'version_conflict';
  readonly id: string;
  /** The `ifVersion` of the caller. */
  readonly expected: number;
  /** The current version; 0 if there is no such document. */
  readonly actual: number;

  constructor(message: string, options: { cause?: unknown; id: string; expected: number; actual: number }) {
    super(message, options);
    this.id = options.id;
    this.expected = options.expected;
    this.actual = options.actual;
  }
}

/**
 * The bytes in the content store differ from the bytes that were written. Pawl passes on no bytes of a damaged block. `missing`:
 * there is no such object. `short`, `long`: the length differs. `changed`: the length is right, the bytes differ.
 */
export class CorruptObject extends PawlError {
  readonly code = 'corrupt_object';
  readonly damage: 'missing' | 'short' | 'long' | 'changed';

  constructor(message: string, options: { cause?: unknown; damage: CorruptObject['damage'] }) {
    super(message, options);
    this.damage = options.damage;
  }
}

/** The content store did not answer in time, refused the request for now, or is full. A later call may succeed. */
export class StoreUnavailable extends PawlError {
  readonly code = 'store_unavailable';
}

/**
 * The content store refuses the request, and will refuse it again: there is no such bucket, the rights are missing, or the store
 * is not one of Pawl's.
 */
export class StoreRefused extends PawlError {
  readonly code = 'store_refused';
}

/** The upload was collected before its publication, or was abandoned. Nothing was changed; write the bytes again. */
export class UploadExpired extends PawlError {
  readonly code = 'upload_expired';
}

/** The collector has stopped itself, because the histories of the database and of the content store disagree. */
export class CollectorHalted extends PawlError {
  readonly code = 'collector_halted';
}
