import { InvalidInput } from '../base/errors.ts';
import { Events } from '../base/events.ts';
import { checkOptions } from '../base/options/options.ts';
import { isObject } from '../base/options/shape.ts';
import { DynamoEngine } from '../engine/dynamodb/index.ts';
import { type OpenTransaction, openTransaction, type PostgresEngine, requireEngine } from '../engine/postgres/index.ts';
import { define } from './declare/define.ts';
import type { Definition, Kinds, PayloadIn, QueueOptions } from './definition.ts';
import { DynamoQueue } from './dynamodb/queue.ts';
import { type EnqueuedIds, type EnqueueOptions, type EnqueueResult, Producer } from './enqueue.ts';
import { type Handlers, readHandlers } from './handlers.ts';
import type { JobRecord, JobStatus, JobTransition } from './job.ts';
import { type JobTarget, readJobId } from './job-id.ts';
import type { JobInput } from './job-input.ts';
import { afterPolicy } from './job-options.ts';
import type { Explanation } from './operate/explain.ts';
import {
  type BulkOptions,
  type BulkResult,
  type CancelOptions,
  changeAll,
  type DrainOptions,
  drain,
  type JobChange,
  type MoveOptions,
  moveAll,
  Operations,
  search,
  type TxOptions,
} from './operate/operations.ts';
import type { ScheduleOptions, ScheduleRecord } from './operate/schedule.ts';
import type { SearchOptions, SearchPage } from './operate/search.ts';
import { readScheduleName, type SchedulesOptions, setSchedule, setSchedules } from './operate/set-schedule.ts';
import { COUNT_LIMIT, type QueueStats } from './operate/stats.ts';
import { type PartOptions, readPart } from './paused-part.ts';
import { PostgresQueueFlows } from './postgres/flows.ts';
import { PostgresQueueSchedules } from './postgres/operate/schedules.ts';
import { type ChangedJob, PostgresQueueReader } from './postgres/reader.ts';
import { PostgresQueueStore } from './postgres/store.ts';
import { claimUnits } from './pull/claim.ts';
import type { ClaimedUnit } from './pull/claimed-unit.ts';
import { PullOwner } from './pull/owner.ts';
import { type ClaimOptions, Puller } from './pull/pull.ts';
import type { QueueIds } from './store.ts';
import type { ReadTraces } from './tracing.ts';
import { Batch, type BatchHome } from './watch/batch.ts';
import { flowText, type GivenNode, readNodeName } from './watch/flow.ts';
import { readWaitOptions, type WaitForOptions, type WaitTarget, waitFor } from './watch/wait-for.ts';
import { readWorkOptions, type WorkOptions } from './work/options.ts';
import type { WorkerEvents } from './work/report.ts';
import { Worker } from './work/worker.ts';

