import { ConnectionFailed, DatabaseError, InvalidInput, StatementTimeout, Stopped } from '../../../base/errors.ts';
import { show } from '../../../base/options/refusal.ts';
import { telemetry } from '../../../base/telemetry.ts';
import { sleep, within } from '../../../base/time/clock.ts';
import { deadline } from '../../../base/time/deadline.ts';
import { formatDuration } from '../../../base/time/duration.ts';
import type { ClientLike, PoolLike, QueryConfig, QueryResult } from '../driver.ts';
import { beforeSending, failure } from '../failure.ts';
import type { SchemaName } from '../schema/name.ts';
import type { Statement } from '../sql.ts';
import { ownTypes } from '../types.ts';
import { type Rows, type Step, StepBatch, takesBatches } from './batch.ts';
import { cancelRunning } from './cancel.ts';
import { destroySocket } from './socket.ts';
import { type OutgoingStatement, traceStatement } from './tracing.ts';

/** How long an answer may take. */
export interface AnswerOptions {
  /**
   * Milliseconds. If a connection has not answered by then, it is treated as dead: it is closed, the statement is cancelled if
   * the server still runs it, and ConnectionFailed is thrown. Default: only the limit of TCP, which may be a quarter of an hour.
   */
  readonly deadlineMs?: number | undefined;
}

/**
 * One connection, which its owner holds until it is released. Statements run one after another; do not start a second one before
 * the first has answered.
 */
export class Session {
  /** The driver's own connection. */
  readonly client: ClientLike;
  /** The schema of Pawl's own statements. @internal */
  readonly schema: SchemaName;
  readonly #prepare: boolean;
  readonly #onRelease: (session: Session) => void;
  #state: 'open' | 'broken' | 'released' = 'open';
  /** True: a text of several statements failed. The driver reports that before it knows whether a transaction was left open. */
  #isUnclear = false;
  /**
   * True: a statement of ours ran into a time limit that the session may have had from its start. The next session may have
   * another.
   */
  #isLimited = false;
  /** True: the server has a prepared statement of this connection whose answer has another type by now. It would fail each time. */
  #isStale = false;
  #silentMs: number | undefined;

