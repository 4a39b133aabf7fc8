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

/** The longest pause before a poll if the lease will soon be renewed or lost, or if other transactions hold the work. */
const SHORT_MS = 100;

/**
 * The loop of a worker: claim, post, run, settle, say how long to sleep. A capability implements these steps as a
 * {@link ClaimSource}. The rest is the same for all capabilities: when to poll, how much to claim, and how a worker ends. Its
 * {@link Slots} decide how many units run. Its {@link NotifySwitch} decides whether producers notify the worker. Direct hand-off
 * is in `base/handoff/`.
 *
 * The path of a unit: `#poll` claims it, `add` lets it wait for a slot or the next claim, its slot begins it, `ended` frees the slot.
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
  /** True: a free slot is a reason to poll, because the last poll left work, or may have left some. */
  #hasMore = false;
  /** True: the last poll found nothing. Before the next poll there is nothing to claim, even if a slot is free. */
  #isAsleep = false;
  #contendedPolls = 0;
  #stopping: Promise<void> | undefined;

  /** @param handoff  creates the direct hand-off of this loop */
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

  /** The worker's id, while it is registered. */
  get id(): number | undefined {
    return this.#id;
  }

  /** Rises when the lease is lost: earlier claims then count for nothing. */
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

  /** True: the worker sleeps, and would begin a unit at once. */
  get isIdle(): boolean {
    return this.#isAsleep && this.isFree && !this.isStopping;
  }

  /** True: the worker polls now or soon, and would begin a unit at once. */
  get isPolling(): boolean {
    return !this.#isAsleep && this.isFree && !this.isStopping;
  }

  /** True: the worker may make an offer, because a unit that is handed over would begin at once. */
  get acceptsHandoff(): boolean {
    return this.isFree && this.#notify.isOn && !this.isStopping;
  }

  /** The claimed units that wait. */
  get slots(): Pick<Slots<Unit>, 'waiting' | 'waitingCount'> {
    return this.#slots;
  }

  /** Registers the worker. Call it before {@link start}: the lease must be kept before the first claim. */
  async register(): Promise<number> {
    const id = await this.#source.register();
    this.#id = id;
    this.#notify.reset();
    return id;
  }

  /** Polls at once, and whenever it is woken. @param notifications  the subscription that all workers share */
  start(notifications: HandoffSubscription): void {
    this.#handoff.start(notifications);
    this.#loop = startLoop({
      name: `${this.#options.name}.claim`,
      run: () => this.#reconciler.run(() => this.#slots.aroundPoll(() => this.#poll())),
      onError: (error) => this.#onPollError(error),
    });
  }

  /** The error of the last poll; undefined if it succeeded. */
  get problem(): string | undefined {
    return this.#loop?.problem;
  }

  /** Polls now. */
  wake(): void {
    this.#contendedPolls = 0;
    this.pollAgain();
  }

  /** Polls now, but keeps the growing pause for work that other transactions hold. */
  pollAgain(): void {
    this.#loop?.wake();
  }

  /** Called for every notification, whatever its content. */
  noteNotification(): void {
    this.#handoff.noteNotification();
  }

  /** Called with a unit that was handed over: the loop takes it, or gives it back. */
  receive(handed: H): void {
    this.#reconciler.receive(handed);
  }

  /** The database may show claims for this worker that the worker does not know: the next poll has them given back. */
  requireRecall(): void {
    this.#reconciler.requireRecall();
  }

  /** Whether the answer to a claim may have been lost, and not only a hand-off. */
  get mayHaveLostClaim(): boolean {
    return this.#reconciler.mayHaveLostClaim;
  }

  /** Called when the lease is lost, and with it all claimed units. */
  reset(): void {
    this.#id = undefined;
    this.#generation += 1;
    this.#slots.clear();
    this.#handoff.reset();
    this.#reconciler.dropPending();
  }

  /** Ends like a killed process: waits for nothing, and gives nothing back. */
  abandon(): void {
    this.#stopping ??= Promise.resolve();
    void this.#loop?.stop();
    void this.#handoff.stop();
  }

  /** Ends within `timeoutMs` and {@link END_MS}, even if the database does not answer. */
  stop(timeoutMs: number): Promise<void> {
    return (this.#stopping ??= this.#shutDown(timeoutMs));
  }

  // The hot path.

  /** Claim, post, say how long to sleep. */
  async #poll(): Promise<number> {
    this.#isAsleep = false;
    const source = this.#source;
    const worker = this.#id ?? (await this.register());
    if (this.#reconciler.mayHoldUnknown) await this.#reconciler.recall(worker, () => source.recall(worker));
    if (!source.hasLease) return SHORT_MS; // the keeper will soon report the loss
    const limit = this.#reconciler.limit(this.#slots.room);
    if (limit <= 0) {
      // Sleeps until a slot is free. That slot has to poll, because the reason for this poll remains.
      this.#hasMore = true;
      source.noteUnclaimed();
      return Infinity;
    }
    const answer = await this.#claim(worker, limit); // one round trip, whatever the depth of the queue
    if (this.#id !== worker) return 0;
    const units = source.countUnits(answer);
    this.#reconciler.noteAnswer(units);
    if (units > this.#options.concurrency && source.claimApart === undefined) this.#slots.hold();
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

  /** Takes claimed units: each begins when a slot is free. @param first  these begin before all waiting units */
  add(units: readonly Unit[], first?: readonly Unit[]): void {
    this.#slots.add(units, first);
  }

  /** Begins a unit as soon as a slot is free, before all waiting units. */
  addNext(unit: Unit): void {
    this.#slots.addNext(unit);
  }

  /** Called when a unit has ended. @param next  begins before all waiting units */
  ended(next?: Unit): void {
    this.#slots.ended(next);
  }

  /** Called when there may be room for the work that the last poll left. */
  claimMore(): void {
    if (this.#hasMore && !this.isStopping && this.#slots.room > 0) this.pollAgain();
  }

  /** The offer to send with a settlement. While the worker polls, the poll brings work or makes the offer. */
  offer(): Offer | undefined {
    return this.#isAsleep ? this.#handoff.nextOffer() : undefined;
  }

  /** Called when a settlement carried no offer. */
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
    // Usually the poll has made the offer. It has not if an older offer was being withdrawn at that moment.
    this.#handoff.offerSoon();
    if (probe.listening) probe.hit(`${name}.idle`, { worker });
    return Math.min(pollMs * (0.75 + Math.random() / 2), next);
  }

  #accept(handed: H): void {
    if (handed.worker !== this.#id) return;
    if (!this.#source.hasLease) {
      // The worker was declared dead. If the unit was not rescued, the recall gives it back.
      this.#reconciler.requireRecall();
      this.wake();
    } else if (this.isFree || this.isStopping) {
      this.#source.takeHandoff(handed);
      this.#handoff.offerSoon();
    } else {
      // Otherwise the worker would claim the unit again, ahead of its turn.
      this.#slots.resetPrefetch();
      this.#source.declineHandoff(handed);
    }
  }

  // The methods from here on run rarely.

  #noteBusy(worker: number): number {
    this.#contendedPolls = 0;
    if (this.#notify.mayTurnOff()) {
      // No producer would use an offer now, and it would go overdue: a recall for every half poll interval.
      this.#handoff.withdraw();
      this.#notify.turnOff(worker);
    }
    return 0;
  }

  #onPollError(error: unknown): void {
    // The database learns of the loss before the next heartbeat does.
    if (error instanceof LeaseLost) return this.#source.lost(error);
    this.#hasMore = true;
    this.#source.noteUnclaimed();
    if (error instanceof ConnectionFailed && error.outcome === 'unknown') this.#reconciler.noteLostAnswer();
    this.#source.onError(error);
  }

  async #shutDown(timeoutMs: number): Promise<void> {
    const { settler } = this.#source;
    const [time, end] = [new Budget(timeoutMs), new Budget(timeoutMs + END_MS)];
    // The flag comes first, so that units of an unfinished poll are given back.
    await Promise.resolve();
    const polled = this.#loop?.stop() ?? Promise.resolve();
    // A claim on a dead connection gets no answer for minutes, and running units should not wait for it.
    const isPolled = await within(Math.max(timeoutMs, 1000), polled);
    this.#slots.releaseUnstarted();
    const mayHoldUnknown = this.#handoff.close() || this.#reconciler.needsRecall;
    await Promise.all([mayHoldUnknown && this.#leave(), this.#source.drain(time)]);
    // What a late claim brings is given back, too: a rescue would charge an attempt for each of its units.
    await end.wait(polled, STOP_MS);
    if (!isPolled && this.#reconciler.needsRecall) await end.wait(this.#leave());
    await end.wait(settler.flushed());
    settler.drop();
    await end.wait(this.#close());
  }

  async #leave(): Promise<void> {
    const left = this.#id === undefined ? Promise.resolve() : this.#source.leave(this.#id);
    await within(STOP_MS, left).catch((error: unknown) => this.#source.onError(error));
  }

  async #close(): Promise<void> {
    await this.#handoff.stop();
    const id = this.#id;
    this.#id = undefined;
    await this.#source.close(id);
  }
}
