import { Conflict, InvalidInput, NotSupported } from '../../base/errors.ts';
import { Events } from '../../base/events.ts';
import { Lazy } from '../../base/lazy.ts';
import { checkOptions, optional, text } from '../../base/options/options.ts';
import { isObject } from '../../base/options/shape.ts';
import type { DynamoEngine } from '../../engine/dynamodb/index.ts';
import type { Definition, Kinds, PayloadIn } from '../definition.ts';
import { type EnqueuedIds, type EnqueueOptions, type EnqueueResult, Producer } from '../enqueue.ts';
import { type Handlers, readHandlers } from '../handlers.ts';
import type { JobRecord, JobStatus, JobTransition } from '../job.ts';
import { type JobTarget, readJobId } from '../job-id.ts';
import type { JobInput } from '../job-input.ts';
import type { Explanation } from '../operate/explain.ts';
import { type CancelOptions, type DrainOptions, drain, type JobChange } from '../operate/operations.ts';
import type { ScheduleOptions, ScheduleRecord } from '../operate/schedule.ts';
import { readScheduleName, type SchedulesOptions, setSchedule, setSchedules } from '../operate/set-schedule.ts';
import type { QueueStats } from '../operate/stats.ts';
import type { ChangedJob } from '../postgres/reader.ts';
import type { QueueIds } from '../store.ts';
import { type GivenNode, readNode } from '../watch/flow.ts';
import type { FlowNode } from '../watch/flows.ts';
import { readWaitOptions, type WaitForOptions } from '../watch/wait-for.ts';
import { readWorkOptions, type WorkOptions } from '../work/options.ts';
import type { WorkerEvents } from '../work/report.ts';
import { Worker } from '../work/worker.ts';
import { itemsOf } from './enqueue/items.ts';
import type { EnqueueItem } from './enqueue/producing.ts';
import { refusePart, withinRows } from './limits.ts';
import { DynamoQueueChanges } from './operate/changes.ts';
import { DynamoQueueCounts } from './operate/counts.ts';
import { DynamoQueueReader } from './operate/reader.ts';
import { idOf } from './operate/target.ts';
import { DynamoQueueStore } from './store.ts';
import { waitForEnd } from './waiting.ts';

const cancelShape = { reason: optional(text({ max: 1000 })) };

interface RunOptions extends Omit<EnqueueOptions, 'tx'>, WaitForOptions {}

/**
 * A queue on DynamoDB: the same calls and promises as on Postgres, except that a job is enqueued in your transaction by `enqueueItems`,
 * that nothing is notified, and what docs/dynamodb.md lists as not supported.
 */
export class DynamoQueue<K extends Kinds = never> {
  readonly name: string;
  readonly #engine: DynamoEngine;
  readonly #definition: Definition;
  readonly #store: DynamoQueueStore;
  readonly #producer: Producer;
  readonly #reader: DynamoQueueReader;
  readonly #counts: DynamoQueueCounts;
  readonly #changes: DynamoQueueChanges;
  readonly #registered: Lazy<QueueIds> = new Lazy(() => this.#store.register(this.#definition));

  /** @internal */
  constructor(engine: DynamoEngine, given: Definition) {
    const definition = withinRows(given);
    this.name = definition.name;
    this.#engine = engine;
    this.#definition = definition;
    this.#store = new DynamoQueueStore(engine, definition);
    this.#producer = new Producer(this.#store, definition, () => this.#register());
    this.#reader = new DynamoQueueReader(this.#store, definition);
    this.#counts = new DynamoQueueCounts(this.#store, definition);
    this.#changes = new DynamoQueueChanges(this.#store, definition);
  }

  /**
   * Writes what the queue is to the table. The first use does this by itself.
   * @throws SchemaMismatch  there is no such table: call `engine.migrate()`
   * @throws Conflict  shards or perKey differ from the registered ones, and jobs are outstanding
   */
  async register(): Promise<void> {
    await this.#register();
  }

