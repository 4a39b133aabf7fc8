import { setTimeout as sleep } from 'node:timers/promises';
import { Conflict, ConnectionFailed, InvalidInput, SerializationFailed } from '../../../base/errors.ts';
import { show } from '../../../base/options/refusal.ts';
import type { TransactionClient } from '../driver.ts';
import { failure, isPoolTimeout, isReadOnly } from '../failure.ts';
import type { SchemaName } from '../schema/name.ts';
import type { Statement } from '../sql.ts';
import { cancelRunning } from './cancel.ts';
import type { AnswerOptions, Session } from './session.ts';

/** Options of one transaction. */
export interface TransactionOptions {
  /** Default: the database's own default, which is read committed unless it was changed. */
  isolation?: 'read committed' | 'repeatable read' | 'serializable' | undefined;
  /** How often the transaction may be repeated after a lost race or a lost connection. Default 4. */
  retries?: number | undefined;
  readOnly?: boolean | undefined;
  /** If it aborts, the running statement is cancelled and everything is rolled back. */
  signal?: AbortSignal | undefined;
  /** Runs first on the same connection, and is committed alone, before the transaction begins. */
  before?: ((session: Session) => Promise<unknown>) | undefined;
  /** How many milliseconds each of its statements may take, and the wait for a free connection. Default: no limit. */
  deadlineMs?: number | undefined;
  /**
   * How many milliseconds the server waits for this process between two statements before it rolls back. Default: the database's
   * own setting.
   */
  idleMs?: number | undefined;
  /**
   * True: if row-level security would hide rows from a read or a write, the statement fails (42501) instead. Default: the
   * session's own setting, which is to hide them.
   */
  seesAll?: boolean | undefined;
}

/** An open transaction: all statements that run through it are committed together, or not at all. */
export class Transaction {
  readonly kind = 'pawl.transaction';
  readonly #session: Session;
  readonly #signal: AbortSignal | undefined;
  readonly #answer: AnswerOptions | undefined;
  #firstFailure: unknown;
  #ended = false;

  /** @internal */
  constructor(session: Session, signal?: AbortSignal, answer?: AnswerOptions) {
    this.#session = session;
    this.#signal = signal;
    this.#answer = answer;
  }

  /** The driver's connection, for statements of your own. Do not commit, roll back or release it yourself. */
  get client(): TransactionClient {
    return this.#session.client as TransactionClient;
  }

  /** The schema of the engine that has opened this transaction. */
  get schema(): SchemaName {
    return this.#session.schema;
  }

  /** The error of the first statement that failed here, if any; after it the database refuses all others. @internal */
  get firstFailure(): unknown {
    return this.#firstFailure;
  }

  /** Runs one statement inside the transaction. @throws the errors of `failure.ts` */
  async query<Row = Record<string, unknown>>(statement: Statement, values: unknown[] = []): Promise<Row[]> {
    if (this.#ended) {
      throw new Conflict(
        `the transaction is over; "${statement.name}" was not run: await every query, and every call with { tx }, inside it`,
      );
    }
    this.#signal?.throwIfAborted();
    try {
      return await this.#session.query<Row>(statement, values, this.#answer);
    } catch (error) {
      this.#firstFailure ??= error;
      throw error;
    }
  }

  /** @internal */
  end(): void {
    this.#ended = true;
  }
}

/**
 * Runs `fn` in a transaction and commits it. `fn` may run more than once: it is repeated if the database reports a lost race
 * (40001, 40P01), or if the connection breaks before COMMIT was sent.
 *
 * If COMMIT was sent and no answer came, it is unknown whether it was carried out. Such a transaction is never repeated. The
 * error is ConnectionFailed with outcome `unknown`.
 */
export async function runTransaction<T>(
  open: () => Promise<Session>,
  fn: (tx: Transaction) => Promise<T>,
  options: TransactionOptions = {},
): Promise<T> {
  if (typeof fn !== 'function') {
    throw new InvalidInput(`transaction() takes a function, and its options after that, but was given ${show(fn)}`, {
      field: 'fn',
    });
  }
  const begin = beginText(options);
  const retries = options.retries ?? 4;
  for (let attempt = 0; ; attempt += 1) {
    try {
      return await attemptOnce(open, fn, begin, options);
    } catch (error) {
      options.signal?.throwIfAborted();
      // A transaction that was begun READ ONLY takes no writes on any server.
      const isInVain = (options.readOnly === true && isReadOnly(error)) || isPoolTimeout(error);
      if (attempt >= retries || isInVain || !mayRepeat(error)) {
        throw error;
      }
      // Full jitter, so that the losers of one race do not meet again: 10 ms doubling to at most a second.
      await pause(Math.random() * Math.min(10 * 2 ** attempt, 1_000), options.signal);
    }
  }
}

