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

/** What `describe()` tells about an engine. */
export interface EngineDescription {
  kind: 'postgres';
  /** With the password masked. */
  url: string;
  /** What Pawl's tables and functions are in. */
  schema: string;
  /** As the server writes it, e.g. `18.4`. */
  serverVersion: string;
  /** True when this engine started the server itself. */
  embedded: boolean;
  dataDir: string | null;
  /** True when the data folder is removed by `stop()`. */
  temporary: boolean;
}

/** So many idle connections of a pool, which the server has ended, may come before one that answers. */
const MOST_IDLE = 20;

/** The only way Pawl speaks to Postgres. Make one per process and database, with `postgres()`. */
export class PostgresEngine {
  readonly kind = 'postgres';
  readonly options: ResolvedOptions;
  readonly #given: string | PoolLike | undefined;
  readonly #connections: Connections;
  #listener: Listener | undefined;
  #stopping: Promise<void> | undefined;
  #kind: ServerKind | undefined;

  /** @param isUnasked  its temporary database is due to a URL that is missing @internal */
  constructor(given: string | PoolLike | undefined, options: ResolvedOptions, isUnasked = false) {
    this.#given = given;
    this.options = options;
    this.#connections = new Connections(given, options, isUnasked);
  }

  /**
   * Runs one statement on a connection of the pool and commits it: one round trip. Not repeated on failure, but where the server
   * had ended the connection for lack of use before it came.
   * @throws the errors of `failure.ts`; `isTransient(error)` tells whether a later call may succeed
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
        // Others of the pool have been idle for as long: each try meets one of them, or a new one.
        if (!wasEndedIdle(error) || tries > MOST_IDLE) throw error;
      }
    }
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
   * Runs `fn` in a transaction and commits what it did; an error rolls everything back. `fn` may run more than once
   * (after a lost race, or a connection lost before COMMIT), so what it does outside the database must bear that.
   * @throws ConnectionFailed with outcome `unknown` when the answer to COMMIT was lost
   */
  transaction<T>(fn: (tx: Transaction) => Promise<T>, options?: TransactionOptions): Promise<T> {
    return runTransaction(() => this.connect(options), fn, options);
  }

  /** What Pawl's tables and functions are in, by the option `schema`. */
  get schema(): SchemaName {
    return this.options.schema;
  }

  /**
   * Runs one statement of Pawl's with one text parameter in a caller's own transaction, whichever library holds it. `text` names `$1`
   * exactly once.
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

  /** What the server is. Asks it unless that is known. @throws NotSupported  for one that is no Postgres @internal */
  async server(): Promise<ServerKind> {
    if (this.#kind !== undefined) return this.#kind;
    const [row] = await this.query<{ server: string }>(ASK);
    return this.meet(row?.server ?? '');
  }

  /**
   * Learns from a first statement what the server is: see {@link SERVER}.
   * @throws NotSupported for one that is no Postgres
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
   * Takes a connection from the pool; give it back with `session.release()`. With a deadline, opening one is given
   * five seconds at least.
   */
  connect(options?: AnswerOptions): Promise<Session> {
    return this.#connections.checkOut('pool', options);
  }

  /**
   * Takes one of two connections that are kept next to the pool for short statements of Pawl's own, such as renewing leases,
   * which must come through while handlers hold every connection of the pool. Give it back at once.
   */
  connectReserved(): Promise<Session> {
    return this.#connections.checkOut('reserved');
  }

  /**
   * Calls `handler` with the payload of every NOTIFY on the channel. All channels share one connection outside the
   * pool, which is renewed when it breaks; `onReconnect` runs after each renewal, because what was sent meanwhile is
   * gone. A notification is a hint: keep polling, slowly.
   */
  async listen(channel: string, handler: (payload: string) => void, options?: SubscribeOptions): Promise<Subscription> {
    this.#connections.refuseIfStopping();
    const { direct } = await this.#connections.open();
    this.#connections.refuseIfStopping();
    this.#listener ??= new Listener({
      settings: direct,
      enabled: this.options.listen,
      logger: this.options.logger,
      notify: async (probe) => {
        await this.query(NOTIFY, [probe, ''], { deadlineMs: PROBE_MS });
      },
    });
    return this.#listener.subscribe(channel, handler, options);
  }

  /** Whether a listening connection stands: another channel then costs a statement on it, and no connection. @internal */
  get isListening(): boolean {
    return this.#listener?.isConnected === true;
  }

  /** Brings the schema in the database up to this version. Safe to call from many processes at once. */
  async migrate(options?: MigrateOptions): Promise<MigrationReport> {
    // Loaded when it is called: the text of the schema is half a megabyte, which a program that only works does not need.
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
   * Compares what the schema in the database has with what its migrations have made: tables, columns, indexes, constraints, views,
   * functions, triggers. Empty when all is as it was. Changes nothing, and needs only the right to read Pawl's tables.
   */
  async drift(): Promise<Drift[]> {
    const { drift } = await import('./migrate/drift.ts');
    return drift({ schema: this.schema, session: (fn) => this.session(fn) });
  }

  /** How many connections the pool may open: your pool's own number, where you gave one. */
  get connections(): number {
    return typeof this.#given === 'object' ? (this.#given.options?.max ?? 10) : this.options.max;
  }

  /** Tells where the engine is connected to, without the password. */
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

  /** Where it connects to, without the password. Asks the database nothing. @internal */
  async address(): Promise<string> {
    return (await this.#connections.open()).url;
  }

  /** True from the call of `stop()` on: whatever comes now throws Stopped. */
  get isStopped(): boolean {
    return this.#stopping !== undefined;
  }

  /** True when a later call may succeed without anybody's help. */
  isTransient(error: unknown): boolean {
    return isTransient(error);
  }

  /**
   * Refuses new work, waits for what is under way (at most `stopTimeoutMs`, then breaks it off), and closes every
   * connection opened here, for which it takes up to 2 s. An embedded server is stopped. Safe to call twice.
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

const NOTIFY = statement('engine.notify', 'select pg_notify($1::text, $2::text)');

const ASK = statement('engine.server', `select ${SERVER} as server`);
const SERVER_VERSION = statement('engine.server_version', "select current_setting('server_version') as server_version");
