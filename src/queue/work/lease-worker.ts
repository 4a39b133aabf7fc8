import { hostname } from 'node:os';
import { ConnectionFailed, LeaseLost, NotFound, Stopped } from '../../base/errors.ts';
import type { Events } from '../../base/events.ts';
import { faults } from '../../base/fault.ts';
import { ClaimReconciler } from '../../base/handoff/claim-reconciler.ts';
import { DirectHandoff } from '../../base/handoff/direct-handoff.ts';
import { type Loop, startLoop } from '../../base/loop.ts';
import { probe } from '../../base/probe.ts';
import { Budget } from '../../base/time/budget.ts';
import { within } from '../../base/time/clock.ts';
import { BUSY_MS, END_MS, GRACE_MS, STOP_MS } from '../../base/work/deadlines.ts';
import { Drain } from '../../base/work/drain.ts';
import { AdaptivePrefetch } from '../../base/work/prefetch.ts';
import { Transaction } from '../../engine/postgres/index.ts';
import type { Definition } from '../definition.ts';
import type { PostgresQueueStore } from '../postgres/store.ts';
import type { ClaimAnswer, EndedJob, Heartbeat, HeldJob, JobFailure, JobHandoff, QueueIds } from '../store.ts';
import { logAbandoned } from './abandoned.ts';
import { breakSuccessors, type Handler, type Outcome, startAttempt } from './attempt.ts';
import { type ClaimedUnits, countUnits, hasJobs, readClaim } from './claim-reader.ts';
import { type FailedJob, toFailedJob } from './failed-job.ts';
import { Keeper, type LeaseHolder } from './keeper.ts';
import { Scan } from './scan.ts';
import { Settler } from './settler.ts';
import { type Claim, type Job, type Unit, type UnitOwner, unitOf } from './unit.ts';
import { type GroupMember, WorkerGroup } from './worker-group.ts';

/** What a worker tells about its life; for logs, metrics and tests. */
export interface WorkerEvents {
  /** Jobs were claimed. */
  claimed: { readonly jobs: number };
  /**
   * An attempt failed; `to` says what became of the job. Also for a job of a lost worker that had no attempt left, on one of the
   * workers of the process that found it: then `unit` is over, has this job alone, its payload as it was enqueued, and `token` 0.
   */
  failed: FailedJob;
  /** Outcomes came too late and were not written: somebody else owns these claims. */
  stale: { readonly claims: readonly number[] };
  /** The worker's lease is gone; everything it ran was told to end. It registers anew. */
  lost: { readonly reason: LeaseLost };
  /** The database could not be reached or refused something; the worker goes on trying. */
  error: { readonly error: unknown };
}

/** A worker, complete. */
export interface WorkerSettings {
  readonly concurrency: number;
  readonly hold: 'lease' | 'transaction';
  readonly leaseMs: number;
  readonly pollMs: number;
  /** Jobs claimed ahead of their turn: a number, or as many as the last 50 ms would have run. */
  readonly prefetch: number | 'auto';
}

/** What a worker is made of. */
export interface WorkerParts {
  readonly store: PostgresQueueStore;
  readonly definition: Definition;
  readonly registered: QueueIds;
  readonly handlers: ReadonlyMap<string, Handler>;
  readonly settings: WorkerSettings;
  readonly events: Events<WorkerEvents>;
}

/** Jobs of one key taken together: enough to make a claim worth its cost, few enough to share a hot key's time. */
const CHAIN = 32;
const PREFETCH_MAX = 2000;
/** How long a job of a kind that this worker does not know waits for one that does. */
const UNKNOWN_KIND_MS = 30_000;

/**
 * A worker that holds its units by a lease: claims batches, runs each unit's handler, settles in batches.
 * The path of a job: `#turn` claims, `#post` queues, `#pump` starts, `#finish` hands the outcome to the settler.
 */
