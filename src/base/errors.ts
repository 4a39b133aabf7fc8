/**
 * Every failure Pawl reports: one class per thing a caller would do differently. `code` is stable and documented in
 * docs/errors.md; `message` is for people and says what happened, with which value, and what to do next.
 */
export abstract class PawlError extends Error {
  /** Stable, lower snake case; safe to switch on. */
  abstract readonly code: string;

  constructor(message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** An argument, option or payload was refused before anything was done. */
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

/** The thing exists but is not in a state that allows the call, e.g. retrying a job that is running. */
export class Conflict extends PawlError {
  readonly code = 'conflict';
}

/** The database could not be reached, or the connection broke. */
export class ConnectionFailed extends PawlError {
  readonly code = 'connection_failed';
  /**
   * `'nothing_written'`: the failure came before anything could be committed, so the call may be repeated.
   * `'unknown'`: what was being written may or may not have been committed; look before repeating it.
   */
  readonly outcome: 'nothing_written' | 'unknown';

  constructor(message: string, options?: { cause?: unknown; outcome?: 'nothing_written' | 'unknown' }) {
    super(message, options);
    this.outcome = options?.outcome ?? 'unknown';
  }
}

/** The service refused a request for lack of capacity, and went on doing so until the time was over. Nothing was written. */
export class Throttled extends PawlError {
  readonly code = 'throttled';
}

/** A row or lock was held by somebody else (SQLSTATE 55P03). */
export class LockNotAvailable extends PawlError {
  readonly code = 'lock_not_available';
}

/** The transaction lost against a concurrent one (40001, 40P01) and its retries are used up. Nothing was written. */
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

/** The statement ran into statement_timeout or was cancelled by an operator (57014). Nothing was written. */
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
 * How an owner lost what it held. `expired`: its lease ran out, or somebody took over. `broken`: an operator took it away.
 * `unreachable`: no renewal was confirmed in time, so it must be assumed. `blocked`: the event loop was blocked, or the
 * machine suspended, past the deadline.
 */
export type LossReason = 'expired' | 'broken' | 'unreachable' | 'blocked';

/** An owner's claim is no longer the current one: its lease ran out or somebody took over. Its writes changed nothing. */
export class LeaseLost extends PawlError {
  readonly code = 'lease_lost';
  readonly reason: LossReason;

  constructor(message: string, options?: { cause?: unknown; reason?: LossReason }) {
    super(message, options);
    this.reason = options?.reason ?? 'expired';
  }
}

/** The lock was not had within the time given for waiting; with `wait: 0`, it was not free. Nothing is left behind. */
export class LockTimeout extends PawlError {
  readonly code = 'lock_timeout';
  /** Who has it, if that is known: `db-1 (pid 4711)`. */
  readonly holder: string | undefined;

  constructor(message: string, options?: { cause?: unknown; holder?: string | undefined }) {
    super(message, options);
    this.holder = options?.holder;
  }
}

/** Waiting for the lock would have closed a circle of owners that wait for each other. Nothing is left behind. */
export class Deadlock extends PawlError {
  readonly code = 'deadlock';
  /** The owners in the circle, from the one that this request waits for to the one that waits for it. */
  readonly cycle: readonly DeadlockStep[];

  constructor(message: string, options: { cause?: unknown; cycle: readonly DeadlockStep[] }) {
    super(message, options);
    this.cycle = options.cycle;
  }
}

/** One owner in a circle, and the lock for which the one before it waits. */
export interface DeadlockStep {
  readonly name: string;
  /** Of the holder; undefined when it is itself a waiter, ahead in the queue. */
  readonly token: bigint | undefined;
  readonly host: string;
  readonly pid: number;
}

/** The work was cancelled by an operator: the reason of `unit.signal`, and what a wait for the job fails with. */
export class Cancelled extends PawlError {
  readonly code = 'cancelled';
}

/** A wait or a handler ran past its time. */
export class TimedOut extends PawlError {
  readonly code = 'timed_out';
}

/**
 * The reason of an actor's `a.signal`: a semaphore was raised that does not wait for the end of the turn. The turn is not lost:
 * what its body returns counts.
 */
export class Interrupted extends PawlError {
  readonly code = 'interrupted';
}

/** The worker, lock or engine is stopping, or has been stopped. */
export class Stopped extends PawlError {
  readonly code = 'stopped';
}

/** Thrown by a handler: this job cannot succeed, however often it is tried. It ends in `error` at once. */
export class NoRetry extends PawlError {
  readonly code = 'no_retry';
}

/** A job that somebody waited for has ended in `error`: `jobError` is what its last attempt failed with. */
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

/** The document has another version than the caller expected. Nothing was changed, and the transaction can go on. */
export class VersionConflict extends PawlError {
  readonly code = 'version_conflict';
  readonly id: string;
  /** What the caller gave as `ifVersion`. */
  readonly expected: number;
  /** What there is; 0 when there is no such document. */
  readonly actual: number;

  constructor(message: string, options: { cause?: unknown; id: string; expected: number; actual: number }) {
    super(message, options);
    this.id = options.id;
    this.expected = options.expected;
    this.actual = options.actual;
  }
}

/**
 * The bytes in the content store are not those that were written. None of a block that does not fit was passed on.
 * `missing`: there is no such object. `short`, `long`: another length. `changed`: the length is right, the bytes are not.
 */
export class CorruptObject extends PawlError {
  readonly code = 'corrupt_object';
  readonly damage: 'missing' | 'short' | 'long' | 'changed';

  constructor(message: string, options: { cause?: unknown; damage: CorruptObject['damage'] }) {
    super(message, options);
    this.damage = options.damage;
  }
}

/** The content store did not answer in time, answered that it cannot now, or is full. A later call may succeed. */
export class StoreUnavailable extends PawlError {
  readonly code = 'store_unavailable';
}

/** The content store refuses what was asked of it, and will again: no such bucket, no rights, not a store of Pawl's. */
export class StoreRefused extends PawlError {
  readonly code = 'store_refused';
}

/** The upload was collected before it was published, or abandoned. Nothing was changed; write the bytes again. */
export class UploadExpired extends PawlError {
  readonly code = 'upload_expired';
}

/** The collector has stopped itself, because the database and the content store disagree about the past. */
export class CollectorHalted extends PawlError {
  readonly code = 'collector_halted';
}
