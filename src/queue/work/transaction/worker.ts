import { hostname } from 'node:os';
import { Conflict, ConnectionFailed, DatabaseError, LeaseLost, Stopped } from '../../../base/errors.ts';
import type { Events } from '../../../base/events.ts';
import { faults } from '../../../base/fault.ts';
import { probe } from '../../../base/probe.ts';
import { Budget } from '../../../base/time/budget.ts';
import { within } from '../../../base/time/clock.ts';
import { answerDeadline, END_MS, GRACE_MS, STOP_MS } from '../../../base/work/deadlines.ts';
import { Drain } from '../../../base/work/drain.ts';
import { UNREGISTERED } from '../../../base/work/lease-keeper.ts';
import {
  type AnswerOptions,
  type Backend,
  limitSilence,
  type Session,
  type Subscription,
  statement,
  Transaction,
} from '../../../engine/postgres/index.ts';
import type { Candidate, Charged, ClaimAnswer, EndedJob, Heartbeat } from '../../store.ts';
import { logAbandoned } from '../abandoned.ts';
import { type Handler, type Outcome, startAttempt } from '../attempt.ts';
import { hasJobs, readClaim } from '../claim-reader.ts';
import { toFailedJob } from '../failed-job.ts';
import { Keeper, type LeaseHolder } from '../keeper.ts';
import type { WorkerEvents, WorkerParts } from '../lease-worker.ts';
import { Scan } from '../scan.ts';
import { type Job, type Unit, type UnitOwner, unitOf } from '../unit.ts';
import { guardHeld } from './guard.ts';
import { CLOSED, type HeldUnit, type Lane, OPEN, type PendingCommit, type UnconfirmedUnit } from './lane.ts';
import { LaneWatch } from './lane-watch.ts';
import { Lookahead, READ_MS } from './lookahead.ts';
import { LostTransactions, MOMENT_MS } from './lost-transactions.ts';
import { claimOne, commit, enrol, take } from './pipeline.ts';
import { pendingCommitOf } from './settlement.ts';
import { RAISE_TOKENS } from './statements.ts';

/** A unit whose handler runs, and since when. */
interface Running {
  readonly since: number;
  fail: ((why: unknown) => void) | undefined;
}

const CONSTRAINTS = statement('queue.constraints', 'set constraints all immediate', { prepare: false });

/**
 * A worker that claims each unit in a transaction of its own and keeps it open while the handler runs: what the handler
 * writes through `unit.tx` and the job's outcome are committed together, or, in a crash, not at all, and the job is `new`
 * again at once.
 *
 * Each lane has a connection and does one unit after another. One round trip a job while there is work: the outcome, COMMIT,
 * BEGIN and the next claim go in one message.
 */
