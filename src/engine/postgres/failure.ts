import {
  Conflict,
  ConnectionFailed,
  DatabaseError,
  DuplicateKey,
  InvalidInput,
  LeaseLost,
  LockNotAvailable,
  NotFound,
  NotSupported,
  PawlError,
  SchemaMismatch,
  SerializationFailed,
  StatementTimeout,
  Stopped,
} from '../../base/errors.ts';
import { DEFAULT, schemaIn } from './schema/name.ts';

/**
 * Turns an error of the driver into one of Pawl's errors, with the driver's error as `cause`. Returns every other error
 * unchanged: Pawl's own errors, and errors that the caller's code threw inside a transaction.
 * @param schema  the schema that the statement named, for the advice about a missing privilege
 * @param statement  the name of the statement, if it has one
 */
export function failure(error: unknown, schema?: string, statement?: string): unknown {
  if (!(error instanceof Error) || error instanceof PawlError) {
    return error;
  }
  const code = textField(error, 'code');
  if (code !== undefined && SQL_STATE.test(code) && textField(error, 'severity') !== undefined) {
    return bySqlState(error, code, { schema, statement });
  }
  return byDriver(error, code);
}

/**
 * True if the same call may succeed later without a correction by a person: the database is starting, restarting, read-only or
 * out of connections, the connection broke, or a concurrent transaction won. Whether a repetition is safe is another question:
 * see `ConnectionFailed.outcome`.
 */
export function isTransient(error: unknown): boolean {
  const known = failure(error);
  return known instanceof ConnectionFailed || known instanceof SerializationFailed;
}

/** True if a write was refused because the transaction, or the whole server, is read-only. */
export function isReadOnly(error: unknown): boolean {
  return codeOf(error) === READ_ONLY;
}

/** True if no connection of the pool became free in time. Another try would wait as long again. */
export function isPoolTimeout(error: unknown): boolean {
  return (
    error instanceof ConnectionFailed &&
    error.cause instanceof Error &&
    /timeout exceeded when trying to connect/.test(error.cause.message)
  );
}

/** True if the server had ended the connection for lack of use before the statement arrived. */
export function wasEndedIdle(error: unknown): boolean {
  return codeOf(error) === ENDED_IDLE;
}

function codeOf(error: unknown): string | undefined {
  return error instanceof ConnectionFailed && error.cause instanceof Error ? textField(error.cause, 'code') : undefined;
}

/** Marks a failure that came before a statement was sent: while getting a connection, or while opening a transaction. */
export function beforeSending(error: unknown): unknown {
  const known = failure(error);
  return known instanceof ConnectionFailed && known.outcome === 'unknown'
    ? new ConnectionFailed(known.message, { cause: known.cause ?? error, outcome: 'nothing_written' })
    : known;
}

const SQL_STATE = /^[0-9A-Z]{5}$/;

/** The server refused before a session existed: it is starting, shutting down or in recovery, or has too many connections. */
const REFUSED_AT_CONNECT = new Set(['57P03', '53300', '08001', '08004']);

/** The server's source files that open sessions; undefined: a pooler answered. */
const OPENING = new Set(['postinit.c', 'auth.c', 'miscinit.c', 'crypt.c', undefined]);

/** Shutdown, crash of another backend, and the two timeouts that end a session within a transaction. */
const ENDED_BY_SERVER = new Set(['57P01', '57P02', '25P03', '25P04']);

/** idle_session_timeout: the server never read the statement that was just sent. */
const ENDED_IDLE = '57P05';

/** The statement that failed. */
interface FailedStatement {
  readonly schema: string | undefined;
  readonly statement: string | undefined;
}

