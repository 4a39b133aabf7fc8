import { statement as ownStatement, type Statement } from './sql.ts';

// The public part of `pawl/postgres`, by name: the rest of the engine is only for the other parts of Pawl.
export type {
  AnswerOptions,
  ClientLike,
  Drift,
  EngineDescription,
  FunctionsStatus,
  Logger,
  MigrateOptions,
  MigrationReport,
  MigrationStatus,
  MigrationStep,
  OpenPostgres,
  OpenTransaction,
  PoolLike,
  PostgresOptions,
  QueryResult,
  Session,
  Statement,
  StatementOptions,
  SubscribeOptions,
  Subscription,
  TransactionClient,
  TransactionOptions,
} from './index.ts';
export { id, isTransient, PostgresEngine, postgres, Transaction } from './index.ts';

/**
 * One SQL statement with a name: `statement('invoice.pay', 'update …')`, values as $1, $2… The name is the first part of its
 * text, so that logs and pg_stat_activity show it. node-postgres reads the answer, with the parsers that the program has set.
 * @param options  `prepare: false` for a text that differs from call to call: the name of a prepared statement must always mean
 *   the same text
 */
export function statement(name: string, text: string, options: { prepare?: boolean } = {}): Statement {
  return ownStatement(name, text, { ...options, isOwn: false });
}
