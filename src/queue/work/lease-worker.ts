import { hostname } from 'node:os';
import { LeaseLost, NotSupported, Stopped } from '../../base/errors.ts';
import type { Events } from '../../base/events.ts';
import { faults } from '../../base/fault.ts';
import { DirectHandoff } from '../../base/handoff/direct-handoff.ts';
import type { Offer, RecallResult } from '../../base/handoff/handoff.ts';
import { probe } from '../../base/probe.ts';
import type { Budget } from '../../base/time/budget.ts';
import { within } from '../../base/time/clock.ts';
import { ClaimLoop } from '../../base/work/claim-loop.ts';
import type { ClaimSource, NextPoll } from '../../base/work/claim-source.ts';
import { GRACE_MS, STOP_MS } from '../../base/work/deadlines.ts';
import { Drain } from '../../base/work/drain.ts';
import { UNREGISTERED } from '../../base/work/lease-keeper.ts';
import type { ConditionCheckItem } from '../../engine/dynamodb/index.ts';
import { Transaction } from '../../engine/postgres/index.ts';
import type { Definition } from '../definition.ts';
import type { ParentRecord } from '../job.ts';
import type { EndedJob } from '../lost-jobs.ts';
import { namePart, pausedPartOf, type StoredPart, setAsideMs } from '../paused-part.ts';
import { PostgresQueueStore } from '../postgres/store.ts';
import type { ClaimAnswer, Heartbeat, HeldJob, JobHandoff, QueueIds } from '../store.ts';
import { logAbandoned } from './abandoned.ts';
import { breakSuccessors, type Handler, type Outcome, startAttempt } from './attempt.ts';
import { BatchRun } from './batch/batch-run.ts';
import { Gatherer, ReadyBatch } from './batch/gatherer.ts';
import type { BatchHandler } from './batch/unit-batch.ts';
import { type ClaimedUnits, countUnits, hasJobs, readClaim } from './claim-reader.ts';
import { reportEndedWaiting, reportLost } from './failed-job.ts';
import { Keeper, type LeaseHolder } from './keeper.ts';
import { Quiet } from './once/quiet.ts';
import { countOutcome, type Tally } from './once/tally.ts';
import type { GroupPort, KeeperPort, PortedStore, WorkerPorts } from './ports.ts';
import { reportFailures, reportOutcome, type WorkerEvents } from './report.ts';
import { Scan } from './scan.ts';
import { Settler } from './settle/settler.ts';
import { type Claim, type Job, type Unit, type UnitOwner, unitOf } from './unit.ts';
import { type GroupMember, WorkerGroup } from './worker-group.ts';

/** Work options with all defaults. */
export interface WorkerSettings {
  readonly concurrency: number;
  readonly hold: 'lease' | 'transaction';
  readonly leaseMs: number;
  readonly pollMs: number;
  /** How many jobs to prefetch: a number, or as many as the rate of the last 50 ms allows. */
  readonly prefetch: number | 'auto';
}

/** The parts of a worker. */
export interface WorkerParts<S = PostgresQueueStore | PortedStore> {
  readonly store: S;
  readonly definition: Definition;
  readonly registered: QueueIds;
  readonly handlers: ReadonlyMap<string, Handler>;
  /** Those of kinds with `batch`. */
  readonly batchHandlers: ReadonlyMap<string, BatchHandler>;
  readonly settings: WorkerSettings;
  readonly events: Events<WorkerEvents>;
  /** Counts the outcomes of its handlers. */
  readonly tally: Tally;
}

/** Jobs of one key per claim: enough to be worth the cost of a claim, few enough to share a hot key's time. */
const CHAIN = 32;
const PREFETCH_MAX = 2000;
/** How long a job of an unknown kind is delayed for a worker that knows it. */
const UNKNOWN_KIND_MS = 30_000;

/**
 * A worker with hold: 'lease': claims many jobs at once, runs each unit's handler, settles many at once. Its
 * {@link ClaimLoop} decides when it polls, and how much runs. The path of a job: `claim`, `post`, `begin`, `#finish`, which
 * passes the outcome to the settler.
 */