export class LeaseWorker implements UnitOwner, LeaseHolder, GroupMember {
  readonly events: Events<WorkerEvents>;
  readonly #parts: WorkerParts;
  readonly #settler: Settler;
  readonly #keeper: Keeper;
  readonly #group: WorkerGroup;
  readonly #handoff: DirectHandoff<JobHandoff>;
  readonly #reconciler: ClaimReconciler<JobHandoff>;
  readonly #prefetch: AdaptivePrefetch;
  readonly #scans: Scan[];
  readonly #chain: number;
  readonly #claims = new Set<Claim>();
  /** Units whose handler runs, and how to end each from outside. */
  readonly #running = new Map<Unit, ((why: unknown) => void) | undefined>();
  #waiting: Unit[] = [];
  /** The next units of keys whose last one has just ended: before all others. */
  #following: Unit[] = [];
  #loop: Loop | undefined;
  #id: number | undefined;
  #scanIndex = 0;
  /** How often the lease was lost: what was claimed in an earlier life counts for nothing. */
  #generation = 0;
  /** Units claimed and not yet finished. */
  #held = 0;
  #wantsNotify = true;
  #busySince: number | undefined;
  #busyPolls = 0;
  #isPumping = false;
  /** The last look found nothing: until a notification or the next poll there is nothing to look for, whatever slot is free. */
  #isAsleep = false;
  #stopping: Promise<void> | undefined;
  /** Others may be asleep, who could run it now. */
  #hasReleased = false;
  readonly #drain: Drain<Unit> = new Drain(() => this.#running.keys());

