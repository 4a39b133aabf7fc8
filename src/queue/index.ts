import { DynamoEngine } from '../engine/dynamodb/index.ts';
import { type PostgresEngine, requireEngine } from '../engine/postgres/index.ts';
import { define } from './declare/define.ts';
import type { Kinds, QueueOptions } from './definition.ts';
import { type AnyQueueAdmin, DynamoQueueAdmin, type TableQueueAdmin } from './dynamodb/operate/admin.ts';
import { DynamoQueue } from './dynamodb/queue.ts';
import { QueueAdmin } from './operate/admin.ts';
import { Queue } from './queue.ts';

export { JobFailed, NoRetry } from '../base/errors.ts';
export type { Duration } from '../base/time/duration.ts';
export type { DebounceOptions, UniqueOptions } from './declare/unique.ts';
export type {
  BatchOptions,
  DeadLetter,
  KindOptions,
  Kinds,
  PayloadIn,
  PayloadOut,
  QueueConcurrency,
  QueueOptions,
  QueueRate,
  RateLimit,
  RetryOptions,
} from './definition.ts';
export type { EnqueueItem } from './dynamodb/enqueue/producing.ts';
export type { AnyQueueAdmin, TableQueueAdmin } from './dynamodb/operate/admin.ts';
export { DynamoQueue } from './dynamodb/queue.ts';
export type { EnqueuedIds, EnqueueOptions, EnqueueResult } from './enqueue.ts';
export type { Handlers } from './handlers.ts';
export { JOB_STATUSES, type JobRecord, type JobStatus, type JobTransition, type ParentRecord } from './job.ts';
export type { AnyJobTarget, JobTarget } from './job-id.ts';
export type { JobInput } from './job-input.ts';
export type { JobOptions } from './job-options.ts';
export { QueueAdmin } from './operate/admin.ts';
export type { CountOptions, SearchCount } from './operate/count.ts';
export type { Explanation, Reason } from './operate/explain/explain.ts';
export type { JobOperations } from './operate/job-operations.ts';
export type { OperatedQueue } from './operate/operated-queue.ts';
export type {
  BulkOptions,
  BulkResult,
  CancelAllOptions,
  CancelOptions,
  DrainOptions,
  FinishOptions,
  JobChange,
  MoveOptions,
  TxOptions,
} from './operate/operations.ts';
export type { RemovedQueue, RemoveOptions } from './operate/remove.ts';
export {
  nextTicks,
  type ScheduledFor,
  type ScheduleOptions,
  type ScheduleRecord,
} from './operate/schedule.ts';
export type { ScheduleRunsOptions } from './operate/schedule-admin.ts';
export { parseQuery, type SearchOptions, type SearchPage, type SearchQuery, searchFilter } from './operate/search.ts';
export type { SchedulesOptions } from './operate/set-schedule.ts';
export { COUNT_LIMIT, type QueueRecord, type QueueStats, type WorkerRecord } from './operate/stats.ts';
export type { PartOptions, PausedPart } from './paused-part.ts';
/** @internal */
export { namePart } from './paused-part.ts';
export { type LostWorker, type QueueHealth, readQueueHealth } from './postgres/operate/health.ts';
export { type JobRelations, type JobStanding, QueueOverview, type RelatedJob } from './postgres/operate/overview.ts';
export type { ScheduleRun } from './postgres/operate/schedules.ts';
export type { ChangedJob, ReleasedWorker } from './postgres/reader.ts';
export type { PublishedJob, TopicRecord, TopicSubscription } from './postgres/topics.ts';
export { ClaimedUnit } from './pull/claimed-unit.ts';
export type { ClaimOptions, ExtendedLease, FailedTo, FailOptions, ReleasedTo } from './pull/pull.ts';
export { Queue, type RunOptions } from './queue.ts';
export { createTopic, type PublishOptions, Topic } from './topic/topic.ts';
export { Batch, type BatchesOptions, type BatchProgress, type BatchRecord } from './watch/batch.ts';
export type { HandBatch, HandCallback, HandJob, HandNode, HandOptions } from './watch/by-hand.ts';
/** @internal */
export { checkFlow } from './watch/by-hand.ts';
/** @internal */
export { arrangeNodes, NAMED_ID, readNodeName } from './watch/flow.ts';
export type { AnyQueue, BatchCallback, BatchCallbacks, FlowNode, JobOf } from './watch/flows.ts';
export type { WaitForOptions, WaitTarget } from './watch/wait-for.ts';
export type { BacklogOptions } from './work/backlog.ts';
export type { UnitBatch } from './work/batch/unit-batch.ts';
export type { OnceResult } from './work/once/tally.ts';
export type { OnceOptions, StopOptions, WorkOptions } from './work/options.ts';
export type { Backlog, EndedEvent, WorkerEvents } from './work/report.ts';
export { Job } from './work/run/claimed-job.ts';
export { Unit, type UnitHold, type UnitOwner } from './work/run/unit.ts';
export { cancelled, discard, retryAfter, snooze, Verdict } from './work/run/verdict.ts';
export type { PriorityRange } from './work/taken.ts';
/** @internal */
export { guardHeld } from './work/transaction/guard.ts';
export { Worker } from './work/worker.ts';

/** The same on DynamoDB: see docs/dynamodb.md for the differences. @throws NotSupported  DynamoDB cannot have one of the kinds */
export function createQueue<const K extends Kinds>(
  engine: DynamoEngine,
  name: string,
  options: QueueOptions<K>,
): DynamoQueue<K>;
/**
 * Declares a queue on your database. Sends nothing; the first use registers the queue and its kinds in the database.
 * @param name  1 to 100 characters; the same name is the same queue in every process
 * @throws InvalidInput on a bad declaration, such as an unknown option or kinds that wait for each other
 */
export function createQueue<const K extends Kinds>(
  engine: PostgresEngine,
  name: string,
  options: QueueOptions<K>,
): Queue<K>;
export function createQueue<const K extends Kinds>(
  engine: PostgresEngine | DynamoEngine,
  name: string,
  options: QueueOptions<K>,
): Queue<K> | DynamoQueue<K> {
  if (engine instanceof DynamoEngine) return new DynamoQueue(engine, define(name, options));
  requireEngine('createQueue', engine);
  return new Queue(engine, define(name, options));
}

/** Operates every queue of a table of DynamoDB: see docs/dynamodb.md for the differences. Sends nothing until its first use. */
export function createQueueAdmin(engine: DynamoEngine): TableQueueAdmin;
/** Operates every queue of a database, without their declarations. Sends nothing until its first use. */
export function createQueueAdmin(engine: PostgresEngine): QueueAdmin;
export function createQueueAdmin(engine: PostgresEngine | DynamoEngine): AnyQueueAdmin;
export function createQueueAdmin(engine: PostgresEngine | DynamoEngine): AnyQueueAdmin {
  if (engine instanceof DynamoEngine) return new DynamoQueueAdmin(engine);
  requireEngine('createQueueAdmin', engine);
  return new QueueAdmin(engine);
}
