import { checkOptions, signal } from '../../base/options/options.ts';
import type { Duration } from '../../base/time/duration.ts';
import type { PostgresEngine } from '../../engine/postgres/index.ts';
import type { EnqueueResult } from '../enqueue.ts';
import type { JobRecord, JobStatus } from '../job.ts';
import { readJobId } from '../job-id.ts';
import { type PartOptions, readPart } from '../paused-part.ts';
import { PostgresQueueReader, type ReleasedWorker } from '../postgres/reader.ts';
import { PostgresQueueStore } from '../postgres/store.ts';
import { PostgresQueueTopics, type TopicRecord } from '../postgres/topics.ts';
import { PostgresQueueFlows } from '../postgres/watch/flows.ts';
import { ClaimedUnit } from '../pull/claimed-unit.ts';
import { PullOwner } from '../pull/owner.ts';
import {
  type ClaimOptions,
  type ExtendedLease,
  type FailedTo,
  type FailOptions,
  Puller,
  type ReleasedTo,
} from '../pull/pull.ts';
import { type BatchesOptions, type BatchRecord, listBatches, readBatch } from '../watch/batch.ts';
import {
  addFlow,
  addToBatch,
  type HandBatch,
  type HandJob,
  type HandNode,
  type HandOptions,
  makeBatch,
  readHandJob,
} from '../watch/by-hand.ts';
import { type WaitForOptions, waitFor } from '../watch/wait-for.ts';
import { type CountOptions, count, type SearchCount } from './count.ts';
import {
  type BulkOptions,
  type BulkResult,
  type CancelAllOptions,
  cancelAll,
  changeAll,
  type DrainOptions,
  drain,
  type MoveOptions,
  moveAll,
  releaseWorker,
  search,
} from './operations.ts';
import { type RemovedQueue, type RemoveOptions, removeQueue } from './remove.ts';
import { ScheduleAdmin } from './schedule-admin.ts';
import type { SearchOptions, SearchPage } from './search.ts';
import { COUNT_LIMIT, type QueueRecord, type QueueStats, type WorkerRecord } from './stats.ts';

/** Operates all queues of a database, for tools. The id of a job is unique among all queues. */
export class QueueAdmin extends ScheduleAdmin {
  readonly #engine: PostgresEngine;
  readonly #reader: PostgresQueueReader;
  readonly #store: PostgresQueueStore;
  readonly #puller: Puller;

  /** @internal */
  constructor(engine: PostgresEngine) {
    super(engine);
    this.#engine = engine;
    this.#reader = new PostgresQueueReader(engine);
    this.#store = new PostgresQueueStore(engine);
    this.#puller = new Puller(engine);
  }

  /** The declared queues, by name. */
  list(): Promise<QueueRecord[]> {
    return this.#reader.list();
  }

  /** How many jobs are in each state; counts stop at 10,000. @throws NotFound */
  stats(queue: string): Promise<QueueStats> {
    return this.#reader.stats(queue, COUNT_LIMIT);
  }

  /** The workers of one queue, or of all. */
  workers(queue?: string): Promise<WorkerRecord[]> {
    return this.#reader.workers(queue ?? null);
  }

