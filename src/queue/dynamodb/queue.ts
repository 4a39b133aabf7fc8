import { InvalidInput, NotSupported } from '../../base/errors.ts';
import { Events } from '../../base/events.ts';
import { Lazy } from '../../base/lazy.ts';
import type { DynamoEngine } from '../../engine/dynamodb/index.ts';
import type { Definition, Kinds, PayloadIn } from '../definition.ts';
import { type EnqueuedIds, type EnqueueOptions, type EnqueueResult, Producer } from '../enqueue.ts';
import { type Handlers, readHandlers } from '../handlers.ts';
import { readJobId } from '../job-id.ts';
import type { JobInput } from '../job-input.ts';
import type { ScheduleOptions, ScheduleRecord } from '../operate/schedule.ts';
import { readScheduleName, type SchedulesOptions, setSchedule, setSchedules } from '../operate/set-schedule.ts';
import type { NewJobs, QueueIds } from '../store.ts';
import { Batch, type BatchHome } from '../watch/batch.ts';
import { type GivenNode, readNode } from '../watch/flow.ts';
import { type BatchCallbacks, type FlowNode, type JobOf, readCallbacks } from '../watch/flows.ts';
import { readWaitOptions, type WaitForOptions } from '../watch/wait-for.ts';
import { readWorkOptions, type WorkOptions } from '../work/options.ts';
import type { WorkerEvents } from '../work/report.ts';
import { Worker } from '../work/worker.ts';
import { refuseTx } from './batch/batches.ts';
import type { FlowQueue } from './enqueue/flow.ts';
import { itemsOf } from './enqueue/items.ts';
import type { EnqueueItem } from './enqueue/producing.ts';
import { withinRows } from './limits.ts';
import { DynamoQueueChanges } from './operate/changes.ts';
import { DynamoQueueCounts } from './operate/counts.ts';
import { OperatedDynamoQueue, type OperatedParts } from './operate/operated.ts';
import { DynamoQueueReader } from './operate/reader.ts';
import { DynamoQueueStore } from './store.ts';

interface RunOptions extends Omit<EnqueueOptions, 'tx'>, WaitForOptions {}

/**
 * A queue on DynamoDB: the same calls and promises as on Postgres, with three differences. `enqueueItems` enqueues a job in your transaction,
 * no process notifies another one, and docs/dynamodb.md lists calls that are not supported.
 */
export class DynamoQueue<K extends Kinds = never> extends OperatedDynamoQueue {
  readonly #engine: DynamoEngine;
  readonly #definition: Definition;
  readonly #store: DynamoQueueStore;
  readonly #producer: Producer;
  readonly #parts: OperatedParts;
  readonly #registered: Lazy<QueueIds> = new Lazy(() => this.#store.register(this.#definition));

