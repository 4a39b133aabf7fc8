import { hostname } from 'node:os';
import { within } from '../base/clock.ts';
import { ConnectionFailed, DatabaseError, LeaseLost, Stopped } from '../base/errors.ts';
import type { Events } from '../base/events.ts';
import { faults } from '../base/fault.ts';
import { probe } from '../base/probe.ts';
import {
  type AnswerOptions,
  type Backend,
  endBackend,
  type Session,
  type Subscription,
  statement,
  Transaction,
  watchOver,
} from '../engine/postgres/index.ts';
import { begin, GRACE_MS, type Handler, type Outcome } from './attempt.ts';
import { hasJobs, readClaimed } from './claimed.ts';
import { Keeper, type Kept } from './keeper.ts';
import { commit, type Lane, look, type Told, take, UNDO } from './lane-messages.ts';
import { LaneWatch } from './lane-watch.ts';
import { patience, STOP_MS } from './patience.ts';
import { runningText, settleText } from './postgres.ts';
import { Scan } from './scan.ts';
import { jobsByClaim } from './settlement.ts';
import type { Beat, Claimed, Settlement } from './store.ts';
import { LOOK_MS, Stretch } from './stretch.ts';
import type { Job, Unit, UnitOwner } from './unit.ts';
import type { WorkerEvents, WorkerParts } from './worker.ts';

/** A unit whose handler runs, and since when. */
interface Running {
  readonly since: number;
  fail: ((why: unknown) => void) | undefined;
}

const CONSTRAINTS = statement('queue.constraints', 'set constraints all immediate', { prepare: false });
/** A job that has run for this long is noted with the heartbeat, so that a crash of this process counts as an attempt. */
const HOLDING_MS = 100;

/**
 * A worker that claims each unit in a transaction of its own and keeps it open while the handler runs: what the handler
 * writes through `unit.tx` and the job's outcome are committed together, or, in a crash, not at all, and the job is `new`
 * again at once.
 *
 * Each lane has a connection and does one unit after another. One round trip a job while there is work: the outcome, COMMIT,
 * BEGIN and the next claim go in one message.
 */
export class TransactionWorker implements UnitOwner, Kept {
  readonly events: Events<WorkerEvents>;
  readonly #parts: WorkerParts;
  readonly #keeper: Keeper;
  readonly #running = new Map<Unit, Running>();
  readonly #sleepers = new Set<() => void>();
  /** With the process that serves each, where it is known. */
  readonly #sessions = new Map<Session, Backend | undefined>();
  #mayPrepare = true;
  /** What the lanes take from, a shard each. */
  readonly #stretches: readonly Stretch[];
  /** For what the worker sends itself; a handler's own statements may take as long as they like. */
  readonly #answer: AnswerOptions;
  #lanes: Promise<void>[] = [];
  /** Under way beside the lanes. */
  readonly #looks = new Set<Promise<void>>();
  #watch: LaneWatch | undefined;
  #subscription: Subscription | undefined;
  #id: number | undefined;
  #registering: Promise<number> | undefined;
  #noted = '';
  #notes: NodeJS.Timeout | undefined;
  #wakes = 0;
  #isStopping = false;
  #stopping: Promise<void> | undefined;

