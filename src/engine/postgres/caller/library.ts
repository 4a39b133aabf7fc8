import { Session } from '../session/session.ts';
import { Transaction } from '../session/transaction.ts';
import { statement } from '../sql.ts';

/** One library whose transactions Pawl joins. */
export interface Library {
  readonly name: string;
  /** Recognizes a transaction by its shape, so that no library needs to be installed here. */
  fits(tx: object): boolean;
  /** False if `tx` is a pool or a client outside a transaction: the statement would be committed on its own. */
  isInTransaction(tx: object): boolean;
  run(tx: object, text: string, value: string): Promise<unknown>;
}

/** The order matters: the first library that fits is taken, so shapes with more marks come first. */
export const LIBRARIES: readonly Library[] = [
  {
    name: 'Pawl',
    fits: (tx) => tx instanceof Transaction || tx instanceof Session || Reflect.get(tx, 'kind') === 'postgres',
    isInTransaction: (tx) =>
      tx instanceof Transaction || (tx instanceof Session && tx.client.getTransactionStatus?.() === 'T'),
    run: (tx, text, value) =>
      (tx as Transaction | Session).query(statement('engine.call', text, { prepare: false, isOwn: false }), [value]),
  },
  {
    name: 'prisma',
    fits: (tx) => has(tx, '$queryRawUnsafe'),
    // In $transaction, the client has no methods that open and close connections.
    isInTransaction: (tx) => !has(tx, '$connect'),
    run: (tx, text, value) => call(tx, '$queryRawUnsafe', text, value),
  },
  {
    name: 'postgres.js',
    fits: (tx) => typeof tx === 'function' && has(tx, 'unsafe'),
    // begin() passes a sql with savepoint(), and reserve() returns one with release().
    isInTransaction: (tx) => has(tx, 'savepoint') || has(tx, 'release'),
    run: (tx, text, value) => call(tx, 'unsafe', text, [value]),
  },
  {
    name: 'kysely',
    fits: (tx) => has(tx, 'getExecutor') && has(tx, 'executeQuery'),
    isInTransaction: (tx) => Reflect.get(tx, 'isTransaction') === true,
    run: (tx, text, value) => call(tx, 'executeQuery', compiledQuery(text, value)),
  },
  {
    name: 'drizzle',
    fits: (tx) => has(tx, 'execute') && Reflect.has(tx, 'dialect') && Reflect.has(tx, 'session'),
    isInTransaction: (tx) => has(tx, 'rollback'),
    run: (tx, text, value) => call(tx, 'execute', drizzleQuery(text, value)),
  },
  {
    name: 'mikro-orm',
    fits: (tx) => has(tx, 'getTransactionContext') && has(tx, 'execute'),
    isInTransaction: (tx) => Boolean(call(tx, 'getTransactionContext')),
    run: (tx, text, value) => call(tx, 'execute', withQuestionMark(text), [value]),
  },
  {
    name: 'knex',
    fits: (tx) => has(tx, 'raw') && Reflect.has(tx, 'isTransaction'),
    isInTransaction: (tx) => Reflect.get(tx, 'isTransaction') === true,
    run: (tx, text, value) => call(tx, 'raw', withQuestionMark(text), [value]),
  },
  {
    name: 'typeorm',
    fits: (tx) => has(tx, 'query') && (has(tx, 'getRepository') || has(tx, 'startTransaction')),
    isInTransaction: (tx) => {
      const runner: unknown = has(tx, 'startTransaction') ? tx : Reflect.get(tx, 'queryRunner');
      return runner instanceof Object && Reflect.get(runner, 'isTransactionActive') === true;
    },
    run: (tx, text, value) => call(tx, 'query', text, [value]),
  },
  {
    name: 'pg',
    fits: (tx) => has(tx, 'query') && has(tx, 'connect'),
    isInTransaction: (tx) => !isPool(tx) && transactionStatus(tx) !== 'I',
    run: (tx, text, value) => call(tx, 'query', text, [value]),
  },
];

type Method = (...args: unknown[]) => unknown;

function has(tx: object, method: string): boolean {
  return typeof Reflect.get(tx, method) === 'function';
}

function call(tx: object, method: string, ...args: unknown[]): Promise<unknown> {
  return Reflect.apply(Reflect.get(tx, method) as Method, tx, args) as Promise<unknown>;
}

function isPool(tx: object): boolean {
  return typeof Reflect.get(tx, 'totalCount') === 'number';
}

/** Asked only of an idle client. A client whose BEGIN is still on its way counts as inside a transaction. */
function transactionStatus(tx: object): unknown {
  const isIdle = Reflect.get(tx, 'readyForQuery') === true;
  return isIdle && has(tx, 'getTransactionStatus') ? call(tx, 'getTransactionStatus') : undefined;
}

/** knex and mikro-orm write parameters as `?`, and a literal question mark as `\?`. */
function withQuestionMark(text: string): string {
  return text.replaceAll('?', '\\?').replace('$1', '?');
}

/** The value that kysely's CompiledQuery.raw makes. */
function compiledQuery(text: string, value: string): object {
  return {
    sql: text,
    parameters: [value],
    query: { kind: 'RawNode', sqlFragments: [text], parameters: [] },
    queryId: { queryId: `pawl-${(queries += 1)}` },
  };
}

let queries = 0;

/** The methods that drizzle calls on a query: `getSQL()`, and `toQuery()` on the result. */
function drizzleQuery(text: string, value: string): object {
  const query = {
    getSQL: () => query,
    toQuery: () => ({ sql: text, params: [value], typings: ['none'] }),
    // Kept by drizzle when it inlines parameters into a logged query.
    shouldInlineParams: false,
  };
  return query;
}
