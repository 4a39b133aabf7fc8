import {
  type AnswerOptions,
  type EngineDescription,
  PINNED_PATH,
  PostgresEngine,
  type Session,
  type Statement,
  type SubscribeOptions,
  type Subscription,
} from '../../engine/postgres/index.ts';

/**
 * The same database, but with a time limit for every statement. Each statement runs in a transaction of its own with a
 * `statement_timeout`, which costs two short round trips and works behind any pooler. A statement that takes longer fails with
 * StatementTimeout; the server ends it, and the connection stays. The search path has only Pawl's and Postgres'
 * own names.
 */
export class BoundedEngine extends PostgresEngine {
  readonly #inner: PostgresEngine;
  readonly #begin: string;

  constructor(inner: PostgresEngine, timeoutMs: number) {
    super(undefined, inner.options);
    this.#inner = inner;
    // JIT compilation takes longer than any read here: on tables that were never analysed, attention took seconds with it, and
    // 12 ms without.
    const limits = `set_config('statement_timeout', '${Math.round(timeoutMs)}', true), set_config('jit', 'off', true), set_config('search_path', '${PINNED_PATH}', true)`;
    this.#begin = `begin isolation level read committed; select ${limits}`;
  }

  protected override async queryOnce<Row>(sql: Statement, values?: unknown[], options?: AnswerOptions): Promise<Row[]> {
    const session = await this.#inner.connect(options);
    let isOpen = false;
    try {
      await session.run(this.#begin, options);
      isOpen = true;
      const rows = await session.query<Row>(sql, values, options);
      await session.run('commit', options);
      isOpen = false;
      return rows;
    } finally {
      if (isOpen && !session.isBroken) await session.run('rollback').catch(() => {});
      session.release();
    }
  }

  override connect(options?: AnswerOptions): Promise<Session> {
    return this.#inner.connect(options);
  }

  override connectReserved(): Promise<Session> {
    return this.#inner.connectReserved();
  }

  override listen(
    channel: string,
    handler: (payload: string) => void,
    options?: SubscribeOptions,
  ): Promise<Subscription> {
    return this.#inner.listen(channel, handler, options);
  }

  override address(): Promise<string> {
    return this.#inner.address();
  }

  override describe(): Promise<EngineDescription> {
    return this.#inner.describe();
  }

  override get connections(): number {
    return this.#inner.connections;
  }

  /** The owner of this engine stops it. */
  override async stop(): Promise<void> {}
}