  constructor(parts: WorkerParts) {
    this.#parts = parts;
    this.events = parts.events;
    const { store, definition, registered, settings } = parts;
    // A job with a single attempt must not lose it because the worker died of the one before it.
    this.#chain = [...definition.kinds.values()].some((kind) => kind.attempts === 1) ? 1 : CHAIN;
    this.#scans = Array.from({ length: definition.shards }, (_, shard) => new Scan(shard));
    this.#settler = new Settler({
      queue: registered.queue,
      settle: (settlement, offer) => store.settle(settlement, offer),
      // While it looks, the look brings work or makes the offer.
      offer: () => (this.#isAsleep ? this.#handoff.nextOffer() : undefined),
      onStale: (claims) => this.events.emit('stale', { claims }),
      onRefused: (unit, failed) => this.#reportFailures(unit, failed),
      onError: (error) => this.onError(error),
      onMore: () => this.#loop?.wake(),
    });
    this.#keeper = Keeper.for(store, settings.leaseMs);
    this.#group = WorkerGroup.of(store, registered.queue);
    this.#handoff = new DirectHandoff({
      name: 'queue',
      store: {
        offer: (offer) => store.offer(registered.queue, offer),
        withdraw: (worker) => store.withdraw(registered.queue, worker),
        listenForHandoffs: (channel, handlers) => store.listenForHandoffs(channel, handlers),
      },
      worker: () => this.#id,
      isFree: () => this.#isFree() && this.#wantsNotify && this.#stopping === undefined,
      onHandoff: (job) => this.#reconciler.receive(job),
      onError: (error) => this.onError(error),
    });
    this.#reconciler = new ClaimReconciler({
      name: 'queue',
      handoff: this.#handoff,
      leaseMs: settings.leaseMs,
      pollMs: settings.pollMs,
      accept: (job) => this.#acceptHandoff(job),
      wake: () => this.#loop?.wake(),
    });
    this.#prefetch = new AdaptivePrefetch({
      count: settings.prefetch,
      max: PREFETCH_MAX,
      waiting: () => this.#waiting.length,
      onStalled: (kept) => this.#releasePrefetched(kept),
    });
  }

  get queueName(): string {
    return this.#parts.definition.name;
  }

  get queue(): number {
    return this.#parts.registered.queue;
  }

  /** Starts to look for work, at once and whenever something is enqueued. */
  async start(): Promise<void> {
    await this.#register();
    await this.#keeper.add(this);
    this.#handoff.start(await this.#group.join(this));
    this.#loop = startLoop({
      name: 'queue.claim',
      run: () => this.#reconciler.run(() => this.#poll()),
      onError: (error) => this.#onPollError(error),
    });
  }

  /** Looks for work now. */
  wake(): void {
    for (const scan of this.#scans) scan.quiet = undefined;
    this.#busyPolls = 0;
    this.#loop?.wake();
  }

  // What its herd asks of it.

  get isIdle(): boolean {
    return this.#isAsleep && this.#isFree() && this.#stopping === undefined;
  }

  get isPolling(): boolean {
    return !this.#isAsleep && this.#isFree() && this.#stopping === undefined;
  }

  noteNotification(): void {
    this.#handoff.noteNotification();
  }

  checkCancels(): void {
    this.#keeper.beatNow().catch((error: unknown) => this.onError(error));
  }

  stop(timeoutMs: number): Promise<void> {
    this.#stopping ??= this.#shutDown(timeoutMs);
    return this.#stopping;
  }

  othersEnded(task: object | undefined): Promise<void> | undefined {
    const unit = unitOf(task, this.#running.keys());
    return unit && this.#drain.waitInside(unit);
  }

  // What a unit asks of its worker.

  async progress(unit: Unit, job: Job, json: string): Promise<void> {
    this.#requireLease(unit);
    await this.#parts.store.progress(job.claim.shard, job.claim.id, job.number, json);
  }

  async guard(unit: Unit, tx: unknown): Promise<void> {
    this.#requireLease(unit);
    // Before it is sent: once the unit is settled, its settlement has to know of it.
    unit.isGuarded = true;
    // Another library's connection may end its process when the server hangs up on it; the engine's own does not.
    const idleMs = tx instanceof Transaction ? this.#parts.settings.leaseMs : undefined;
    await this.#parts.store.guard(heldJobs(unit, idleMs), tx);
  }

  /** A process that has stood still knows by its clock what its timers and the database have yet to tell it. */
  #requireLease(unit: Unit): void {
    if (this.#keeper.hasLease) return;
    throw new LeaseLost(`the lease of job ${unit.job.id} ran out before it could be renewed; stop working on it`);
  }

  // What the keeper asks of it.

  heartbeat(): Heartbeat | undefined {
    return this.#id === undefined ? undefined : { worker: this.#id, wantsNotify: this.#wantsNotify, holding: [] };
  }

  lost(reason: LeaseLost): void {
    this.#id = undefined;
    this.#settler.drop();
    const running = [...this.#running];
    this.#running.clear();
    this.#waiting = [];
    this.#following = [];
    this.#claims.clear();
    this.#held = 0;
    this.#generation += 1;
    this.#handoff.reset();
    this.#reconciler.dropPending();
    // What a handler does after this is nobody's outcome: the settler has dropped its claims.
    for (const [unit, fail] of running) {
      unit.abort(reason);
      fail?.(reason);
    }
    this.events.emit('lost', { reason });
    this.#drain.recordEnd();
    this.wake();
  }

  cancel(job: number, reason: string | null): void {
    for (const first of [...this.#running.keys(), ...this.#following, ...this.#waiting]) {
      for (let unit: Unit | undefined = first; unit !== undefined; unit = unit.next) {
        if (unit.jobs.some(({ number }) => number === job)) unit.cancel(job, reason);
      }
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

  // The hot path.

  /** Claim, post, say how long to sleep. */
  async #poll(): Promise<number> {
    this.#isAsleep = false;
    const id = this.#id ?? (await this.#register());
    if (this.#reconciler.mayHoldUnknown) await this.#recall(id);
    const limit = this.#reconciler.limit(this.#capacity());
    if (limit <= 0) {
      this.#group.notePolled(this, true);
      return Infinity;
    }
    const scan = this.#scans[this.#scanIndex % this.#scans.length];
    if (scan === undefined) throw new NotFound('a queue always has a shard');
    const answer = await this.#claim(id, scan, limit);
    if (this.#id !== id) return 0;
    const units = countUnits(answer);
    this.#reconciler.noteAnswer(units);
    this.#group.notePolled(this, units >= limit);
    if (hasJobs(answer)) {
      const { definition, registered } = this.#parts;
      this.#post(readClaim(answer, { shard: scan.shard, definition, registered, owner: this }));
    }
    return this.#nextDelay(scan, answer, limit);
  }

  async #claim(worker: number, scan: Scan, limit: number): Promise<ClaimAnswer> {
    const { store } = this.#parts;
    const slots = Math.max(0, this.#parts.settings.concurrency - this.#running.size);
    const { shard, cursor, rows } = scan;
    const offer = this.#handoff.nextOffer();
    const answer = await store.claim(
      { queue: this.queue, shard, worker, limit, slots, rows, chain: this.#chain, cursor },
      offer,
    );
    if (offer !== undefined && answer.offered !== true) this.#handoff.cancelOffer(offer);
    if (faults.armed) await faults.reach('queue.after_claim');
    if (probe.listening) probe.hit('queue.claimed', { shard, worker, rows: answer.rows.length, seen: answer.seen });
    return answer;
  }

  /**
   * How many jobs to claim: none while there is still half a helping. A key's chain is held by one slot, however long it
   * is: slots that nothing held can fill are room in any case.
   */
  #capacity(): number {
    const { concurrency } = this.#parts.settings;
    const free = Math.max(0, concurrency - this.#running.size - this.#following.length - this.#waiting.length);
    const ahead = this.#prefetch.count;
    if (this.#held > concurrency + ahead / 2) return free;
    return Math.max(free, concurrency + ahead - this.#held);
  }

  #post(batch: ClaimedUnits): void {
    this.#held += batch.count;
    if (this.#claims.size > 1000) this.#dropFinishedClaims();
    for (const claim of batch.claims) this.#claims.add(claim);
    // See queue_claim, p_slots.
    const first = batch.units.filter(({ job }) => job.claim.isAlone);
    if (first.length === 0) this.#waiting = this.#waiting.concat(batch.units);
    else this.#waiting = [...first, ...this.#waiting, ...batch.units.filter(({ job }) => !job.claim.isAlone)];
    this.events.emit('claimed', { jobs: batch.jobs });
    if (this.#stopping === undefined) this.#pump();
    else this.#releaseUnstarted();
  }

  /** Starts what there are slots for. A loop and not a recursion: handlers may finish while they are being called. */
  #pump(): void {
    if (this.#isPumping) return;
    this.#isPumping = true;
    let next = 0;
    while (
      this.#running.size < this.#parts.settings.concurrency &&
      (this.#following.length > 0 || next < this.#waiting.length) &&
      this.#stopping === undefined &&
      // What was claimed before this process stood still is somebody else's by now; its renewal is about to say so.
      this.#keeper.hasLease
    ) {
      const unit = this.#following.pop() ?? this.#waiting[next++];
      if (unit !== undefined) this.#begin(unit);
    }
    this.#waiting.splice(0, next);
    this.#isPumping = false;
    this.#prefetch.watch();
    if (!this.#isFree()) this.#handoff.withdraw();
    if (this.#stopping === undefined && !this.#isAsleep && this.#capacity() > 0) this.#loop?.wake();
  }

  #begin(unit: Unit): void {
    const { definition, handlers } = this.#parts;
    this.#prefetch.recordStart();
    this.#running.set(unit, undefined);
    const life = this.#generation;
    const fail = startAttempt(unit, definition, handlers, (outcome) => {
      this.#running.delete(unit);
      if (life === this.#generation) this.#finish(unit, outcome);
    });
    if (fail === undefined) {
      this.#running.delete(unit);
      this.#releaseUnknownKind(unit);
    } else if (this.#running.has(unit)) this.#running.set(unit, fail);
  }

  #finish(unit: Unit, outcome: Outcome): void {
    this.#held -= 1;
    this.#prefetch.recordEnd(1);
    if (outcome.failed.length > 0) this.#reportFailures(unit, outcome.failed);
    const rest = unit.next;
    // Of one that failed, a transaction that it guards may be open still: nothing of its key begins beside that.
    const mayWrite = unit.isGuarded && outcome.failed.length > 0;
    if (outcome.isRetried || mayWrite || this.#stopping !== undefined) {
      this.#releaseChain(rest, 'behind a job of its key', false);
      this.#settler.add(unit, outcome, true);
    } else {
      this.#settler.add(unit, outcome, rest === undefined);
      breakSuccessors(unit, outcome, this.#parts.definition);
      if (rest !== undefined) this.#following.push(rest);
    }
    this.#pump();
    this.#drain.recordEnd();
  }

  /** Where to look next, and when. */
  #nextDelay(scan: Scan, answer: ClaimAnswer, limit: number): number {
    const { pollMs } = this.#parts.settings;
    const verdict = scan.read(answer, limit);
    this.#scanIndex += 1;
    if (answer.paused === true) return pollMs;
    if (hasJobs(answer)) this.#busyPolls = 0;
    if (verdict === 'again') return this.#noteBusy();
    if (this.#scans.some(({ quiet }) => quiet === undefined)) return 0;
    this.#busySince = undefined;
    for (const other of this.#scans) other.quiet = undefined;
    if (!this.#wantsNotify) return this.#wantNotify();
    if (verdict === 'busy') return Math.min(2 ** this.#busyPolls++, 100, pollMs);
    this.#busyPolls = 0;
    this.#isAsleep = true;
    if (probe.listening) probe.hit('queue.idle', { worker: this.#id });
    const due = Math.min(...this.#scans.map((one) => one.due));
    return Math.min(pollMs * (0.75 + Math.random() / 2), due);
  }

  /** A job that an enqueue has claimed for this worker. */
  #acceptHandoff(job: JobHandoff): void {
    const { shard, worker } = job;
    // Taken for dead: the job is rescued, if not by now, then soon.
    if (worker !== this.#id || !this.#keeper.hasLease) return;
    const { definition, registered } = this.#parts;
    const batch = readClaim(job, { shard, definition, registered, owner: this });
    if (this.#isFree() || this.#stopping !== undefined) {
      this.#post(batch);
      this.#handoff.offerSoon();
    } else this.#declineHandoff(batch);
  }

  // The rest is what happens rarely.

  #isFree(): boolean {
    return this.#running.size + this.#following.length + this.#waiting.length < this.#parts.settings.concurrency;
  }

  /** Something else took the last slot, and a job must not wait here while others sleep. */
  #declineHandoff(batch: ClaimedUnits): void {
    for (const claim of batch.claims) this.#claims.add(claim);
    for (const unit of batch.units) this.#settler.release(unit, 'handed to a worker without a free slot', true);
    // Or it would be claimed here again, ahead of its turn.
    this.#prefetch.reset();
    this.#wakeOthers();
  }

  /** What was claimed ahead waits for slots that are taken for longer than was thought. */
  #releasePrefetched(kept: number): void {
    for (const unit of this.#waiting.splice(kept)) this.#releaseChain(unit, 'claimed too far ahead', true);
    this.#wakeOthers();
  }

  #wakeOthers(): void {
    this.#settler
      .attempted()
      .then(() => this.#parts.store.wake(this.queue))
      .catch((error: unknown) => this.onError(error));
  }

  /** Under load nobody needs to be woken, and NOTIFY is not free: it serialises every commit that sends one. */
  #noteBusy(): number {
    this.#busySince ??= performance.now();
    if (this.#wantsNotify && performance.now() - this.#busySince > BUSY_MS && this.#id !== undefined) {
      this.#wantsNotify = false;
      this.#parts.store.setWants(this.#id, false).catch((error: unknown) => this.onError(error));
    }
    return 0;
  }

  /** First the flag, committed; then one more pass; only then sleep. */
  async #setWanted(): Promise<void> {
    if (this.#id !== undefined) await this.#parts.store.setWants(this.#id, true);
  }

  #wantNotify(): number {
    this.#wantsNotify = true;
    this.#setWanted().then(
      () => this.wake(),
      (error: unknown) => {
        this.#wantsNotify = false;
        this.onError(error);
      },
    );
    return this.#parts.settings.pollMs;
  }

  async #register(): Promise<number> {
    const { store, settings } = this.#parts;
    const { concurrency, leaseMs, hold } = settings;
    const row = { queue: this.queue, host: hostname(), pid: process.pid, concurrency, leaseMs, hold };
    const id = await store.addWorker(row);
    if (faults.armed) await faults.reach('queue.after_register');
    this.#settler.startFor(id);
    this.#id = id;
    this.#wantsNotify = true;
    for (const scan of this.#scans) scan.restart();
    return id;
  }

  /** Gives back what it does not know of. */
  #recall(id: number): Promise<void> {
    const known = this.#knownClaims();
    return this.#reconciler.recall(id, () => this.#parts.store.recall(this.queue, id, known));
  }

  /** The claims that it knows of, and whose rows may still be there. */
  #knownClaims(): number[] {
    this.#dropFinishedClaims();
    return [...this.#claims].map(({ id }) => id);
  }

  #dropFinishedClaims(): void {
    for (const claim of this.#claims) if (claim.left === 0) this.#claims.delete(claim);
  }

  #onPollError(error: unknown): void {
    this.#group.notePolled(this, true);
    if (error instanceof ConnectionFailed && error.outcome === 'unknown') this.#reconciler.noteLostAnswer();
    this.onError(error);
  }

  /** A kind that a newer version of the program knows: left to that one. */
  #releaseUnknownKind(unit: Unit): void {
    this.#held -= 1;
    this.#releaseChain(unit.next, 'behind a job of its key', false);
    this.#settler.release(unit, `no handler for kind "${unit.kind}"`, true, UNKNOWN_KIND_MS);
  }

  #releaseChain(first: Unit | undefined, reason: string, givesUp: boolean): void {
    for (let unit = first; unit !== undefined; unit = unit.next) {
      this.#held -= 1;
      this.#settler.release(unit, reason, givesUp && unit.next === undefined);
    }
  }

  #releaseUnstarted(): void {
    const units = [...this.#following.splice(0), ...this.#waiting.splice(0)];
    this.#hasReleased ||= units.length > 0;
    for (const unit of units) this.#releaseChain(unit, 'worker stopped', true);
  }

  #reportFailures(unit: Unit, failed: readonly JobFailure[]): void {
    if (!this.events.has('failed')) return;
    const jobs = new Map(unit.jobs.map((job) => [job.number, job]));
    for (const { id, to, error } of failed) {
      const job = jobs.get(id);
      if (job !== undefined) this.events.emit('failed', { unit, job, to, error });
    }
  }

  async #shutDown(timeoutMs: number): Promise<void> {
    const time = new Budget(timeoutMs);
    const end = new Budget(timeoutMs + END_MS);
    // The flag first, so that what an unfinished turn still brings is handed back.
    await Promise.resolve();
    // A claim on a connection that went dead is not answered for minutes; its jobs are rescued.
    if (this.#loop !== undefined) await within(Math.max(timeoutMs, 1000), this.#loop.stop());
    this.#releaseUnstarted();
    const leaving = this.#handoff.close() || this.#reconciler.needsRecall ? this.#leaveHandoff() : undefined;
    const reason = new Stopped('the worker is being stopped and its time is up');
    await Promise.all([
      within(STOP_MS, Promise.resolve(leaving)).catch((error: unknown) => this.onError(error)),
      this.#drain.run({
        time,
        graceMs: GRACE_MS,
        abort: (units) => units.forEach((unit) => unit.abort(reason)),
        abandon: (units) => this.#abandonHandlers(units),
        written: () => this.#settler.flushed(),
      }),
    ]);
    await end.wait(this.#settler.flushed());
    this.#settler.drop();
    await end.wait(this.#tidyUp());
  }

  /** A handler that did not end when told to: its jobs go back, its later outcome is nobody's. */
  #abandonHandlers(left: readonly Unit[]): void {
    logAbandoned(this.#parts.store.engine.options.logger, this.queueName, left);
    for (const unit of left) this.#running.get(unit)?.(new Stopped('the worker was stopped'));
  }

  async #tidyUp(): Promise<void> {
    if (this.#hasReleased) {
      const woken = this.#parts.store.wake(this.queue).catch((error: unknown) => this.onError(error));
      await within(STOP_MS, woken);
    }
    await this.#group.leave(this);
    await this.#handoff.stop();
    await this.#keeper.remove(this);
    const id = this.#id;
    this.#id = undefined;
    if (id !== undefined) await this.#parts.store.removeWorker(id).catch((error: unknown) => this.onError(error));
  }

  /** Takes the offers back, and gives back what was handed over and not heard of. */
  async #leaveHandoff(): Promise<void> {
    if (this.#id !== undefined) await this.#parts.store.leave(this.queue, this.#id, this.#knownClaims());
  }
}

/** One job of each claim: those of one unit leave a claim together. */
function heldJobs(unit: Unit, idleMs: number | undefined): HeldJob[] {
  const ofClaim = new Map<number, HeldJob>();
  for (const { number, claim } of unit.jobs) {
    ofClaim.set(claim.id, { shard: claim.shard, claim: claim.id, id: number, idleMs });
  }
  return [...ofClaim.values()];
}
