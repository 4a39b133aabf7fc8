import { NotSupported } from '../../base/errors.ts';
import { faults } from '../../base/fault.ts';
import { type Loop, startLoop } from '../../base/loop.ts';
import { probe } from '../../base/probe.ts';
import { within } from '../../base/time/clock.ts';
import { answerDeadline, STOP_MS } from '../../base/work/deadlines.ts';
import { type LeaseHolder as Holder, LeaseKeeper } from '../../base/work/lease-keeper.ts';
import type { PostgresEngine, Session } from '../../engine/postgres/index.ts';
import type { EndedJob, RescueAnswer } from '../lost-jobs.ts';
import { Indexer } from '../operate/indexer.ts';
import { Scheduler } from '../operate/scheduler.ts';
import { PostgresQueueChores } from '../postgres/chores.ts';
import { PostgresQueueSchedules } from '../postgres/operate/schedules.ts';
import type { PostgresQueueStore } from '../postgres/store.ts';
import type { Heartbeat, HeartbeatAnswer } from '../store.ts';

/** The interface of a worker for its keeper. */
export interface LeaseHolder extends Holder {
  readonly queue: number;
  heartbeat(): Heartbeat | undefined;
  /** Notifies the worker whether a worker of its queue has died lately. */
  beWary?(isWary: boolean): void;
  /** Called when a running job is to be cancelled. */
  cancel(job: number, reason: string | null): void;
  /** Whether the `failed` event has a listener. */
  readonly reportsFailures: boolean;
  /** Whether the `ended` event has a listener. */
  readonly tellsEnds: boolean;
  /**
   * Called when jobs of its queue ended without a worker: cancelled by hand, expired, or ended with the jobs that they come
   * after.
   */
  jobsEndedWaiting(jobs: readonly EndedJob[]): void;
  /** Called when jobs of lost workers of its queue ended in error. */
  jobsEnded(jobs: readonly EndedJob[]): void;
}

/** How often the keeper checks for dead workers. With the lease, it bounds how long their jobs wait. */
const RESCUE_MS = 5000;
const PRUNE_MS = 60_000;

/**
 * Keeps the leases of all workers of this process on one database: one heartbeat statement for all of them, on a connection of
 * its own, so that neither busy handlers nor an exhausted pool can starve it. It also rescues jobs of lost workers and prunes
 * history.
 */
export class Keeper {
  static readonly #keepers = new WeakMap<PostgresEngine, Map<number, Keeper>>();

  readonly #store: PostgresQueueStore;
  readonly #chores: PostgresQueueChores;
  readonly #leaseMs: number;
  readonly #lease: LeaseKeeper<LeaseHolder, HeartbeatAnswer>;
  #rescue: Loop | undefined;
  #looks: Loop | undefined;
  #scheduler: Scheduler | undefined;
  #indexer: Indexer | undefined;
  #session: Session | undefined;
  #connecting: Promise<Session> | undefined;
  /** The last heartbeat, failed or not. */
  #lastBeat: Promise<unknown> = Promise.resolve();
  #prunedAt = -Infinity;
  /** Pids of server processes whose transactions could not be ended. */
  readonly #unended = new Set<number>();

