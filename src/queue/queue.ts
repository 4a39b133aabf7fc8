import { Events } from '../base/events.ts';
import { Lazy } from '../base/lazy.ts';
import type { OpenTransaction, PostgresEngine } from '../engine/postgres/index.ts';
import { inSnapshot } from './declare/unseen.ts';
import type { Definition, Kinds, PayloadIn } from './definition.ts';
import { type EnqueuedIds, type EnqueueOptions, type EnqueueResult, Producer } from './enqueue.ts';
import { type Handlers, readHandlers } from './handlers.ts';
import { OperatedQueue } from './operate/operated-queue.ts';
import type { ScheduleOptions, ScheduleRecord } from './operate/schedule.ts';
import { readScheduleName, type SchedulesOptions, setSchedule, setSchedules } from './operate/set-schedule.ts';
import { PostgresQueueSchedules } from './postgres/operate/schedules.ts';
import { PostgresQueueStore } from './postgres/store.ts';
import { claimUnits } from './pull/claim.ts';
import type { ClaimedUnit } from './pull/claimed-unit.ts';
import { PullOwner } from './pull/owner.ts';
import { type ClaimOptions, Puller } from './pull/pull.ts';
import type { QueueIds } from './store.ts';
import type { ReadTraces } from './tracing.ts';
import type { Batch } from './watch/batch.ts';
import { type BatchCallbacks, type FlowNode, Flows, type JobOf } from './watch/flows.ts';
import { readWaitOptions, type WaitForOptions, type WaitTarget, waitFor } from './watch/wait-for.ts';
import { JobWaits } from './watch/waits.ts';
import { readWorkOptions, type WorkOptions } from './work/options.ts';
import type { WorkerEvents } from './work/report.ts';
import { Worker } from './work/worker.ts';

/** The options of `run`. */
export interface RunOptions extends Omit<EnqueueOptions, 'tx'>, WaitForOptions {}

/**
 * A queue. `enqueue` adds jobs, in your own transaction if you pass one. Workers, which `work` starts, run the jobs.
 *
 * In a signature, plain `Queue` is any queue, to read and to operate. A signature that enqueues needs the type with its kinds:
 * `typeof mail`, or `Queue<K>`.
 */
export class Queue<K extends Kinds = never> extends OperatedQueue<K> {
  readonly #engine: PostgresEngine;
  readonly #definition: Definition;
  readonly #store: PostgresQueueStore;
  readonly #producer: Producer;
  readonly #schedules: PostgresQueueSchedules;
  readonly #puller: Puller;
  readonly #flows: Flows<K>;
  readonly #registered: Lazy<QueueIds>;

  /** @internal */
  constructor(engine: PostgresEngine, definition: Definition) {
    super(engine, definition.name, (kind, payload) => this.#producer.json(kind, payload));
    this.#engine = engine;
    this.#definition = definition;
    this.#store = new PostgresQueueStore(engine);
    this.#registered = new Lazy(() => this.#store.register(definition));
    this.#producer = new Producer(this.#store, definition, () => this.#registered.get());
    this.#schedules = new PostgresQueueSchedules(engine);
    this.#puller = new Puller(engine);
    this.#flows = new Flows({
      engine,
      name: definition.name,
      register: () => this.#registered.get(),
      producer: this.#producer,
      producerOf: (queue) => (queue instanceof Queue && queue.engine === engine ? queue.#producer : undefined),
    });
  }