export { JobFailed, NoRetry } from '../base/errors.ts';
export type { Duration } from '../base/time/duration.ts';
export type { DebounceOptions, UniqueOptions } from './declare/unique.ts';
export type {
  BatchOptions,
  DeadLetter,
  KeyConcurrency,
  KindOptions,
  Kinds,
  PayloadIn,
  PayloadOut,
  QueueOptions,
  RetryOptions,
} from './definition.ts';
export type { AnyQueueAdmin } from './dynamodb/admin.ts';
export type { EnqueueItem } from './dynamodb/producing.ts';
export { DynamoQueue } from './dynamodb/queue.ts';
export type { EnqueuedIds, EnqueueOptions, EnqueueResult } from './enqueue.ts';
export type { Handlers } from './handlers.ts';
export { JOB_STATUSES, type JobRecord, type JobStatus, type JobTransition, type ParentRecord } from './job.ts';
export type { AnyJobTarget, JobTarget } from './job-id.ts';
export type { JobInput } from './job-input.ts';
export type { JobOptions } from './job-options.ts';
export { QueueAdmin } from './operate/admin.ts';
export type { CountOptions, SearchCount } from './operate/count.ts';
export { createQueueAdmin } from './operate/create-admin.ts';
export type { Explanation, Reason } from './operate/explain.ts';
export type {
  BulkOptions,
  BulkResult,
  CancelOptions,
  DrainOptions,
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
export type { ClaimOptions, ExtendedLease, FailedTo, FailOptions } from './pull/pull.ts';
export { createTopic, type PublishOptions, Topic } from './topic/topic.ts';
export { Batch, type BatchesOptions, type BatchProgress, type BatchRecord } from './watch/batch.ts';
export type { HandBatch, HandCallback, HandJob, HandNode, HandOptions } from './watch/by-hand.ts';
/** @internal */
export { checkFlow } from './watch/by-hand.ts';
/** @internal */
export { arrangeNodes, readNodeName } from './watch/flow.ts';
export type { WaitForOptions, WaitTarget } from './watch/wait-for.ts';
export type { BacklogOptions } from './work/backlog.ts';
export type { UnitBatch } from './work/batch/unit-batch.ts';
export type { OnceResult } from './work/once/tally.ts';
export type { OnceOptions, StopOptions, WorkOptions } from './work/options.ts';
export type { Backlog, EndedEvent, WorkerEvents } from './work/report.ts';
/** @internal */
export { guardHeld } from './work/transaction/guard.ts';
export { Job, Unit, type UnitHold, type UnitOwner } from './work/unit.ts';
export { cancelled, discard, retryAfter, snooze, Verdict } from './work/verdict.ts';
export { Worker } from './work/worker.ts';

/** A job of any kind of a queue, for `enqueueMany`. */
export type JobOf<K extends Kinds> = {
  [N in keyof K & string]: Omit<JobInput, 'kind' | 'payload'> & { readonly kind: N; readonly payload: PayloadIn<K[N]> };
}[keyof K & string];

type AnyQueue = Pick<Queue, 'name' | 'engine'>;

/** One node of a flow. */
export type FlowNode<K extends Kinds> =
  | (NodeOptions & JobOf<K> & { readonly queue?: undefined })
  | (NodeOptions & Omit<JobInput, 'after'> & { readonly queue: AnyQueue });

interface NodeOptions {
  /** Names the node in this flow; not stored. Any text that is no number. */
  readonly name: string;
  /** What has to end before: names of nodes, ids of jobs, batches. */
  readonly after?: readonly (string | { readonly batch: string })[] | undefined;
}

interface NodeInput extends Omit<JobInput, 'after'> {
  readonly name: unknown;
  readonly queue?: unknown;
  readonly after?: readonly unknown[];
}

/** A job that a batch enqueues when it is done. */
export type BatchCallback<K extends Kinds> =
  | (JobOf<K> & { readonly queue?: undefined })
  | (JobInput & { readonly queue: AnyQueue });

type CallbackInput = JobInput & { readonly queue?: unknown };

export interface BatchCallbacks<K extends Kinds> {
  /** Enqueued when all members have ended, and all completed. */
  readonly onComplete?: BatchCallback<K> | undefined;
  /** Enqueued when all members have ended, and one ended in error or was cancelled. */
  readonly onError?: BatchCallback<K> | undefined;
  /** Enqueued when all members have ended. */
  readonly onDone?: BatchCallback<K> | undefined;
}

/** The options of `run`. */
export interface RunOptions extends Omit<EnqueueOptions, 'tx'>, WaitForOptions {}

/** The same on DynamoDB: see docs/dynamodb.md for what differs. @throws NotSupported  kinds that it cannot have */
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

/**
 * A queue: `enqueue` adds jobs, in your own transaction if you pass it, and the workers that `work` starts run them.
 *
 * In a signature, plain `Queue` is any queue, to read and to operate. To enqueue, a signature needs the type with its kinds:
 * `typeof mail`, or `Queue<K>`.
 */
export class Queue<K extends Kinds = never> {
  readonly name: string;
  readonly #engine: PostgresEngine;
  readonly #definition: Definition;
  readonly #store: PostgresQueueStore;
  readonly #producer: Producer;
  readonly #reader: PostgresQueueReader;
  readonly #operations: Operations;
  readonly #schedules: PostgresQueueSchedules;
  readonly #puller: Puller;
  #registered: Promise<QueueIds> | undefined;

  /** @internal */
  constructor(engine: PostgresEngine, definition: Definition) {
    this.name = definition.name;
    this.#engine = engine;
    this.#definition = definition;
    this.#store = new PostgresQueueStore(engine);
    this.#producer = new Producer(this.#store, definition, () => this.#register());
    this.#reader = new PostgresQueueReader(engine);
    this.#operations = new Operations(this.#reader, definition.name);
    this.#schedules = new PostgresQueueSchedules(engine);
    this.#puller = new Puller(engine);
  }

  /**
   * Registers the queue and its kinds in the database, so that SQL can call `pawl.enqueue()`. The first use does this by
   * itself; call it at deploy time if SQL comes first.
   * @throws SchemaMismatch  the database has no Pawl schema, or an older one: run `pawl migrate`
   * @throws Conflict  shards or perKey differ from the registered ones, and jobs are outstanding
   */
  async register(): Promise<void> {
    await this.#register();
  }

  /**
   * Adds a job: one round trip, in a transaction of its own or in yours (`tx`). The job runs at least once after the commit,
   * and never without it.
   * @throws InvalidInput  the schema refused the payload, or an option is bad; nothing was written
   * @throws NotFound  the queue has no such kind
   */
  enqueue<N extends keyof K & string>(
    kind: N,
    payload: PayloadIn<K[N]>,
    options: EnqueueOptions = {},
  ): Promise<EnqueueResult> {
    return this.#producer.one(kind, payload, options);
  }

  /**
   * Checks whether `enqueue` would accept these, for programs that write the job in another way. Sends nothing to the
   * database.
   * @throws InvalidInput  the schema refused the payload, or a key is missing @throws NotFound  no such kind
   */
  async check(kind: string, payload: unknown, options: { readonly key?: string | undefined } = {}): Promise<void> {
    await this.#producer.check(kind, payload, options.key);
  }

  /**
   * Adds many jobs, a thousand per round trip; jobs of one kind without a key cost a fraction of single ones. All are checked
   * before any is written. Each thousand is written as a whole or not at all; with `tx`, all of them are.
   * @returns the ids, in the order of the jobs; its `duplicates` has the indexes of those that existed already, for kinds that
   *   are unique
   * @throws InvalidInput  names the job by its index
   */
  // J is always JobOf<K>. Written as that, the compiler would not let a queue of certain kinds pass for any queue.
  enqueueMany<J extends JobOf<K>>(
    jobs: readonly NoInfer<J>[],
    options: { readonly tx?: OpenTransaction | undefined } = {},
  ): Promise<EnqueuedIds> {
    return this.#producer.many(jobs, options);
  }

  /**
   * Adds a whole graph of jobs in one statement, in a transaction of its own or in yours: all of it or nothing. A node names the
   * nodes that it comes after; it may name jobs and batches that exist, too. Nodes that come after the same others cost hardly
   * more than plain jobs.
   * @returns the id of each node, by its name
   * @throws InvalidInput  names the node: a bad payload, an unknown parent, a name that is there twice, a cycle with its names
   * @throws NotFound  no such kind, or there is no such job or batch to come after
   */
  async flow<N extends FlowNode<K>>(
    nodes: readonly NoInfer<N>[],
    options: { readonly tx?: OpenTransaction | undefined } = {},
  ): Promise<Readonly<Record<string, string>>> {
    const { tx } = checkOptions('flow', options, { tx: openTransaction });
    if (!Array.isArray(nodes)) throw new InvalidInput('flow takes an array of nodes', { field: 'nodes' });
    const given: GivenNode[] = [];
    for (const [nth, node] of nodes.entries()) given.push(await this.#node(node, nth));
    if (given.length === 0) return {};
    const { text, names } = flowText(given);
    const ids = await new PostgresQueueFlows(this.#engine).add(text, tx);
    return Object.fromEntries(names.map((name, nth) => [name, ids[nth] ?? '']));
  }

  /**
   * Makes an open batch: add jobs to it, and seal it. When its last member has ended, `onComplete` is enqueued if all completed and
   * `onError` if not, and `onDone` in both cases, each exactly once. The handler finds `{ id, total, errors, cancelled }` in
   * `unit.job.meta.batch`. A job that was retried by hand after it had ended does not count again.
   * @throws InvalidInput, NotFound  a callback is no job of its queue
   */
  async batch<C extends BatchCallbacks<K>>(
    callbacks?: NoInfer<C>,
    options: { readonly tx?: OpenTransaction | undefined } = {},
  ): Promise<Batch<JobOf<K>, BatchCallbacks<K>>> {
    const id = await this.#newBatch(undefined, callbacks ?? {}, options);
    return this.openBatch(id);
  }

  /** A batch by its id, to add to it, to seal it or to see its progress from another process. Sends nothing. */
  openBatch(id: string): Batch<JobOf<K>, BatchCallbacks<K>> {
    const home: BatchHome = {
      engine: this.#engine,
      manyInto: (batch, jobs, given) => this.#producer.manyInto(batch, jobs, given),
      newBatch: (parent, callbacks, given) => this.#newBatch(parent, callbacks, given),
    };
    return new Batch<JobOf<K>, BatchCallbacks<K>>(home, readJobId(id));
  }

  async #newBatch(
    parent: string | undefined,
    given: object,
    options: { readonly tx?: OpenTransaction | undefined },
  ): Promise<string> {
    const { tx } = checkOptions('batch', options, { tx: openTransaction });
    const callbacks: Record<string, object> = {};
    for (const [name, value] of Object.entries(given) as [string, CallbackInput | undefined][]) {
      if (!['onComplete', 'onError', 'onDone'].includes(name)) {
        throw new InvalidInput(`batch takes onComplete, onError and onDone, but was given "${name}"`, { field: name });
      }
      if (value === undefined) continue;
      const { queue, ...job } = value;
      callbacks[name] = await this.#producerOf(queue, name).later(job, name);
    }
    await this.#register();
    return new PostgresQueueFlows(this.#engine).newBatch({ queue: this.name, callbacks, parent }, tx);
  }

  async #node(node: object | undefined, nth: number): Promise<GivenNode> {
    const field = `nodes[${nth}]`;
    if (!isObject(node))
      throw new InvalidInput(`${field} must be an object such as { name, kind, payload }`, { field });
    const { name, queue, after = [], afterError, afterCancel, ...job } = node as unknown as NodeInput;
    const readName = readNodeName(name, field);
    if (!Array.isArray(after)) throw new InvalidInput(`${field}.after must be an array`, { field: `${field}.after` });
    const policy = checkOptions(`flow, ${field}`, { afterError, afterCancel }, afterPolicy);
    return { name: readName, after, ...policy, row: await this.#producerOf(queue, field).node(job, nth, field) };
  }

  #producerOf(queue: unknown, field: string): Producer {
    if (queue === undefined) return this.#producer;
    if (queue instanceof Queue && queue.engine === this.#engine) return queue.#producer;
    throw new InvalidInput(`${field}.queue must be a queue of the same engine`, { field: `${field}.queue` });
  }

  /**
   * Starts a worker in this process. It claims jobs at once, after every notification, and at every poll.
   * @param handlers  one for each kind
   * @throws InvalidInput  a kind has no handler, or an option is bad
   */
  work(handlers: Handlers<K>, options: WorkOptions = {}): Worker {
    const { settings, signal, onBlocked, warn } = readWorkOptions(options, this.#definition, this.#engine.connections);
    const traces: ReadTraces = (ids, unit) =>
      this.#store.traces(ids, settings.hold === 'transaction' ? unit.tx : undefined);
    const events = new Events<WorkerEvents>();
    const parts = {
      store: this.#store,
      definition: this.#definition,
      ...readHandlers(this.#definition, handlers, { engine: this.#engine, events, traces }),
      settings,
      onBlocked,
      warning: warn && { limits: warn, stats: () => this.stats() },
    };
    return new Worker(parts, () => this.#register(), events, this.#engine.options.logger, signal);
  }

  /**
   * Claims units by a call, for programs that are no worker: it takes what is ready now, in their order, and does not wait. Each
   * unit is yours until you settle it, or until the lease is over; then it is given back, charged like the job of a lost worker.
   * The schema of its kind checks the payload; a unit that it refuses fails, and is not returned.
   * @throws InvalidInput  an option is bad
   */
  async claim(options: ClaimOptions = {}): Promise<ClaimedUnit[]> {
    await this.#register();
    return claimUnits(this.#puller, new PullOwner(this.#store, this.name), this.#definition, options);
  }

  /**
   * How many jobs are in each state, how many complete per minute, how many workers live. Counts stop at 10,000 ("10,000 or
   * more"), so that the cost does not grow with the queue.
   */
  async stats(): Promise<QueueStats> {
    await this.#register();
    return this.#reader.stats(this.name, COUNT_LIMIT);
  }

  /**
   * Stops claims of all workers in all processes until `resume()`, also across restarts. Claimed jobs are finished. No job starts that is
   * enqueued after this has returned.
   *
   * With a kind, a key or a tag it does so for the jobs that have all of what is named, and the others go on. Workers set such jobs
   * aside as they meet them: they are delayed until that part is resumed, uncharged, and hold their place in the order of their key, so that
   * the jobs behind them in it wait, too. A queue has at most 100 paused parts.
   * @throws InvalidInput  nothing is named, or not as a text @throws NotFound  no such kind @throws Conflict  100 parts are paused
   */
  async pause(part?: PartOptions<keyof K & string>): Promise<void> {
    await this.#register();
    if (part === undefined) await this.#reader.pause(this.name);
    else await this.#reader.pausePart(this.name, readPart('pause', part));
  }

  /**
   * Ends a pause; workers claim jobs at once. Does nothing when the queue is not paused. A part is resumed by the same words with which it
   * was paused; the pause of the whole queue is another one, and `resume()` ends only that.
   * @throws InvalidInput
   */
  async resume(part?: PartOptions<keyof K & string>): Promise<void> {
    await this.#register();
    if (part === undefined) await this.#reader.resume(this.name);
    else await this.#reader.resumePart(this.name, readPart('resume', part));
  }

  /**
   * One job, by its id or by its key; with `tx` also one that was enqueued in it.
   * @throws NotFound  this queue has no such job @throws InvalidInput  the id is none
   */
  get(job: JobTarget, options: TxOptions = {}): Promise<JobRecord> {
    return this.#operations.get(job, options);
  }

  /** All transitions of a job, oldest first. @throws NotFound, InvalidInput */
  history(id: string): Promise<JobTransition[]> {
    return this.#operations.history(id);
  }

  /**
   * Why a job is in its state, and why it does not run: delayed, behind job N of its key, the queue is paused, no worker…
   * @throws NotFound, InvalidInput
   */
  explain(id: string): Promise<Explanation> {
    return this.#operations.explain(id);
  }

  /**
   * Waits until a job has ended, in any process, and gives the result that its handler returned (null for none). A process uses
   * one connection for all of its waits. The end is told as soon as it is committed; where notifications do not arrive, within
   * two seconds.
   * @param target  the id of a job, or `{ key }`: the newest job of that key
   * @throws JobFailed  it ended in error @throws Cancelled  it was cancelled
   * @throws NotFound  there is no such job: it is not committed yet, or its history is over
   * @throws TimedOut  it has not ended; it goes on
   */
  async waitFor(target: WaitTarget, options: WaitForOptions = {}): Promise<unknown> {
    await this.#register();
    return waitFor(this.#engine, this.name, target, options);
  }

  /**
   * Enqueues a job and waits for its result: `enqueue` and `waitFor`. If this process dies meanwhile, the job runs anyway.
   * @throws the errors of both
   */
  async run<N extends keyof K & string>(kind: N, payload: PayloadIn<K[N]>, options: RunOptions = {}): Promise<unknown> {
    const { timeout, signal, ...rest } = options;
    readWaitOptions('run', { timeout, signal });
    signal?.throwIfAborted();
    const { id } = await this.#producer.one(kind, payload, rest);
    return waitFor(this.#engine, this.name, id, { timeout, signal });
  }

  /**
   * Changes a job that waits, whether it is ready, delayed, backing off or behind others of its key: its payload, its time,
   * its priority. It keeps its id, its attempts and its place in the order of its key; its history has a line for it. In a
   * key, a job that is put off and was not tried yet leaves its place until it is due. No handler gets the old payload once
   * this has committed.
   * @throws Conflict  the job has begun or ended; the message has its status
   * @throws InvalidInput  the schema of its kind refused the payload, or there is nothing to change @throws NotFound
   * @throws LockNotAvailable  an open transaction holds a job of its key for more than 2 s; nothing was changed
   */
  update(job: JobTarget, change: JobChange): Promise<ChangedJob> {
    return this.#operations.update(job, change, (kind, payload) => this.#producer.json(kind, payload));
  }

  /**
   * Cancels a job. A new job never runs; the jobs behind it in its key continue. For a running job `unit.signal` is aborted,
   * and it ends as cancelled unless its handler completes anyway: the returned status is then `in-progress`. With
   * `tx`, its worker is told at the commit.
   * @throws Conflict  the job is complete or in error
   * @throws LockNotAvailable  an open transaction holds a job of its key for more than 2 s; nothing was changed
   */
  cancel(job: JobTarget, options: CancelOptions = {}): Promise<JobStatus> {
    return this.#operations.cancel(job, options);
  }

  /**
   * Makes a job that ended in error or was cancelled new again, with all its attempts, as if it had never run. In its key it
   * takes its old place among the jobs that have not run yet. A job that is delayed or waits for its next attempt is due
   * now, with the attempts that it has left. One that blocks its key (`keyOnError: 'block'`) runs before the later jobs of the key.
   * @throws Conflict  the job is in progress or complete
   * @throws LockNotAvailable  an open transaction holds a job of its key for more than 2 s; nothing was changed
   */
  retry(job: JobTarget, options: TxOptions = {}): Promise<JobStatus> {
    return this.#operations.retry(job, options);
  }

  /**
   * Lets a key go on past a job that blocks it (`keyOnError: 'block'`). The job stays in error. Where several jobs of one unit
   * block the key, it goes on when each of them was retried or skipped.
   * @returns the status of the job, which is `error`
   * @throws Conflict  the job blocks no key: it has not ended in error, or was retried or skipped before
   * @throws LockNotAvailable  an open transaction holds a job of its key for more than 2 s; nothing was changed
   */
  skip(job: JobTarget, options: TxOptions = {}): Promise<JobStatus> {
    return this.#operations.skip(job, options);
  }

  /**
   * Puts the job of a dead letter (see {@link KindOptions.onError}) back to work, as `retry` does, and ends the letter: one
   * that waits is cancelled in the same transaction, with the reason `redriven`.
   * @returns the job that runs again
   * @throws InvalidInput  it is no dead letter @throws Conflict  the letter, or its job, is in progress, or the job is complete
   * @throws LockNotAvailable  an open transaction holds one of the two for more than 2 s; nothing was changed
   */
  redrive(letter: JobTarget, options: TxOptions = {}): Promise<ChangedJob> {
    return this.#operations.redrive(letter, options);
  }

  /**
   * Erases a job that waits or has ended, for data that may not stay: payload, result, progress, errors, tags, history, and its
   * words in the index of searches. It is as if there had been none, except for the figures. A job that waits is cancelled
   * first. If it was unique, another one may come. A result that a unit has in common stays with its other jobs.
   * @throws Conflict  the job is in progress: cancel it, and erase it when it has ended
   * @throws NotFound  there is no such job @throws LockNotAvailable  for 2 s an open transaction has held it
   */
  erase(job: JobTarget, options: TxOptions = {}): Promise<void> {
    return this.#operations.erase(job, options);
  }

  /**
   * Erases all jobs that a query of `search` finds, except those in progress. In pieces of a hundred, each in a transaction of
   * its own: if this process dies, what is done is done, and a second call goes on.
   * @throws InvalidInput  the query is malformed @throws NotFound  no such kind
   */
  async purge(query: string, options: BulkOptions = {}): Promise<BulkResult> {
    await this.#register();
    return changeAll(this.#reader, this.name, { what: 'erase' }, query, options);
  }

  /**
   * Retries all jobs that a query of `search` finds, such as `'status:error since:2h'`. In pieces, as `purge`.
   * @throws InvalidInput  the query is malformed @throws NotFound  no such kind
   */
  async retryAll(query: string, options: BulkOptions = {}): Promise<BulkResult> {
    await this.#register();
    return changeAll(this.#reader, this.name, { what: 'retry' }, query, options);
  }

  /**
   * Moves all jobs that a query of `search` finds to another queue: those that wait, ended in error or were cancelled. Each keeps its id,
   * key, payload, time, priority, options and history, is new there, and has all its attempts before it. In pieces, as `purge`. Left are jobs
   * in progress and complete ones, jobs that come after others that have not ended, and jobs that the kind there does not take.
   * @param to  a queue of the same database, or its name
   * @throws InvalidInput  the query is malformed, or `to` is this queue @throws NotFound  no such queue or kind
   */
  async move(query: string, to: AnyQueue | string, options: MoveOptions = {}): Promise<BulkResult> {
    await this.#register();
    return moveAll(this.#reader, this.name, query, { ...options, to: typeof to === 'string' ? to : to.name });
  }

  /**
   * Finds jobs, newest first: by words and `"phrases"` of their payloads and errors, `key:`, `tag:`, `kind:`, `status:`,
   * `since:` and `until:`. A word is a whole run of letters and digits; case does not matter. The work of one page is bounded, however
   * many jobs there are: see {@link SearchPage}. Jobs can be found as soon as they are committed.
   * @throws InvalidInput  the query, an option or the cursor is malformed @throws NotFound  no such kind
   */
  async search(query: string, options: SearchOptions = {}): Promise<SearchPage> {
    await this.#register();
    return search(this.#reader, this.name, query, options);
  }

  /**
   * Resolves when no job of this queue is ready, parked or in progress, in any process. For tests and for shutting down.
   * @throws TimedOut  with the counts of the remaining jobs
   */
  async drain(options: DrainOptions = {}): Promise<void> {
    await this.#register();
    await drain(this.#reader, this.name, options);
  }

  /**
   * Enqueues a job at every tick of a cron pattern, as long as any worker of this queue lives: exactly one per tick, however
   * many processes there are. The schedule is stored in the database; declaring it again changes it, and keeps its next tick
   * if the pattern and the zone are the same.
   * @param name  1 to 100 characters, one schedule each
   * @throws InvalidInput  names the field: a bad pattern, zone or payload @throws NotFound  no such kind
   */
  async schedule<N extends keyof K & string>(
    name: string,
    options: ScheduleOptions & { readonly kind: N; readonly payload?: PayloadIn<K[N]> },
  ): Promise<void> {
    await this.#register();
    await setSchedule(this.#schedules, this.#definition, name, options);
  }

  /** Ends a schedule; the jobs that it has enqueued stay. @returns whether there was one */
  async unschedule(name: string): Promise<boolean> {
    readScheduleName('unschedule', name);
    await this.#register();
    return this.#schedules.remove(this.name, name);
  }

  /**
   * This queue's schedules, by name. Given the whole set of a program's schedules, it declares them first, in one transaction,
   * and removes those of an earlier set that this one no longer has. Schedules that were declared by `schedule()` stay.
   *
   * Processes of two versions that run side by side would remove each other's schedules whenever one of them starts: pass a
   * `version` that rises with each release, and the highest one counts.
   * @throws InvalidInput  names the field @throws NotFound  no such kind
   */
  async schedules(
    all?: Readonly<Record<string, ScheduleOptions & { readonly kind: keyof K & string }>>,
    options: SchedulesOptions = {},
  ): Promise<ScheduleRecord[]> {
    if (all !== undefined) {
      await this.#register();
      await setSchedules(this.#schedules, this.#definition, all, options);
    }
    return this.#schedules.list(this.name);
  }

  /** The engine that it was made with. */
  get engine(): PostgresEngine {
    return this.#engine;
  }

  #register(): Promise<QueueIds> {
    this.#registered ??= this.#store.register(this.#definition).catch((error: unknown) => {
      this.#registered = undefined;
      throw error;
    });
    return this.#registered;
  }
}