  /** @internal */
  constructor(
    client: ClientLike,
    { prepare, schema }: { readonly prepare: boolean; readonly schema: SchemaName },
    onRelease: (session: Session) => void,
  ) {
    this.client = client;
    this.schema = schema;
    this.#prepare = prepare;
    this.#onRelease = onRelease;
    client.on('error', this.#onError);
  }

  /** True: the connection was lost, and every further statement fails. */
  get isBroken(): boolean {
    return this.#state === 'broken';
  }

  /** Whether statements may be prepared on this connection. */
  get mayPrepare(): boolean {
    return this.#prepare;
  }

  /** True if {@link batch} may be used: with node-postgres's own connections, if statements may be prepared. */
  get takesBatches(): boolean {
    return this.#prepare && takesBatches(this.client);
  }

  /** True while a statement is under way, also one that was sent through `client`. */
  get isBusy(): boolean {
    return Reflect.get(this.client, 'readyForQuery') === false;
  }

  /** How long a statement was unanswered when this connection was given up; undefined if it was not. @internal */
  get silentMs(): number | undefined {
    return this.#silentMs;
  }

  /**
   * Runs one statement, prepared under its name unless prepared statements are switched off. One round trip.
   * @throws the errors of `failure.ts`
   */
  async query<Row = Record<string, unknown>>(
    statement: Statement,
    values: unknown[] = [],
    options?: AnswerOptions,
  ): Promise<Row[]> {
    if (typeof statement?.text !== 'string') {
      throw new InvalidInput(
        "query() takes the result of statement(): query(statement('invoice.pay', 'update …'), values), but was given " +
          `${show(statement)}; plain SQL goes through tx.client.query(text), or a pool of your own`,
        { field: 'statement' },
      );
    }
    const named = this.#prepare && statement.prepare;
    const config: QueryConfig = { text: this.schema.statement(statement).text, values };
    if (named) config.name = `${this.schema.name}:${statement.name}`;
    if (statement.isOwn === true) config.types = ownTypes;
    try {
      const result = await this.#send(config, () => this.client.query(config), options);
      return (Array.isArray(result) ? result.at(-1)?.rows : result.rows) as Row[];
    } catch (error) {
      if (error instanceof StatementTimeout && statement.isOwn === true) this.#isLimited = true;
      // A migration may change the type of a result under a prepared statement. Then plan the statement anew, except inside a
      // transaction, which that error has ended. The next one gets another connection.
      if (!named || !isStalePlan(error)) throw error;
      this.#isStale = true;
      if (this.client.getTransactionStatus?.() === 'E') throw error;
      return this.query({ ...statement, prepare: false }, values, options);
    }
  }

  /**
   * Sends a text of one or more statements of Pawl's by the simple protocol, in one round trip, and returns the result of each.
   * No parameters: every value must be quoted as an e'' literal. No word of such a literal is taken for the name of the schema.
   * If one statement fails, the whole text fails; statements that the text committed before stay committed.
   */
  async run<Row = Record<string, unknown>>(text: string, options?: AnswerOptions): Promise<QueryResult<Row>[]> {
    const sent = this.schema.text(text);
    this.#isUnclear = text.includes(';');
    const answer = await this.#send({ text: sent }, () => this.client.query({ text: sent, types: ownTypes }), options);
    this.#isUnclear = false;
    return (Array.isArray(answer) ? answer : [answer]).map((result) => ({
      rows: result.rows as Row[],
      rowCount: result.rowCount ?? 0,
      command: result.command ?? '',
    }));
  }

  /**
   * Runs several statements in one round trip, each prepared at its first use here, and returns the rows of each. If one fails,
   * the later ones do not run; statements that the batch committed before stay committed.
   */
  async batch(steps: readonly Step[], options?: AnswerOptions): Promise<Rows[]> {
    const ask = (): Promise<Rows[]> => {
      const batch = new StepBatch(this.client, this.#named(steps));
      // The driver returns its argument, and reports the outcome to the batch.
      void this.client.query(batch);
      return batch.answers;
    };
    this.#isUnclear = true;
    const answers = await this.#send({ text: steps[0]?.statement.text ?? '' }, ask, options);
    this.#isUnclear = false;
    return answers;
  }

  #named(steps: readonly Step[]): readonly Step[] {
    if (this.schema.isDefault) return steps;
    return steps.map(({ statement, values }) => ({ statement: this.schema.statement(statement), values }));
  }

  /**
   * Cancels the statement that runs on this connection, also one that was sent through `client`. If it has not ended after `ms`,
   * the connection is given up.
   */
  async cancel(ms: number): Promise<void> {
    const until = performance.now() + ms;
    for (let tries = 0; this.isBusy && this.#state === 'open'; tries += 1) {
      if (performance.now() > until) return this.giveUp(ms);
      // A statement that waited behind the cancelled one runs next, and inside a transaction fails at once. A lost request is
      // sent again.
      if (tries % 100 === 0) await within(ms, cancelRunning(this.client));
      await sleep(5);
    }
  }

  /** Treats the connection as dead after `ms` without an answer: the running statement fails. */
  giveUp(ms: number): void {
    this.#silentMs = ms;
    this.#state = this.#state === 'open' ? 'broken' : this.#state;
    destroySocket(this.client);
  }

  /**
   * Returns the connection to the pool. If it is broken, or still inside a transaction, it is closed instead, which rolls that
   * transaction back. Safe to call twice.
   */
  release(destroy = false): void {
    if (this.#state === 'released') {
      return;
    }
    const status = this.client.getTransactionStatus?.() ?? 'I';
    const unusable =
      destroy || this.#state === 'broken' || this.#isUnclear || this.#isLimited || this.#isStale || status !== 'I';
    this.#state = 'released';
    this.client.removeListener('error', this.#onError);
    if (unusable) {
      // The socket may still report its end after the pool has let go of it.
      this.client.on('error', ignore);
    }
    this.client.release(unusable);
    this.#onRelease(this);
  }

  [Symbol.dispose](): void {
    this.release();
  }

  #send<T>(sent: OutgoingStatement, ask: () => Promise<T>, options?: AnswerOptions): Promise<T> {
    const { api } = telemetry;
    return api === undefined
      ? this.#exchange(sent.text, ask, options)
      : traceStatement(api, sent, () => this.#exchange(sent.text, ask, options));
  }

  async #exchange<T>(text: string, ask: () => Promise<T>, options?: AnswerOptions): Promise<T> {
    if (this.#state !== 'open') {
      throw this.#state === 'broken'
        ? new ConnectionFailed('the connection of this session was lost; take another session', {
            outcome: 'nothing_written',
          })
        : new Stopped('this session has been released; take another one');
    }
    try {
      const answer = ask();
      return await (options?.deadlineMs === undefined ? answer : this.#within(options.deadlineMs, answer, text));
    } catch (error) {
      const known = failure(error, this.schema.name, nameIn(text));
      if (known instanceof ConnectionFailed) {
        this.#state = this.#state === 'open' ? 'broken' : this.#state;
      }
      throw known;
    }
  }

  #within<T>(ms: number, answer: Promise<T>, text: string): Promise<T> {
    return new Promise((resolve, reject) => {
      const cancel = deadline(ms, () => {
        reject(new ConnectionFailed(unanswered(text, ms)));
        void cancelRunning(this.client);
        this.giveUp(ms);
      });
      answer.then(resolve, reject).finally(cancel);
    });
  }

  // node-postgres emits 'error' on a client whose connection is lost, and an 'error' without listener ends the process.
  readonly #onError = (): void => {
    this.#state = this.#state === 'open' ? 'broken' : this.#state;
  };
}

/** The name of a statement: its text begins with it. */
function nameIn(text: string): string | undefined {
  return /^-- (\S+)/.exec(text)?.[1];
}

function unanswered(text: string, ms: number): string {
  const name = nameIn(text) ?? text.slice(0, 40);
  return (
    `the database has not answered "${name}" within ${formatDuration(ms)}, so the connection was closed; ` +
    'the outcome is unknown'
  );
}

/**
 * Takes a connection from the pool.
 * @param onDeadline  called if no connection was free in time
 * @throws ConnectionFailed with outcome `nothing_written`
 */
export async function checkOut(
  pool: PoolLike,
  { deadlineMs }: AnswerOptions,
  onDeadline: () => void,
): Promise<ClientLike> {
  try {
    const client = pool.connect();
    return await (deadlineMs === undefined ? client : inTime(client, deadlineMs, onDeadline));
  } catch (error) {
    throw beforeSending(error);
  }
}

/** A connection that comes too late goes back to the pool. */
function inTime(client: Promise<ClientLike>, ms: number, onDeadline: () => void): Promise<ClientLike> {
  return new Promise((resolve, reject) => {
    let isLate = false;
    const cancel = deadline(ms, () => {
      isLate = true;
      const why = 'the database does not answer, or this process uses every connection of the pool';
      reject(new ConnectionFailed(`no connection to the database was free within ${formatDuration(ms)}: ${why}`));
      onDeadline();
    });
    client.then((one) => (isLate ? one.release() : resolve(one)), reject).finally(cancel);
  });
}

function ignore(): void {}

function isStalePlan(error: unknown): boolean {
  return error instanceof DatabaseError && error.sqlState === '0A000' && error.message.includes('cached plan');
}