  /**
   * Registers the queue and its kinds in the database, so that SQL can call `pawl.enqueue()`. The first use of the queue does
   * this too. Call it at deploy time if SQL comes first.
   * @throws SchemaMismatch  the database has no Pawl schema, or an older one: run `pawl migrate`
   * @throws Conflict  shards or perKey differ from the registered ones, and jobs are outstanding
   */
  override async register(): Promise<void> {
    await this.#registered.get();
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
    return inSnapshot(options.tx, this.#producer.one(kind, payload, options));
  }

  /**
   * Checks whether `enqueue` would accept this job, for programs that write the job in another way. Sends nothing to the
   * database.
   * @throws InvalidInput  the schema refused the payload, or a key is missing @throws NotFound  no such kind
   */
  async check(kind: string, payload: unknown, options: { readonly key?: string | undefined } = {}): Promise<void> {
    await this.#producer.check(kind, payload, options.key);
  }

  /**
   * Adds many jobs, a thousand per round trip. Jobs of one kind without a key cost a fraction of single enqueues. Checks all jobs
   * before it writes any. Each thousand is written as a whole or not at all; with `tx`, all jobs are.
   * @returns the ids, in the order of the jobs; for unique kinds, its `duplicates` has the indexes of the jobs that existed
   *   already
   * @throws InvalidInput  names the job by its index
   */
  // J is always JobOf<K>. Written as that, the compiler would not let a queue of certain kinds pass for any queue.
  enqueueMany<J extends JobOf<K>>(
    jobs: readonly NoInfer<J>[],
    options: { readonly tx?: OpenTransaction | undefined } = {},
  ): Promise<EnqueuedIds> {
    return inSnapshot(options.tx, this.#producer.many(jobs, options));
  }

  /**
   * Adds a whole graph of jobs in one statement, in a transaction of its own or in yours: all of it or nothing. A node names the
   * nodes that it comes after; it may also name existing jobs and batches. If nodes have the same parents, each costs hardly more
   * than a plain job.
   * @returns the id of each node, by its name
   * @throws InvalidInput  names the node: a bad payload, an unknown parent, a name that occurs twice, a cycle with its names
   * @throws NotFound  no such kind, or a parent job or batch does not exist
   */
  async flow<N extends FlowNode<K>>(
    nodes: readonly NoInfer<N>[],
    options: { readonly tx?: OpenTransaction | undefined } = {},
  ): Promise<Readonly<Record<string, string>>> {
    return inSnapshot(options.tx, this.#flows.add(nodes, options));
  }

  /**
   * Makes an open batch: add jobs to it, and seal it. When its last member has ended, Pawl enqueues `onComplete` if all members
   * completed, or `onError` if not, and `onDone` in both cases, each exactly once. The handler finds `{ id, total, errors,
   * cancelled }` in `unit.job.meta.batch`. If you retry a job by hand after it has ended, it does not count again.
   * @throws InvalidInput, NotFound  a callback is no job of its queue
   */
  async batch<C extends BatchCallbacks<K>>(
    callbacks?: NoInfer<C>,
    options: { readonly tx?: OpenTransaction | undefined } = {},
  ): Promise<Batch<JobOf<K>, BatchCallbacks<K>>> {
    const id = await inSnapshot(options.tx, this.#flows.newBatch(undefined, callbacks ?? {}, options));
    return this.openBatch(id);
  }

  /** Opens a batch by its id, to add to it, to seal it or to read its progress from another process. Sends nothing. */
  openBatch(id: string): Batch<JobOf<K>, BatchCallbacks<K>> {
    return this.#flows.open(id);
  }

  /**
   * A worker for some of the kinds, with handlers for only these: `work({ send }, { kinds: ['send'] })`.
   * @throws NotSupported  the queue keeps the order of its keys; that order includes all kinds
   */
  work<N extends keyof K & string>(
    handlers: Pick<Handlers<K>, N>,
    options: WorkOptions & { readonly kinds: readonly NoInfer<N>[] },
  ): Worker;
  /**
   * Starts a worker in this process. It claims jobs at once, after every notification, and at every poll.
   * @param handlers  one for each kind
   * @throws InvalidInput  a kind has no handler, or an option is bad
   */
  work(handlers: Handlers<K>, options?: WorkOptions): Worker;
  work(handlers: object, options: WorkOptions = {}): Worker {
    const { settings, signal, onBlocked, warn } = readWorkOptions(options, this.#definition, this.#engine.connections);
    const traces: ReadTraces = (ids, unit) =>
      this.#store.traces(ids, settings.hold === 'transaction' ? unit.tx : undefined);
    const events = new Events<WorkerEvents>();
    const parts = {
      store: this.#store,
      definition: this.#definition,
      ...readHandlers(this.#definition, handlers, { engine: this.#engine, events, traces }, settings.takes?.kinds),
      settings,
      onBlocked,
      warning: warn && { limits: warn, stats: () => this.stats() },
    };
    return new Worker(parts, () => this.#registered.get(), events, this.#engine.options.logger, signal);
  }

  /**
   * Claims units by a call, for programs without a worker. It takes the jobs that are ready now, in their order, and does not
   * wait. A unit is yours until you settle it or its lease ends. If the lease ends, the unit is given back and charged like the
   * job of a lost worker. The schema of the kind checks the payload; if it refuses the payload, the unit fails and is not
   * returned.
   * @throws InvalidInput  an option is bad
   */
  async claim(options: ClaimOptions = {}): Promise<ClaimedUnit[]> {
    await this.#registered.get();
    return claimUnits(this.#puller, new PullOwner(this.#store, this.name), this.#definition, options);
  }

  /**
   * Waits until a job has ended, in any process, and returns the result of its handler (null for none). A process uses one
   * connection for all of its waits. The wait ends as soon as the end of the job is committed; if notifications do not arrive, it
   * ends within two seconds.
   * @param target  the id of a job, or `{ key }`: the newest job of that key
   * @throws JobFailed  the job ended in error @throws Cancelled  it was cancelled
   * @throws NotFound  there is no such job: its enqueue is not committed yet, or its history is over
   * @throws TimedOut  the job has not ended; it goes on
   */
  async waitFor(target: WaitTarget, options: WaitForOptions = {}): Promise<unknown> {
    await this.#registered.get();
    return waitFor(this.#engine, this.name, target, options);
  }

  /**
   * Enqueues a job and waits for its result, like `enqueue` and `waitFor`. If this process dies meanwhile, the job runs anyway.
   * @throws the errors of both
   */
  async run<N extends keyof K & string>(kind: N, payload: PayloadIn<K[N]>, options: RunOptions = {}): Promise<unknown> {
    const { timeout, signal, ...rest } = options;
    readWaitOptions('run', { timeout, signal });
    signal?.throwIfAborted();
    return JobWaits.for(this.#engine).during(async (channel) => {
      const { id, isAwaited } = await this.#producer.one(kind, payload, rest, channel);
      return waitFor(this.#engine, this.name, id, { timeout, signal }, isAwaited);
    });
  }

  /**
   * Enqueues a job at every tick of a cron pattern, as long as any worker of this queue lives: exactly one per tick, however many
   * processes there are. The database stores the schedule. If you declare it again, the new declaration replaces it; it keeps its
   * next tick if the pattern and the zone are the same.
   * @param name  1 to 100 characters; each name is one schedule
   * @throws InvalidInput  names the field: a bad pattern, zone or payload @throws NotFound  no such kind
   */
  async schedule<N extends keyof K & string>(
    name: string,
    options: ScheduleOptions & { readonly kind: N; readonly payload?: PayloadIn<K[N]> },
  ): Promise<void> {
    await this.#registered.get();
    await setSchedule(this.#schedules, this.#definition, name, options);
  }

  /** Ends a schedule; the jobs that it has enqueued stay. @returns whether there was one */
  async unschedule(name: string): Promise<boolean> {
    readScheduleName('unschedule', name);
    await this.#registered.get();
    return this.#schedules.remove(this.name, name);
  }

  /**
   * This queue's schedules, by name. If you pass all schedules of your program, the call declares them first, in one transaction,
   * and removes the schedules of an earlier set that this set no longer has. Schedules that `schedule()` declared stay.
   *
   * If processes of two versions run at the same time, each start of one removes the schedules of the other. To prevent this,
   * pass a `version` that rises with each release: the set with the highest version counts.
   * @throws InvalidInput  names the field @throws NotFound  no such kind
   */
  async schedules(
    all?: Readonly<Record<string, ScheduleOptions & { readonly kind: keyof K & string }>>,
    options: SchedulesOptions = {},
  ): Promise<ScheduleRecord[]> {
    if (all !== undefined) {
      await this.#registered.get();
      await setSchedules(this.#schedules, this.#definition, all, options);
    }
    return this.#schedules.list(this.name);
  }
}
