import { ConnectionFailed, LeaseLost, Stopped } from '../../base/errors.ts';
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
import type { Subscription } from '../../engine/postgres/index.ts';
import type { ActorDefinition } from '../definition.ts';
import type { PostgresActorStore } from '../postgres/store.ts';
import type { ActorClaim, ActorHandoff, ClaimAnswer, TurnCommit } from '../store.ts';
import { Alarm } from './alarm.ts';
import { COMMIT_REFUSED, type RunningTurn, startTurn, type TurnResult } from './attempt.ts';
import { Isolation } from './isolation.ts';
import type { Keeper, LeaseHolder } from './keeper.ts';
import { Settler } from './settler.ts';
import { runInTransaction } from './transaction-turn.ts';
import type { TurnOwner } from './turn.ts';
import { unknownReason, workerRow } from './worker-row.ts';

/** What a dispatcher tells about its life; for logs, metrics and tests. */
export interface DispatcherEvents {
  /** A turn was committed. */
  turn: {
    readonly actor: string;
    readonly kind: 'to' | 'stay' | 'done' | 'failed' | 'released';
    readonly from: string;
    readonly to: string;
  };
  /** A turn failed; it is tried again. */
  failed: { readonly actor: string; readonly state: string; readonly attempt: number; readonly error: unknown };
  /** Turns came too late and changed nothing: somebody else owns these actors. */
  stale: { readonly actors: readonly string[] };
  /** An actor is in a state, or has fields, that this program does not know. */
  unknown: { readonly actor: string; readonly state: string; readonly held: boolean };
  /** The lease is gone; every turn was told to end. The dispatcher registers anew. */
  lost: { readonly reason: LeaseLost };
  /** The database could not be reached or refused something; the dispatcher goes on trying. */
  error: { readonly error: unknown };
}

/** What a worker is made of. */
export interface WorkerParts {
  readonly store: PostgresActorStore;
  readonly keeper: Keeper;
  readonly owner: TurnOwner;
  /** The definitions that it runs, by their id. */
  readonly types: ReadonlyMap<number, ActorDefinition>;
  readonly events: Events<DispatcherEvents>;
  readonly settings: WorkerSettings;
}

export interface WorkerSettings {
  /** Turns whose bodies run at the same time. */
  readonly concurrency: number;
  readonly leaseMs: number;
  readonly pollMs: number;
}

const PREFETCH_MAX = 1000;
/** The longest wait between two looks at what somebody has locked. */
const LOCKED_MS = 100;

/**
 * Claims actors that are due, runs a turn of each, and commits what came of it.
 * The path of a turn: `#turn` claims, `#pump` starts, `#finish` hands the outcome to the settler.
 */
export class ActorWorker implements LeaseHolder {
  readonly #parts: WorkerParts;
  readonly #settler: Settler;
  readonly #alarm: Alarm;
  readonly #handoff: DirectHandoff<ActorHandoff>;
  readonly #reconciler: ClaimReconciler<ActorHandoff>;
  readonly #prefetch: AdaptivePrefetch;
  readonly #isolation = new Isolation();
  readonly #running = new Map<number, RunningTurn>();
  /** Claimed and not yet committed: epochs, by actor. */
  readonly #held = new Map<number, number>();
  #waiting: ActorClaim[] = [];
  #loop: Loop | undefined;
  #subscription: Subscription | undefined;
  #id: number | undefined;
  /** The same, and still what it was when that is gone. */
  #worker = 0;
  #generation = 0;
  #wantsNotify = true;
  #busySince: number | undefined;
  #emptyPolls = 0;
  /** The last claim did not take all that was due: a free slot is worth another one. */
  #hasMore = false;
  /** The last look found nothing: until a notification, the next poll or what is due there is nothing to look for. */
  #isAsleep = false;
  #isPumping = false;
  #stopping: Promise<void> | undefined;
  readonly #drain: Drain<RunningTurn> = new Drain(() => this.#running.values());
  readonly onError = (error: unknown): void => this.#parts.events.emit('error', { error });

