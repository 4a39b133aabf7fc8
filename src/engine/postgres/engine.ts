import { callInTransaction, type Row } from './caller/caller.ts';
import { Connections } from './connections.ts';
import type { PoolLike } from './driver.ts';
import { isTransient, wasEndedIdle } from './failure.ts';
import { Listener } from './listen/listener.ts';
import type { SubscribeOptions, Subscription } from './listen/subscription.ts';
import type { Drift } from './migrate/drift.ts';
import type { MigrateOptions, MigrationReport, MigrationStatus } from './migrate/migrate.ts';
import type { ResolvedOptions } from './options.ts';
import type { SchemaName } from './schema/name.ts';
import { WRITE_TO_BOTH_IN } from './server/citus.ts';
import { judge, SERVER, type ServerKind } from './server/judge.ts';
import type { AnswerOptions, Session } from './session/session.ts';
import { runTransaction, type Transaction, type TransactionOptions } from './session/transaction.ts';
import { type Statement, statement } from './sql.ts';

/** The result of `describe()`. */
export interface EngineDescription {
  kind: 'postgres';
  /** With the password masked. */
  url: string;
  /** The schema of Pawl's tables and functions. */
  schema: string;
  /** In the form of the server, e.g. `18.4`. */
  serverVersion: string;
  /** True: this engine started the server itself. */
  embedded: boolean;
  dataDir: string | null;
  /** True: `stop()` removes the data folder. */
  temporary: boolean;
}

/** How often one call repeats a statement that reached an idle connection which the server had ended. */
const MOST_IDLE = 20;

/** Pawl's only access to Postgres. Make one per process and database, with `postgres()`. */
export class PostgresEngine {
  readonly kind = 'postgres';
  readonly options: ResolvedOptions;
  readonly #given: string | PoolLike | undefined;
  readonly #connections: Connections;
  #listener: Listener | undefined;
  #stopping: Promise<void> | undefined;
  #kind: ServerKind | undefined;

  /** @param isUnasked  true: the database is temporary because the caller passed no URL @internal */
  constructor(given: string | PoolLike | undefined, options: ResolvedOptions, isUnasked = false) {
    this.#given = given;
    this.options = options;
    this.#connections = new Connections(given, options, isUnasked);
  }

  /**
   * Runs one statement on a connection of the pool and commits it: one round trip. A failed statement is not repeated, except if
   * the server had ended the idle connection before the statement came.
   * @throws the errors of `failure.ts`; `isTransient(error)` says whether a later call may succeed
   */
  async query<Row = Record<string, unknown>>(
    sql: Statement,
    values?: unknown[],
    options?: AnswerOptions,
  ): Promise<Row[]> {
    for (let tries = 1; ; tries += 1) {
      try {
        return await this.queryOnce<Row>(sql, values, options);
      } catch (error) {
        // Other connections of the pool have been idle for as long. Each try gets one of them, or a new one.
        if (!wasEndedIdle(error) || tries > MOST_IDLE) throw error;
      }
    }
  }

  /**
   * Like {@link query}, for a statement that waits for other transactions and must then see what they have committed. Unless read
   * committed is the default of the database, the statement gets a transaction of its own.
   * @internal
   */
  async decide<Row = Record<string, unknown>>(
    sql: Statement,
    values?: unknown[],
    options?: AnswerOptions,
  ): Promise<Row[]> {
    const { isInSnapshots } = await this.server();
    if (!isInSnapshots) return this.query<Row>(sql, values, options);
    // If the process pauses before its COMMIT, the server rolls the transaction back.
    const idleMs = options?.deadlineMs ?? IDLE_MS;
    return this.transaction((tx) => tx.query<Row>(sql, values), { isolation: 'read committed', idleMs, ...options });
  }

  /** One try of {@link query}. @internal */
  protected async queryOnce<Row>(sql: Statement, values?: unknown[], options?: AnswerOptions): Promise<Row[]> {
    const session = await this.connect(options);
    try {
      return await session.query<Row>(sql, values, options);
    } finally {
      session.release();
    }
  }

  /**
   * Runs `fn` in a transaction and commits it; an error rolls everything back. `fn` may run more than once (after a lost race, or
   * a connection lost before COMMIT), so its effects outside the database must allow repetition.
   * @throws ConnectionFailed with outcome `unknown` if the answer to COMMIT was lost
   */
  transaction<T>(fn: (tx: Transaction) => Promise<T>, options?: TransactionOptions): Promise<T> {
    return runTransaction(() => this.connect(options), fn, options);
  }

  /** The schema of Pawl's tables and functions, by the option `schema`. */
  get schema(): SchemaName {
    return this.options.schema;
  }