export class TransactionWorker implements UnitOwner, LeaseHolder {
  readonly events: Events<WorkerEvents>;
  readonly #parts: WorkerParts;
  readonly #keeper: Keeper;
  readonly #running = new Map<Unit, Running>();
  /** Jobs whose failed attempt was told of. */
  readonly #reported = new WeakSet<Job>();
  readonly #sleepers = new Set<() => void>();
  /** With the process that serves each, where it is known. */
  readonly #sessions = new Map<Session, Backend | undefined>();
  #mayPrepare = true;
  /** What the lanes take from, a shard each. */
  readonly #lookaheads: readonly Lookahead[];
  /** For what the worker sends itself; a handler's own statements may take as long as they like. */
  readonly #answer: AnswerOptions;
  #lanes: Promise<void>[] = [];
  #openLanes = 0;
  /** A lane that runs no handler may have an outcome to commit. */
  readonly #ends: Drain<Unit> = new Drain(
    () => this.#running.keys(),
    () => this.#openLanes <= this.#running.size,
  );
  #watch: LaneWatch | undefined;
  readonly #lostTransactions: LostTransactions;
  #subscription: Subscription | undefined;
  #id: number | undefined;
  #registering: Promise<number> | undefined;
  #noted = '';
  #notes: NodeJS.Timeout | undefined;
  #wakes = 0;
  #isStopping = false;
  #isWary = false;
  #isNoting = false;
  #stopping: Promise<void> | undefined;

  constructor(parts: WorkerParts) {
    const handlers = new Map([...parts.handlers].map(([kind, handler]) => [kind, checked(handler)]));
    this.#parts = { ...parts, handlers };
    this.events = parts.events;
    this.#keeper = Keeper.for(parts.store, parts.settings.leaseMs);
    this.#answer = { deadlineMs: answerDeadline(parts.settings.leaseMs) };
    this.#lostTransactions = new LostTransactions({
      store: parts.store,
      answer: this.#answer,
      onCharged: (unit, charged, error) => this.#reportCharged(unit, charged, error),
      onError: (error) => this.onError(error),
    });
    this.#lookaheads = Array.from({ length: parts.definition.shards }, (_, shard) => this.#lookaheadOf(shard));
  }

  get queueName(): string {
    return this.#parts.definition.name;
  }

  get queue(): number {
    return this.#parts.registered.queue;
  }

  async start(): Promise<void> {
    await this.#register();
    await this.#keeper.add(this);
    this.#subscription = await this.#parts.store.listen(this.queue, {
      wake: () => this.wake(),
      cancel: () => void this.#keeper.beatNow().catch((error: unknown) => this.onError(error)),
    });
    // Before the first job begins, as a rule: whether one of its like has died.
    this.#keeper.beatNow().catch((error: unknown) => this.onError(error));
    this.#notes = setInterval(() => this.#noteHolding(), MOMENT_MS * 2).unref();
    this.#openLanes = this.#parts.settings.concurrency;
    this.#lanes = Array.from({ length: this.#openLanes }, () => this.#lane().finally(() => this.#endLane()));
    this.#watch = new LaneWatch({
      engine: this.#parts.store.engine,
      deadlineMs: answerDeadline(this.#parts.settings.leaseMs),
      lanes: () => this.#sessions,
      settle: () => this.#lostTransactions.settle(),
      onError: (error) => this.onError(error),
    });
  }

  wake(): void {
    this.#wakes += 1;
    for (const wake of Array.from(this.#sleepers)) wake();
  }

  stop(timeoutMs: number): Promise<void> {
    this.#stopping ??= this.#shutDown(timeoutMs);
    return this.#stopping;
  }

  othersEnded(task: object | undefined): Promise<void> | undefined {
    const unit = unitOf(task, this.#running.keys());
    return unit && this.#ends.waitInside(unit);
  }

  async progress(_unit: Unit, job: Job, json: string): Promise<void> {
    // On another connection, so that it can be read now; the open transaction is the proof that the job is ours.
    await this.#parts.store.progress(job.claim.shard, undefined, job.number, json);
  }

  async guard(unit: Unit, tx: unknown): Promise<void> {
    guardHeld(unit, tx);
  }

  get workerId(): number | undefined {
    return this.#id;
  }

  /** Why it can claim nothing just now. */
  get problem(): string | undefined {
    return this.#keeper.problem ?? (this.#id === undefined ? UNREGISTERED : undefined);
  }

  heartbeat(): Heartbeat | undefined {
    return this.#id === undefined ? undefined : { worker: this.#id, wantsNotify: true, holding: this.#holding() };
  }

  /**
   * The row locks of the open transactions hold the jobs, not the lease: handlers go on as long as nobody has found the worker
   * dead, and so ended their transactions. The next beat tells.
   */
  lost(reason: LeaseLost, isCertain: boolean): void {
    if (!isCertain) return;
    this.#id = undefined;
    for (const unit of this.#running.keys()) unit.abort(reason);
    this.events.emit('lost', { reason });
    this.wake();
  }

  /** A job that kills its process within a moment would do so for ever: what runs is noted as soon as it begins. */
  beWary(isWary: boolean): void {
    this.#isWary = isWary;
  }

  cancel(job: number, reason: string | null): void {
    for (const unit of this.#running.keys()) {
      if (unit.jobs.some(({ number }) => number === job)) unit.cancel(job, reason);
    }
  }

  get reportsFailures(): boolean {
    return this.events.has('failed');
  }

  jobsEnded(jobs: readonly EndedJob[]): void {
    for (const job of jobs) this.events.emit('failed', toFailedJob(job, this));
  }

  onError(error: unknown): void {
    this.events.emit('error', { error });
  }

  /** One connection, one unit after another, until the worker stops. */
  async #lane(): Promise<void> {
    const scans = Array.from({ length: this.#parts.definition.shards }, (_, shard) => new Scan(shard));
    let lane: Lane | undefined;
    for (let failures = 0; !this.#isStopping; ) {
      try {
        lane ??= await this.#connect();
        await this.#work(lane, scans);
      } catch (error) {
        failures = lane?.hasAnswered === true ? 1 : failures + 1;
        this.onError(error);
        // Its lease is over, but maybe nobody has noticed: the beat says so, or renews it.
        if (error instanceof LeaseLost) await this.#keeper.beatNow().catch((late: unknown) => this.onError(late));
        // A handler had everything deallocated, and might do so again.
        if (error instanceof DatabaseError && error.sqlState === '26000') this.#mayPrepare = false;
        if (lane !== undefined) await this.#giveUp(lane, error);
        lane = undefined;
        await this.#pause(Math.min(100 * 2 ** failures, 5000));
      }
    }
    this.#disconnect(lane?.session);
  }

  #endLane(): void {
    this.#openLanes -= 1;
    this.#ends.recordEnd();
  }

  /** Claims and runs until nothing is left, then waits to be woken. */
  async #work(lane: Lane, scans: readonly Scan[]): Promise<void> {
    let pending: PendingCommit = CLOSED;
    let backoff = 0;
    let at = 0;
    while (!this.#isStopping) {
      const wakes = this.#wakes;
      const scan = scans[at % scans.length];
      const lookahead = this.#lookaheads[at % scans.length];
      if (scan === undefined || lookahead === undefined) return;
      const worker = this.#id ?? (await this.#register());
      const candidate = lookahead.next();
      const { reading } = lookahead;
      if (candidate === undefined && reading !== undefined) {
        await this.#commit(lane, pending);
        pending = CLOSED;
        await within(READ_MS, reading);
        at += 1;
        continue;
      }
      if (lane.worker !== worker) await enrol(lane, worker);
      const answer: ClaimAnswer | undefined =
        candidate === undefined
          ? await this.#claimOne(lane, pending, worker, scan, lookahead)
          : await this.#take(lane, pending, scan.shard, lookahead, candidate);
      pending = OPEN;
      if (answer?.again === true) continue;
      at += 1;
      // Another worker has taken the candidate.
      if (answer === undefined) continue;
      const verdict = scan.read(answer, 1);
      if (hasJobs(answer)) {
        backoff = 0;
        pending = await this.#run(lane, answer, scan.shard, worker);
      } else if (verdict !== 'again' && scans.every(({ quiet }) => quiet !== undefined)) {
        await this.#commit(lane, pending);
        pending = CLOSED;
        for (const other of scans) other.quiet = undefined;
        const due = Math.min(...scans.map((one) => one.due));
        const rest = verdict === 'busy' ? Math.min(2 ** backoff++, 100) : Math.min(this.#parts.settings.pollMs, due);
        if (verdict === 'empty' && probe.listening) probe.hit('queue.idle', { worker });
        if (wakes === this.#wakes) await this.#pause(rest);
      }
    }
    await this.#commit(lane, pending);
  }

  async #commit(lane: Lane, pending: PendingCommit): Promise<void> {
    if (pending.kind === 'closed') return;
    if (lane.unconfirmed !== undefined) lane.unconfirmed.isSent = true;
    await commit(lane, pending);
    lane.unconfirmed = undefined;
    if (faults.armed && pending.kind !== 'open') await faults.reach('queue.after_settle');
  }

  async #claimOne(
    lane: Lane,
    pending: PendingCommit,
    worker: number,
    scan: Scan,
    lookahead: Lookahead,
  ): Promise<ClaimAnswer> {
    const { shard, cursor, rows, blocker } = scan;
    const request = { queue: this.queue, shard, worker, rows, cursor, blocker };
    const { claimed, unblocked = 0 } = await this.#send(lane, pending, () => claimOne(lane, pending, request));
    scan.blocker = claimed.blockedBy && { what: claimed.blockedBy, rows, cursor };
    // Other lanes may have gone to sleep since there was nothing for them.
    if (unblocked > 0) this.wake();
    if (!hasJobs(claimed)) lookahead.foundNone();
    else if (claimed.claimedAt !== undefined && claimed.last !== undefined) lookahead.found(claimed.last);
    return claimed;
  }

  /** @returns undefined when the candidate is another worker's */
  async #take(
    lane: Lane,
    pending: PendingCommit,
    shard: number,
    lookahead: Lookahead,
    candidate: Candidate,
  ): Promise<ClaimAnswer | undefined> {
    let answer: ClaimAnswer | undefined;
    try {
      answer = await this.#send(lane, pending, () => take(lane, pending, { queue: this.queue, shard }, candidate));
      return answer;
    } finally {
      lookahead.ended(candidate, answer !== undefined);
    }
  }

  /** Claims by a message that commits what is pending. */
  async #send<T>(lane: Lane, pending: PendingCommit, claim: () => Promise<T>): Promise<T> {
    if (lane.unconfirmed !== undefined) lane.unconfirmed.isSent = true;
    const answer = await claim();
    lane.hasAnswered = true;
    lane.unconfirmed = undefined;
    if (faults.armed && pending.kind !== 'closed' && pending.kind !== 'open') await faults.reach('queue.after_settle');
    if (faults.armed) await faults.reach('queue.after_claim');
    return answer;
  }

  #lookaheadOf(shard: number): Lookahead {
    const { store, settings } = this.#parts;
    return new Lookahead({
      lanes: settings.concurrency,
      // On a connection of the pool: no lane stands still for it, or plans it for the first time.
      read: async (request) =>
        store.peek({ queue: this.queue, shard, worker: this.#id ?? (await this.#register()), ...request }),
      onError: (error) => this.onError(error),
    });
  }

  /** Runs the unit. @returns what to send to settle it, before its COMMIT */
  async #run(lane: Lane, answer: ClaimAnswer, shard: number, worker: number): Promise<PendingCommit> {
    const { definition, registered } = this.#parts;
    const { session } = lane;
    const tx = new Transaction(session);
    const batch = readClaim(answer, { shard, definition, registered, owner: this, tx });
    const unit = batch.units[0];
    if (unit === undefined) return OPEN;
    this.events.emit('claimed', { jobs: unit.jobs.length });
    const held: HeldUnit = { unit, answer, queue: this.queue, shard, worker };
    const owed: UnconfirmedUnit = {
      held,
      since: performance.now(),
      ranMs: undefined,
      outcome: undefined,
      isSent: false,
    };
    lane.unconfirmed = owed;
    const lose = (error: Error): void => {
      unit.abort(new LeaseLost('the connection whose transaction held the job was lost; the job is new again'));
      // At once, before somebody else has it; its handler may still take its time.
      lane.unconfirmed = undefined;
      void this.#lostTransactions.add(undefined, owed, error);
    };
    session.client.on('error', lose);
    const outcome = await this.#attempt(unit).finally(() => session.client.removeListener('error', lose));
    owed.ranMs = performance.now() - owed.since;
    owed.outcome = outcome;
    tx.end();
    if (faults.armed) await faults.reach('queue.before_settle');
    if (unit.hasUsedTx && session.client.getTransactionStatus?.() === 'I') this.onError(endedByHand(unit));
    // What its handler left under way: the outcome would come behind it, and never, if that never ends.
    if (outcome.complete.length === 0 && session.isBusy)
      await session.cancel(answerDeadline(this.#parts.settings.leaseMs));
    if (session.isBroken) throw new ConnectionFailed('the connection of the claim was lost; the job is new again');
    if (outcome.isLost)
      throw new ConnectionFailed('the claim was lost; its transaction is rolled back, and the job is new again');
    return pendingCommitOf(held, outcome);
  }

  #attempt(unit: Unit): Promise<Outcome> {
    const { definition, handlers } = this.#parts;
    return new Promise((resolve) => {
      const running: Running = { since: performance.now(), fail: undefined };
      this.#running.set(unit, running);
      if (this.#isWary) this.#noteHolding();
      const fail = startAttempt(unit, definition, handlers, (outcome) => {
        this.#running.delete(unit);
        for (const item of outcome.failed) {
          const job = unit.jobs.find(({ number }) => number === item.id);
          if (job === undefined) continue;
          this.#reported.add(job);
          this.events.emit('failed', { unit, job, to: item.to, error: item.error });
        }
        resolve(outcome);
      });
      running.fail = fail;
      if (fail === undefined) {
        this.#running.delete(unit);
        const reason = `no handler for kind "${unit.kind}"`;
        const failed = unit.jobs.map(
          (job) => ({ claim: job.claim.id, id: job.number, to: 'release', reason, wait: 30_000 }) as const,
        );
        resolve({ failed, complete: [], result: undefined, isLost: false, isRetried: true });
      }
    });
  }

  /** Attempts of which the `failed` event has not told. */
  #reportCharged(unit: Unit, charged: readonly Charged[], error: string): void {
    for (const { id, to } of charged) {
      const job = unit.jobs.find(({ number }) => number === id);
      if (job !== undefined && !this.#reported.has(job)) {
        this.events.emit('failed', { unit, job, to: to === 'new' ? 'retry' : to, error });
      }
    }
  }

  #holding(): number[] {
    const past = this.#isWary ? Infinity : performance.now() - MOMENT_MS;
    return [...this.#running]
      .filter(([, { since }]) => since < past)
      .flatMap(([unit]) => unit.jobs.map((job) => job.number));
  }

  #noteHolding(): void {
    const holding = this.#holding().join();
    if (holding === this.#noted || this.#isNoting) return;
    this.#noted = holding;
    this.#isNoting = true;
    this.#keeper
      .beatNow()
      .catch((error: unknown) => this.onError(error))
      .finally(() => {
        this.#isNoting = false;
        if (this.#isWary) this.#noteHolding();
      });
  }

  #register(): Promise<number> {
    this.#registering ??= this.#registerNow().finally(() => {
      this.#registering = undefined;
    });
    return this.#registering;
  }

  async #registerNow(): Promise<number> {
    const { store, settings } = this.#parts;
    const { concurrency, leaseMs, hold } = settings;
    this.#id = await store.addWorker({
      queue: this.queue,
      host: hostname(),
      pid: process.pid,
      concurrency,
      leaseMs,
      hold,
    });
    if (faults.armed) await faults.reach('queue.after_register');
    return this.#id;
  }

  async #connect(): Promise<Lane> {
    const session = await this.#parts.store.connect();
    try {
      const backend = await limitSilence(session, this.#parts.settings.leaseMs, this.#answer);
      await session.query(RAISE_TOKENS, [], this.#answer);
      this.#sessions.set(session, backend);
      // Behind a pooler the next transaction may be another server process's.
      const takesBatches = backend !== undefined && session.takesBatches && this.#mayPrepare;
      return { session, answer: this.#answer, takesBatches, isPooled: backend === undefined };
    } catch (error) {
      session.release(true);
      throw error;
    }
  }

  /** Closed: it has settings and a lock that nobody else should have. */
  #disconnect(session: Session | undefined): void {
    if (session === undefined) return;
    this.#sessions.delete(session);
    session.release(true);
  }

  /**
   * After a failure nobody knows what state the transaction is in: the connection is closed over it. Where it was lost, the
   * server may not know, and keep the transaction with its jobs and keys; and what it was to say is rolled back with it.
   */
  async #giveUp({ session, unconfirmed: owed }: Lane, error: unknown): Promise<void> {
    const backend = session.isBroken ? this.#sessions.get(session) : undefined;
    this.#disconnect(session);
    await this.#lostTransactions.add(backend, this.#isStopping ? undefined : owed, error);
  }

  /** Until woken, or the time is over. */
  #pause(ms: number): Promise<void> {
    if (this.#isStopping) return Promise.resolve();
    return new Promise((resolve) => {
      const end = (): void => {
        clearTimeout(timer);
        this.#sleepers.delete(end);
        resolve();
      };
      const timer = setTimeout(end, ms);
      this.#sleepers.add(end);
    });
  }

  async #shutDown(timeoutMs: number): Promise<void> {
    this.#isStopping = true;
    this.wake();
    const end = new Budget(timeoutMs + END_MS);
    const reason = new Stopped('the worker is being stopped and its time is up');
    await this.#ends.run({
      time: new Budget(timeoutMs),
      graceMs: GRACE_MS,
      abort: (units) => units.forEach((unit) => unit.abort(reason)),
      abandon: (units) => this.#endHandlers(units),
      written: () => Promise.resolve(),
    });
    await end.wait(Promise.allSettled(this.#lanes));
    for (const session of Array.from(this.#sessions.keys())) session.release(true);
    clearInterval(this.#notes);
    await end.wait(this.#tidyUp());
  }

  #endHandlers(left: readonly Unit[]): void {
    if (left.length > 0) logAbandoned(this.#parts.store.engine.options.logger, this.queueName, left);
    for (const unit of left) this.#running.get(unit)?.fail?.(new Stopped('the worker was stopped'));
  }

  async #tidyUp(): Promise<void> {
    await within(
      STOP_MS,
      Promise.all([this.#watch?.stop(), ...this.#lookaheads.map((lookahead) => lookahead.settled())]),
    );
    await this.#subscription?.stop();
    await this.#keeper.remove(this);
    const id = this.#id;
    this.#id = undefined;
    if (id !== undefined) await this.#parts.store.removeWorker(id).catch((error: unknown) => this.onError(error));
  }
}

/**
 * A handler that swallowed a failed statement has not succeeded: the database refuses everything after it, COMMIT included.
 * Nor has one whose writes break a deferred constraint; that is asked now, since a COMMIT that fails fails for ever.
 */
function checked(handler: Handler): Handler {
  return async (unit) => {
    const result = await handler(unit);
    if (!unit.hasUsedTx) return result;
    const { client, firstFailure } = unit.tx;
    const failed = (): Error => (firstFailure instanceof Error ? firstFailure : swallowed());
    if (client.getTransactionStatus?.() === 'E') throw failed();
    try {
      await unit.tx.query(CONSTRAINTS);
    } catch (error) {
      // The status comes behind the error that was swallowed, and may not be here yet when the handler returns.
      throw error instanceof DatabaseError && error.sqlState === IS_ABORTED ? failed() : error;
    }
    return result;
  };
}

/** "current transaction is aborted" */
const IS_ABORTED = '25P02';

function swallowed(): Conflict {
  return new Conflict(
    'a statement of the handler failed, and its error was caught: the transaction takes nothing more, and is rolled back; let the ' +
      'error through, or use a savepoint',
  );
}

function endedByHand({ job, kind }: Unit): Conflict {
  return new Conflict(
    `the handler of kind "${kind}" has ended the transaction of job ${job.id} itself, by a commit or rollback through unit.tx.client: its ` +
      'writes and the outcome of the job are not committed together any more; leave both to the worker',
  );
}