  /**
   * Gives back the jobs of a worker that you know to be dead, without waiting for the end of its lease. They are charged like the
   * jobs of any lost worker. If the worker lives anyway, it learns so at once: its signals are aborted, nothing that it settles
   * afterwards is written, and it registers anew.
   * @throws NotFound  no such worker @throws InvalidInput
   * @throws LockNotAvailable  its row was locked for more than 5 s; nothing was changed
   */
  releaseWorker(worker: string): Promise<ReleasedWorker> {
    return releaseWorker(this.#reader, worker);
  }

  /** Like {@link Queue.pause}. @throws InvalidInput, NotFound, Conflict */
  async pause(queue: string, part?: PartOptions): Promise<void> {
    if (part === undefined) await this.#reader.pause(queue);
    else await this.#reader.pausePart(queue, readPart('pause', part));
  }

  /** Like {@link Queue.resume}. @throws InvalidInput, NotFound */
  async resume(queue: string, part?: PartOptions): Promise<void> {
    if (part === undefined) await this.#reader.resume(queue);
    else await this.#reader.resumePart(queue, readPart('resume', part));
  }

  /**
   * Removes a queue that no program uses any more: its jobs, their history, its schedules, subscriptions and batches. It works in
   * short steps, each in a transaction of its own. If this process dies, the finished steps stay, and a second call goes on.
   * `force` also removes a queue that is in use: the queue is paused, its running jobs are taken from their workers, its waiting
   * jobs are cancelled, and its batches are sealed, so that their waiters are notified. The names of the queue and of its kinds
   * stay. If a program still has the queue, and enqueues or works, the queue exists again, without its former content.
   * @returns how many of each were removed @throws NotFound
   * @throws Conflict  without `force`: a worker lives, a job waits or is in progress, or a batch is open; nothing of these was
   *   changed
   * @throws LockNotAvailable  for 5 s open transactions have held all jobs that are left; call it again
   */
  remove(queue: string, options: RemoveOptions = {}): Promise<RemovedQueue> {
    return removeQueue(this.#engine, queue, options);
  }

  /** Like {@link Queue.purge}. @throws NotFound, InvalidInput */
  purge(queue: string, query: string, options: BulkOptions = {}): Promise<BulkResult> {
    return changeAll(this.#reader, queue, { what: 'erase' }, query, options);
  }

  /** Like {@link Queue.retryAll}. @throws NotFound, InvalidInput */
  retryAll(queue: string, query: string, options: BulkOptions = {}): Promise<BulkResult> {
    return changeAll(this.#reader, queue, { what: 'retry' }, query, options);
  }

  /** Like {@link Queue.cancelAll}. @throws NotFound, InvalidInput */
  cancelAll(queue: string, query: string, options: CancelAllOptions = {}): Promise<BulkResult> {
    return cancelAll(this.#reader, queue, query, options);
  }

  /** Like {@link Queue.move}. @throws NotFound, InvalidInput */
  move(queue: string, query: string, to: string, options: MoveOptions = {}): Promise<BulkResult> {
    return moveAll(this.#reader, queue, query, { ...options, to });
  }

  /** Like {@link Queue.waitFor}, for a job by its id. @throws NotFound, JobFailed, Cancelled, TimedOut, InvalidInput */
  async waitFor(id: string, options: WaitForOptions = {}): Promise<unknown> {
    const { queue } = await this.#reader.get({ id: readJobId(id) });
    return waitFor(this.#engine, queue, id, options);
  }

  /** How far a batch of any queue is. @throws NotFound, InvalidInput */
  async batch(id: string): Promise<BatchRecord> {
    return readBatch(this.#engine, readJobId(id));
  }

  /** Like {@link Batch.seal}. @throws NotFound, InvalidInput */
  async sealBatch(id: string, options: { readonly signal?: AbortSignal | undefined } = {}): Promise<void> {
    const { signal: abort } = checkOptions('sealBatch', options, { signal });
    await new PostgresQueueFlows(this.#engine).seal(readJobId(id), abort);
  }

  /** The topics, by name, to which a queue is or was subscribed. */
  topics(): Promise<TopicRecord[]> {
    return new PostgresQueueTopics(this.#engine).all();
  }

  /** Like {@link Queue.search}, in one queue or in all. */
  search(query: string, options: SearchOptions & { readonly queue?: string | undefined } = {}): Promise<SearchPage> {
    const { queue, ...rest } = options;
    return search(this.#reader, queue ?? null, query, rest);
  }

  /**
   * How many jobs a search finds, in one queue or in all, and the newest five of them. With `statuses`, only jobs with one of
   * these statuses count. Bounded by `most` and `budget`. @throws InvalidInput, NotFound
   */
  count(
    query: string,
    options: CountOptions & { readonly queue?: string | undefined; readonly statuses?: readonly JobStatus[] } = {},
  ): Promise<SearchCount> {
    const { queue, statuses, ...rest } = options;
    return count(this.#reader, queue ?? null, query, statuses, rest);
  }

  /** The jobs with these ids, in this order, without those that do not exist. @throws InvalidInput */
  getMany(ids: readonly string[]): Promise<JobRecord[]> {
    return this.#reader.jobs(ids.map(readJobId));
  }

  /** Like {@link Queue.drain}. */
  drain(queue: string, options: DrainOptions = {}): Promise<void> {
    return drain(this.#reader, queue, options);
  }

  /**
   * Adds a job to a registered queue. The payload is checked when the job runs, because only the program has its schema.
   * @throws NotFound, InvalidInput
   */
  async enqueue(queue: string, kind: string, payload: unknown, options: HandOptions = {}): Promise<EnqueueResult> {
    return this.#store.enqueue(readHandJob(queue, { ...options, kind, payload }), undefined);
  }

  /**
   * Like {@link Queue.flow}, for registered queues of any name: one statement for each layer of the graph, in a transaction of
   * its own.
   * @returns the id of each node, by its name @throws InvalidInput, NotFound
   */
  flow(nodes: readonly HandNode[]): Promise<Readonly<Record<string, string>>> {
    return addFlow(this.#engine, nodes);
  }

  /**
   * Like {@link Queue.batch}, together with its first jobs, in one transaction. @returns the id of the open batch
   * @throws InvalidInput, NotFound @throws Conflict  its parent is sealed
   */
  newBatch(queue: string, batch: HandBatch = {}, jobs: readonly HandJob[] = []): Promise<string> {
    return makeBatch(this.#engine, queue, batch, jobs);
  }

  /**
   * Adds jobs to an open batch, in its queue, all or none. A unique job that exists already does not become a member.
   * @throws Conflict  the batch is sealed @throws NotFound, InvalidInput
   */
  async addToBatch(id: string, jobs: readonly HandJob[]): Promise<EnqueueResult[]> {
    return addToBatch(this.#engine, await this.batch(id), jobs);
  }

  /** Batches of one queue, or of all, newest first. @throws NotFound  no such queue @throws InvalidInput */
  batches(options: BatchesOptions = {}): Promise<BatchRecord[]> {
    return listBatches(this.#engine, options);
  }

  /**
   * Like {@link Queue.claim}, for a queue whose declaration this program does not have: no schema checks the payloads.
   * @throws NotFound, InvalidInput
   */
  async claim(queue: string, options: ClaimOptions = {}): Promise<ClaimedUnit[]> {
    const owner = new PullOwner(this.#store, queue);
    return (await this.#puller.claim(queue, options, owner)).map((pulled) => new ClaimedUnit(pulled, this.#puller));
  }

  /** Completes the unit of this handle. @throws LeaseLost, InvalidInput */
  complete(handle: string, result?: unknown): Promise<void> {
    return this.#puller.complete(handle, result, true);
  }

  /** Says that the attempt of the unit of this handle has failed. @returns the outcome @throws LeaseLost, InvalidInput */
  fail(handle: string, error: unknown, options: FailOptions = {}): Promise<FailedTo> {
    return this.#puller.fail(handle, error, options, { isGuarded: true });
  }

  /** Gives the unit of this handle back, uncharged. @returns the outcome @throws LeaseLost, InvalidInput */
  release(handle: string): Promise<ReleasedTo> {
    return this.#puller.release(handle, true);
  }

  /** Renews the lease of the unit of this handle. Default `'30s'`. @throws LeaseLost, InvalidInput */
  extend(handle: string, lease?: Duration): Promise<ExtendedLease> {
    return this.#puller.extend(handle, lease);
  }
}
