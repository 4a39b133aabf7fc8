import { InvalidInput, NotFound } from '../../../base/errors.ts';
import { checkOptions, integer, suggest } from '../../../base/options/options.ts';
import { isObject } from '../../../base/options/shape.ts';
import type { DynamoEngine } from '../../../engine/dynamodb/index.ts';
import type { EnqueueOptions, EnqueueResult } from '../../enqueue.ts';
import type { JobRecord, JobStatus, JobTransition } from '../../job.ts';
import type { AnyJobTarget } from '../../job-id.ts';
import type { QueueAdmin } from '../../operate/admin.ts';
import type { Explanation } from '../../operate/explain.ts';
import type { CancelOptions, DrainOptions, JobChange, TxOptions } from '../../operate/operations.ts';
import { nextTick, type ScheduleOptions, type ScheduleRecord } from '../../operate/schedule.ts';
import type { ScheduleRunsOptions } from '../../operate/schedule-admin.ts';
import type { SearchOptions, SearchPage } from '../../operate/search.ts';
import type { QueueRecord, QueueStats, WorkerRecord } from '../../operate/stats.ts';
import type { PartOptions } from '../../paused-part.ts';
import type { ScheduleRun } from '../../postgres/operate/schedules.ts';
import type { ChangedJob } from '../../postgres/reader.ts';
import type { BatchRecord } from '../../watch/batch.ts';
import { type HandBatch, type HandJob, type HandOptions, readHandCallbacks, readHandJob } from '../../watch/by-hand.ts';
import type { WaitForOptions } from '../../watch/wait-for.ts';
import { QueueRows, unlessMissing } from '../database.ts';
import { type DeclarationRow, declaredOf, definitionOf, queueNames } from '../declaration.ts';
import type { OnceRequest } from '../enqueue/unique.ts';
import { pausedAt } from '../heads/by-hand.ts';
import { refusePart } from '../limits.ts';
import { DynamoQueue } from '../queue.ts';
import { RefusedCalls } from '../refused-calls.ts';
import { DynamoQueueStore } from '../store.ts';
import { listJobs } from './listing.ts';

/** What operates all queues of a table of DynamoDB. */
export type TableQueueAdmin = AnyQueueAdmin & Pick<DynamoQueueAdmin, 'enqueueOnce'>;

/** What operates all queues of an engine: the calls of {@link QueueAdmin}. */
export type AnyQueueAdmin = Pick<QueueAdmin, keyof QueueAdmin>;

const TIMEOUT_MS = 30_000;
const runsShape = { limit: integer({ min: 1, max: 100, default: 10 }) };

/** A queue as it was declared, opened without its program. */
interface OpenQueue {
  readonly declared: DeclarationRow;
  readonly queue: DynamoQueue;
  readonly store: DynamoQueueStore;
}

/**
 * Operates all queues of a table of DynamoDB, for tools. Each queue there has ids of its own, so a job is named by both:
 * `mail:1042`. What a queue on DynamoDB cannot do is refused.
 */
export class DynamoQueueAdmin extends RefusedCalls implements AnyQueueAdmin {
  readonly #engine: DynamoEngine;

  /** @internal */
  constructor(engine: DynamoEngine) {
    super();
    this.#engine = engine;
  }