function bySqlState(error: Error, code: string, failed: FailedStatement): PawlError {
  const options = { cause: error };
  if (code.startsWith('PW')) {
    return byOwnFunction(error, code);
  }
  if (REFUSED_AT_CONNECT.has(code) || (code === '55000' && textField(error, 'file') === 'postinit.c')) {
    return new ConnectionFailed(`the database accepts no connection now; try again later: ${error.message}`, {
      cause: error,
      outcome: 'nothing_written',
    });
  }
  if (code.startsWith('08') || ENDED_BY_SERVER.has(code)) {
    return new ConnectionFailed(`the database ended the connection: ${error.message}`, options);
  }
  if (code === READ_ONLY) return readOnly(error);
  if (code === ENDED_IDLE) {
    return new ConnectionFailed(`the database had ended the connection: ${error.message}`, {
      cause: error,
      outcome: 'nothing_written',
    });
  }
  if ((code.startsWith('28') || code === '3D000') && OPENING.has(textField(error, 'file'))) {
    const advice = code === '3D000' ? 'create it, or mend the URL' : 'check the user and the password in the URL';
    return new DatabaseError(`the database refused the connection: ${error.message} (SQLSTATE ${code}); ${advice}`, {
      cause: error,
      sqlState: code,
    });
  }
  switch (code) {
    case '55P03':
      return new LockNotAvailable(
        `the row or lock is held by another transaction; try again when it has ended: ${error.message}`,
        options,
      );
    case '40001':
    case '40P01':
      return new SerializationFailed(
        `the transaction lost against a concurrent one; run it again: ${error.message}`,
        options,
      );
    case '57014':
      return new StatementTimeout(`the statement was cancelled: ${error.message}`, options);
    case '23505':
      return duplicateKey(error);
    case '42501':
      return notGranted(error, failed);
    case '3F000':
    case '42P01':
    case '42883':
    case '42703':
      return missingObject(error, code, failed);
    case '26000':
    case '42P05':
      return new DatabaseError(
        `${error.message}: the connection pooler does not keep prepared statements; pass postgres(url, { prepare: false })`,
        { cause: error, sqlState: code },
      );
    default:
      return refused(error, code, failed);
  }
}

function refused(error: Error, code: string, { statement }: FailedStatement, advice = ''): DatabaseError {
  const which = statement === undefined ? 'the statement' : `the statement "${statement}"`;
  return new DatabaseError(`the database refused ${which}: ${error.message} (SQLSTATE ${code})${advice}`, {
    cause: error,
    sqlState: code,
  });
}

/** Pawl knows nothing about the user's own objects. For its own objects, the advice lists the grants of docs/deployment.md. */
function notGranted(error: Error, failed: FailedStatement): DatabaseError {
  const name = schemaIn(error.message) ?? failed.schema ?? DEFAULT;
  const isOurs =
    error.message.includes(`schema ${name}`) || /\b(?:lock|queue|actor|capture|files|http)_\w+/.test(error.message);
  const advice =
    `; as the owner of the schema: grant usage on schema ${name} to ROLE; grant select, insert, update, delete on all tables in schema ` +
    `${name} to ROLE; grant usage, select on all sequences in schema ${name} to ROLE; grant execute on all functions in schema ${name} to ROLE`;
  return refused(error, '42501', failed, isOurs ? advice : '');
}

const READ_ONLY = '25006';

/**
 * No statement is at fault. The server is a standby, or was one when this connection was opened, and by now another server may
 * take the writes. So the connection counts as lost. Otherwise the connections of a pool would lead to the old server for ever.
 */
function readOnly(error: Error): ConnectionFailed {
  return new ConnectionFailed(
    'the database takes no writes here: the transaction was begun READ ONLY, or this connection leads to a standby or to a ' +
      `database that is set to read-only; the connection is given up: ${error.message}`,
    { cause: error, outcome: 'nothing_written' },
  );
}

/** Our SQL functions raise SQLSTATEs of class PW, so that the same refusal reads the same from psql and from here. */
function byOwnFunction(error: Error, code: string): PawlError {
  switch (code) {
    case 'PW001': {
      // As in duplicateKey, postgres.js has another name for this field.
      const field = textField(error, 'column') ?? textField(error, 'column_name');
      return new InvalidInput(error.message, { cause: error, ...(field !== undefined && { field }) });
    }
    case 'PW002':
      return new NotFound(error.message, { cause: error });
    case 'PW003':
      return new Conflict(error.message, { cause: error });
    case 'PW004':
      return new LeaseLost(error.message, { cause: error });
    case 'PW007':
      return new SchemaMismatch(error.message, { cause: error });
    case 'PW006':
      return new NotSupported(error.message, { cause: error });
    default:
      return new DatabaseError(error.message, { cause: error, sqlState: code });
  }
}

function duplicateKey(error: Error): DuplicateKey {
  // A caller's own transaction may use postgres.js, which has another name for this field.
  const constraint = textField(error, 'constraint') ?? textField(error, 'constraint_name');
  const detail = textField(error, 'detail');
  return new DuplicateKey(`${error.message}${detail === undefined ? '' : `: ${detail}`}`, {
    cause: error,
    ...(constraint === undefined ? {} : { constraint }),
  });
}

