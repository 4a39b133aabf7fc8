import type { TypeParsers } from './types.ts';

/**
 * The part of node-postgres that Pawl uses, by shape, so that a user's own pool fits and this package does not depend on its
 * types.
 */
export interface QueryResultLike {
  rows: unknown[];
  rowCount?: number | null;
  command?: string;
}

export interface ClientLike {
  /** A text of several statements without values returns one result for each. */
  query(config: QueryConfig): Promise<QueryResultLike | QueryResultLike[]>;
  release(destroy?: boolean | Error): void;
  on(event: 'error', listener: (error: Error) => void): unknown;
  removeListener(event: 'error', listener: (error: Error) => void): unknown;
  /** `'I'` outside a transaction, `'T'` inside one, `'E'` inside a failed one; node-postgres 8.19 and later. */
  getTransactionStatus?(): string | null;
}

/**
 * The client of node-postgres in a transaction, as far as Pawl describes it. In TypeScript, `tx.client as pg.PoolClient` has
 * all of its methods, as query builders need it: `drizzle(tx.client as pg.PoolClient)`.
 */
export interface TransactionClient extends ClientLike {
  query(config: QueryConfig): Promise<QueryResultLike | QueryResultLike[]>;
  /** Runs one statement. Its errors are those of node-postgres. */
  query<Row = Record<string, unknown>>(
    text: string,
    values?: readonly unknown[],
  ): Promise<{ readonly rows: Row[]; readonly rowCount: number | null }>;
}

export interface PoolLike {
  connect(): Promise<ClientLike>;
  on(event: 'error', listener: (error: Error) => void): unknown;
  /**
   * `connect`: a new connection, before a caller has it; `acquire`: a caller gets a connection; `remove`: a connection is gone.
   */
  on(event: 'connect' | 'acquire' | 'remove', listener: (client: ClientLike) => void): unknown;
  removeListener(event: 'error', listener: (error: Error) => void): unknown;
  removeListener(event: 'connect' | 'acquire' | 'remove', listener: (client: ClientLike) => void): unknown;
  listenerCount(event: 'error'): number;
  readonly options?: PoolSettings | undefined;
}

/** The pool's settings for connecting; used to open the LISTEN connection and to describe the engine. */
export interface PoolSettings {
  connectionString?: string | undefined;
  host?: string | undefined;
  port?: number | undefined;
  user?: string | undefined;
  database?: string | undefined;
  max?: number | undefined;
}

export interface QueryConfig {
  text: string;
  values?: unknown[];
  /** Name of the prepared statement; left out if prepared statements are switched off. */
  name?: string;
  /** The parsers for the answer. Default: the parsers that the program has set. */
  types?: TypeParsers;
}

/** The answer to one statement. */
export interface QueryResult<Row = Record<string, unknown>> {
  rows: Row[];
  /** Rows the statement returned or changed. */
  rowCount: number;
  /** The command tag without its counts: `SELECT`, `INSERT`, `COMMIT`… */
  command: string;
}
