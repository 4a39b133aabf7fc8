import { ConnectionFailed, LeaseLost } from '../errors.ts';
import { faults } from '../fault.ts';
import { ClaimReconciler } from '../handoff/claim-reconciler.ts';
import type { Handoff, HandoffPort, HandoffSubscription, Offer, RecallResult } from '../handoff/handoff.ts';
import { type Loop, startLoop } from '../loop.ts';
import { probe } from '../probe.ts';
import { Budget } from '../time/budget.ts';
import { within } from '../time/clock.ts';
import { BUSY_MS, END_MS, STOP_MS } from './deadlines.ts';
import { AdaptivePrefetch } from './prefetch.ts';

/**
 * What a poll has shown of the next one: `more`, there is more to claim at once; `elsewhere`, another shard is to be polled;
 * `contended`, others hold what is there just now; `paused`, nothing may be claimed; or the milliseconds until something is due.
 */
export type NextPoll = 'more' | 'elsewhere' | 'contended' | 'paused' | number;

/** A capability, as its claim loop sees it. A unit is what takes one slot: a job, jobs that run together, a turn of an actor. */
export interface ClaimSource<Unit, Answer, H> {
  /** Lists the worker in the database, and forgets what an earlier id has claimed. @returns its id */
  register(): Promise<number>;
  /** Whether the worker's lease is certainly not over yet. */
  readonly hasLease: boolean;
  /** How many slots are taken by units that run. */
  readonly slotsTaken: number;
  /** Nothing may begin at the same time as what runs. */
  readonly isExclusive: boolean;
  /** How many units there is room for. @param prefetch  so many of them ahead of their slots */
  capacity(prefetch: number): number;
  /** One round trip. Leaves the offer in the database when there is nothing to claim. */
  claim(worker: number, limit: number, offer: Offer | undefined): Promise<Answer>;
  /** How many units an answer brought. */
  countUnits(answer: Answer): number;
  /** Gives what was claimed to the loop: see {@link ClaimLoop.add}. */
  post(answer: Answer, limit: number): void;
  /** Claims what is not claimed together with the rest, after it. */
  claimApart?(worker: number): Promise<void> | undefined;
  nextPoll(answer: Answer, limit: number): NextPoll;
  /** There may be something to claim, but this worker had no room for it, or its poll failed. */
  noteUnclaimed(): void;
  /** Begins a unit; it may end before this returns. */
  begin(unit: Unit): void;
  /** Gives units back that have not begun. @param why  the worker stops, or they were claimed too far ahead of their slots */
  release(units: readonly Unit[], why: 'stopped' | 'stalled'): void;
  /** Takes what was handed over; there is a slot for it. */
  takeHandoff(handoff: H): void;
  /** Gives back what was handed over: something else has taken the last slot. */
  declineHandoff(handoff: H): void;
  /** Has the database give back what the worker does not know. */
  recall(worker: number): Promise<RecallResult>;
  /** The same before the worker stops, its offers included. */
  leave(worker: number): Promise<void>;
  /** Says whether producers should notify this worker. */
  setWantsNotify(worker: number, wants: boolean): Promise<void>;
  /** The database says that the lease is lost. */
  lost(reason: LeaseLost): void;
  /** Waits for what runs, tells it to end once the time is up, and abandons what does not. */
  drain(time: Budget): Promise<void>;
  /** Writes what became of units. */
  readonly settler: { flushed(): Promise<void>; drop(): void };
  /** Ends everything else that the worker has. */
  close(worker: number | undefined): Promise<void>;
  onError(error: unknown): void;
}

export interface ClaimLoopOptions {
  /** `queue`, in the names of loops, probes and faults. */
  readonly name: string;
  readonly concurrency: number;
  readonly leaseMs: number;
  readonly pollMs: number;
  /** Units claimed ahead of their slots: a number, or as many as the last 50 ms would have run, and the most of these. */
  readonly prefetch: number | 'auto';
  readonly prefetchMax: number;
  /** See {@link AdaptivePrefetch}. */
  readonly aheadMs?: number | undefined;
}

/** A poll waits for a lease that is about to be renewed or lost, and for what others hold, no longer than this. */
const SHORT_MS = 100;

/**
 * The loop of a worker: claim, post, run, settle, say how long to sleep. The capability says what each of these is, by its
 * {@link ClaimSource}; what is the same for all is here: when to poll and how much to claim, how many units run, when producers
 * need not notify, and how a worker ends. Direct hand-off is in `base/handoff/`.
 *
 * The path of a unit: `#poll` claims it, `add` lets it wait for a slot, `pump` begins it, `ended` frees its slot.
 */
