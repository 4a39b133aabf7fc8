import type { LeaseLost } from '../../../base/errors.ts';
import { Stopped } from '../../../base/errors.ts';
import type { Events } from '../../../base/events.ts';
import { Budget } from '../../../base/time/budget.ts';
import { within } from '../../../base/time/clock.ts';
import { answerDeadline, END_MS, GRACE_MS, STOP_MS } from '../../../base/work/deadlines.ts';
import { Drain } from '../../../base/work/drain.ts';
import { UNREGISTERED } from '../../../base/work/lease-keeper.ts';
import { Sleepers } from '../../../base/work/sleepers.ts';
import type { Subscription } from '../../../engine/postgres/index.ts';
import type { ParentRecord } from '../../job.ts';
import type { EndedJob } from '../../lost-jobs.ts';
import type { PostgresQueueStore } from '../../postgres/store.ts';
import type { Heartbeat } from '../../store.ts';
import { Keeper, type LeaseHolder } from '../keeper.ts';
import type { WorkerEvents } from '../report.ts';
import { logAbandoned } from '../run/abandoned.ts';
import type { Job } from '../run/claimed-job.ts';
import { reportEndedWaiting, reportLost } from '../run/failed-job.ts';
import { type Unit, type UnitOwner, unitOf } from '../run/unit.ts';
import type { WorkerParts } from '../worker-parts.ts';
import { guardHeld } from './guard.ts';
import { HoldingNotes } from './holding-notes.ts';
import { LaneConnections } from './lane-connections.ts';
import { LaneLoop } from './lane-loop.ts';
import { LaneWatch } from './lane-watch.ts';
import { Lookahead } from './lookahead.ts';
import { LostTransactions } from './lost-transactions.ts';
import { Registration } from './registration.ts';
import { UnitRunner } from './unit-runner.ts';

/**
 * A worker with hold: 'transaction': it claims each unit in a transaction of its own, which stays open while the handler
 * runs. Writes through `unit.tx` and the job's outcome are committed together. After a crash neither is, and the job is `new`
 * again at once.
 *
 * Each lane has a connection and runs one unit after another. While there is work, a job costs one round trip: the outcome,
 * COMMIT, BEGIN and the next claim are one message.
 */