  /** @internal */
  constructor(engine: DynamoEngine, given: Definition) {
    const definition = withinRows(given);
    super(definition.name);
    this.#engine = engine;
    this.#definition = definition;
    this.#store = new DynamoQueueStore(engine, definition);
    this.#producer = new Producer(this.#store, definition, () => this.registered());
    this.#parts = {
      rows: this.#store.rows,
      definition,
      reader: new DynamoQueueReader(this.#store, definition),
      counts: new DynamoQueueCounts(this.#store, definition),
      changes: new DynamoQueueChanges(this.#store, definition),
      producer: this.#producer,
    };
  }

  /** The engine of this queue. */
  get engine(): DynamoEngine {
    return this.#engine;
  }

  /**
   * Writes the declaration of the queue to the table. The first use does this by itself.
   * @throws SchemaMismatch  there is no such table: call `engine.migrate()`
   * @throws Conflict  shards or perKey differ from the registered ones while jobs are outstanding
   */
  async register(): Promise<void> {
    await this.registered();
  }

  /**
   * Adds a job: two requests, and two write units for a job of less than a kilobyte; one more of each with a key. The job runs at least once.
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
   * The items that enqueue a job in your own `TransactWriteItems`: the job exists if and only if that transaction succeeds. Send it within a
   * minute; after that, the condition of the items cancels it. This call takes a number, for one write unit.
   * @throws InvalidInput, NotFound  like `enqueue` @throws NotSupported  a key together with `runAt`
   */
  async enqueueItems<N extends keyof K & string>(
    kind: N,
    payload: PayloadIn<K[N]>,
    options: Omit<EnqueueOptions, 'tx'> = {},
  ): Promise<{ readonly id: string; readonly items: readonly EnqueueItem[] }> {
    const adding = { rows: this.#store.rows, withoutWaits: (batch: NewJobs) => this.#store.withoutWaits(batch) };
    return itemsOf(adding, this.#definition, () => this.registered(), kind, payload, options);
  }

  /** Checks whether `enqueue` would accept these. Sends nothing. @throws InvalidInput, NotFound */
  async check(kind: string, payload: unknown, options: { readonly key?: string | undefined } = {}): Promise<void> {
    await this.#producer.check(kind, payload, options.key);
  }

  /**
   * Adds many jobs, 64 to a row. Each row is written as a whole or not at all. All jobs are checked before any is written.
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
   * Adds a whole graph of jobs, of queues of one table, in one transaction: some 45 nodes, since a transaction has at most 100 rows.
   * @returns the id of each node, by the node's name; the id of a node of another queue has its queue: `mail:1042`
   * @throws InvalidInput  names the node @throws NotFound  no such kind, job or batch
   * @throws NotSupported  the graph is too large, or a node comes after a batch of another queue
   */
  async flow<N extends FlowNode<K>>(nodes: readonly NoInfer<N>[]): Promise<Readonly<Record<string, string>>> {
    if (!Array.isArray(nodes)) throw new InvalidInput('flow takes an array of nodes', { field: 'nodes' });
    const queues = new Map<string, FlowQueue>();
    const given: GivenNode[] = [];
    const homes = new Set<DynamoQueue>();
    const producerOf = (queue: unknown, field: string): Producer => {
      const home = this.#homeOf(queue, field);
      homes.add(home);
      return home.#producer;
    };
    for (const [nth, node] of nodes.entries()) given.push(await readNode(node, nth, producerOf));
    for (const home of homes) queues.set(home.name, await home.#asFlowQueue());
    return this.#store.flow(given, queues, await this.registered());
  }

  /**
   * Makes an open batch, as on Postgres: add jobs to it, and seal it. Within a second after its last member has ended, a worker of the queue
   * enqueues its callbacks, each exactly once.
   * @throws InvalidInput, NotFound  a callback is no job of its queue
   */
  async batch<C extends BatchCallbacks<K>>(
    callbacks?: NoInfer<C>,
    options: { readonly tx?: undefined } = {},
  ): Promise<Batch<JobOf<K>, BatchCallbacks<K>>> {
    return this.openBatch(await this.#newBatch(undefined, callbacks ?? {}, options.tx));
  }

  /** A batch of this queue by its id, for another process to add to it, to seal it or to see its progress. Sends nothing. */
  openBatch(id: string): Batch<JobOf<K>, BatchCallbacks<K>> {
    const { batches } = this.#store;
    const home: BatchHome = {
      manyInto: (batch, jobs, given) => this.#producer.manyInto(batch, jobs, given),
      newBatch: (parent, callbacks, { tx }) => this.#newBatch(parent, callbacks, tx),
      seal: async (batch) => {
        await this.registered();
        await batches.seal(batch);
        this.#store.household.notify();
      },
      progress: (batch) => batches.progress(batch),
    };
    return new Batch<JobOf<K>, BatchCallbacks<K>>(home, readJobId(id));
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
    return new Worker(parts, () => this.registered(), events, this.#engine.logger, signal);
  }

  /** Enqueues a job and waits for its end, like `waitFor`. If the call gives up, the job goes on. @throws like `enqueue` and `waitFor` */
  async run<N extends keyof K & string>(kind: N, payload: PayloadIn<K[N]>, options: RunOptions = {}): Promise<unknown> {
    const { timeout, signal, ...rest } = options;
    const wait = { timeout, signal };
    readWaitOptions('run', wait);
    const { id } = await this.enqueue(kind, payload, rest);
    return this.waitFor(id, wait);
  }

  /**
   * Enqueues a job at each tick of a cron pattern, as long as a worker of this queue runs in some process: one job for each tick, however many
   * processes there are. A second declaration changes the schedule, and keeps its next tick unless the pattern or the zone differs.
   * @param name  1 to 100 characters; each name has one schedule
   * @throws InvalidInput  names the field @throws NotFound  no such kind
   */
  async schedule<N extends keyof K & string>(
    name: string,
    options: ScheduleOptions & { readonly kind: N; readonly payload?: PayloadIn<K[N]> },
  ): Promise<void> {
    await this.registered();
    await setSchedule(this.#store.schedules, this.#definition, name, options);
    this.#store.household.lookAtSchedules();
  }

  /** Ends a schedule; the jobs that it has enqueued stay. @returns whether the schedule existed */
  async unschedule(name: string): Promise<boolean> {
    readScheduleName('unschedule', name);
    await this.registered();
    return this.#store.schedules.remove(name);
  }

  /**
   * This queue's schedules, by name. If it is given the whole set of a program's schedules, it declares these first, one after another, and
   * removes the schedules of an earlier set that this set no longer has. A set of a lower `version` than the last one changes nothing.
   * @throws InvalidInput  names the field @throws NotFound  no such kind
   */
  async schedules(
    all?: Readonly<Record<string, ScheduleOptions & { readonly kind: keyof K & string }>>,
    options: SchedulesOptions = {},
  ): Promise<ScheduleRecord[]> {
    await this.registered();
    if (all !== undefined) {
      await setSchedules(this.#store.schedules, this.#definition, all, options);
      this.#store.household.lookAtSchedules();
    }
    return this.#store.schedules.list();
  }

  /** @throws InvalidInput  it is no queue of this table */
  #homeOf(queue: unknown, field: string): DynamoQueue {
    if (queue === undefined) return this as DynamoQueue;
    if (queue instanceof DynamoQueue && queue.engine.table === this.#engine.table) return queue;
    throw new InvalidInput(`${field}.queue must be a queue of the same engine`, { field: `${field}.queue` });
  }

  async #newBatch(parent: string | undefined, given: object, tx: unknown): Promise<string> {
    refuseTx(tx);
    const callbacks = await readCallbacks(given, (queue, field) => this.#homeOf(queue, field).#producer);
    await this.registered();
    return this.#store.batches.make(callbacks, parent);
  }

  async #asFlowQueue(): Promise<FlowQueue> {
    return { rows: this.#store.rows, definition: this.#definition, ids: await this.registered() };
  }

  /** @internal */
  protected override get parts(): OperatedParts {
    return this.#parts;
  }

  /** @internal */
  protected override registered(): Promise<QueueIds> {
    return this.#registered.get();
  }
}