export class ClaimLoop<Unit, Answer extends { readonly offered?: boolean }, H extends Handoff> {
  readonly #source: ClaimSource<Unit, Answer, H>;
  readonly #options: ClaimLoopOptions;
  readonly #handoff: HandoffPort;
  readonly #reconciler: ClaimReconciler<H>;
  readonly #prefetch: AdaptivePrefetch;
  #loop: Loop | undefined;
  #id: number | undefined;
  #generation = 0;
  #waiting: Unit[] = [];
  /** Before all that wait. */
  #following: Unit[] = [];
  #isPumping = false;
  /** A free slot is worth a poll: the last one left something, or may have. */
  #hasMore = false;
  /** The last poll found nothing: until a notification or the next poll there is nothing to claim, whatever slot is free. */
  #isAsleep = false;
  #wantsNotify = true;
  #busySince: number | undefined;
  #contendedPolls = 0;
  #stopping: Promise<void> | undefined;

  /** @param handoff  makes the hand-off of this loop */
  constructor(
    source: ClaimSource<Unit, Answer, H>,
    options: ClaimLoopOptions,
    handoff: (loop: ClaimLoop<Unit, Answer, H>) => HandoffPort,
  ) {
    this.#source = source;
    this.#options = options;
    this.#handoff = handoff(this);
    const { name, leaseMs, pollMs, prefetch, prefetchMax, aheadMs } = options;
    this.#reconciler = new ClaimReconciler({
      name,
      handoff: this.#handoff,
      leaseMs,
      pollMs,
      accept: (handed) => this.#accept(handed),
      wake: () => this.pollAgain(),
    });
    this.#prefetch = new AdaptivePrefetch({
      count: prefetch,
      max: prefetchMax,
      aheadMs,
      waiting: () => this.#waiting.length,
      onStalled: (keep) => source.release(this.#waiting.splice(keep), 'stalled'),
    });
  }

  /** The worker's id, while it has one. */
  get id(): number | undefined {
    return this.#id;
  }

  /** Rises when the lease is lost: what was claimed before counts for nothing. */
  get generation(): number {
    return this.#generation;
  }

  /** Whether producers should notify this worker. */
  get wantsNotify(): boolean {
    return this.#wantsNotify;
  }

  get isStopping(): boolean {
    return this.#stopping !== undefined;
  }

  /** Whether a unit would begin at once. */
  get isFree(): boolean {
    const taken = this.#source.slotsTaken + this.#following.length + this.#waiting.length;
    return taken < this.#options.concurrency && !this.#source.isExclusive;
  }

  /** Whether it sleeps until the next poll. */
  get isAsleep(): boolean {
    return this.#isAsleep;
  }

  /** Sleeps, and would begin something now. */
  get isIdle(): boolean {
    return this.#isAsleep && this.isFree && !this.isStopping;
  }

  /** Polls just now or soon, and would begin something. */
  get isPolling(): boolean {
    return !this.#isAsleep && this.isFree && !this.isStopping;
  }

  /** Whether an offer may be made: something handed over would begin now. */
  get acceptsHandoff(): boolean {
    return this.isFree && this.#wantsNotify && !this.isStopping;
  }

  /** Units that wait for a slot. */
  get waiting(): readonly Unit[] {
    return this.#waiting;
  }

  /** Units that come before all that wait. */
  get following(): readonly Unit[] {
    return this.#following;
  }

  /** Lists the worker. Call it before {@link start}: the lease is to be kept before anything is claimed. */
  async register(): Promise<number> {
    const id = await this.#source.register();
    this.#id = id;
    this.#wantsNotify = true;
    return id;
  }

  /** Polls at once, and whenever it is woken. @param notifications  those that all workers have */
  start(notifications: HandoffSubscription): void {
    this.#handoff.start(notifications);
    this.#loop = startLoop({
      name: `${this.#options.name}.claim`,
      run: () => this.#reconciler.run(() => this.#poll()),
      onError: (error) => this.#onPollError(error),
    });
  }

  /** Why the last poll failed; undefined when it did not. */
  get problem(): string | undefined {
    return this.#loop?.problem;
  }

  /** Polls now. */
  wake(): void {
    this.#contendedPolls = 0;
    this.pollAgain();
  }

  /** The same, and what others hold is waited for as long as before. */
  pollAgain(): void {
    this.#loop?.wake();
  }

  /** A notification came, whatever it says. */
  noteNotification(): void {
    this.#handoff.noteNotification();
  }

  /** Something was handed over: the loop takes it, or gives it back. */
  receive(handed: H): void {
    this.#reconciler.receive(handed);
  }

  /** Something may be claimed that the worker does not know: the next poll has it given back. */
  requireRecall(): void {
    this.#reconciler.requireRecall();
  }

  /** Whether a claim may have been lost, and not only a hand-off. */
  get mayHaveLostClaim(): boolean {
    return this.#reconciler.mayHaveLostClaim;
  }

  /** The lease is gone, and with it all that was claimed. */
  reset(): void {
    this.#id = undefined;
    this.#generation += 1;
    this.#waiting = [];
    this.#following = [];
    this.#handoff.reset();
    this.#reconciler.dropPending();
  }

  /** Ends as a process does that is killed: waits for nothing, and gives nothing back. */
  abandon(): void {
    this.#stopping ??= Promise.resolve();
    void this.#loop?.stop();
    void this.#handoff.stop();
  }

  /** Ends within the time and {@link END_MS}, whatever the database does. */
  stop(timeoutMs: number): Promise<void> {
    this.#stopping ??= this.#shutDown(timeoutMs);
    return this.#stopping;
  }

  // The hot path.

  /** Claim, post, say how long to sleep. */
  async #poll(): Promise<number> {
    this.#isAsleep = false;
    const source = this.#source;
    const worker = this.#id ?? (await this.register());
    if (this.#reconciler.mayHoldUnknown) await this.#recall(worker);
    // The keeper is about to say so.
    if (!source.hasLease) return SHORT_MS;
    const limit = this.#reconciler.limit(source.capacity(this.#prefetch.count));
    if (limit <= 0) {
      // Until a slot is free. That has to poll then, for what this poll was woken for.
      this.#hasMore = true;
      source.noteUnclaimed();
      return Infinity;
    }
    const answer = await this.#claim(worker, limit); // one round trip, whatever the depth of the queue
    if (this.#id !== worker) return 0;
    this.#reconciler.noteAnswer(source.countUnits(answer));
    source.post(answer, limit);
    if (source.claimApart !== undefined) await source.claimApart(worker);
    if (this.#id !== worker) return 0;
    return this.#nextDelay(worker, source.nextPoll(answer, limit));
  }

  async #claim(worker: number, limit: number): Promise<Answer> {
    const offer = this.#handoff.nextOffer();
    const answer = await this.#source.claim(worker, limit, offer);
    if (offer !== undefined && answer.offered !== true) this.#handoff.cancelOffer(offer);
    if (faults.armed) await faults.reach(`${this.#options.name}.after_claim`);
    return answer;
  }

  /** Takes units that were claimed: each begins when a slot is free. @param first  these begin before all that wait */
  add(units: readonly Unit[], first?: readonly Unit[]): void {
    this.#waiting = first === undefined ? this.#waiting.concat(units) : [...first, ...this.#waiting, ...units];
    if (this.isStopping) this.#releaseUnstarted();
    else this.pump();
  }

  /** Begins what there are slots for. A loop and not a recursion: units may end while they begin. */
  pump(): void {
    if (this.#isPumping) return;
    this.#isPumping = true;
    const source = this.#source;
    const { concurrency } = this.#options;
    let next = 0;
    while (
      source.slotsTaken < concurrency &&
      (this.#following.length > 0 || next < this.#waiting.length) &&
      this.#stopping === undefined &&
      // What was claimed before this process stood still is somebody else's by now; its renewal is about to say so.
      source.hasLease
    ) {
      const unit = this.#following.pop() ?? this.#waiting[next++];
      if (unit === undefined) continue;
      this.#prefetch.recordStart();
      source.begin(unit);
    }
    this.#waiting.splice(0, next);
    this.#isPumping = false;
    this.#prefetch.watch();
    if (!this.isFree) this.#handoff.withdraw();
    this.claimMore();
  }

  /** A unit has ended. @param next  begins before all that wait */
  ended(next?: Unit): void {
    this.#prefetch.recordEnd(1);
    if (next !== undefined) this.#following.push(next);
    this.pump();
  }

  /** Something is to begin as soon as a slot is free, before all that wait. */
  addNext(unit: Unit): void {
    this.#following.push(unit);
    this.pump();
  }

  /** There may be room again for what the last poll has left. */
  claimMore(): void {
    if (this.#hasMore && !this.isStopping && this.#source.capacity(this.#prefetch.count) > 0) this.pollAgain();
  }

  /** The offer that is to go along with a settlement. While the worker polls, the poll brings work or makes the offer. */
  offer(): Offer | undefined {
    return this.#isAsleep ? this.#handoff.nextOffer() : undefined;
  }

  /** A settlement has taken no offer along. */
  offerSoon(): void {
    if (this.#isAsleep) this.#handoff.offerSoon();
  }

  #nextDelay(worker: number, next: NextPoll): number {
    const { name, pollMs } = this.#options;
    this.#hasMore = typeof next === 'string';
    if (next === 'paused') return pollMs;
    if (next === 'more') return this.#noteBusy(worker);
    if (next === 'elsewhere') return 0;
    this.#busySince = undefined;
    if (!this.#wantsNotify) return this.#wantNotify(worker);
    if (next === 'contended') return Math.min(2 ** this.#contendedPolls++, SHORT_MS, pollMs);
    this.#contendedPolls = 0;
    this.#isAsleep = true;
    // Usually the poll has made the offer. Not where an older one was just being withdrawn.
    this.#handoff.offerSoon();
    if (probe.listening) probe.hit(`${name}.idle`, { worker });
    return Math.min(pollMs * (0.75 + Math.random() / 2), next);
  }

  #accept(handed: H): void {
    if (handed.worker !== this.#id) return;
    if (!this.#source.hasLease) {
      // Taken for dead, and it was rescued; or else it goes back.
      this.#reconciler.requireRecall();
      this.wake();
    } else if (this.isFree || this.isStopping) {
      this.#source.takeHandoff(handed);
      this.#handoff.offerSoon();
    } else {
      // Or it would be claimed here again, ahead of its turn.
      this.#prefetch.reset();
      this.#source.declineHandoff(handed);
    }
  }

  // The rest is what happens rarely.

  /** Under load no worker needs to be woken, and NOTIFY is not free: it serialises every commit that sends one. */
  #noteBusy(worker: number): number {
    this.#contendedPolls = 0;
    this.#busySince ??= performance.now();
    if (this.#wantsNotify && performance.now() - this.#busySince > BUSY_MS) {
      this.#wantsNotify = false;
      // No producer would use an offer now, and each half of a poll would be spent on asking after it.
      this.#handoff.withdraw();
      this.#source.setWantsNotify(worker, false).catch((error: unknown) => this.#source.onError(error));
    }
    return 0;
  }

  /** First the flag, committed; then one more poll; only then sleep. */
  #wantNotify(worker: number): number {
    this.#wantsNotify = true;
    this.#source.setWantsNotify(worker, true).then(
      () => this.wake(),
      (error: unknown) => {
        this.#wantsNotify = false;
        this.#source.onError(error);
      },
    );
    return this.#options.pollMs;
  }

  #recall(worker: number): Promise<void> {
    return this.#reconciler.recall(worker, () => this.#source.recall(worker));
  }

  #onPollError(error: unknown): void {
    // The database knows before the next heartbeat does.
    if (error instanceof LeaseLost) return this.#source.lost(error);
    this.#hasMore = true;
    this.#source.noteUnclaimed();
    if (error instanceof ConnectionFailed && error.outcome === 'unknown') this.#reconciler.noteLostAnswer();
    this.#source.onError(error);
  }

  #releaseUnstarted(): void {
    const units = [...this.#following.splice(0), ...this.#waiting.splice(0)];
    if (units.length > 0) this.#source.release(units, 'stopped');
  }

  async #shutDown(timeoutMs: number): Promise<void> {
    const source = this.#source;
    const time = new Budget(timeoutMs);
    const end = new Budget(timeoutMs + END_MS);
    // The flag first, so that what an unfinished poll still brings is released.
    await Promise.resolve();
    // A claim on a connection that went dead is not answered for minutes; what it claims is rescued.
    if (this.#loop !== undefined) await within(Math.max(timeoutMs, 1000), this.#loop.stop());
    this.#releaseUnstarted();
    const mayHoldUnknown = this.#handoff.close() || this.#reconciler.needsRecall;
    const leaving = mayHoldUnknown && this.#id !== undefined ? source.leave(this.#id) : Promise.resolve();
    const onError = (error: unknown): void => source.onError(error);
    await Promise.all([within(STOP_MS, leaving).catch(onError), source.drain(time)]);
    await end.wait(source.settler.flushed());
    source.settler.drop();
    await end.wait(this.#close());
  }

  async #close(): Promise<void> {
    await this.#handoff.stop();
    const id = this.#id;
    this.#id = undefined;
    await this.#source.close(id);
  }
}
