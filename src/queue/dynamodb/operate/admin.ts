import { InvalidInput, NotFound } from '../../../base/errors.ts';
import { checkOptions, integer, suggest } from '../../../base/options/options.ts';
import { isObject } from '../../../base/options/shape.ts';
import type { DynamoEngine } from '../../../engine/dynamodb/index.ts';
import type { EnqueueOptions, EnqueueResult } from '../../enqueue.ts';
import type { JobRecord, JobStatus, JobTransition } from '../../job.ts';
import type { AnyJobTarget } from '../../job-id.ts';
import type { QueueAdmin } from '../../operate/admin.ts';
import type { Explanation } from '../../operate/explain/explain.ts';
import type { CancelOptions, DrainOptions, JobChange, TxOptions } from '../../operate/operations.ts';
import { nextTick, type ScheduleOptions, type ScheduleRecord } from '../../operate/schedule.ts';
import type { ScheduleRunsOptions } from '../../operate/schedule-admin.ts';
import type { SearchOptions, SearchPage } from '../../operate/search.ts';
import type { QueueRecord, QueueStats, WorkerRecord } from '../../operate/stats.ts';
import type { PartOptions } from '../../paused-part.ts';
import type { JobRelations } from '../../postgres/operate/overview.ts';
import type { ScheduleRun } from '../../postgres/operate/schedules.ts';
import type { ChangedJob } from '../../postgres/reader.ts';
import { type HandOptions, readHandJob } from '../../watch/by-hand.ts';
import type { WaitForOptions } from '../../watch/wait-for.ts';
import { type OpenQueue, TableBatchAdmin } from '../batch/admin.ts';
import { QueueRows, unlessMissing } from '../database.ts';
import { declaredOf, definitionOf, queueNames } from '../declaration.ts';
import type { OnceRequest } from '../enqueue/unique.ts';
import { pausedAt } from '../heads/by-hand.ts';
import { refusePart } from '../limits.ts';
import { DynamoQueue } from '../queue.ts';
import { DynamoQueueStore } from '../store.ts';
import { listJobs } from './listing.ts';
import { type QueueHome, relationsOf, siblingsOf } from './relations.ts';

/** The calls that operate all queues of a table of DynamoDB. */
export type TableQueueAdmin = AnyQueueAdmin &
  Pick<DynamoQueueAdmin, 'addOneToBatch' | 'enqueueOnce' | 'newBatchOnce' | 'relations' | 'siblings'>;

/** The calls that operate all queues of an engine: those of {@link QueueAdmin}. */
export type AnyQueueAdmin = Pick<QueueAdmin, keyof QueueAdmin>;

const TIMEOUT_MS = 30_000;
const runsShape = { limit: integer({ min: 1, max: 100, default: 10 }) };

/**
 * Operates all queues of a table of DynamoDB, for tools. Each queue of a table has ids of its own, so the name of a job has its queue and its id:
 * `mail:1042`. Calls that a queue on DynamoDB does not support throw `NotSupported`.
 */
export class DynamoQueueAdmin extends TableBatchAdmin implements AnyQueueAdmin {
  readonly #engine: DynamoEngine;

  /** @internal */
  constructor(engine: DynamoEngine) {
    super();
    this.#engine = engine;
  }

