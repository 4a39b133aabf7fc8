import { statement as ownStatement, type Statement } from './sql.ts';

// `pawl/postgres`, as programs see it: by name, since the rest of the engine is for the other parts of Pawl alone.
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
 * One SQL statement with a name: `statement('invoice.pay', 'update …')`, values as $1, $2… The name stands first in its text, so
 * that logs and pg_stat_activity show it. Its answer is read by node-postgres, with the parsers that the program has set.
 * @param options  `prepare: false` for a text that differs from call to call: a prepared statement's name always means the same
 */
export function statement(name: string, text: string, options: { prepare?: boolean } = {}): Statement {
  return ownStatement(name, text, { ...options, isOwn: false });
}