/**
 * If a user's own table is missing, the user's statement is at fault. If one of Pawl's tables is missing, a migration is
 * missing.
 */
function missingObject(error: Error, code: string, failed: FailedStatement): PawlError {
  if (schemaIn(error.message) !== undefined) {
    return new SchemaMismatch(
      `${error.message}: the database has no such part of Pawl's schema; run "pawl migrate" (npx pawl migrate), or await engine.migrate()`,
      {
        cause: error,
      },
    );
  }
  return refused(error, code, failed);
}

const UNREACHABLE = new Set([
  'ECONNREFUSED',
  'ENOTFOUND',
  'EAI_AGAIN',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'EHOSTDOWN',
  'EADDRNOTAVAIL',
  'ENOENT',
]);

/** The last two codes are those of postgres.js, which a caller's own transaction may use. */
const BROKEN = new Set([
  'ECONNRESET',
  'EPIPE',
  'ETIMEDOUT',
  'ECONNABORTED',
  'ERR_STREAM_DESTROYED',
  'CONNECTION_CLOSED',
  'CONNECTION_DESTROYED',
]);

/** node-postgres has no codes for its own failures. These patterns match its messages; checked against pg 8.23. */
const NEVER_SENT =
  /timeout exceeded when trying to connect|due to connection timeout|before secure TLS|timeout expired/i;
const BROKE_BEFORE = /not queryable/i;
const TWO_TEXTS = /^Prepared statements must be unique - '(.*)' was used for a different statement$/;
const NO_TLS = /server does not support SSL/i;
const LOST = /Connection terminated|Query read timeout|Connection ended|Socket closed|read ECONN|write EPIPE/i;
const ENDED = /after calling end on the pool/i;

function byDriver(error: Error, code: string | undefined): unknown {
  if (isAggregate(error) && error.errors.length > 0) {
    // Node reports "localhost" refused on both ::1 and 127.0.0.1 as one AggregateError without a message.
    const inner: unknown = failure(error.errors.at(-1));
    return inner instanceof ConnectionFailed
      ? new ConnectionFailed(inner.message, { cause: error, outcome: inner.outcome })
      : inner;
  }
  if (code !== undefined && UNREACHABLE.has(code) && textField(error, 'syscall') !== undefined) {
    return new ConnectionFailed(
      `the database cannot be reached (${error.message}); check that it runs and the connection URL`,
      { cause: error, outcome: 'nothing_written' },
    );
  }
  if (NEVER_SENT.test(error.message)) {
    return new ConnectionFailed(
      'no connection was free in time: the pool is too small, the database is out of reach, or a call inside a transaction was not given ' +
        `its { tx } and waits for the connection that the transaction holds: ${error.message}`,
      {
        cause: error,
        outcome: 'nothing_written',
      },
    );
  }
  if (BROKE_BEFORE.test(error.message)) {
    return new ConnectionFailed(`the connection had broken before the statement was sent: ${error.message}`, {
      cause: error,
      outcome: 'nothing_written',
    });
  }
  const twice = TWO_TEXTS.exec(error.message)?.[1];
  if (twice !== undefined) {
    return new InvalidInput(
      `two statements with different texts are named "${twice.slice(twice.indexOf(':') + 1)}": a statement is prepared under its name, so give ` +
        'each its own, or { prepare: false } as the third argument of statement()',
      { cause: error, field: 'statement' },
    );
  }
  if (NO_TLS.test(error.message)) {
    return new ConnectionFailed(
      `the server speaks no TLS, which the URL asks for: ${error.message}; take sslmode out of the URL, or set up TLS on the server`,
      { cause: error, outcome: 'nothing_written' },
    );
  }
  if ((code !== undefined && BROKEN.has(code)) || LOST.test(error.message)) {
    return new ConnectionFailed(`the connection to the database broke: ${error.message}`, { cause: error });
  }
  return ENDED.test(error.message)
    ? new Stopped('the connection pool has been ended; make another one', { cause: error })
    : error;
}

function isAggregate(error: Error): error is AggregateError {
  return error instanceof AggregateError;
}

function textField(error: Error, field: string): string | undefined {
  const value: unknown = Reflect.get(error, field);
  return typeof value === 'string' ? value : undefined;
}