export class TransactionWorker implements UnitOwner, LeaseHolder {
  readonly events: Events<WorkerEvents>;
  readonly #parts: WorkerParts<PostgresQueueStore>;
  readonly #keeper: Keeper;
  readonly #registration: Registration;
  readonly #connections: LaneConnections;
  readonly #lookaheads: readonly Lookahead[];
  readonly #lostTransactions: LostTransactions;
  readonly #runner: UnitRunner;
  readonly #sleepers = new Sleepers();
  readonly #notes: HoldingNotes;
  #lanes: Promise<void>[] = [];
  #openLanes = 0;
  /** A lane that runs no handler may have an outcome to commit. */
  readonly #ends: Drain<Unit> = new Drain(
    () => this.#runner.running.keys(),
    () => this.#openLanes <= this.#runner.running.size,
  );
  #watch: LaneWatch | undefined;
  #restingLanes = 0;
  #whenQuiet: (() => void)[] = [];
  #subscription: Subscription | undefined;
  #stopping: Promise<void> | undefined;

  constructor(parts: WorkerParts<PostgresQueueStore>) {
    const { store, definition, settings, events } = parts;
    const { leaseMs } = settings;
    this.#parts = parts;
    this.events = events;
    this.#keeper = Keeper.for(store, leaseMs);
    this.#registration = new Registration(store, this.queue, settings);
    this.#connections = new LaneConnections(store, leaseMs);
    this.#lookaheads = Array.from({ length: definition.shards }, (_, shard) => this.#lookaheadOf(shard));
    this.#lostTransactions = new LostTransactions({
      store,
      answer: { deadlineMs: answerDeadline(leaseMs) },
      onCharged: (unit, charged, error) => this.#runner.reportCharged(unit, charged, error),
      onError: this.onError,
    });
    this.#runner = new UnitRunner({
      ...parts,
      owner: this,
      leaseMs,
      onStart: () => this.#notes.recordStart(),
      onLost: (unit, error) => void this.#lostTransactions.add(undefined, unit, error),
      onError: this.onError,
    });
    this.#notes = new HoldingNotes({
      running: () => this.#runner.running,
      beatNow: () => this.#keeper.beatNow(),
      onError: this.onError,
    });
  }

  get queueName(): string {
    return this.#parts.definition.name;
  }

  get queue(): number {
    return this.#parts.registered.queue;
  }

  async start(): Promise<void> {
    await this.#registration.register();
    await this.#keeper.add(this);
    this.#subscription = await this.#parts.store.listen(this.queue, {
      wake: () => this.wake(),
      cancel: () => this.#beatSoon(),
      look: () => this.#keeper.look(),
    });
    // Usually answered before the first job begins: whether a worker of this queue has died lately.
    this.#beatSoon();
    this.#notes.start();
    this.#openLanes = this.#parts.settings.concurrency;
    this.#lanes = Array.from({ length: this.#openLanes }, () => this.#laneLoop().run().finally(this.#endLane));
    this.#watch = new LaneWatch({
      engine: this.#parts.store.engine,
      deadlineMs: answerDeadline(this.#parts.settings.leaseMs),
      lanes: () => this.#connections.open,
      settle: () => this.#lostTransactions.settle(),
      onError: this.onError,
    });
  }

  wake(): void {
    this.#sleepers.wakeAll();
  }

  /** Resolves when nothing is left that this worker could run now. */
  whenQuiet(): Promise<void> {
    const quiet = new Promise<void>((resolve) => this.#whenQuiet.push(resolve));
    this.wake();
    return quiet;
  }

  stop(timeoutMs: number): Promise<void> {
    this.#stopping ??= this.#shutDown(timeoutMs);
    return this.#stopping;
  }

  othersEnded(task: object | undefined): Promise<void> | undefined {
    const unit = unitOf(task, this.#runner.running.keys());
    return unit && this.#ends.waitInside(unit);
  }

  parents(job: Job): Promise<readonly ParentRecord[]> {
    return this.#parts.store.parents(job.claim.shard, job.number);
  }

  async progress(_unit: Unit, job: Job, json: string): Promise<void> {
    // On another connection, so that others can read it now; the open transaction proves that the job is this worker's.
    await this.#parts.store.progress(job.claim.shard, undefined, job.number, json);
  }

  async guard(unit: Unit, tx: unknown): Promise<void> {
    guardHeld(unit, tx);
  }

  get workerId(): number | undefined {
    return this.#registration.id;
  }

  /** Why it cannot claim now; undefined when it can. */
  get problem(): string | undefined {
    return this.#keeper.problem ?? (this.#registration.id === undefined ? UNREGISTERED : undefined);
  }

  heartbeat(): Heartbeat | undefined {
    const worker = this.#registration.id;
    return worker === undefined
      ? undefined
      : { worker, wantsNotify: true, holding: this.#notes.holding(), tells: this.tellsEnds };
  }

  /**
   * Row locks of the open transactions hold the jobs, not the lease: handlers continue until another worker finds this one
   * dead and ends their transactions. The next heartbeat shows it.
   */
  lost(reason: LeaseLost, isCertain: boolean): void {
    if (!isCertain) return;
    this.#registration.forget();
    for (const unit of this.#runner.running.keys()) unit.abort(reason);
    this.events.emit('lost', { reason });
    this.wake();
  }

  /** Tells it whether a worker of its queue has died lately. */
  beWary(isWary: boolean): void {
    this.#notes.isWary = isWary;
  }

  cancel(job: number, reason: string | null): void {
    for (const unit of this.#runner.running.keys()) {
      if (unit.jobs.some(({ number }) => number === job)) unit.cancel(job, reason);
    }
  }

  get reportsFailures(): boolean {
    return this.events.has('failed') || this.events.has('ended');
  }

  jobsEnded(jobs: readonly EndedJob[]): void {
    for (const job of jobs) reportLost(this.events, job, this);
  }

  get tellsEnds(): boolean {
    return this.events.has('ended');
  }

  jobsEndedWaiting(jobs: readonly EndedJob[]): void {
    for (const job of jobs) reportEndedWaiting(this.events, job, this);
  }

  readonly onError = (error: unknown): void => {
    this.events.emit('error', { error });
  };

  #laneLoop(): LaneLoop {
    return new LaneLoop({
      queue: this.queue,
      pollMs: this.#parts.settings.pollMs,
      registration: this.#registration,
      connections: this.#connections,
      lookaheads: this.#lookaheads,
      runner: this.#runner,
      lostTransactions: this.#lostTransactions,
      sleepers: this.#sleepers,
      beatNow: () => this.#keeper.beatNow(),
      onRest: this.#noteRest,
      onError: this.onError,
    });
  }

  /** When all lanes rest, each has found nothing since the last one of them committed. */
  readonly #noteRest = (): (() => void) => {
    this.#restingLanes += 1;
    if (this.#restingLanes === this.#openLanes) for (const resolve of this.#whenQuiet.splice(0)) resolve();
    return () => {
      this.#restingLanes -= 1;
    };
  };

  #lookaheadOf(shard: number): Lookahead {
    const { store, settings } = this.#parts;
    const { concurrency: lanes } = settings;
    return new Lookahead({
      lanes,
      // On a connection of the pool, so that no lane waits for it, or plans it for the first time.
      read: async (request) => {
        const worker = this.#registration.id ?? (await this.#registration.register());
        return store.peek({ queue: this.queue, shard, worker, ...request });
      },
      onError: this.onError,
    });
  }

  readonly #endLane = (): void => {
    this.#openLanes -= 1;
    this.#ends.recordEnd();
  };

  #beatSoon(): void {
    this.#keeper.beatNow().catch(this.onError);
  }

  async #shutDown(timeoutMs: number): Promise<void> {
    this.#sleepers.close();
    const end = new Budget(timeoutMs + END_MS);
    const reason = new Stopped('the worker is being stopped and its time is over');
    await this.#ends.run({
      time: new Budget(timeoutMs),
      graceMs: GRACE_MS,
      abort: (units) => units.forEach((unit) => unit.abort(reason)),
      abandon: (units) => this.#endHandlers(units),
      written: () => Promise.resolve(),
    });
    await end.wait(Promise.allSettled(this.#lanes));
    this.#connections.closeAll();
    this.#notes.stop();
    await end.wait(this.#leave());
  }

  #endHandlers(left: readonly Unit[]): void {
    if (left.length > 0) logAbandoned(this.#parts.store.engine.options.logger, this.queueName, left);
    for (const unit of left) this.#runner.running.get(unit)?.fail?.(new Stopped('the worker was stopped'));
  }

  async #leave(): Promise<void> {
    await within(
      STOP_MS,
      Promise.all([this.#watch?.stop(), ...this.#lookaheads.map((lookahead) => lookahead.settled())]),
    );
    await this.#subscription?.stop();
    await this.#keeper.remove(this);
    const id = this.#registration.forget();
    if (id !== undefined) await this.#parts.store.removeWorker(id).catch(this.onError);
  }
}