async function attemptOnce<T>(
  open: () => Promise<Session>,
  fn: (tx: Transaction) => Promise<T>,
  begin: string,
  { signal, deadlineMs, before }: TransactionOptions,
): Promise<T> {
  signal?.throwIfAborted();
  const session = await (signal === undefined ? open() : unlessAborted(open(), signal));
  const answer = { deadlineMs };
  const tx = new Transaction(session, signal, answer);
  let patience: NodeJS.Timeout | undefined;
  const cancel = (): void => {
    void cancelRunning(session.client);
    // A server that cannot be reached receives no cancel request. The caller must not wait until the kernel gives up.
    patience = setTimeout(() => session.release(true), CANCEL_PATIENCE_MS);
  };
  signal?.addEventListener('abort', cancel, { once: true });
  try {
    await before?.(session);
    await session.run(begin, answer).catch(asNothingWritten);
    const value = await fn(tx);
    signal?.throwIfAborted();
    tx.end();
    await commit(session, tx, answer);
    return value;
  } catch (error) {
    tx.end();
    const wasBroken = session.isBroken;
    const isAlive = await rollBack(session);
    // A ConnectionFailed of another connection says itself whether something was written there. An error of a driver says only that some
    // connection was lost: it was this one, unless this one still answers.
    const isOwn = wasBroken || (!(error instanceof ConnectionFailed) && !isAlive);
    const known = failure(error);
    // A connection that is lost before COMMIT is sent has written nothing. `commit` itself reports a lost answer to COMMIT.
    throw known instanceof ConnectionFailed && isOwn && !(known instanceof CommitUnknown)
      ? nothingWritten(known)
      : known;
  } finally {
    signal?.removeEventListener('abort', cancel);
    clearTimeout(patience);
    // A cancel request may still be on its way, and must not hit the next user of this connection.
    session.release(signal?.aborted ?? false);
  }
}

/** Waits for a connection until the signal aborts. A connection that comes later goes back to the pool. */
function unlessAborted(opening: Promise<Session>, signal: AbortSignal): Promise<Session> {
  return new Promise((resolve, reject) => {
    const giveUp = (): void => reject(signal.reason);
    signal.addEventListener('abort', giveUp, { once: true });
    opening
      .then((session) => (signal.aborted ? session.release() : resolve(session)), reject)
      .finally(() => signal.removeEventListener('abort', giveUp));
  });
}

/** How long a cancelled statement may take to end. After that its connection is closed. */
const CANCEL_PATIENCE_MS = 2_000;

/** Ends early, without an error, if the signal aborts; the next attempt checks the signal first. */
function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return sleep(ms, undefined, signal ? { signal } : {}).catch(() => {});
}

/** COMMIT was sent and its answer lost. A class of its own, so that no code takes it for a failure before COMMIT. */
class CommitUnknown extends ConnectionFailed {
  constructor(cause: ConnectionFailed) {
    super(
      `the connection broke after COMMIT was sent, so the outcome is unknown: it may or may not have been committed; ` +
        `check before repeating it (${cause.message})`,
      { cause: cause.cause ?? cause, outcome: 'unknown' },
    );
    this.name = 'ConnectionFailed';
  }
}

async function commit(session: Session, tx: Transaction, answer: AnswerOptions): Promise<void> {
  if (session.isBroken) {
    throw new ConnectionFailed('the connection was lost before COMMIT was sent', { outcome: 'nothing_written' });
  }
  const results = await session.run('commit', answer).catch((error: unknown) => {
    throw error instanceof ConnectionFailed && error.outcome === 'unknown' ? new CommitUnknown(error) : error;
  });
  // If a statement of the transaction failed, COMMIT answers ROLLBACK, and no error at all.
  if (results[0]?.command === 'ROLLBACK') {
    if (tx.firstFailure !== undefined) throw failure(tx.firstFailure);
    throw new Conflict('nothing was committed: a statement inside the transaction failed, and its error was caught');
  }
}

/** A rollback is quick, however much was written. If it takes longer than this, the connection is dead. */
const ROLLBACK_MS = 10_000;

/** @returns whether the connection is still there */
async function rollBack(session: Session): Promise<boolean> {
  if (session.isBroken) return false;
  if (session.client.getTransactionStatus?.() === 'I') return true;
  try {
    await session.run('rollback', { deadlineMs: ROLLBACK_MS });
    return true;
  } catch {
    // A connection that cannot roll back is closed, and the server rolls back.
    session.release(true);
    return false;
  }
}

function mayRepeat(error: unknown): boolean {
  return (
    error instanceof SerializationFailed || (error instanceof ConnectionFailed && error.outcome === 'nothing_written')
  );
}

function asNothingWritten(error: unknown): never {
  throw error instanceof ConnectionFailed ? nothingWritten(error) : error;
}

function nothingWritten(error: ConnectionFailed): ConnectionFailed {
  return error.outcome === 'nothing_written'
    ? error
    : new ConnectionFailed(`${error.message}; nothing was committed`, {
        cause: error.cause ?? error,
        outcome: 'nothing_written',
      });
}

const ISOLATION = new Set(['read committed', 'repeatable read', 'serializable']);

function beginText(options: TransactionOptions): string {
  const { isolation, retries } = options;
  if (isolation !== undefined && !ISOLATION.has(isolation)) {
    throw new InvalidInput(`isolation "${isolation}" is not one of ${[...ISOLATION].join(', ')}`, {
      field: 'isolation',
    });
  }
  if (retries !== undefined && (!Number.isInteger(retries) || retries < 0)) {
    throw new InvalidInput(`retries must be a whole number from 0, not ${retries}`, { field: 'retries' });
  }
  const modes = [
    ...(isolation === undefined ? [] : [`isolation level ${isolation}`]),
    ...(options.readOnly === true ? ['read only'] : []),
  ];
  const begin = modes.length === 0 ? 'begin' : `begin transaction ${modes.join(' ')}`;
  return [
    begin,
    ...(options.idleMs === undefined
      ? []
      : [`set local idle_in_transaction_session_timeout = ${Math.ceil(options.idleMs)}`]),
    ...(options.seesAll === true ? ['set local row_security = off'] : []),
  ].join(';');
}