  constructor(parts: WorkerParts) {
    const handlers = new Map([...parts.handlers].map(([kind, handler]) => [kind, checked(handler)]));
    this.#parts = { ...parts, handlers };
    this.events = parts.events;
    this.#keeper = Keeper.for(parts.store, parts.settings.leaseMs);
    this.#answer = { deadlineMs: patience(parts.settings.leaseMs) };
    this.#stretches = Array.from({ length: parts.definition.shards }, () => new Stretch(parts.settings.concurrency));
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
    this.#notes = setInterval(() => this.#noteHolding(), HOLDING_MS * 2).unref();
    this.#lanes = Array.from({ length: this.#parts.settings.concurrency }, () => this.#lane());
    this.#watch = new LaneWatch({
      engine: this.#parts.store.engine,
      deadlineMs: patience(this.#parts.settings.leaseMs),
      lanes: () => this.#sessions,
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

  async progress(_unit: Unit, job: Job, json: string): Promise<void> {
    // On another connection, so that it can be read now; the open transaction is the proof that the job is ours.
    await this.#parts.store.progress(job.claim.shard, undefined, job.number, json);
  }

  async guard(): Promise<void> {
    // The claim's own transaction is the proof: what is written through unit.tx cannot be committed without it.
  }

  beat(): Beat | undefined {
    return this.#id === undefined ? undefined : { worker: this.#id, wantsNotify: true, holding: this.#holding() };
  }

  /** The row locks of the open transactions hold the jobs, not the lease: handlers go on, under a new registration. */
  lost(reason: LeaseLost): void {
    this.#id = undefined;
    this.events.emit('lost', { reason });
    this.wake();
  }

  cancel(job: number, reason: string | null): void {
    for (const unit of this.#running.keys()) {
      if (unit.jobs.some(({ number }) => number === job)) unit.cancel(job, reason);
    }
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
        failures = 0;
      } catch (error) {
        failures += 1;
        this.onError(error);
        if (error instanceof LeaseLost) this.#id = undefined;
        // A handler had everything deallocated, and might do so again.
        if (error instanceof DatabaseError && error.sqlState === '26000') this.#mayPrepare = false;
        lane?.letGo?.();
        await this.#giveUp(lane?.session);
        lane = undefined;
        await this.#pause(Math.min(100 * 2 ** failures, 5000));
      }
    }
    this.#hangUp(lane?.session);
  }

  /**
   * Claims and runs until nothing is left, then waits to be woken. `done` is what the open transaction is yet to be told;
   * undefined when none is open.
   */
  async #work(lane: Lane, scans: readonly Scan[]): Promise<void> {
    let done: Told | undefined;
    let backoff = 0;
    let at = 0;
    while (!this.#isStopping || done !== undefined) {
      if (this.#isStopping) {
        await this.#commit(lane, done ?? '');
        return;
      }
      const wakes = this.#wakes;
      const scan = scans[at % scans.length];
      const stretch = this.#stretches[at % scans.length];
      if (scan === undefined || stretch === undefined) return;
      const { looking } = stretch;
      if (looking !== undefined) {
        if (done !== undefined) await this.#commit(lane, done);
        done = undefined;
        await within(LOOK_MS, looking);
        at += 1;
        continue;
      }
      const worker = this.#id ?? (await this.#register());
      if (stretch.wantsLook) this.#lookAhead(stretch, scan.shard, worker);
      const answer = await this.#claim(lane, done, worker, scan, stretch);
      done = '';
      if (answer?.again === true) continue;
      at += 1;
      if (answer === undefined) continue;
      const verdict = scan.read(answer, 1);
      if (hasJobs(answer)) {
        backoff = 0;
        done = await this.#run(lane.session, answer, scan.shard, worker);
      } else if (verdict !== 'again' && scans.every(({ quiet }) => quiet !== undefined)) {
        await this.#commit(lane, done);
        done = undefined;
        for (const other of scans) other.quiet = undefined;
        const due = Math.min(...scans.map((one) => one.due));
        const rest = verdict === 'busy' ? Math.min(2 ** backoff++, 100) : Math.min(this.#parts.settings.pollMs, due);
        if (verdict === 'empty' && probe.listening) probe.hit('queue.idle', { worker });
        if (wakes === this.#wakes) await this.#pause(rest);
      }
    }
  }

  async #commit(lane: Lane, told: Told): Promise<void> {
    await commit(lane, told);
    lane.letGo?.();
    lane.letGo = undefined;
    if (faults.armed && told !== '') await faults.reach('queue.after_settle');
  }