  /** The declared queues, by name: the first thousand. A request for each. */
  async list(): Promise<QueueRecord[]> {
    const names = await queueNames(this.#engine);
    const found = await Promise.all(names.map((name) => this.#recordOf(name)));
    return found.flat();
  }

  /** @throws NotFound */
  async stats(queue: string): Promise<QueueStats> {
    return (await this.#open(queue)).queue.stats();
  }

  async workers(queue?: string): Promise<WorkerRecord[]> {
    const names = queue === undefined ? await queueNames(this.#engine) : [queue];
    const found = await Promise.all(names.map(async (name) => (await this.#open(name)).store.workers.records()));
    return found.flat();
  }

  async schedules(queue?: string): Promise<ScheduleRecord[]> {
    const names = queue === undefined ? await queueNames(this.#engine) : [queue];
    const found = await Promise.all(names.map(async (name) => (await this.#open(name)).store.schedules.list()));
    return found.flat();
  }

  /** @throws NotFound */
  async schedule(queue: string, name: string): Promise<ScheduleRecord> {
    const all = await this.schedules(queue);
    return all.find((one) => one.name === name) ?? refuseSchedule(queue, name, all);
  }

  /** The newest twenty jobs are kept. @throws NotFound */
  async scheduleRuns(queue: string, name: string, options: ScheduleRunsOptions = {}): Promise<ScheduleRun[]> {
    const { limit } = checkOptions('scheduleRuns', options, runsShape);
    const { store } = await this.#open(queue);
    await this.schedule(queue, name);
    const runs = await store.schedules.runs(name, limit);
    return runs.map((run) => ({ ...run, job: `${queue}:${run.job}` }));
  }

  /** @throws NotFound */
  async pauseSchedule(queue: string, name: string): Promise<void> {
    const { store } = await this.#open(queue);
    if (!(await store.schedules.pause(name))) await this.schedule(queue, name);
  }

  /** @throws NotFound */
  async resumeSchedule(queue: string, name: string): Promise<void> {
    const { schedules } = (await this.#open(queue)).store;
    const now = await schedules.now();
    const isThere = await schedules.resume(name, ({ cron, timezone }) => nextTick(cron, timezone, now) ?? null);
    if (!isThere) await this.schedule(queue, name);
  }

  /** @throws NotFound */
  async runSchedule(queue: string, name: string): Promise<EnqueueResult> {
    const { store } = await this.#open(queue);
    const added = await store.schedules.run(name);
    if (added === undefined) return refuseSchedule(queue, name, await store.schedules.list());
    return { ...added, id: `${queue}:${added.id}` };
  }

  /** @throws NotFound  no such queue or kind @throws InvalidInput */
  async setSchedule(queue: string, name: string, options: ScheduleOptions): Promise<void> {
    await (await this.#open(queue)).queue.schedule(name, options as never);
  }

  /** @throws NotFound */
  async unschedule(queue: string, name: string): Promise<void> {
    const { store } = await this.#open(queue);
    if (!(await store.schedules.remove(name))) refuseSchedule(queue, name, await store.schedules.list());
  }

  /** @throws NotFound @throws NotSupported  with a part */
  async pause(queue: string, part?: PartOptions): Promise<void> {
    refusePart(part);
    await (await this.#open(queue)).queue.pause();
  }

  /** @throws NotFound @throws NotSupported  with a part */
  async resume(queue: string, part?: PartOptions): Promise<void> {
    refusePart(part);
    await (await this.#open(queue)).queue.resume();
  }

  /** @param job  such as `mail:1042`, or its queue and key @throws NotFound, InvalidInput @throws NotSupported  a key that is only a label */
  async get(job: AnyJobTarget, options: TxOptions = {}): Promise<JobRecord> {
    const { queue, id } = await this.#job(job, options);
    return { ...(await queue.get(id)), id: `${queue.name}:${id}` };
  }

  /** The existing ones of these jobs, in this order. */
  async getMany(jobs: readonly string[]): Promise<JobRecord[]> {
    const found = await Promise.all(jobs.map((job) => this.get(job).catch(unlessMissing)));
    return found.flatMap((job) => job ?? []);
  }

  async history(job: string): Promise<JobTransition[]> {
    const { queue, id } = await this.#job(job);
    return queue.history(id);
  }

  async explain(job: string): Promise<Explanation> {
    const { queue, id } = await this.#job(job);
    return queue.explain(id);
  }

  async cancel(job: AnyJobTarget, { tx, ...options }: CancelOptions = {}): Promise<JobStatus> {
    const { queue, id } = await this.#job(job, { tx });
    return queue.cancel(id, options);
  }

  /** The payload is checked when the job runs, since only the program has its schema. @throws NotFound, Conflict, InvalidInput, NotSupported */
  async update(job: AnyJobTarget, { tx, ...change }: JobChange): Promise<ChangedJob> {
    const { queue, id } = await this.#job(job, { tx });
    return { ...(await queue.update(id, change)), id: `${queue.name}:${id}` };
  }

  async retry(job: AnyJobTarget, options: TxOptions = {}): Promise<JobStatus> {
    const { queue, id } = await this.#job(job, options);
    return queue.retry(id);
  }

  async redrive(letter: AnyJobTarget, options: TxOptions = {}): Promise<ChangedJob> {
    const { queue, id } = await this.#job(letter, options);
    const job = await queue.redrive(id);
    return { ...job, id: `${queue.name}:${job.id}` };
  }

  /** Like {@link DynamoQueue.waitFor}. @throws NotFound, JobFailed, Cancelled, TimedOut, InvalidInput */
  async waitFor(job: string, options: WaitForOptions = {}): Promise<unknown> {
    const { queue, id } = await this.#job(job);
    return queue.waitFor(id, options);
  }

  /**
   * One page of the jobs of a queue, or of all, that filters name, newest first in each shard and band of priority. It reads the rows from
   * the newest on, and what a filter of status, tag or time cannot tell by the row as a whole job: some read units each.
   * @throws InvalidInput, NotFound @throws NotSupported  the query has words
   */
  search(query: string, options: SearchOptions & { readonly queue?: string | undefined } = {}): Promise<SearchPage> {
    return listJobs(
      query,
      options,
      () => queueNames(this.#engine),
      async (name) => {
        const { queue, store, declared } = await this.#open(name);
        const get = async (id: string): Promise<JobRecord> => ({ ...(await queue.get(id)), id: `${name}:${id}` });
        const { kinds, shards } = declared;
        return { rows: store.rows, shards, kindId: new Map(kinds.map((kind, id) => [kind, id])), get };
      },
    );
  }

  /**
   * Adds a job once for all requests of one name within a day: a later one is answered with that job.
   * @param once  the name of the request, and a digest of all that it says @throws Conflict  the name was used for something else
   */
  async enqueueOnce(
    once: OnceRequest,
    queue: string,
    kind: string,
    payload: unknown,
    options: HandOptions = {},
  ): Promise<EnqueueResult> {
    const { store } = await this.#open(queue);
    const request = { ...readHandJob(queue, { ...options, kind, payload }), once };
    const added = await store.enqueue(request, undefined);
    return { ...added, id: `${queue}:${added.id}` };
  }

  /** How far a batch is. @param batch  such as `mail:1042` @throws NotFound, InvalidInput */
  async batch(batch: string): Promise<BatchRecord> {
    const { queue, id } = await this.#job(batch);
    return { id: batch, queue: queue.name, ...(await queue.openBatch(id).progress()) };
  }

  /** Does nothing if it is sealed. @throws NotFound, InvalidInput */
  async sealBatch(batch: string): Promise<void> {
    const { queue, id } = await this.#job(batch);
    await queue.openBatch(id).seal();
  }

  /** Makes an open batch, and then adds its first jobs, each row of them as a whole. @returns its id @throws NotFound, InvalidInput, Conflict */
  async newBatch(queue: string, batch: HandBatch = {}, jobs: readonly HandJob[] = []): Promise<string> {
    const opened = await this.#open(queue);
    const callbacks = readHandCallbacks(queue, batch);
    const parent = batch.parent === undefined ? undefined : (await this.#job(batch.parent)).id;
    const id = `${queue}:${await opened.store.batches.make(callbacks, parent)}`;
    if (jobs.length > 0) await this.addToBatch(id, jobs);
    return id;
  }

  /** Adds jobs to an open batch, each row of them as a whole. @throws Conflict  it is sealed @throws NotFound, InvalidInput */
  async addToBatch(batch: string, jobs: readonly HandJob[]): Promise<EnqueueResult[]> {
    const { queue, id } = await this.#job(batch);
    const added = await queue.openBatch(id).enqueueMany(jobs as never);
    return added.map((job) => ({ id: `${queue.name}:${job}`, status: 'new', duplicate: false }));
  }

  async drain(queue: string, options: DrainOptions = {}): Promise<void> {
    await (await this.#open(queue)).queue.drain(options);
  }

  /** The payload is checked when the job runs, since only the program has its schema. @throws NotFound, InvalidInput, NotSupported */
  async enqueue(queue: string, kind: string, payload: unknown, options: HandOptions = {}): Promise<EnqueueResult> {
    const { unique, ...given } = options;
    const opened = await this.#open(queue);
    // With a rule of its own the table decides, as for a kind that has one.
    const added =
      unique === undefined
        ? await opened.queue.enqueue(kind as never, payload as never, given as EnqueueOptions)
        : await opened.store.enqueue(readHandJob(queue, { ...options, kind, payload }), undefined);
    return { ...added, id: `${queue}:${added.id}` };
  }

  async #recordOf(name: string): Promise<QueueRecord[]> {
    const { declared, store } = await this.#open(name);
    const [workers, head] = await Promise.all([store.workers.list(), store.rows.head(0)]);
    const paused = pausedAt(head);
    const { shards, keyed, attempts, historyMs, kinds, declaredAt } = declared;
    const kept = Number.isFinite(historyMs) ? historyMs : null;
    const rest = {
      pausedAt: paused === undefined ? null : new Date(paused),
      pausedParts: [],
      blockedKeys: 0,
      createdAt: new Date(declaredAt),
      kinds,
      workers: workers.length,
    };
    return [{ name, shards, keyed, perGroup: null, attempts, historyMs: kept, ...rest }];
  }

  async #open(name: string): Promise<OpenQueue> {
    const declared = await declaredOf(new QueueRows(this.#engine, name, TIMEOUT_MS));
    const definition = definitionOf(declared);
    const queue = new DynamoQueue(this.#engine, definition);
    return { declared, queue, store: new DynamoQueueStore(this.#engine, definition) };
  }

  async #job(job: AnyJobTarget, { tx }: TxOptions = {}): Promise<{ readonly queue: DynamoQueue; readonly id: string }> {
    if (tx !== undefined)
      throw new InvalidInput('on DynamoDB there is no transaction to join: leave out tx', { field: 'tx' });
    if (isObject(job)) {
      const { queue: name, ...target } = job;
      const { queue } = await this.#open(name);
      return { queue, id: (await queue.get(target)).id };
    }
    const at = job.lastIndexOf(':');
    if (at <= 0)
      throw new InvalidInput(`on DynamoDB a job is named "queue:id", such as "mail:1042", not "${job}"`, {
        field: 'id',
      });
    return { queue: (await this.#open(job.slice(0, at))).queue, id: job.slice(at + 1) };
  }
}

function refuseSchedule(queue: string, name: string, all: readonly ScheduleRecord[]): never {
  const names = all.map((one) => one.name);
  const near = suggest(name, names);
  const advice = near !== undefined ? `did you mean "${near}"?` : `it has ${names.join(', ') || 'none'}`;
  throw new NotFound(`queue "${queue}" has no schedule "${name}"; ${advice}`);
}
