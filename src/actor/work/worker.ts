import { LeaseLost, Stopped } from '../../base/errors.ts';
import { faults } from '../../base/fault.ts';
import { DirectHandoff } from '../../base/handoff/direct-handoff.ts';
import type { HandoffPort, Offer, RecallResult } from '../../base/handoff/handoff.ts';
import { probe } from '../../base/probe.ts';
import type { Budget } from '../../base/time/budget.ts';
import { ClaimLoop } from '../../base/work/claim-loop.ts';
import type { ClaimSource, NextPoll } from '../../base/work/claim-source.ts';
import { GRACE_MS } from '../../base/work/deadlines.ts';
import { Drain } from '../../base/work/drain.ts';
import { UNREGISTERED } from '../../base/work/lease-keeper.ts';
import type { ActorClaim, ActorHandoff, ClaimAnswer, TurnCommit } from '../store.ts';
import { HeldActors } from './held-actors.ts';
import type { LeaseHolder } from './ports.ts';
import { reportCommitted, reportFailed } from './report.ts';
import { type RunningTurn, startTurn } from './run/attempt.ts';
import { releasedTurn } from './run/ended-turn.ts';
import type { TurnResult } from './run/turn-result.ts';
import { Settler } from './settler.ts';
import { reportUnknownState } from './unknown-state.ts';
import { Signals } from './wake/signals.ts';
import type { WorkerParts } from './worker-parts.ts';
import { workerRow } from './worker-row.ts';

type Loop = ClaimLoop<ActorClaim, ClaimAnswer, ActorHandoff>;

const PREFETCH_MAX = 1000;
/** The longest pause between two polls while other transactions lock the due actors. */
const LOCKED_MS = 100;

/**
 * Claims due actors, runs a turn of each, and commits the outcome. Its {@link ClaimLoop} decides when it polls and how much runs.
 * The path of a turn: `claim`, `post`, `begin`, `#finish`, which passes the outcome to the settler.
 */
export class ActorWorker implements LeaseHolder, ClaimSource<ActorClaim, ClaimAnswer, ActorHandoff> {
  /** By actor. */
  readonly running: Map<number, RunningTurn> = new Map();
  readonly settler: Settler;
  readonly #parts: WorkerParts;
  readonly #loop: Loop;
  readonly #types: readonly number[];
  readonly #signals: Signals;
  readonly #held = new HeldActors();
  readonly #drain: Drain<RunningTurn> = new Drain(() => this.running.values());
  /** The worker's id, also after its lease is lost. */
  #worker = 0;
  #lockedPolls = 0;
  readonly onError = (error: unknown): void => this.#parts.events.emit('error', { error });