  /** The first thousand of the declared queues, by name. Three requests for each. */
  async list(): Promise<QueueRecord[]> {
    const names = await queueNames(this.#engine);
    const found = await Promise.all(names.map((name) => this.#recordOf(name)));
    return found.flat();
  }

  /** @throws NotFound */
  async stats(queue: string): Promise<QueueStats> {
    return (await this.open(queue)).queue.stats();
  }

  async workers(queue?: string): Promise<WorkerRecord[]> {
    const names = queue === undefined ? await queueNames(this.#engine) : [queue];
    const found = await Promise.all(names.map(async (name) => (await this.open(name)).store.workers.records()));
    return found.flat();
  }

  async schedules(queue?: string): Promise<ScheduleRecord[]> {
    const names = queue === undefined ? await queueNames(this.#engine) : [queue];
    const found = await Promise.all(names.map(async (name) => (await this.open(name)).store.schedules.list()));
    return found.flat();
  }

  /** @throws NotFound */
  async schedule(queue: string, name: string): Promise<ScheduleRecord> {
    const all = await this.schedules(queue);
    return all.find((one) => one.name === name) ?? refuseSchedule(queue, name, all);
  }

  /** Each schedule stores its newest twenty jobs. @throws NotFound */
  async scheduleRuns(queue: string, name: string, options: ScheduleRunsOptions = {}): Promise<ScheduleRun[]> {
    const { limit } = checkOptions('scheduleRuns', options, runsShape);
    const { store } = await this.open(queue);
    await this.schedule(queue, name);
    const runs = await store.schedules.runs(name, limit);
    return runs.map((run) => ({ ...run, job: `${queue}:${run.job}` }));
  }

  /** @throws NotFound */
  async pauseSchedule(queue: string, name: string): Promise<void> {
    const { store } = await this.open(queue);
    if (!(await store.schedules.pause(name))) await this.schedule(queue, name);
  }

  /** @throws NotFound */
  async resumeSchedule(queue: string, name: string): Promise<void> {
    const { schedules } = (await this.open(queue)).store;
    const now = await schedules.now();
    const isThere = await schedules.resume(name, ({ cron, timezone }) => nextTick(cron, timezone, now) ?? null);
    if (!isThere) await this.schedule(queue, name);
  }

  /** @throws NotFound */
  async runSchedule(queue: string, name: string): Promise<EnqueueResult> {
    const { store } = await this.open(queue);
    const added = await store.schedules.run(name);
    if (added === undefined) return refuseSchedule(queue, name, await store.schedules.list());
    return { ...added, id: `${queue}:${added.id}` };
  }

  /** @throws NotFound  no such queue or kind @throws InvalidInput */
  async setSchedule(queue: string, name: string, options: ScheduleOptions): Promise<void> {
    await (await this.open(queue)).queue.schedule(name, options as never);
  }

  /** @throws NotFound */
  async unschedule(queue: string, name: string): Promise<void> {
    const { store } = await this.open(queue);
    if (!(await store.schedules.remove(name))) refuseSchedule(queue, name, await store.schedules.list());
  }

  /** @throws NotFound @throws NotSupported  with a part */
  async pause(queue: string, part?: PartOptions): Promise<void> {
    refusePart(part);
    await (await this.open(queue)).queue.pause();
  }

  /** @throws NotFound @throws NotSupported  with a part */
  async resume(queue: string, part?: PartOptions): Promise<void> {
    refusePart(part);
    await (await this.open(queue)).queue.resume();
  }

  /**
   * @param job  such as `mail:1042`, or its queue and key
   * @throws NotFound, InvalidInput @throws NotSupported  a key, where keys have no order
   */
  async get(job: AnyJobTarget, options: TxOptions = {}): Promise<JobRecord> {
    const { queue, id } = await this.jobOf(job, options);
    return { ...(await queue.get(id)), id: `${queue.name}:${id}` };
  }

  /** Those of these jobs that exist, in the given order. */
  async getMany(jobs: readonly string[]): Promise<JobRecord[]> {
    const found = await Promise.all(jobs.map((job) => this.get(job).catch(unlessMissing)));
    return found.flatMap((job) => job ?? []);
  }

  async history(job: string): Promise<JobTransition[]> {
    const { queue, id } = await this.jobOf(job);
    return queue.history(id);
  }

  async explain(job: string): Promise<Explanation> {
    const { queue, id } = await this.jobOf(job);
    return queue.explain(id);
  }

  /**
   * The jobs that a job comes after, and the jobs and batches that wait for it: at most fifty of each. It reads the head of each shard of each
   * queue, and the rows of waiting jobs and of batches that are not done, where there are any. @throws NotFound, InvalidInput
   */
  async relations(job: string): Promise<JobRelations> {
    const { queue, id } = await this.jobOf(job);
    const all = await Promise.all((await queueNames(this.#engine)).map((name) => this.#homeOf(name)));
    return relationsOf(await this.#homeOf(queue.name), all, id);
  }

  /** The jobs of the key of a job, fifteen before and fifteen after it; none where keys have no order. @throws NotFound, InvalidInput */
  async siblings(job: string): Promise<JobRecord[]> {
    const { queue, id } = await this.jobOf(job);
    return this.getMany(await siblingsOf(await this.#homeOf(queue.name), id));
  }

  async cancel(job: AnyJobTarget, { tx, ...options }: CancelOptions = {}): Promise<JobStatus> {
    const { queue, id } = await this.jobOf(job, { tx });
    return queue.cancel(id, options);
  }

  /** The worker of the job checks the payload, since only its program has the schema. @throws NotFound, Conflict, InvalidInput, NotSupported */
  async update(job: AnyJobTarget, { tx, ...change }: JobChange): Promise<ChangedJob> {
    const { queue, id } = await this.jobOf(job, { tx });
    return { ...(await queue.update(id, change)), id: `${queue.name}:${id}` };
  }

  async retry(job: AnyJobTarget, options: TxOptions = {}): Promise<JobStatus> {
    const { queue, id } = await this.jobOf(job, options);
    return queue.retry(id);
  }

  async redrive(letter: AnyJobTarget, options: TxOptions = {}): Promise<ChangedJob> {
    const { queue, id } = await this.jobOf(letter, options);
    const job = await queue.redrive(id);
    return { ...job, id: `${queue.name}:${job.id}` };
  }

  /** Like {@link DynamoQueue.waitFor}. @throws NotFound, JobFailed, Cancelled, TimedOut, InvalidInput */
  async waitFor(job: string, options: WaitForOptions = {}): Promise<unknown> {
    const { queue, id } = await this.jobOf(job);
    return queue.waitFor(id, options);
  }

  /**
   * One page of the jobs of one queue, or of all, that pass the filters, newest first in each shard and band of priority. It reads the rows from
   * the newest on. If a row does not tell whether its job passes a filter, it reads the whole job: some read units each. If the filter names a key
   * that has an order, it reads only the rows of that key.
   * @throws InvalidInput, NotFound @throws NotSupported  the query has words
   */
  search(query: string, options: SearchOptions & { readonly queue?: string | undefined } = {}): Promise<SearchPage> {
    return listJobs(
      query,
      options,
      () => queueNames(this.#engine),
      async (name) => {
        const { queue, store, declared } = await this.open(name);
        const get = async (id: string): Promise<JobRecord> => ({ ...(await queue.get(id)), id: `${name}:${id}` });
        const { kinds, shards, keyed } = declared;
        return { rows: store.rows, shards, keyed, kindId: new Map(kinds.map((kind, id) => [kind, id])), get };
      },
    );
  }

  /**
   * Adds one job for all requests of one name within a day: later requests get the same job as their answer.
   * @param once  the name of the request, and a digest of its content @throws Conflict  another request has used the name
   */
  async enqueueOnce(
    once: OnceRequest,
    queue: string,
    kind: string,
    payload: unknown,
    options: HandOptions = {},
  ): Promise<EnqueueResult> {
    const { store } = await this.open(queue);
    const request = { ...readHandJob(queue, { ...options, kind, payload }), once };
    const added = await store.enqueue(request, undefined);
    return { ...added, id: `${queue}:${added.id}` };
  }

  async drain(queue: string, options: DrainOptions = {}): Promise<void> {
    await (await this.open(queue)).queue.drain(options);
  }

  /** The worker of the job checks the payload, since only its program has the schema. @throws NotFound, InvalidInput, NotSupported */
  async enqueue(queue: string, kind: string, payload: unknown, options: HandOptions = {}): Promise<EnqueueResult> {
    const { unique, ...given } = options;
    const opened = await this.open(queue);
    // If the job has a rule of its own, the table decides whether the job exists, as for a unique kind.
    const added =
      unique === undefined
        ? await opened.queue.enqueue(kind as never, payload as never, given as EnqueueOptions)
        : await opened.store.enqueue(readHandJob(queue, { ...options, kind, payload }), undefined);
    return { ...added, id: `${queue}:${added.id}` };
  }

  /** @internal */
  protected names(): Promise<readonly string[]> {
    return queueNames(this.#engine);
  }

  async #recordOf(name: string): Promise<QueueRecord[]> {
    const { declared, store } = await this.open(name);
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
    return [{ name, shards, keyed, perGroup: null, rate: null, attempts, historyMs: kept, ...rest }];
  }

  async #homeOf(name: string): Promise<QueueHome> {
    const { declared, store } = await this.open(name);
    return { rows: store.rows, definition: definitionOf(declared), kindName: new Map(declared.kinds.entries()) };
  }

  /** @internal */
  protected async open(name: string): Promise<OpenQueue> {
    const declared = await declaredOf(new QueueRows(this.#engine, name, TIMEOUT_MS));
    const definition = definitionOf(declared);
    const queue = new DynamoQueue(this.#engine, definition);
    return { declared, queue, store: new DynamoQueueStore(this.#engine, definition) };
  }

  /** @internal */
  protected async jobOf(
    job: AnyJobTarget,
    { tx }: TxOptions = {},
  ): Promise<{ readonly queue: DynamoQueue; readonly id: string }> {
    if (tx !== undefined)
      throw new InvalidInput('on DynamoDB there is no transaction to join: leave out tx', { field: 'tx' });
    if (isObject(job)) {
      const { queue: name, ...target } = job;
      const { queue } = await this.open(name);
      return { queue, id: (await queue.get(target)).id };
    }
    const at = job.lastIndexOf(':');
    if (at <= 0)
      throw new InvalidInput(`on DynamoDB a job is named "queue:id", such as "mail:1042", not "${job}"`, {
        field: 'id',
      });
    return { queue: (await this.open(job.slice(0, at))).queue, id: job.slice(at + 1) };
  }
}

function refuseSchedule(queue: string, name: string, all: readonly ScheduleRecord[]): never {
  const names = all.map((one) => one.name);
  const near = suggest(name, names);
  const advice = near !== undefined ? `did you mean "${near}"?` : `it has ${names.join(', ') || 'none'}`;
  throw new NotFound(`queue "${queue}" has no schedule "${name}"; ${advice}`);
}