export class LeaseWorker
  implements UnitOwner, LeaseHolder, GroupMember, ClaimSource<Unit | ReadyBatch, ClaimAnswer, JobHandoff>
{
  readonly events: Events<WorkerEvents>;
  /** Units whose handler runs, each with the function that ends it from outside. */
  readonly running: Map<Unit, ((why: unknown) => void) | undefined> = new Map();
  readonly isExclusive = false;
  readonly settler: Settler;
  readonly #parts: WorkerParts;
  readonly #loop: ClaimLoop<Unit | ReadyBatch, ClaimAnswer, JobHandoff>;
  readonly #keeper: KeeperPort;
  readonly #group: GroupPort;
  readonly #scans: readonly [Scan, ...Scan[]];
  readonly #chain: number;
  readonly #claims = new Set<Claim>();
  readonly #drain: Drain<Unit> = new Drain(() => this.running.keys());
  readonly #quiet = new Quiet();
  /** The scan of the shard that is polled next. */
  #scan: Scan;
  /** The number of claimed units that have not finished. */
  #held = 0;
  /** Undefined: no kind has a batch handler. */
  readonly #gatherer: Gatherer | undefined;
  /** Batch handlers that run. */
  readonly #batches = new Set<BatchRun>();
  /** Of the units that run, those that take no slot: another one of their batch does. */
  #sharing = 0;
  /** The parts of the queue that are paused, by the last claim that brought something; undefined: none. */
  #pausedParts: readonly StoredPart[] | undefined;
  /** How many units of theirs the last claim has brought: with so many more the next one comes past them. */
  #setAside = 0;
  /** True: jobs were given back that idle workers could run now. */
  #hasReleased = false;

  constructor(parts: WorkerParts) {
    this.#parts = parts;
    this.events = parts.events;
    const { store, definition, registered, settings } = parts;
    // A job with a single attempt must not lose it because the job before it killed the worker.
    this.#chain = [...definition.kinds.values()].some((kind) => kind.attempts === 1) ? 1 : CHAIN;
    this.#scan = new Scan(0);
    this.#scans = [this.#scan, ...Array.from({ length: definition.shards - 1 }, (_, shard) => new Scan(shard + 1))];
    const ports =
      store instanceof PostgresQueueStore
        ? portsOn(store, registered.queue, settings.leaseMs)
        : store.ports(registered.queue, settings.leaseMs);
    const { handlers, batchHandlers } = parts;
    this.#gatherer = Gatherer.for(definition, batchHandlers, handlers.size === 0, (gathered) =>
      this.#loop.addNext(gathered),
    );
    this.#keeper = ports.keeper;
    this.#group = ports.group;
    this.#loop = new ClaimLoop(
      this,
      { name: 'queue', ...settings, prefetchMax: PREFETCH_MAX, aheadMs: ports.aheadMs },
      (loop) =>
        ports.handoff({
          id: () => loop.id,
          isFree: () => loop.acceptsHandoff,
          isAsleep: () => loop.isAsleep,
          onHandoff: (job) => loop.receive(job),
          onError: (error) => this.onError(error),
        }),
    );
    this.settler = new Settler({
      queue: registered.queue,
      settle: (settlement, offer) => store.settle(settlement, offer),
      offer: () => this.#loop.offer(),
      onStale: (claims) => this.events.emit('stale', { claims }),
      onRefused: (unit, failed) => reportFailures(this.events, unit, failed),
      onError: (error) => this.onError(error),
      onMore: () => this.#loop.pollAgain(),
    });
  }

  get queueName(): string {
    return this.#parts.definition.name;
  }

  get queue(): number {
    return this.#parts.registered.queue;
  }

  /** Starts polling, at once and after every enqueue. */
  async start(): Promise<void> {
    await this.#loop.register();
    await this.#keeper.add(this);
    this.#loop.start(await this.#group.join(this));
  }

  /** Polls now. */
  wake(): void {
    for (const scan of this.#scans) scan.quiet = undefined;
    this.#loop.wake();
  }

  /** Resolves when nothing is left that this worker could run now. */
  whenQuiet(): Promise<void> {
    const quiet = this.#quiet.wait();
    this.wake();
    return quiet;
  }

  stop(timeoutMs: number): Promise<void> {
    return this.#loop.stop(timeoutMs);
  }

  othersEnded(task: object | undefined): Promise<void> | undefined {
    const unit = unitOf(task, this.running.keys());
    if (unit === undefined) return undefined;
    // The other units of its batch end when it returns.
    const batch = [...this.#batches].find(({ units }) => units.includes(unit));
    for (const other of batch?.units ?? []) void this.#drain.waitInside(other);
    return this.#drain.waitInside(unit);
  }

  // For {@link GroupMember}.

  get isIdle(): boolean {
    return this.#loop.isIdle;
  }

  get isPolling(): boolean {
    return this.#loop.isPolling;
  }

  noteNotification(): void {
    this.#loop.noteNotification();
  }

  checkCancels(): void {
    this.#keeper.beatNow().catch((error: unknown) => this.onError(error));
  }

  // For {@link UnitOwner}.

  look(): void {
    this.#keeper.look();
  }

  parents(job: Job): Promise<readonly ParentRecord[]> {
    return this.#parts.store.parents(job.claim.shard, job.number);
  }

  async progress(unit: Unit, job: Job, json: string): Promise<void> {
    this.#requireLease(unit);
    await this.#parts.store.progress(job.claim.shard, job.claim.id, job.number, json);
  }

  guard(unit: Unit, tx: unknown): Promise<void> {
    return this.guardAll([unit], tx);
  }

  async guardAll(units: readonly Unit[], tx: unknown): Promise<void> {
    for (const unit of units) {
      this.#requireLease(unit);
      // Set before the statement is sent: the settlement of the unit has to know it.
      unit.isGuarded = true;
    }
    // The process of another library may die when the server closes its connection; the engine's own connections survive
    // that.
    const idleMs = tx instanceof Transaction ? this.#parts.settings.leaseMs : undefined;
    const held = units.flatMap((unit) => heldJobs(unit, idleMs));
    await this.#parts.store.guard(held, tx);
  }

  guardItems(unit: Unit): readonly ConditionCheckItem[] {
    this.#requireLease(unit);
    const { store } = this.#parts;
    if (store instanceof PostgresQueueStore) {
      throw new NotSupported('unit.guardItems() is for DynamoDB; on Postgres call unit.guard(tx)');
    }
    return store.guardItems(unit.job.claim.id);
  }

  /** After a pause the clock shows the loss of the lease before a timer or the database does. */
  #requireLease(unit: Unit): void {
    if (this.hasLease) return;
    throw new LeaseLost(`the lease of job ${unit.job.id} ran out before it could be renewed; stop working on it`);
  }

  // For {@link LeaseHolder}.

  get workerId(): number | undefined {
    return this.#loop.id;
  }

  /** Why it can claim nothing just now. */
  get problem(): string | undefined {
    return this.#loop.problem ?? this.#keeper.problem ?? (this.workerId === undefined ? UNREGISTERED : undefined);
  }

  heartbeat(): Heartbeat | undefined {
    const { id, wantsNotify } = this.#loop;
    return id === undefined ? undefined : { worker: id, wantsNotify, holding: [], tells: this.tellsEnds };
  }

  lost(reason: LeaseLost): void {
    this.settler.drop();
    const running = [...this.running];
    this.running.clear();
    this.#claims.clear();
    this.#held = 0;
    this.#sharing = 0;
    this.#batches.clear();
    this.#gatherer?.clear();
    this.#loop.reset();
    // Later outcomes of handlers are ignored: the settler has dropped their claims.
    for (const [unit, fail] of running) {
      unit.abort(reason);
      fail?.(reason);
    }
    this.events.emit('lost', { reason });
    this.#drain.recordEnd();
    this.wake();
  }

  cancel(job: number, reason: string | null): void {
    for (const first of this.#units()) {
      for (let unit: Unit | undefined = first; unit !== undefined; unit = unit.next) {
        if (unit.jobs.some(({ number }) => number === job)) unit.cancel(job, reason);
      }
    }
  }

  /** All units that it holds, except those that come after another one of their key. */
  #units(): readonly Unit[] {
    const { following, waiting } = this.#loop;
    const unbegun = [...following, ...waiting].flatMap((one) => (one instanceof ReadyBatch ? one.units : [one]));
    return [...this.running.keys(), ...unbegun, ...(this.#gatherer?.units ?? [])];
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

  onError(error: unknown): void {
    this.events.emit('error', { error });
  }

  // For {@link ClaimSource}: the hot path.

  get hasLease(): boolean {
    return this.#keeper.hasLease;
  }

  /**
   * How many jobs to claim: only as many as there are free slots while more than half of the prefetched units are left. A
   * chain of a key takes one slot, however long it is, so free slots that no held unit can fill always count as room.
   */
  capacity(prefetch: number): number {
    const { concurrency } = this.#parts.settings;
    const { following, waiting } = this.#loop;
    if (this.#setAside > 0) return Math.min(PREFETCH_MAX, concurrency + 2 * this.#setAside);
    const free = Math.max(0, concurrency - this.slotsTaken - following.length - waiting.length);
    if (this.#gatherer !== undefined) return this.#capacityToGather(this.#gatherer, free, prefetch);
    if (this.#held > concurrency + prefetch / 2) return free;
    return Math.max(free, concurrency + prefetch - this.#held);
  }

  /** What is gathered takes no slot yet, and what a batch handler works on takes one: there is room for what is still to come. */
  #capacityToGather({ room, count }: Gatherer, free: number, prefetch: number): number {
    const { concurrency } = this.#parts.settings;
    const toCome = free > 0 ? room : 0;
    return toCome + Math.max(free, concurrency + prefetch - (this.#held - this.#sharing - count));
  }

  get slotsTaken(): number {
    return this.running.size - this.#sharing;
  }

  claim(worker: number, limit: number, offer: Offer | undefined): Promise<ClaimAnswer> {
    this.#quiet.recordPoll(this.#isBusy);
    const slots = Math.max(0, this.#parts.settings.concurrency - this.slotsTaken);
    const { shard, cursor, rows } = this.#scan;
    return this.#parts.store.claim(
      { queue: this.queue, shard, worker, limit, slots, rows, chain: this.#chain, cursor },
      offer,
    );
  }

  countUnits(answer: ClaimAnswer): number {
    return countUnits(answer);
  }

  post(answer: ClaimAnswer, limit: number): void {
    const { shard } = this.#scan;
    const { runs, seen } = answer;
    if (probe.listening) probe.hit('queue.claimed', { shard, worker: this.#loop.id, rows: runs.length, seen });
    this.#group.notePolled(this, countUnits(answer) >= limit);
    this.#setAside = 0;
    if (!hasJobs(answer)) return;
    this.#pausedParts = answer.pausedParts;
    this.#add(this.#read(answer, shard));
  }

  #read(answer: ClaimAnswer, shard: number): ClaimedUnits {
    const { definition, registered } = this.#parts;
    return readClaim(answer, { shard, definition, registered, owner: this });
  }

  #add({ units, claims, count, jobs }: ClaimedUnits): void {
    this.#held += count;
    if (this.#claims.size > 1000) this.#dropFinishedClaims();
    for (const claim of claims) this.#claims.add(claim);
    this.events.emit('claimed', { jobs });
    // See queue_claim, p_slots.
    const first = units.filter(({ job }) => job.claim.isAlone);
    if (first.length === 0) this.#loop.add(units);
    else
      this.#loop.add(
        units.filter(({ job }) => !job.claim.isAlone),
        first,
      );
  }

  begin(unit: Unit | ReadyBatch): void {
    if (unit instanceof ReadyBatch) return this.#beginBatch(unit);
    const part = this.#pausedParts && pausedPartOf(this.#pausedParts, unit);
    if (part !== undefined) this.#setUnitAside(unit, part);
    else if (this.#gatherer?.add(unit) !== true) this.#start(unit, this.#parts.handlers);
  }

  #beginBatch({ kind, units }: ReadyBatch): void {
    const handler = this.#parts.batchHandlers.get(kind);
    if (handler === undefined) throw new Error('only kinds with a batch handler are gathered');
    const batch = new BatchRun(kind, units, handler);
    this.#batches.add(batch);
    this.#sharing += units.length - 1;
    for (const unit of units) this.#start(unit, new Map([[kind, (seen) => batch.join(unit, seen)]]), batch);
  }

  #start(unit: Unit, handlers: ReadonlyMap<string, Handler>, batch?: BatchRun): void {
    this.running.set(unit, undefined);
    const { generation } = this.#loop;
    const fail = startAttempt(unit, this.#parts.definition, handlers, (outcome) => {
      this.running.delete(unit);
      if (batch !== undefined) this.#endInBatch(unit, batch);
      if (generation === this.#loop.generation) this.#finish(unit, outcome);
    });
    if (fail === undefined) {
      this.running.delete(unit);
      this.#releaseUnknownKind(unit);
    } else if (this.running.has(unit)) this.running.set(unit, fail);
  }

  #endInBatch(unit: Unit, batch: BatchRun): void {
    const isLast = batch.end(unit);
    // After the loss of the lease it counts for nothing.
    if (!this.#batches.has(batch)) return;
    if (isLast) this.#batches.delete(batch);
    else this.#sharing -= 1;
  }

  #finish(unit: Unit, outcome: Outcome): void {
    this.#held -= 1;
    countOutcome(this.#parts.tally, outcome);
    reportOutcome(this.events, unit, outcome);
    let { next } = unit;
    // A failed unit may have a guarding transaction that is still open: no other job of its key begins before it ends.
    const mayWrite = unit.isGuarded && outcome.failed.length > 0;
    if (outcome.isRetried || mayWrite || this.#loop.isStopping) {
      this.#releaseChain(next, 'behind a job of its key', false);
      this.settler.add(unit, outcome, true);
      next = undefined;
    } else {
      this.settler.add(unit, outcome, next === undefined);
      breakSuccessors(unit, outcome, this.#parts.definition);
    }
    this.#loop.ended(next);
    this.#drain.recordEnd();
    if (this.#quiet.isAwaited && this.#held === 0) void this.settler.flushed().then(() => this.wake());
  }

  /** Something of its own is under way, which may lead to more jobs. */
  get #isBusy(): boolean {
    return this.#held > 0 || this.settler.isBusy;
  }

  /** The shard and the time of the next poll. */
  nextPoll(answer: ClaimAnswer, limit: number): NextPoll {
    const verdict = this.#scan.read(answer, limit);
    const scans = this.#scans;
    this.#scan = scans[(this.#scan.shard + 1) % scans.length] ?? scans[0];
    if (answer.paused === true) {
      this.#endRound();
      return 'paused';
    }
    if (verdict === 'again') return 'more';
    if (scans.some(({ quiet }) => quiet === undefined)) return 'elsewhere';
    for (const other of scans) other.quiet = undefined;
    this.#endRound();
    return verdict === 'busy' ? 'contended' : Math.min(...scans.map((one) => one.due));
  }

  /** All shards were polled, and none has anything. */
  #endRound(): void {
    if (this.#quiet.isAwaited) this.#gatherer?.hurry();
    if (this.#quiet.recordEmptyRound() && !this.#isBusy) this.wake();
  }

  takeHandoff(handoff: JobHandoff): void {
    this.#add(this.#read(handoff, handoff.shard));
  }

  // From here on, rare cases.

  declineHandoff(handoff: JobHandoff): void {
    const { claims, units } = this.#read(handoff, handoff.shard);
    for (const claim of claims) this.#claims.add(claim);
    for (const unit of units) this.settler.release(unit, 'handed to a worker without a free slot', true);
    this.#wakeOthers();
  }

  noteUnclaimed(): void {
    this.#group.notePolled(this, true);
  }

  release(units: readonly (Unit | ReadyBatch)[], why: 'stopped' | 'stalled'): void {
    const reason = why === 'stopped' ? 'worker stopped' : 'claimed too far ahead';
    for (const one of units) {
      for (const unit of one instanceof ReadyBatch ? one.units : [one]) this.#releaseChain(unit, reason, true);
    }
    if (why === 'stalled') this.#wakeOthers();
    else this.#hasReleased = true;
  }

  #releaseChain(first: Unit | undefined, reason: string, givesUp: boolean): void {
    for (let unit = first; unit !== undefined; unit = unit.next) {
      this.#held -= 1;
      this.settler.release(unit, reason, givesUp && unit.next === undefined);
    }
  }

  /** Gives back a unit of a part of the queue that is paused, until that is resumed. */
  #setUnitAside(unit: Unit, part: StoredPart): void {
    this.#held -= 1;
    this.#setAside += 1;
    this.#releaseChain(unit.next, 'behind a job of its key', false);
    this.settler.release(unit, `paused: ${namePart(part)}`, true, setAsideMs(part));
  }

  /** Gives back a unit of an unknown kind, for a newer version of the program. */
  #releaseUnknownKind(unit: Unit): void {
    this.#held -= 1;
    this.#releaseChain(unit.next, 'behind a job of its key', false);
    this.settler.release(unit, `no handler for kind "${unit.kind}"`, true, UNKNOWN_KIND_MS);
  }

  #wakeOthers(): void {
    this.settler
      .attempted()
      .then(() => this.#parts.store.wake(this.queue))
      .catch((error: unknown) => this.onError(error));
  }

  async register(): Promise<number> {
    const { store, settings } = this.#parts;
    const { concurrency, leaseMs, hold } = settings;
    const row = { queue: this.queue, host: hostname(), pid: process.pid, concurrency, leaseMs, hold };
    const id = await store.addWorker(row);
    if (faults.armed) await faults.reach('queue.after_register');
    this.settler.startFor(id);
    for (const scan of this.#scans) scan.restart();
    return id;
  }

  setWantsNotify(worker: number, wants: boolean): Promise<void> {
    return this.#parts.store.setWants(worker, wants);
  }

  recall(worker: number): Promise<RecallResult> {
    return this.#parts.store.recall(this.queue, worker, this.#knownClaims());
  }

  leave(worker: number): Promise<void> {
    return this.#parts.store.leave(this.queue, worker, this.#knownClaims());
  }

  /** The claims that it knows and whose rows may still exist. */
  #knownClaims(): number[] {
    this.#dropFinishedClaims();
    return [...this.#claims].map(({ id }) => id);
  }

  #dropFinishedClaims(): void {
    for (const claim of this.#claims) if (claim.left === 0) this.#claims.delete(claim);
  }

  drain(time: Budget): Promise<void> {
    // Not before the last poll has ended, which would claim it again.
    if (this.#gatherer !== undefined) this.release(this.#gatherer.clear(), 'stopped');
    const reason = new Stopped('the worker is being stopped and its time is over');
    return this.#drain.run({
      time,
      graceMs: GRACE_MS,
      abort: (units) => units.forEach((unit) => unit.abort(reason)),
      abandon: (units) => this.#abandonHandlers(units),
      written: () => this.settler.flushed(),
    });
  }

  /** Gives back the jobs of handlers that did not end after their abort; their later outcomes are ignored. */
  #abandonHandlers(left: readonly Unit[]): void {
    logAbandoned(this.#parts.store.engine.options.logger, this.queueName, left);
    for (const unit of left) this.running.get(unit)?.(new Stopped('the worker was stopped'));
  }

  async close(worker: number | undefined): Promise<void> {
    const onError = (error: unknown): void => this.onError(error);
    if (this.#hasReleased) await within(STOP_MS, this.#parts.store.wake(this.queue).catch(onError));
    await this.#group.leave(this);
    await this.#keeper.remove(this);
    if (worker !== undefined) await this.#parts.store.removeWorker(worker).catch(onError);
  }
}

function portsOn(store: PostgresQueueStore, queue: number, leaseMs: number): WorkerPorts {
  return {
    keeper: Keeper.for(store, leaseMs),
    group: WorkerGroup.of(store, queue),
    handoff: ({ id, ...worker }) =>
      new DirectHandoff<JobHandoff>({
        name: 'queue',
        store: {
          offer: (offer) => store.offer(queue, offer),
          withdraw: (one) => store.withdraw(queue, one),
          listenForHandoffs: (channel, handlers) => store.listenForHandoffs(channel, handlers),
        },
        worker: id,
        ...worker,
      }),
  };
}

/** One job of each claim: the jobs of a unit leave their claim together. */
export function heldJobs(unit: Unit, idleMs: number | undefined): HeldJob[] {
  const ofClaim = new Map<number, HeldJob>();
  for (const { number, claim } of unit.jobs) {
    ofClaim.set(claim.id, { shard: claim.shard, claim: claim.id, id: number, idleMs });
  }
  return [...ofClaim.values()];
}