  constructor(parts: WorkerParts) {
    this.#parts = parts;
    this.#types = [...parts.types.keys()];
    this.#signals = new Signals({
      store: parts.store,
      pollMs: parts.settings.pollMs,
      running: this.running,
      onDue: () => this.wake(),
      onNotification: () => {
        this.#loop.noteNotification();
        this.wake();
      },
      onError: this.onError,
    });
    this.settler = new Settler({
      store: parts.store,
      writer: parts.writer,
      leaseMs: parts.settings.leaseMs,
      offer: () => this.#loop.offer(),
      onDone: (commit, error) => this.#noteCommitted(commit, error),
      onStale: (turns) => this.#reportStale(turns),
      onUnknown: (turns) => this.#releaseUncertain(turns),
      onDue: (ms) => this.#signals.wakeIn(ms),
      onError: this.onError,
    });
    const handoff = (loop: Loop): HandoffPort =>
      new DirectHandoff({
        name: 'actor',
        store: parts.store,
        worker: () => loop.id,
        isFree: () => loop.acceptsHandoff,
        isAsleep: () => loop.isAsleep,
        onHandoff: (handed) => loop.receive(handed),
        onError: this.onError,
      });
    const ahead = { prefetch: 'auto', prefetchMax: PREFETCH_MAX } as const;
    this.#loop = new ClaimLoop(this, { name: 'actor', ...parts.settings, ...ahead }, handoff);
  }

  get workerId(): number | undefined {
    return this.#loop.id;
  }

  /** Why the worker can claim nothing now. */
  get problem(): string | undefined {
    return this.#loop.problem ?? this.#parts.keeper.problem ?? (this.workerId === undefined ? UNREGISTERED : undefined);
  }

  get wantsNotify(): boolean {
    return this.#loop.wantsNotify;
  }

  /** Starts to poll for due actors: at once, and whenever something came for one. */
  async start(onPage: () => void): Promise<void> {
    const { keeper, types } = this.#parts;
    await this.#loop.register();
    keeper.add(this, {
      rescued: () => this.wake(),
      suspected: (suspects) => {
        if (!suspects.some((type) => types.has(type))) return;
        this.#held.isolation.noteWaiting();
        this.wake();
      },
    });
    this.#loop.start(await this.#signals.start(types, onPage));
  }

  /** Polls now. */
  wake(): void {
    this.#lockedPolls = 0;
    this.#loop.wake();
  }

  stop(timeoutMs: number): Promise<void> {
    return this.#loop.stop(timeoutMs);
  }

  othersEnded(task: object | undefined): Promise<void> | undefined {
    const turn = [...this.running.values()].find((running) => running === task);
    return turn && this.#drain.waitInside(turn);
  }

  /** Ends like a killed process: it waits for nothing, writes nothing and gives nothing back. */
  abandon(): void {
    this.#loop.abandon();
    void this.#signals.stop();
    void this.#parts.keeper.remove(this);
    this.lost(new LeaseLost('the process has died'));
  }

  lost(reason: LeaseLost): void {
    this.settler.drop();
    const running = [...this.running.values()];
    this.running.clear();
    this.#held.clear();
    this.#loop.reset();
    for (const turn of running) turn.lose(reason);
    this.#parts.events.emit('lost', { reason });
    this.#drain.recordEnd();
    this.wake();
  }

  // The methods that its loop calls: the hot path.

  get hasLease(): boolean {
    return this.#parts.keeper.hasLease;
  }

  get slotsTaken(): number {
    return this.running.size;
  }

  get isExclusive(): boolean {
    return this.#held.isolation.isExclusive;
  }

  capacity(prefetch: number): number {
    return this.#held.capacity(this.#parts.settings.concurrency, prefetch);
  }

  claim(worker: number, limit: number, offer: Offer | undefined): Promise<ClaimAnswer> {
    return this.#parts.store.claim(worker, this.#types, limit, offer);
  }

  countUnits({ claims }: ClaimAnswer): number {
    return claims.length;
  }

  post({ claims }: ClaimAnswer): void {
    if (probe.listening) probe.hit('actor.claimed', { worker: this.#worker, actors: claims.length });
    this.#add(claims);
  }

  #add(claims: readonly ActorClaim[]): void {
    this.#held.add(claims);
    if (this.hasLease) this.#loop.add(claims);
    // The process hung meanwhile. The database gives the claims back if they are still this worker's.
    else this.release(claims, 'stopped');
  }

  /** Claims an actor that was lost with its process twice. It comes after the due actors, so that it does not delay them. */
  claimApart(worker: number): Promise<void> | undefined {
    return this.#held.isolation.isWaiting && this.#loop.isFree ? this.#claimAlone(worker) : undefined;
  }

  async #claimAlone(worker: number): Promise<void> {
    this.#held.isolation.noteAsked();
    const isAlone = this.#held.epochs.size === 0;
    const claim = await this.#parts.store.claimAlone(worker, this.#types, isAlone);
    if (claim === undefined || this.#loop.id !== worker) return;
    const ms = this.#held.isolation.take(claim.id, claim.epoch, isAlone);
    if (ms > 0) this.#signals.wakeIn(ms);
    this.#add([claim]);
  }

  begin(claim: ActorClaim): void {
    const worker = this.#worker;
    const definition = this.#parts.types.get(claim.type);
    const state = definition?.states.get(claim.state);
    if (definition === undefined || state === undefined || claim.version > definition.version) {
      void this.#releaseUnknownState(claim, worker);
      return;
    }
    const { generation } = this.#loop;
    const stage = { definition, state, worker, owner: this.#parts.owner };
    startTurn(
      claim,
      stage,
      (result) => {
        if (generation !== this.#loop.generation) return;
        // If the actor was moved, a later turn of it may be running here.
        if (this.#held.epochs.get(claim.id) === claim.epoch) this.running.delete(claim.id);
        this.#finish(result);
      },
      (turn, body) => this.#parts.writer.hold(turn, body, state.timeoutMs),
      // The body itself may end this life, or the worker, before this call returns.
      (turn) => this.running.set(claim.id, turn),
    );
  }

  #finish(result: TurnResult): void {
    if (result.error !== undefined && !result.isLost) reportFailed(this.#parts.events, result);
    if (result.isLost) this.#reportStale([result.settled]);
    else if (result.isWritten === true) this.#noteCommitted(result.settled, result.error);
    else this.settler.add(result);
    this.#loop.ended();
    this.#drain.recordEnd();
  }

  #noteCommitted(commit: TurnCommit, error: unknown): void {
    this.#untrack(commit);
    reportCommitted(this.#parts.events, commit, error);
    this.#loop.claimMore();
    // A commit with effects carries no offer.
    this.#loop.offerSoon();
  }

  nextPoll({ claims, again, due = Infinity }: ClaimAnswer): NextPoll {
    if (claims.length > 0) this.#lockedPolls = 0;
    if (again === true || (due <= 0 && claims.length > 0)) return 'more';
    // The due actors are locked: for a moment, or as long as a body with hold: 'transaction' runs.
    return due <= 0 ? Math.min(2 ** this.#lockedPolls++, LOCKED_MS) : Math.max(due, 1);
  }

  takeHandoff({ claim }: ActorHandoff): void {
    this.#add([claim]);
  }

  // The methods from here on run rarely.

  declineHandoff({ claim }: ActorHandoff): void {
    this.#held.add([claim]);
    this.release([claim], 'stalled');
  }

  noteUnclaimed(): void {}

  /** Gives these actors back. Unless the worker stops, it wakes other workers that have slots for them. */
  release(claims: readonly ActorClaim[], why: 'stopped' | 'stalled'): void {
    for (const claim of claims) this.settler.add(releasedTurn(claim));
    if (why === 'stopped') return;
    const types = new Set(claims.map(({ type }) => type));
    this.settler
      .flushed()
      .then(() => this.#parts.store.wake([...types]))
      .catch(this.onError);
  }

  async register(): Promise<number> {
    const { store, types, settings } = this.#parts;
    const id = await store.addWorker(workerRow(types, settings, true));
    if (faults.armed) await faults.reach('actor.after_register');
    this.settler.startFor(id);
    this.#worker = id;
    return id;
  }

  setWantsNotify(worker: number, wants: boolean): Promise<void> {
    return this.#parts.store.setWants(worker, wants);
  }

  recall(worker: number): Promise<RecallResult> {
    return this.#parts.store.recallClaims(worker, this.#held.epochs, this.#loop.mayHaveLostClaim);
  }

  leave(worker: number): Promise<void> {
    return this.#parts.store.leave(worker, this.#held.epochs);
  }

  /** Gives back an actor whose state or fields only a newer version of the program knows. */
  async #releaseUnknownState(claim: ActorClaim, worker: number): Promise<void> {
    try {
      await reportUnknownState(this.#parts, claim, worker);
    } catch (error) {
      this.onError(error);
      this.#loop.requireRecall();
    } finally {
      this.#untrack(claim);
      this.#drain.recordEnd();
    }
  }

  /** If the database still shows these turns as running here, they are given back. */
  #releaseUncertain(turns: readonly TurnCommit[]): void {
    for (const turn of turns) this.#untrack(turn);
    this.#loop.requireRecall();
    this.wake();
  }

  #reportStale(turns: readonly TurnCommit[]): void {
    for (const turn of turns) this.#untrack(turn);
    this.wake();
    this.#parts.events.emit('stale', { actors: turns.map(({ id }) => String(id)) });
  }

  #untrack(turn: Pick<TurnCommit, 'id' | 'epoch'>): void {
    if (this.#held.release(turn)) this.wake();
  }

  drain(time: Budget): Promise<void> {
    this.#signals.stopAlarm();
    const reason = new Stopped('the dispatcher is being stopped and its time is up');
    return this.#drain.run({
      time,
      graceMs: GRACE_MS,
      abort: (turns) => {
        turns.forEach((turn) => turn.abort(reason));
        probe.hit('actor.time_up');
      },
      abandon: (turns) => turns.forEach((turn) => turn.giveUp()),
      written: () => this.settler.flushed(),
    });
  }

  async close(worker: number | undefined): Promise<void> {
    const { store, keeper } = this.#parts;
    await this.#signals.stop();
    await keeper.remove(this);
    if (worker !== undefined) await store.endWorker(worker).catch(this.onError);
  }
}