  constructor(parts: WorkerParts) {
    this.#parts = parts;
    const wake = (): void => this.wake();
    this.#alarm = new Alarm(wake);
    this.#settler = new Settler({
      store: parts.store,
      leaseMs: parts.settings.leaseMs,
      // While it looks, the look brings work or makes the offer.
      offer: () => (this.#isAsleep ? this.#handoff.nextOffer() : undefined),
      onDone: (settled, error) => this.#noteCommitted(settled, error),
      onStale: (turns) => this.#reportStale(turns),
      onUnknown: (turns) => this.#releaseUncertain(turns),
      onDue: (ms) => this.#alarm.in(ms),
      onError: this.onError,
    });
    this.#handoff = new DirectHandoff({
      name: 'actor',
      store: parts.store,
      worker: () => this.#id,
      isFree: () => this.#isFree() && this.#wantsNotify && this.#stopping === undefined,
      onHandoff: (handed) => this.#reconciler.receive(handed),
      onError: this.onError,
    });
    this.#reconciler = new ClaimReconciler({
      name: 'actor',
      handoff: this.#handoff,
      leaseMs: parts.settings.leaseMs,
      pollMs: parts.settings.pollMs,
      accept: (handed) => this.#acceptHandoff(handed),
      wake,
    });
    this.#prefetch = new AdaptivePrefetch({
      count: 'auto',
      max: PREFETCH_MAX,
      waiting: () => this.#waiting.length,
      onStalled: (kept) => this.#releaseToOthers(this.#waiting.splice(kept)),
    });
  }

  get workerId(): number | undefined {
    return this.#id;
  }

  get wantsNotify(): boolean {
    return this.#wantsNotify;
  }

  /** Starts to look for actors that are due, at once and whenever something comes for one. */
  async start(pages: () => void): Promise<void> {
    const { store, keeper, types } = this.#parts;
    await this.#register();
    keeper.add(this, {
      rescued: () => this.wake(),
      suspected: (types) => {
        if (!types.some((type) => this.#parts.types.has(type))) return;
        this.#isolation.noteWaiting();
        this.wake();
      },
    });
    const wake = (): void => {
      this.#handoff.noteNotification();
      this.wake();
    };
    this.#subscription = await store.listen([...types.keys()], { wake, page: pages });
    this.#handoff.start(this.#subscription);
    this.#loop = startLoop({
      name: 'actor.claim',
      run: () => this.#reconciler.run(() => this.#pollOrRegister()),
      onError: (error) => this.#onPollError(error),
    });
  }

  /** Looks for work now. */
  wake(): void {
    this.#emptyPolls = 0;
    this.#loop?.wake();
  }

  stop(timeoutMs: number): Promise<void> {
    this.#stopping ??= this.#shutDown(timeoutMs);
    return this.#stopping;
  }

  othersEnded(task: object | undefined): Promise<void> | undefined {
    const turn = [...this.#running.values()].find((running) => running === task);
    return turn && this.#drain.waitInside(turn);
  }

  /** Ends as a process does that is killed: nothing is waited for, written or given back. */
  abandon(): void {
    this.#stopping ??= Promise.resolve();
    this.#alarm.stop();
    void this.#loop?.stop();
    void this.#subscription?.stop();
    void this.#handoff.stop();
    void this.#parts.keeper.remove(this);
    this.lost(new LeaseLost('the process has died'));
  }

  lost(reason: LeaseLost): void {
    this.#id = undefined;
    this.#generation += 1;
    this.#settler.drop();
    const running = [...this.#running.values()];
    this.#running.clear();
    this.#held.clear();
    this.#waiting = [];
    this.#handoff.reset();
    this.#reconciler.dropPending();
    this.#isolation.forget();
    for (const turn of running) turn.lose(reason);
    this.#parts.events.emit('lost', { reason });
    this.#drain.recordEnd();
    this.wake();
  }

  // The hot path.

  /** Claim, start, say how long to sleep. */
  async #pollOrRegister(): Promise<number> {
    this.#isAsleep = false;
    return this.#poll(this.#id ?? (await this.#register()));
  }

  async #poll(id: number): Promise<number> {
    if (this.#reconciler.mayHoldUnknown) await this.#recall(id);
    // The keeper is about to say so.
    if (!this.#parts.keeper.hasLease) return LOCKED_MS;
    const limit = this.#reconciler.limit(this.#capacity());
    if (limit <= 0) {
      // Until a slot is free, which has to look then: for what woke this in vain, and for all that the poll would have found.
      this.#hasMore = true;
      return Infinity;
    }
    const answer = await this.#claim(id, limit);
    if (this.#id !== id) return 0;
    this.#reconciler.noteAnswer(answer.rows.length);
    this.#hasMore = answer.again === true;
    this.#post(answer.rows);
    if (this.#isolation.isWaiting) await this.#claimAlone(id);
    if (this.#id !== id) return 0;
    return this.#nextDelay(id, answer, this.#parts.settings.pollMs);
  }

  async #claim(id: number, limit: number): Promise<ClaimAnswer> {
    const { store, types } = this.#parts;
    const offer = this.#handoff.nextOffer();
    const answer = await store.claim(id, [...types.keys()], limit, offer);
    if (offer !== undefined && answer.offered !== true) this.#handoff.cancelOffer(offer);
    if (faults.armed) await faults.reach('actor.after_claim');
    if (probe.listening) probe.hit('actor.claimed', { worker: id, actors: answer.rows.length });
    return answer;
  }

  /** After what is due: it is not to keep that waiting. */
  async #claimAlone(id: number): Promise<void> {
    if (!this.#isFree()) return;
    this.#isolation.noteAsked();
    const isAlone = this.#held.size === 0;
    const row = await this.#parts.store.claimAlone(id, [...this.#parts.types.keys()], isAlone);
    if (row === undefined || this.#id !== id) return;
    const ms = this.#isolation.take(row[0], row[4], isAlone);
    if (ms > 0) this.#alarm.in(ms);
    this.#post([row]);
  }

  #post(rows: readonly ActorClaim[]): void {
    for (const row of rows) {
      this.#held.set(row[0], row[4]);
      this.#waiting.push(row);
    }
    // What came while the process stood still goes back, if it is still there: the database knows.
    if (this.#stopping === undefined && this.#parts.keeper.hasLease) this.#pump();
    else this.#releaseUnstarted();
  }

  #capacity(): number {
    const { concurrency } = this.#parts.settings;
    const ahead = this.#prefetch.count;
    if (this.#isolation.isExclusive) return 0;
    if (this.#held.size > concurrency + ahead / 2 || this.#held.size >= concurrency + ahead) return 0;
    return concurrency + ahead - this.#held.size;
  }

  /** A loop and not a recursion: bodies may finish while they are being called. */
  #pump(): void {
    if (this.#isPumping) return;
    this.#isPumping = true;
    let next = 0;
    for (;;) {
      const isFull = this.#running.size >= this.#parts.settings.concurrency;
      // A process that stood still begins nothing that may not be its own any more.
      const begins = !isFull && this.#stopping === undefined && this.#parts.keeper.hasLease;
      const row = begins ? this.#waiting[next] : undefined;
      if (row === undefined) break;
      next += 1;
      this.#begin(row);
    }
    this.#waiting.splice(0, next);
    this.#isPumping = false;
    this.#prefetch.watch();
    if (!this.#isFree()) this.#handoff.withdraw();
    if (this.#hasMore && this.#stopping === undefined && this.#capacity() > 0) this.#loop?.wake();
  }

  #begin(row: ActorClaim): void {
    this.#prefetch.recordStart();
    const [actor, type, stateName, , , , version] = row;
    const worker = this.#worker;
    const definition = this.#parts.types.get(type);
    const state = definition?.states.get(stateName);
    if (definition === undefined || state === undefined || version > definition.version) {
      void this.#releaseUnknownState(row, worker, definition);
      return;
    }
    const life = this.#generation;
    const stage = { definition, state, worker, owner: this.#parts.owner };
    startTurn(
      row,
      stage,
      (finished) => {
        if (life !== this.#generation) return;
        this.#running.delete(actor);
        this.#finish(finished);
      },
      (turn, body) => runInTransaction(this.#parts.store, turn, body, state.timeoutMs),
      // The body itself may end this life, or the worker, before it comes back.
      (turn) => this.#running.set(actor, turn),
    );
  }

  #finish(finished: TurnResult): void {
    this.#prefetch.recordEnd(1);
    if (finished.settled.kind === 'failed' && !finished.isLost) this.#reportFailure(finished);
    if (finished.isLost) this.#reportStale([finished.settled]);
    else if (finished.isWritten === true) this.#noteCommitted(finished.settled, finished.error);
    else this.#settler.add(finished);
    this.#pump();
    this.#drain.recordEnd();
  }

  #noteCommitted(settled: TurnCommit, error: unknown): void {
    this.#untrack(settled);
    const { events } = this.#parts;
    if (settled.reason === COMMIT_REFUSED) this.#reportFailure({ settled, error });
    if (events.has('turn')) {
      events.emit('turn', {
        actor: String(settled.id),
        kind: settled.kind,
        from: settled.from,
        to: settled.to ?? settled.from,
      });
    }
    if (this.#hasMore && this.#capacity() > 0) this.#loop?.wake();
    // A commit with effects takes none along.
    if (this.#isAsleep) this.#handoff.offerSoon();
  }

  #nextDelay(id: number, answer: ClaimAnswer, pollMs: number): number {
    if (answer.rows.length > 0) this.#emptyPolls = 0;
    let due = answer.due ?? Infinity;
    if (answer.again === true || (due <= 0 && answer.rows.length > 0)) return this.#noteBusy(id);
    // What is due is locked: for a moment, or for as long as a body with hold: 'transaction' runs.
    if (due <= 0) due = Math.min(2 ** this.#emptyPolls++, LOCKED_MS);
    this.#busySince = undefined;
    if (!this.#wantsNotify) {
      this.#wantNotify(id);
      return pollMs;
    }
    this.#isAsleep = true;
    if (probe.listening) probe.hit('actor.idle', { worker: id });
    return Math.min(pollMs * (0.75 + Math.random() / 2), Math.max(due, 1));
  }

  /** An actor that has been claimed for this worker. */
  #acceptHandoff({ worker, row }: ActorHandoff): void {
    if (worker !== this.#id) return;
    if (!this.#parts.keeper.hasLease) {
      // Taken for dead, and the actor was rescued; or else it goes back.
      this.#reconciler.requireRecall();
      this.wake();
      return;
    }
    if (this.#isFree() || this.#stopping !== undefined) {
      this.#post([row]);
      this.#handoff.offerSoon();
    } else this.#declineHandoff(row);
  }

  // The rest is what happens rarely.

  #isFree(): boolean {
    const { concurrency } = this.#parts.settings;
    return this.#running.size + this.#waiting.length < concurrency && !this.#isolation.isExclusive;
  }

  /** Something else took the last slot, and an actor must not wait here while others sleep. */
  #declineHandoff(row: ActorClaim): void {
    this.#held.set(row[0], row[4]);
    // Or it would be claimed here again, ahead of its turn.
    this.#prefetch.reset();
    this.#releaseToOthers([row]);
  }

  /** Gives these back, and wakes whoever has a slot for them. */
  #releaseToOthers(rows: readonly ActorClaim[]): void {
    for (const row of rows) this.#releaseTurn(row);
    const types = new Set(rows.map(([, type]) => type));
    this.#settler
      .flushed()
      .then(() => this.#parts.store.wake([...types]))
      .catch(this.onError);
  }

  #onPollError(error: unknown): void {
    // The database knows before the next heartbeat does.
    if (error instanceof LeaseLost) return this.lost(error);
    if (error instanceof ConnectionFailed) this.#reconciler.noteLostAnswer();
    this.onError(error);
  }

  /** Under load nobody needs to be woken, and NOTIFY is not free: it serialises every commit that sends one. */
  #noteBusy(id: number): number {
    this.#busySince ??= performance.now();
    if (this.#wantsNotify && performance.now() - this.#busySince > BUSY_MS) {
      this.#wantsNotify = false;
      // Nobody would use one now, and each half of a poll would be spent on asking after it.
      this.#handoff.withdraw();
      this.#parts.store.setWants(id, false).catch(this.onError);
    }
    return 0;
  }

  /** First the flag, committed; then one more look; only then sleep. */
  #wantNotify(id: number): void {
    this.#wantsNotify = true;
    this.#parts.store.setWants(id, true).then(
      () => this.wake(),
      (error: unknown) => {
        this.#wantsNotify = false;
        this.onError(error);
      },
    );
  }

  async #register(): Promise<number> {
    const { store, types, settings } = this.#parts;
    const id = await store.addWorker(workerRow(types, settings, true));
    if (faults.armed) await faults.reach('actor.after_register');
    this.#settler.startFor(id);
    this.#id = id;
    this.#worker = id;
    this.#wantsNotify = true;
    return id;
  }

  /** Has the database give back what this worker does not know of. */
  #recall(id: number): Promise<void> {
    const isAll = this.#reconciler.mayHaveLostClaim;
    return this.#reconciler.recall(id, () => this.#parts.store.recallClaims(id, this.#held, isAll));
  }

  /** A state, or fields, that a newer version of the program knows. */
  async #releaseUnknownState(row: ActorClaim, worker: number, definition: ActorDefinition | undefined): Promise<void> {
    const [actor, type, state, , epoch, , version] = row;
    const token = { actor, epoch, worker };
    try {
      const held = await this.#parts.store.reportUnknown(token, type, state, version, unknownReason(row, definition));
      this.#parts.events.emit('unknown', { actor: String(actor), state, held });
    } catch (error) {
      this.onError(error);
      this.#reconciler.requireRecall();
    } finally {
      this.#untrack({ id: actor, epoch });
      this.#drain.recordEnd();
    }
  }

  /** Should the database still think that they run here, they are given back. */
  #releaseUncertain(turns: readonly TurnCommit[]): void {
    for (const turn of turns) this.#untrack(turn);
    this.#reconciler.requireRecall();
    this.wake();
  }

  #reportStale(turns: readonly TurnCommit[]): void {
    for (const turn of turns) this.#untrack(turn);
    this.wake();
    this.#parts.events.emit('stale', { actors: turns.map(({ id }) => String(id)) });
  }

  /** It may have been claimed again by now, or been handed over, before the answer to its commit came. */
  #untrack({ id, epoch }: Pick<TurnCommit, 'id' | 'epoch'>): void {
    if (this.#held.get(id) === epoch) this.#held.delete(id);
    if (this.#isolation.release(id, epoch)) this.wake();
  }

  #reportFailure({ settled, error }: Pick<TurnResult, 'settled' | 'error'>): void {
    this.#parts.events.emit('failed', {
      actor: String(settled.id),
      state: settled.from,
      attempt: settled.attempt,
      error,
    });
  }

  #releaseUnstarted(): void {
    for (const row of this.#waiting.splice(0)) this.#releaseTurn(row);
  }

  #releaseTurn([id, , from, , epoch, attempt]: ActorClaim): void {
    const settled: TurnCommit = { id, epoch, attempt, kind: 'released', from, waitMs: 0 };
    this.#settler.add({ settled, effects: undefined, error: undefined, isLost: false });
  }

  async #shutDown(timeoutMs: number): Promise<void> {
    // The flag first, so that what an unfinished turn still brings is handed back.
    await Promise.resolve();
    const time = new Budget(timeoutMs);
    const end = new Budget(timeoutMs + END_MS);
    await within(Math.max(timeoutMs, 1000), Promise.resolve(this.#loop?.stop()));
    this.#alarm.stop();
    this.#releaseUnstarted();
    const leaving = this.#handoff.close() || this.#reconciler.needsRecall ? this.#leaveHandoff() : undefined;
    const reason = new Stopped('the dispatcher is being stopped and its time is up');
    await Promise.all([
      within(STOP_MS, Promise.resolve(leaving)).catch(this.onError),
      this.#drain.run({
        time,
        graceMs: GRACE_MS,
        abort: (turns) => {
          for (const turn of turns) turn.abort(reason);
          probe.hit('actor.time_up');
        },
        abandon: (turns) => turns.forEach((turn) => turn.giveUp()),
        written: () => this.#settler.flushed(),
      }),
    ]);
    await end.wait(this.#settler.flushed());
    this.#settler.drop();
    await end.wait(this.#tidyUp());
  }

  async #tidyUp(): Promise<void> {
    const { store, keeper } = this.#parts;
    await this.#subscription?.stop();
    await this.#handoff.stop();
    await keeper.remove(this);
    const id = this.#id;
    this.#id = undefined;
    if (id !== undefined) await store.endWorker(id).catch(this.onError);
  }

  /** Takes the offers back, and gives back what was handed over and not heard of. */
  async #leaveHandoff(): Promise<void> {
    if (this.#id !== undefined) await this.#parts.store.leave(this.#id, this.#held);
  }
}