  /**
   * Runs one statement of Pawl's with one text parameter in a caller's own transaction, of any library. `text` names `$1` exactly
   * once.
   * @throws InvalidInput  unless it is an open transaction of a known library
   * @internal
   */
  async callIn(tx: unknown, text: string, value: string): Promise<Row[]> {
    if (this.#kind === undefined) await this.server();
    if (this.spansNodes) await callInTransaction(tx, this.schema, { text: WRITE_TO_BOTH_IN, value: '' });
    return callInTransaction(tx, this.schema, { text, value });
  }

  /** Whether Citus may spread a transaction over several nodes: see {@link BOTH}. False until the server was asked. @internal */
  get spansNodes(): boolean {
    return this.#kind?.citus !== undefined;
  }

  /**
   * The kind of the server. Asks the server unless it is known. @throws NotSupported  for a server that is no Postgres @internal
   */
  async server(): Promise<ServerKind> {
    if (this.#kind !== undefined) return this.#kind;
    const [row] = await this.query<{ server: string }>(ASK);
    return this.meet(row?.server ?? '');
  }

  /**
   * Learns the kind of the server from a first statement: see {@link SERVER}.
   * @throws NotSupported for a server that is no Postgres
   * @internal
   */
  async meet(server: string): Promise<ServerKind> {
    this.#kind ??= judge(server, await this.address());
    return this.#kind;
  }

  /** Lends a connection of the pool to `fn` for a while. */
  async session<T>(fn: (session: Session) => Promise<T>): Promise<T> {
    const session = await this.connect();
    try {
      return await fn(session);
    } finally {
      session.release();
    }
  }

  /**
   * Takes a connection from the pool; return it with `session.release()`. With a deadline, the opening of a connection has at
   * least five seconds.
   */
  connect(options?: AnswerOptions): Promise<Session> {
    return this.#connections.checkOut('pool', options);
  }

  /**
   * Takes one of two connections outside the pool. They are for short statements of Pawl's own, such as renewals of leases, which
   * must succeed while handlers hold every connection of the pool. Return it at once.
   */
  connectReserved(): Promise<Session> {
    return this.#connections.checkOut('reserved');
  }

  /**
   * Calls `handler` with the payload of every NOTIFY on the channel. All channels share one connection outside the pool, which is
   * renewed if it breaks. `onReconnect` runs after each renewal, because notifications that were sent meanwhile are lost. A
   * notification is a hint: keep polling, slowly.
   */
  async listen(channel: string, handler: (payload: string) => void, options?: SubscribeOptions): Promise<Subscription> {
    this.#connections.refuseIfStopping();
    const { direct } = await this.#connections.open();
    this.#connections.refuseIfStopping();
    this.#listener ??= new Listener({
      settings: direct,
      seed: this.schema.seed,
      enabled: this.options.listen,
      logger: this.options.logger,
      notify: async (probe) => {
        await this.query(NOTIFY, [probe, ''], { deadlineMs: PROBE_MS });
      },
    });
    return this.#listener.subscribe(channel, handler, options);
  }

  /** True: a listening connection is open. Another channel then costs a statement on it, and no connection. @internal */
  get isListening(): boolean {
    return this.#listener?.isConnected === true;
  }

  /** Brings the schema in the database up to this version. Safe to call from many processes at once. */
  async migrate(options?: MigrateOptions): Promise<MigrationReport> {
    // Loaded at the call: the text of the schema is half a megabyte, and most programs do not need it.
    const { migrate } = await import('./migrate/migrate.ts');
    await this.server();
    return migrate(this, options);
  }

  /** Compares the schema in the database with this version, without changing anything. */
  async status(): Promise<MigrationStatus> {
    const { status } = await import('./migrate/migrate.ts');
    await this.server();
    return status(this);
  }

  /**
   * Compares the schema in the database with the result of its migrations: tables, columns, indexes, constraints, views,
   * functions, triggers. Empty if there is no difference. Changes nothing, and needs only the right to read Pawl's tables.
   */
  async drift(): Promise<Drift[]> {
    const { drift } = await import('./migrate/drift.ts');
    return drift({ schema: this.schema, session: (fn) => this.session(fn) });
  }

  /** How many connections the pool may open: your pool's own number, if you passed one. */
  get connections(): number {
    return typeof this.#given === 'object' ? (this.#given.options?.max ?? 10) : this.options.max;
  }

  /** Describes the engine's connection, without the password. */
  async describe(): Promise<EngineDescription> {
    const { url, embedded } = await this.#connections.open();
    const [row] = await this.query<{ server_version: string }>(SERVER_VERSION);
    return {
      kind: 'postgres',
      url,
      schema: this.schema.name,
      serverVersion: row?.server_version ?? 'unknown',
      embedded: embedded !== undefined,
      dataDir: embedded?.dataDir ?? null,
      temporary: embedded?.temporary ?? false,
    };
  }

  /** The address of the database, without the password. Sends nothing. @internal */
  async address(): Promise<string> {
    return (await this.#connections.open()).url;
  }

  /** True once `stop()` was called: later calls throw Stopped. */
  get isStopped(): boolean {
    return this.#stopping !== undefined;
  }

  /** True if a later call may succeed without a correction by a person. */
  isTransient(error: unknown): boolean {
    return isTransient(error);
  }

  /**
   * Refuses new work, waits for running work (at most `stopTimeoutMs`, then breaks it off), and closes every connection opened
   * here, which takes up to 2 s. An embedded server is stopped. Safe to call twice.
   */
  stop(): Promise<void> {
    this.#stopping ??= this.#shutDown();
    return this.#stopping;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  async #shutDown(): Promise<void> {
    this.#connections.isStopping = true;
    await Promise.all([this.#listener?.stop(), this.#connections.whenIdle()]);
    await this.#connections.close();
  }
}

const PROBE_MS = 10_000;
/** Others may wait for the locks of a transaction that consists of one statement. */
const IDLE_MS = 10_000;

const NOTIFY = statement('engine.notify', 'select pg_notify($1::text, $2::text)');

const ASK = statement('engine.server', `select ${SERVER} as server`);
const SERVER_VERSION = statement('engine.server_version', "select current_setting('server_version') as server_version");
