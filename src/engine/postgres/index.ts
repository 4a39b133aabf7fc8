export type { Logger } from '../../base/logger.ts';
export { callInTransaction, type OpenTransaction, openTransaction } from './caller/caller.ts';
export type { ClientLike, PoolLike, QueryResult, TransactionClient } from './driver.ts';
export { type EngineDescription, PostgresEngine } from './engine.ts';
export { isReadOnly, isTransient } from './failure.ts';
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
export { type OpenPostgres, postgres, requireEngine } from './open.ts';
export { type PostgresOptions, resolveOptions } from './options.ts';
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