  /** @returns undefined when there was nothing left to take where a look had shown something */
  async #claim(
    lane: Lane,
    told: Told | undefined,
    worker: number,
    scan: Scan,
    stretch: Stretch,
  ): Promise<Claimed | undefined> {
    const answer = await (stretch.hasMore
      ? this.#take(lane, told, scan.shard, stretch)
      : this.#look(lane, told, worker, scan, stretch));
    // The outcome of the unit before was committed by the same message.
    lane.letGo?.();
    lane.letGo = answer && stretch.hold(answer);
    if (faults.armed && told !== undefined && told !== '') await faults.reach('queue.after_settle');
    if (faults.armed) await faults.reach('queue.after_claim');
    return answer;
  }

  async #look(lane: Lane, told: Told | undefined, worker: number, scan: Scan, stretch: Stretch): Promise<Claimed> {
    const { isOld } = stretch;
    const rows = stretch.look();
    // One pass from the start is enough for all lanes.
    if (rows > 0 && isOld) scan.restart();
    const { shard, cursor, untidy } = scan;
    const request = { queue: this.queue, shard, worker, rows: Math.max(rows, scan.rows), cursor };
    let answer: Claimed | undefined;
    try {
      const { claimed, tidied = 0 } = await look(lane, told, { ...request, untidy });
      answer = claimed;
      scan.untidy = claimed.untidy && { what: claimed.untidy, rows: request.rows, cursor };
      // Others may have gone to rest since there was nothing for them.
      if (tidied > 0) this.wake();
      return answer;
    } finally {
      if (rows > 0) stretch.see(answer);
    }
  }

  async #take(lane: Lane, told: Told | undefined, shard: number, stretch: Stretch): Promise<Claimed | undefined> {
    let answer: Claimed | undefined;
    const taking = stretch.take();
    try {
      answer = await take(lane, told, { queue: this.queue, shard }, taking);
      return answer;
    } finally {
      stretch.took(taking, answer);
    }
  }

  /** On a connection of the pool, beside the lanes: no lane stands still for it, or plans it for the first time. */
  #lookAhead(stretch: Stretch, shard: number, worker: number): void {
    const ahead = stretch.lookAhead();
    const { rows, cursor } = ahead;
    const looking = this.#parts.store.look({ queue: this.queue, shard, worker, rows, cursor }).then(
      (looked) => ahead.end(looked),
      (error: unknown) => {
        ahead.end(undefined);
        if (error instanceof LeaseLost && this.#id === worker) this.#id = undefined;
        this.onError(error);
      },
    );
    this.#looks.add(looking);
    void looking.finally(() => this.#looks.delete(looking));
  }

  /** Runs the unit. @returns what to send to settle it, before its COMMIT */
  async #run(session: Session, answer: Claimed, shard: number, worker: number): Promise<Told> {
    const { definition, registered } = this.#parts;
    const tx = new Transaction(session);
    const batch = readClaimed(answer, { shard, definition, registered, owner: this, tx });
    const unit = batch.units[0];
    if (unit === undefined) return '';
    this.events.emit('claimed', { jobs: unit.jobs.length });
    const lose = (): void =>
      unit.abort(new LeaseLost('the connection whose transaction held the job was lost; the job is new again'));
    session.client.on('error', lose);
    const outcome = await this.#attempt(unit).finally(() => session.client.removeListener('error', lose));
    tx.end();
    if (faults.armed) await faults.reach('queue.before_settle');
    if (session.isBroken) throw new ConnectionFailed('the connection of the claim was lost; the job is new again');
    const settlement = this.#settlement(unit, outcome, shard, worker);
    // Where some jobs of a unit are complete, what the handler wrote for them stays.
    const undo = outcome.complete.length === 0 ? UNDO : '';
    if (answer.claimedAt === undefined) return `${undo}${settleText(settlement)};`;
    const { claim, number, attempt } = unit.job;
    const { id: claimId, processId } = claim;
    const { claimedAt } = answer;
    const open = { queue: this.queue, shard, worker, claim: claimId, claimedAt, processId, attempt, id: number };
    if (outcome.failed.length === 0 && outcome.result === undefined) return open;
    return `${undo}${runningText(open)};${settleText(settlement)};`;
  }

  #attempt(unit: Unit): Promise<Outcome> {
    const { definition, handlers } = this.#parts;
    return new Promise((resolve) => {
      const running: Running = { since: performance.now(), fail: undefined };
      this.#running.set(unit, running);
      const fail = begin(unit, definition, handlers, (outcome) => {
        this.#running.delete(unit);
        for (const item of outcome.failed) {
          const job = unit.jobs.find(({ number }) => number === item.id);
          if (job !== undefined) this.events.emit('failed', { unit, job, to: item.to, error: item.error });
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

  #settlement(unit: Unit, outcome: Outcome, shard: number, worker: number): Settlement {
    const failed = [...outcome.failed];
    // More of the key may have been claimed along; it goes back in the same transaction.
    for (let rest = unit.next; rest !== undefined; rest = rest.next) {
      failed.push(
        ...rest.jobs.map(
          (job) => ({ claim: job.claim.id, id: job.number, to: 'release', reason: 'behind a job of its key' }) as const,
        ),
      );
    }
    const byClaim = new Map<number, number[]>();
    for (const job of outcome.complete) byClaim.set(job.claim.id, [...(byClaim.get(job.claim.id) ?? []), job.number]);
    const isWhole = ([claim]: [number, number[]]): boolean => failed.every((job) => job.claim !== claim);
    const { complete, result } = outcome;
    const results =
      complete.length > 1 || result === undefined
        ? []
        : complete.map((job) => ({ id: job.number, claim: job.claim.id, result }));
    return {
      queue: this.queue,
      shard,
      worker,
      whole: [...byClaim].filter(isWhole).map(([claim]) => claim),
      part: [...byClaim].filter((entry) => !isWhole(entry)).map(([claim, ids]) => ({ claim, ids })),
      failed,
      results,
      shared: complete.length > 1 && result !== undefined ? [{ result, jobs: jobsByClaim(complete) }] : [],
      keys: unit.key === null || unit.epoch === null ? [] : [[unit.key, unit.epoch]],
    };
  }

  #holding(): number[] {
    const past = performance.now() - HOLDING_MS;
    return [...this.#running]
      .filter(([, { since }]) => since < past)
      .flatMap(([unit]) => unit.jobs.map((job) => job.number));
  }

  #noteHolding(): void {
    const holding = this.#holding().join();
    if (holding === this.#noted) return;
    this.#noted = holding;
    this.#keeper.beatNow().catch((error: unknown) => this.onError(error));
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
      const backend = await watchOver(session, this.#parts.settings.leaseMs, this.#answer);
      this.#sessions.set(session, backend);
      // Behind a pooler the next transaction may be another server process's.
      const takesBatches = backend !== undefined && session.takesBatches && this.#mayPrepare;
      return { session, answer: this.#answer, takesBatches };
    } catch (error) {
      session.release(true);
      throw error;
    }
  }

  #hangUp(session: Session | undefined, hasFailed = false): void {
    if (session === undefined) return;
    this.#sessions.delete(session);
    session.release(hasFailed);
  }

  /**
   * After a failure nobody knows what state the transaction is in: the connection is closed over it. Where it was lost, the
   * server may not know, and keep the transaction with its jobs and keys.
   */
  async #giveUp(session: Session | undefined): Promise<void> {
    const backend = session?.isBroken === true ? this.#sessions.get(session) : undefined;
    this.#hangUp(session, true);
    if (backend === undefined) return;
    // Should it fail, the server finds out by itself, see watchOver; whether it can be reached is told by the next claim.
    await endBackend(this.#parts.store.engine, backend, this.#answer).catch(() => {});
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
    const ended = Promise.allSettled(this.#lanes);
    if (!(await within(timeoutMs, ended))) {
      for (const unit of this.#running.keys())
        unit.abort(new Stopped('the worker is being stopped and its time is up'));
      await within(GRACE_MS, ended);
    }
    for (const { fail } of Array.from(this.#running.values())) fail?.(new Stopped('the worker was stopped'));
    await within(GRACE_MS, ended);
    for (const session of Array.from(this.#sessions.keys())) session.release(true);
    clearInterval(this.#notes);
    await within(STOP_MS, Promise.all([this.#watch?.stop(), ...this.#looks]));
    await this.#subscription?.stop();
    await this.#keeper.remove(this);
    if (this.#id !== undefined)
      await this.#parts.store.removeWorker(this.#id).catch((error: unknown) => this.onError(error));
    this.#id = undefined;
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
    if (unit.tx.client.getTransactionStatus?.() === 'E') throw unit.tx.firstFailure;
    await unit.tx.query(CONSTRAINTS);
    return result;
  };
}