  private constructor(store: PostgresQueueStore, leaseMs: number) {
    this.#store = store;
    this.#chores = new PostgresQueueChores(store.engine, { deadlineMs: answerDeadline(leaseMs) });
    this.#leaseMs = leaseMs;
    this.#lease = new LeaseKeeper({
      name: 'queue',
      leaseMs,
      send: (workers) => this.#inTurn(() => this.#send(workers)),
      giveUp: () => this.#session?.giveUp(leaseMs / 3),
      onAnswer: (answer) => this.#tellWorkers(answer),
      onFailure: () => this.#disconnect(),
    });
  }

  /** The keeper of this engine for leases of this length. */
  static for(store: PostgresQueueStore, leaseMs: number): Keeper {
    const ofEngine = Keeper.#keepers.get(store.engine) ?? new Map<number, Keeper>();
    Keeper.#keepers.set(store.engine, ofEngine);
    const keeper = ofEngine.get(leaseMs) ?? new Keeper(store, leaseMs);
    ofEngine.set(leaseMs, keeper);
    return keeper;
  }

  /**
   * The workers of this process, whatever their lease: if the process hung since its last heartbeat, all their leases may
   * be over.
   */
  static living(engine: PostgresEngine, queue: number): number[] {
    const keepers = Keeper.#keepers.get(engine)?.values() ?? [];
    const workers = Array.from(keepers, (keeper) => [...keeper.#workers]).flat();
    return workers.flatMap((worker) =>
      worker.queue === queue && worker.workerId !== undefined ? [worker.workerId] : [],
    );
  }

  /** Starts to keep a worker that has just been registered. It takes its connection before handlers can use up the pool. */
  async add(worker: LeaseHolder): Promise<void> {
    this.#lease.add(worker);
    this.#rescue ??= startLoop({
      name: 'queue.rescue',
      run: () => this.#runChores(),
      onError: (error) => this.#report(error),
      unref: true,
    });
    this.#looks ??= startLoop({
      name: 'queue.look',
      run: async () => Math.max(10, Math.min(RESCUE_MS, await this.#chores.look())),
      onError: (error) => this.#report(error),
      unref: true,
    });
    this.#scheduler ??= new Scheduler({
      rows: new PostgresQueueSchedules(this.#store.engine, { deadlineMs: answerDeadline(this.#leaseMs) }),
      queues: () => this.#queues(),
      onError: (error) => this.#report(error),
    });
    this.#indexer ??= new Indexer(this.#chores, (error) => this.#report(error));
    await this.#connection().catch((error: unknown) => this.#report(error));
  }

  async remove(worker: LeaseHolder): Promise<void> {
    if (!this.#lease.remove(worker)) return;
    const ending = [this.#lease, this.#rescue, this.#looks, this.#scheduler, this.#indexer];
    this.#rescue = undefined;
    this.#looks = undefined;
    this.#scheduler = undefined;
    this.#indexer = undefined;
    // Does not wait for a statement on a dead connection; its deadline ends it.
    await within(STOP_MS, Promise.all(ending.map(async (one) => one?.stop())));
    if (this.#workers.size === 0) this.#disconnect();
  }

  /** See {@link LeaseKeeper.hasLease}. */
  get hasLease(): boolean {
    return this.#lease.hasLease;
  }

  /** See {@link LeaseKeeper.problem}. */
  get problem(): string | undefined {
    return this.#lease.problem;
  }

  /** Called when a job was enqueued that comes after others, which may have just ended. */
  look(): void {
    this.#looks?.wake();
  }

  /** Sends a heartbeat now: each heartbeat also returns cancellations. */
  async beatNow(): Promise<void> {
    await this.#lease.beat();
  }

  async #send(workers: ReadonlyMap<number, LeaseHolder>): Promise<HeartbeatAnswer> {
    const beats: Heartbeat[] = [];
    for (const worker of workers.values()) {
      const beat = worker.heartbeat();
      if (beat !== undefined) beats.push(beat);
    }
    return this.#store.beat(beats, await this.#connection());
  }

  #tellWorkers({ wary, cancel }: HeartbeatAnswer): void {
    for (const worker of this.#workers) worker.beWary?.(wary.includes(worker.workerId ?? -1));
    for (const { worker, id, reason } of cancel) {
      for (const one of this.#workers) if (one.workerId === worker) one.cancel(id, reason);
    }
  }

  /** Runs heartbeats one after another: a connection takes one statement at a time. */
  #inTurn<T>(beat: () => Promise<T>): Promise<T> {
    const answer = this.#lastBeat.then(beat);
    this.#lastBeat = answer.catch(() => {});
    return answer;
  }

  #connection(): Promise<Session> {
    if (this.#session !== undefined && !this.#session.isBroken) return Promise.resolve(this.#session);
    this.#disconnect();
    this.#connecting ??= this.#connect().finally(() => {
      this.#connecting = undefined;
    });
    return this.#connecting;
  }

  async #connect(): Promise<Session> {
    const session = await this.#store.connect();
    this.#session = session;
    if (this.#workers.size === 0) this.#disconnect();
    return session;
  }

  async #runChores(): Promise<number> {
    const prunes = performance.now() - this.#prunedAt > PRUNE_MS;
    if (prunes) this.#prunedAt = performance.now();
    // After a pause of this process its own leases come first: other processes may not have declared its workers dead yet.
    if (this.#lease.answeredMs > this.#leaseMs / 2) await this.beatNow();
    const failures: unknown[] = [];
    for (const queue of this.#queues()) {
      // Each chore on its own: an error in one does not stop the others.
      for (const chore of [this.#rescueJobs, this.#sweepCancels, this.#tellEnds, ...(prunes ? [this.#prune] : [])]) {
        await chore(queue).catch((error: unknown) => failures.push(error));
      }
    }
    await this.#chores.sweepWatches().catch((error: unknown) => failures.push(error));
    if (failures.length > 0) throw failures[0];
    return Math.min(RESCUE_MS, this.#leaseMs / 2) * (0.75 + Math.random() / 2);
  }

  readonly #rescueJobs = async (queue: number): Promise<void> => {
    if (faults.armed) await faults.reach('queue.before_rescue');
    const { jobs, ended, unended } = await this.#store.rescue(queue, Keeper.living(this.#store.engine, queue));
    if (jobs > 0) probe.hit('queue.rescued', { queue, jobs });
    if (ended !== null) this.#reportEnded(queue, ended);
    this.#reportUnended(unended);
  };

  /** Only one worker of the queue reports them, so that each end is one event per process. */
  #reportEnded(queue: number, { jobs, more }: NonNullable<RescueAnswer['ended']>): void {
    const teller = [...this.#workers].find((worker) => worker.queue === queue && worker.reportsFailures);
    teller?.jobsEnded(jobs);
    if (more === 0) return;
    this.#store.engine.options.logger.warn(
      { queue, jobs: more },
      `queue worker: ${more} more jobs of lost workers ended in error than are reported at once; search for jobs in error`,
    );
  }

  readonly #sweepCancels = (queue: number): Promise<void> => this.#chores.sweepCancels(queue);

  /** One worker in one process reports each end. */
  readonly #tellEnds = async (queue: number): Promise<void> => {
    const teller = [...this.#workers].find((worker) => worker.queue === queue && worker.tellsEnds);
    if (teller !== undefined) await this.#chores.tellEnds(queue, (jobs) => teller.jobsEndedWaiting(jobs));
  };

  readonly #prune = async (queue: number): Promise<void> => {
    while (this.#workers.size > 0 && (await this.#store.prune(queue)) > 0);
  };

  /** Reports each of these server processes once: every rescue finds them again as long as they live. */
  #reportUnended(pids: readonly number[]): void {
    const fresh = pids.filter((pid) => !this.#unended.has(pid));
    for (const pid of fresh) this.#unended.add(pid);
    if (fresh.length === 0) return;
    this.#report(
      new NotSupported(
        `lost workers have left transactions open that this role may not end, or that do not end: their jobs wait until ` +
          `a superuser calls pg_terminate_backend for ${fresh.join(', ')}; workers of the same role, or with pg_signal_backend, do so themselves`,
      ),
    );
  }

  #queues(): number[] {
    return [...new Set([...this.#workers].map((worker) => worker.queue))];
  }

  #disconnect(): void {
    this.#session?.release(true);
    this.#session = undefined;
  }

  get #workers(): ReadonlySet<LeaseHolder> {
    return this.#lease.workers;
  }

  #report(error: unknown): void {
    this.#lease.report(error);
  }
}