  /**
   * Adds a job: two requests, and two write units for a job of less than a kilobyte; one more with a key. The job runs at least once.
   * @throws InvalidInput  the schema refused the payload, or an option is bad; nothing was written
   * @throws NotFound  the queue has no such kind
   */
  enqueue<N extends keyof K & string>(
    kind: N,
    payload: PayloadIn<K[N]>,
    options: Omit<EnqueueOptions, 'tx'> = {},
  ): Promise<EnqueueResult> {
    return this.#producer.one(kind, payload, options);
  }

  /**
   * The parts that enqueue a job in a `TransactWriteItems` of yours: the job exists if and only if that is carried out. Send it within a
   * minute; after that it is cancelled by their condition. A number is taken now: one write unit.
   * @throws InvalidInput, NotFound  like `enqueue` @throws NotSupported  a key together with `runAt`
   */
  async enqueueItems<N extends keyof K & string>(
    kind: N,
    payload: PayloadIn<K[N]>,
    options: Omit<EnqueueOptions, 'tx'> = {},
  ): Promise<{ readonly id: string; readonly items: readonly EnqueueItem[] }> {
    return itemsOf(this.#store.rows, this.#definition, () => this.#register(), kind, payload, options);
  }

  /** Checks whether `enqueue` would accept these. Sends nothing. @throws InvalidInput, NotFound */
  async check(kind: string, payload: unknown, options: { readonly key?: string | undefined } = {}): Promise<void> {
    await this.#producer.check(kind, payload, options.key);
  }

  /**
   * Adds many jobs, 64 to a row, which is written as a whole or not at all. All are checked before any is written.
   * @returns the ids, in the order of the jobs
   * @throws InvalidInput  names the job by its index
   */
  enqueueMany(
    jobs: readonly (Omit<JobInput, 'kind'> & { readonly kind: keyof K & string })[],
    options: { readonly tx?: undefined } = {},
  ): Promise<EnqueuedIds> {
    return this.#producer.many(jobs, options);
  }

  /**
   * Adds a whole graph of jobs of this queue as one transaction, all of it or nothing: some 45 nodes, as a transaction has at most 100 rows.
   * @returns the id of each node, by its name
   * @throws InvalidInput  names the node @throws NotFound  no such kind or job @throws NotSupported  it is too large, or names a batch or another queue
   */
  async flow<N extends FlowNode<K>>(nodes: readonly NoInfer<N>[]): Promise<Readonly<Record<string, string>>> {
    if (!Array.isArray(nodes)) throw new InvalidInput('flow takes an array of nodes', { field: 'nodes' });
    const ids = await this.#register();
    const given: GivenNode[] = [];
    for (const [nth, node] of nodes.entries()) given.push(await readNode(node, nth, this.#ownProducer));
    return this.#store.flow(given, ids);
  }

  /**
   * Starts a worker in this process. It claims jobs at once, after every enqueue of this process, and at every poll.
   * @param handlers  one for each kind
   * @throws InvalidInput  a kind has no handler, or an option is bad @throws NotSupported  hold: 'transaction', or warn
   */
  work(handlers: Handlers<K>, options: WorkOptions = {}): Worker {
    if (options.hold === 'transaction') {
      throw new NotSupported(
        "hold: 'transaction' needs a transaction that stays open, which DynamoDB does not have: use a lease",
      );
    }
    if (options.kinds !== undefined || options.priority !== undefined) {
      throw new NotSupported(
        'kinds and priority of work() are not possible on DynamoDB, where a claim takes what comes next in the line of a shard, and a job that ' +
          'is left there would hold up all that come after it: give these jobs a queue of their own',
      );
    }
    const { settings, signal, onBlocked, warn } = readWorkOptions(options, this.#definition, Infinity);
    if (warn !== undefined) {
      throw new NotSupported('warn would read the whole line each time on DynamoDB: ask stats() when you need it');
    }
    const events = new Events<WorkerEvents>();
    const parts = {
      store: this.#store,
      definition: this.#definition,
      ...readHandlers(this.#definition, handlers, { engine: this.#engine, events }),
      settings,
      onBlocked,
      warning: undefined,
    };
    return new Worker(parts, () => this.#register(), events, this.#engine.logger, signal);
  }

  /** How many jobs are ready, delayed and in progress, and how many workers live. Reads the line: for people. */
  async stats(): Promise<QueueStats> {
    await this.#register();
    return this.#counts.stats();
  }

  /** Stops claims of all workers in all processes until `resume()`. Claimed jobs are finished. One write for each shard. */
  async pause(part?: undefined): Promise<void> {
    refusePart(part);
    await this.#register();
    await this.#changes.setPause(true);
  }

  /** Ends a pause. Workers of other processes claim jobs at their next poll. */
  async resume(part?: undefined): Promise<void> {
    refusePart(part);
    await this.#register();
    await this.#changes.setPause(false);
  }

  /**
   * One job, by its id or by its key, as on Postgres.
   * @throws NotFound  this queue has no such job @throws InvalidInput  the id is none @throws NotSupported  a key that is only a label
   */
  async get(job: JobTarget): Promise<JobRecord> {
    const ids = await this.#register();
    return this.#reader.get(await this.#idOf(ids, 'get', job), ids.kindName);
  }

  /**
   * Waits for a job to end. It looks again and again, a read unit each time, at most once a second.
   * @returns its result @throws JobFailed  it ended in error @throws Cancelled, TimedOut, NotFound, InvalidInput
   */
  async waitFor(id: string, options: WaitForOptions = {}): Promise<unknown> {
    const { kindName } = await this.#register();
    return waitForEnd(this.#reader, this.#store.rows, readJobId(id), kindName, options);
  }

  /** Enqueues a job and waits for it, as `waitFor` does. When it gives up, the job goes on. @throws like `enqueue` and `waitFor` */
  async run<N extends keyof K & string>(kind: N, payload: PayloadIn<K[N]>, options: RunOptions = {}): Promise<unknown> {
    const { timeout, signal, ...rest } = options;
    const wait = { timeout, signal };
    readWaitOptions('run', wait);
    const { id } = await this.enqueue(kind, payload, rest);
    return this.waitFor(id, wait);
  }

  /** All transitions of a job, oldest first. @throws NotFound, InvalidInput */
  history(id: string): Promise<JobTransition[]> {
    return this.#reader.history(readJobId(id));
  }

  /** Why a job is in its state, and why it does not run. @throws NotFound, InvalidInput */
  async explain(id: string): Promise<Explanation> {
    const { kindName } = await this.#register();
    return this.#reader.explain(readJobId(id), kindName);
  }

  /**
   * Cancels a job. A new job never runs. The worker of a running job learns it at its next heartbeat, within a third of its lease, and at once
   * in this process; the returned status is then `in-progress`.
   * @throws Conflict  the job is complete or in error
   */
  async cancel(job: JobTarget, options: CancelOptions = {}): Promise<JobStatus> {
    const { reason } = checkOptions('cancel', options, cancelShape);
    return this.#changes.cancel(await this.#idOf(await this.#register(), 'cancel', job), reason ?? null);
  }

  /**
   * Changes a job that waits: its payload, its time, its options. It keeps its id, its attempts and its place in the order of its key. No
   * handler gets the old payload once this has returned. A priority stays in its band.
   * @throws Conflict  the job has begun or ended @throws NotSupported  expiresAt, or a priority of another band
   * @throws InvalidInput  the schema of its kind refused the payload, its row has no room for it, or there is nothing to change
   */
  async update(job: JobTarget, change: Omit<JobChange, 'tx'>): Promise<ChangedJob> {
    const ids = await this.#register();
    return this.#changes.update(await this.#idOf(ids, 'update', job), change, this.#producer, ids.kindName);
  }

  /**
   * Makes a job that ended in error or was cancelled new again, with all its attempts.
   * @throws Conflict  it is new, in progress or complete; or its kind is unique, and another job has its place
   */
  async retry(job: JobTarget): Promise<JobStatus> {
    const ids = await this.#register();
    return this.#changes.retry(await this.#idOf(ids, 'retry', job), ids.kindName);
  }

  /**
   * Puts the job of a dead letter (see {@link KindOptions.onError}) back to work, as `retry` does, and then ends the letter if it waits: one
   * after the other, so that a letter may be left behind, but no job.
   * @returns the job that runs again @throws InvalidInput  it is no dead letter @throws Conflict  the letter or its job is in progress, or complete
   */
  async redrive(letter: string): Promise<{ readonly id: string; readonly status: JobStatus }> {
    const { payload, status } = await this.get(letter);
    const job = isObject(payload) ? payload['job'] : undefined;
    const isLetter = isObject(payload) && payload['queue'] === this.name && 'isPayloadOmitted' in payload;
    if (!isLetter || typeof job !== 'string')
      throw new InvalidInput(`job ${letter} is no dead letter`, { field: 'id' });
    if (status === 'in-progress') {
      throw new Conflict(
        `dead letter ${letter} is in progress: its handler decides about job ${job}; retry that one by its id`,
      );
    }
    const answer = { id: job, status: await this.retry(job) };
    if (status === 'new') await this.cancel(letter, { reason: 'redriven' }).catch(unlessOver);
    return answer;
  }

  /**
   * Enqueues a job at each tick of a cron pattern, as long as a worker of this queue runs in some process: each tick once, however many
   * processes there are. Declaring it again changes it, and keeps its next tick unless the pattern or the zone differs.
   * @param name  1 to 100 characters, one schedule each
   * @throws InvalidInput  names the field @throws NotFound  no such kind
   */
  async schedule<N extends keyof K & string>(
    name: string,
    options: ScheduleOptions & { readonly kind: N; readonly payload?: PayloadIn<K[N]> },
  ): Promise<void> {
    await this.#register();
    await setSchedule(this.#store.schedules, this.#definition, name, options);
    this.#store.household.lookAtSchedules();
  }

  /** Ends a schedule; the jobs that it has enqueued stay. @returns whether there was one */
  async unschedule(name: string): Promise<boolean> {
    readScheduleName('unschedule', name);
    await this.#register();
    return this.#store.schedules.remove(name);
  }

  /**
   * This queue's schedules, by name. Given the whole set of a program's schedules, it declares them first, one after another, and removes
   * those of an earlier set that this one no longer has. A set of a lower `version` than the last one changes nothing.
   * @throws InvalidInput  names the field @throws NotFound  no such kind
   */
  async schedules(
    all?: Readonly<Record<string, ScheduleOptions & { readonly kind: keyof K & string }>>,
    options: SchedulesOptions = {},
  ): Promise<ScheduleRecord[]> {
    await this.#register();
    if (all !== undefined) {
      await setSchedules(this.#store.schedules, this.#definition, all, options);
      this.#store.household.lookAtSchedules();
    }
    return this.#store.schedules.list();
  }

  /** Not on DynamoDB, which has no index of words. @throws NotSupported */
  search(): Promise<never> {
    return Promise.reject(
      new NotSupported('DynamoDB has no index of words: keep the ids of jobs, or search a copy of your own data'),
    );
  }

  /** Resolves when no job of this queue is ready, parked or in progress, in any process. @throws TimedOut */
  async drain(options: DrainOptions = {}): Promise<void> {
    await this.#register();
    await drain(this.#counts, this.name, options);
  }

  readonly #ownProducer = (queue: unknown): Producer => {
    if (queue === undefined || queue === this) return this.#producer;
    throw new NotSupported('on DynamoDB all nodes of a flow are of one queue');
  };

  #idOf(ids: QueueIds, call: string, job: JobTarget): Promise<string> {
    return idOf(this.#store.rows, this.#definition, ids, call, job);
  }

  #register(): Promise<QueueIds> {
    return this.#registered.get();
  }
}

/** It ended meanwhile. */
function unlessOver(error: unknown): void {
  if (!(error instanceof Conflict)) throw error;
}
