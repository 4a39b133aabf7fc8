import { ConnectionFailed, LeaseLost } from '../errors.ts';
import { faults } from '../fault.ts';
import { ClaimReconciler } from '../handoff/claim-reconciler.ts';
import type { Handoff, HandoffPort, HandoffSubscription, Offer } from '../handoff/handoff.ts';
import { type Loop, startLoop } from '../loop.ts';
import { probe } from '../probe.ts';
import { Budget } from '../time/budget.ts';
import { within } from '../time/clock.ts';
import type { ClaimLoopOptions, ClaimSource, NextPoll } from './claim-source.ts';
import { END_MS, STOP_MS } from './deadlines.ts';
import { NotifySwitch } from './notify-switch.ts';
import { Slots } from './slots.ts';

/** A poll waits for a lease that is about to be renewed or lost, and for what others hold, no longer than this. */
const SHORT_MS = 100;

/**
 * The loop of a worker: claim, post, run, settle, say how long to sleep. The capability says what each of these is, by its
 * {@link ClaimSource}; what is the same for all is here: when to poll and how much to claim, and how a worker ends. Its
 * {@link Slots} say how many units run, its {@link NotifySwitch} when producers need not notify. Direct hand-off is in
 * `base/handoff/`.
 *
 * The path of a unit: `#poll` claims it, `add` lets it wait for a slot, its slot begins it, `ended` frees the slot.
 */
export class ClaimLoop<Unit, Answer extends { readonly offered?: boolean }, H extends Handoff> {
  readonly #source: ClaimSource<Unit, Answer, H>;
  readonly #options: ClaimLoopOptions;
  readonly #handoff: HandoffPort;
  readonly #reconciler: ClaimReconciler<H>;
  readonly #slots: Slots<Unit>;
  readonly #notify: NotifySwitch;
  #loop: Loop | undefined;
  #id: number | undefined;
  #generation = 0;
  /** A free slot is worth a poll: the last one left something, or may have. */
  #hasMore = false;
  /** The last poll found nothing: until a notification or the next poll there is nothing to claim, whatever slot is free. */
  #isAsleep = false;
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
    const { name, concurrency, leaseMs, pollMs, prefetch: count, prefetchMax: max, aheadMs } = options;
    this.#reconciler = new ClaimReconciler({
      name,
      handoff: this.#handoff,
      leaseMs,
      pollMs,
      accept: (handed) => this.#accept(handed),
      wake: () => this.pollAgain(),
    });
    this.#slots = new Slots(source, {
      concurrency,
      count,
      max,
      aheadMs,
      isStopping: () => this.isStopping,
      onPumped: () => {
        if (!this.isFree) this.#handoff.withdraw();
        this.claimMore();
      },
    });
    this.#notify = new NotifySwitch({
      write: (worker, isOn) => source.setWantsNotify(worker, isOn),
      wake: () => this.wake(),
      onError: (error) => source.onError(error),
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
    return this.#notify.isOn;
  }

  get isStopping(): boolean {
    return this.#stopping !== undefined;
  }

  /** Whether a unit would begin at once. */
  get isFree(): boolean {
    return this.#slots.isFree;
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
    return this.isFree && this.#notify.isOn && !this.isStopping;
  }

  /** Units that wait for a slot, in the order in which they begin. */
  get waiting(): readonly Unit[] {
    return this.#slots.waiting;
  }

  /** How many these are. */
  get waitingCount(): number {
    return this.#slots.waitingCount;
  }

  /** Lists the worker. Call it before {@link start}: the lease is to be kept before anything is claimed. */
  async register(): Promise<number> {
    const id = await this.#source.register();
    this.#id = id;
    this.#notify.reset();
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
    this.#slots.clear();
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
    if (this.#reconciler.mayHoldUnknown) await this.#reconciler.recall(worker, () => source.recall(worker));
    // The keeper is about to say so.
    if (!source.hasLease) return SHORT_MS;
    const limit = this.#reconciler.limit(source.capacity(this.#slots.prefetch));
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
    this.#slots.add(units, first);
  }

  /** Something is to begin as soon as a slot is free, before all that wait. */
  addNext(unit: Unit): void {
    this.#slots.addNext(unit);
  }

  /** A unit has ended. @param next  begins before all that wait */
  ended(next?: Unit): void {
    this.#slots.ended(next);
  }

  /** There may be room again for what the last poll has left. */
  claimMore(): void {
    if (this.#hasMore && !this.isStopping && this.#source.capacity(this.#slots.prefetch) > 0) this.pollAgain();
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
    if (!this.#notify.noteIdle(worker)) return pollMs;
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
      this.#slots.resetPrefetch();
      this.#source.declineHandoff(handed);
    }
  }

  // The rest is what happens rarely.

  #noteBusy(worker: number): number {
    this.#contendedPolls = 0;
    if (this.#notify.mayTurnOff()) {
      // No producer would use an offer now, and each half of a poll would be spent on asking after it.
      this.#handoff.withdraw();
      this.#notify.turnOff(worker);
    }
    return 0;
  }

  #onPollError(error: unknown): void {
    // The database knows before the next heartbeat does.
    if (error instanceof LeaseLost) return this.#source.lost(error);
    this.#hasMore = true;
    this.#source.noteUnclaimed();
    if (error instanceof ConnectionFailed && error.outcome === 'unknown') this.#reconciler.noteLostAnswer();
    this.#source.onError(error);
  }

  async #shutDown(timeoutMs: number): Promise<void> {
    const source = this.#source;
    const time = new Budget(timeoutMs);
    const end = new Budget(timeoutMs + END_MS);
    // The flag first, so that what an unfinished poll still brings is released.
    await Promise.resolve();
    // A claim on a connection that went dead is not answered for minutes; what it claims is rescued.
    if (this.#loop !== undefined) await within(Math.max(timeoutMs, 1000), this.#loop.stop());
    this.#slots.releaseUnstarted();
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
