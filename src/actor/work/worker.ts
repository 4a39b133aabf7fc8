import { LeaseLost, Stopped } from '../../base/errors.ts';
import type { Events } from '../../base/events.ts';
import { faults } from '../../base/fault.ts';
import { DirectHandoff } from '../../base/handoff/direct-handoff.ts';
import type { Offer, RecallResult } from '../../base/handoff/handoff.ts';
import { probe } from '../../base/probe.ts';
import type { Budget } from '../../base/time/budget.ts';
import { ClaimLoop } from '../../base/work/claim-loop.ts';
import type { ClaimSource, NextPoll } from '../../base/work/claim-source.ts';
import { GRACE_MS } from '../../base/work/deadlines.ts';
import { Drain } from '../../base/work/drain.ts';
import { UNREGISTERED } from '../../base/work/lease-keeper.ts';
import type { Subscription } from '../../engine/postgres/index.ts';
import type { ActorDefinition } from '../definition.ts';
import type { PostgresActorStore } from '../postgres/store.ts';
import type { ActorClaim, ActorHandoff, ClaimAnswer, TurnCommit } from '../store.ts';
import type { TurnOwner } from '../turn/turn-requests.ts';
import { Alarm } from './alarm.ts';
import { type RunningTurn, startTurn } from './attempt.ts';
import { Interrupts } from './interrupts.ts';
import { Isolation } from './isolation.ts';
import type { Keeper, LeaseHolder } from './keeper.ts';
import { Settler } from './settler.ts';
import { runInTransaction } from './transaction-turn.ts';
import { COMMIT_REFUSED, type TurnResult } from './turn-result.ts';
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
/** The longest wait between two polls for what others have locked. */
const LOCKED_MS = 100;

/**
 * Claims actors that are due, runs a turn of each, and commits what came of it. When it polls, and how much runs, is for its
 * {@link ClaimLoop}. The path of a turn: `claim`, `post`, `begin`, `#finish`, which gives what came of it to the settler.
 */
export class ActorWorker implements LeaseHolder, ClaimSource<ActorClaim, ClaimAnswer, ActorHandoff> {
  /** By actor. */
  readonly running: Map<number, RunningTurn> = new Map();
  readonly settler: Settler;
  readonly #parts: WorkerParts;
  readonly #loop: ClaimLoop<ActorClaim, ClaimAnswer, ActorHandoff>;
  readonly #types: readonly number[];
  readonly #alarm: Alarm;
  readonly #isolation = new Isolation();
  readonly #interrupts: Interrupts;
  /** Claimed and not yet committed: epochs, by actor. */
  readonly #held = new Map<number, number>();
  readonly #drain: Drain<RunningTurn> = new Drain(() => this.running.values());
  #subscription: Subscription | undefined;
  /** The worker's id, also when its lease is lost. */
  #worker = 0;
  #lockedPolls = 0;
  readonly onError = (error: unknown): void => this.#parts.events.emit('error', { error });

  constructor(parts: WorkerParts) {
    this.#parts = parts;
    this.#types = [...parts.types.keys()];
    this.#alarm = new Alarm(() => this.wake());
    this.#interrupts = new Interrupts({
      store: parts.store,
      pollMs: parts.settings.pollMs,
      running: this.running,
      onError: this.onError,
    });
    this.settler = new Settler({
      store: parts.store,
      leaseMs: parts.settings.leaseMs,
      offer: () => this.#loop.offer(),
      onDone: (commit, error) => this.#noteCommitted(commit, error),
      onStale: (turns) => this.#reportStale(turns),
      onUnknown: (turns) => this.#releaseUncertain(turns),
      onDue: (ms) => this.#alarm.in(ms),
      onError: this.onError,
    });
    const options = { name: 'actor', ...parts.settings, prefetch: 'auto', prefetchMax: PREFETCH_MAX } as const;
    this.#loop = new ClaimLoop<ActorClaim, ClaimAnswer, ActorHandoff>(
      this,
      options,
      (loop) =>
        new DirectHandoff({
          name: 'actor',
          store: parts.store,
          worker: () => loop.id,
          isFree: () => loop.acceptsHandoff,
          isAsleep: () => loop.isAsleep,
          onHandoff: (handoff) => loop.receive(handoff),
          onError: this.onError,
        }),
    );
  }

  get workerId(): number | undefined {
    return this.#loop.id;
  }

  /** Why it can claim nothing just now. */
  get problem(): string | undefined {
    const { keeper } = this.#parts;
    return this.#loop.problem ?? keeper.problem ?? (this.workerId === undefined ? UNREGISTERED : undefined);
  }

  get wantsNotify(): boolean {
    return this.#loop.wantsNotify;
  }

  /** Starts to poll for actors that are due, at once and whenever something comes for one. */
  async start(onPage: () => void): Promise<void> {
    const { store, keeper } = this.#parts;
    await this.#loop.register();
    keeper.add(this, {
      rescued: () => this.wake(),
      suspected: (types) => {
        if (!types.some((type) => this.#parts.types.has(type))) return;
        this.#isolation.noteWaiting();
        this.wake();
      },
    });
    const wake = (): void => {
      this.#loop.noteNotification();
      this.wake();
    };
    const interrupt = (actor: number): void => this.#interrupts.note(actor);
    const missed = (): void => {
      wake();
      onPage();
      this.#interrupts.noteAll();
    };
    this.#subscription = await store.listen(this.#types, { wake, page: onPage, interrupt, missed });
    if ([...this.#parts.types.values()].some(hasInterrupts)) this.#interrupts.start();
    this.#loop.start(this.#subscription);
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

  /** Ends as a process does that is killed: nothing is waited for, written or given back. */
  abandon(): void {
    this.#loop.abandon();
    this.#alarm.stop();
    void this.#interrupts.stop();
    void this.#subscription?.stop();
    void this.#parts.keeper.remove(this);
    this.lost(new LeaseLost('the process has died'));
  }

  lost(reason: LeaseLost): void {
    this.settler.drop();
    const running = [...this.running.values()];
    this.running.clear();
    this.#held.clear();
    this.#loop.reset();
    this.#isolation.forget();
    for (const turn of running) turn.lose(reason);
    this.#parts.events.emit('lost', { reason });
    this.#drain.recordEnd();
    this.wake();
  }

  // What its loop asks of it: the hot path.

  get hasLease(): boolean {
    return this.#parts.keeper.hasLease;
  }

  get slotsTaken(): number {
    return this.running.size;
  }

  get isExclusive(): boolean {
    return this.#isolation.isExclusive;
  }

  capacity(prefetch: number): number {
    const { concurrency } = this.#parts.settings;
    const held = this.#held.size;
    if (this.isExclusive) return 0;
    if (held > concurrency + prefetch / 2 || held >= concurrency + prefetch) return 0;
    return concurrency + prefetch - held;
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
    for (const { id, epoch } of claims) this.#held.set(id, epoch);
    if (this.hasLease) this.#loop.add(claims);
    // What came while the process stood still goes back, if it is still there: the database knows.
    else this.release(claims, 'stopped');
  }

  /** An actor whose process died with it twice. After what is due: it is not to keep that waiting. */
  claimApart(worker: number): Promise<void> | undefined {
    return this.#isolation.isWaiting && this.#loop.isFree ? this.#claimAlone(worker) : undefined;
  }

  async #claimAlone(worker: number): Promise<void> {
    this.#isolation.noteAsked();
    const isAlone = this.#held.size === 0;
    const claim = await this.#parts.store.claimAlone(worker, this.#types, isAlone);
    if (claim === undefined || this.#loop.id !== worker) return;
    const ms = this.#isolation.take(claim.id, claim.epoch, isAlone);
    if (ms > 0) this.#alarm.in(ms);
    this.#add([claim]);
  }

  begin(claim: ActorClaim): void {
    const worker = this.#worker;
    const definition = this.#parts.types.get(claim.type);
    const state = definition?.states.get(claim.state);
    if (definition === undefined || state === undefined || claim.version > definition.version) {
      void this.#releaseUnknownState(claim, worker, definition);
      return;
    }
    const { generation } = this.#loop;
    const stage = { definition, state, worker, owner: this.#parts.owner };
    startTurn(
      claim,
      stage,
      (result) => {
        if (generation !== this.#loop.generation) return;
        this.running.delete(claim.id);
        this.#finish(result);
      },
      (turn, body) => runInTransaction(this.#parts.store, turn, body, state.timeoutMs),
      // The body itself may end this life, or the worker, before it comes back.
      (turn) => this.running.set(claim.id, turn),
    );
  }

  #finish(result: TurnResult): void {
    if (result.error !== undefined && !result.isLost) this.#reportFailure(result);
    if (result.isLost) this.#reportStale([result.settled]);
    else if (result.isWritten === true) this.#noteCommitted(result.settled, result.error);
    else this.settler.add(result);
    this.#loop.ended();
    this.#drain.recordEnd();
  }

  #noteCommitted(commit: TurnCommit, error: unknown): void {
    this.#untrack(commit);
    const { events } = this.#parts;
    if (commit.reason === COMMIT_REFUSED) this.#reportFailure({ settled: commit, error });
    if (events.has('turn')) {
      const { id, kind, from, to = from } = commit;
      events.emit('turn', { actor: String(id), kind, from, to });
    }
    this.#loop.claimMore();
    // A commit with effects takes none along.
    this.#loop.offerSoon();
  }

  nextPoll({ claims, again, due = Infinity }: ClaimAnswer): NextPoll {
    if (claims.length > 0) this.#lockedPolls = 0;
    if (again === true || (due <= 0 && claims.length > 0)) return 'more';
    // What is due is locked: for a moment, or for as long as a body with hold: 'transaction' runs.
    return due <= 0 ? Math.min(2 ** this.#lockedPolls++, LOCKED_MS) : Math.max(due, 1);
  }

  takeHandoff({ claim }: ActorHandoff): void {
    this.#add([claim]);
  }

  // The rest is what happens rarely.

  declineHandoff({ claim }: ActorHandoff): void {
    this.#held.set(claim.id, claim.epoch);
    this.release([claim], 'stalled');
  }

  noteUnclaimed(): void {}

  /** Gives these back; unless the worker stops, it wakes others that have slots for them. */
  release(claims: readonly ActorClaim[], why: 'stopped' | 'stalled'): void {
    for (const claim of claims) this.#releaseTurn(claim);
    if (why === 'stopped') return;
    const types = new Set(claims.map(({ type }) => type));
    this.settler
      .flushed()
      .then(() => this.#parts.store.wake([...types]))
      .catch(this.onError);
  }

  #releaseTurn({ id, state: from, epoch, attempt }: ActorClaim): void {
    const settled: TurnCommit = { id, epoch, attempt, kind: 'released', from, waitMs: 0 };
    this.settler.add({ settled, effects: undefined, error: undefined, isLost: false });
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
    return this.#parts.store.recallClaims(worker, this.#held, this.#loop.mayHaveLostClaim);
  }

  leave(worker: number): Promise<void> {
    return this.#parts.store.leave(worker, this.#held);
  }

  /** A state, or fields, that a newer version of the program knows. */
  async #releaseUnknownState(
    claim: ActorClaim,
    worker: number,
    definition: ActorDefinition | undefined,
  ): Promise<void> {
    const { id: actor, type, state, epoch, version } = claim;
    const token = { actor, epoch, worker };
    try {
      const reason = unknownReason(claim, definition);
      const held = await this.#parts.store.reportUnknown(token, type, state, version, reason);
      this.#parts.events.emit('unknown', { actor: String(actor), state, held });
    } catch (error) {
      this.onError(error);
      this.#loop.requireRecall();
    } finally {
      this.#untrack({ id: actor, epoch });
      this.#drain.recordEnd();
    }
  }

  /** Should the database still think that they run here, they are given back. */
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

  /** It may have been claimed again by now, or been handed over, before the answer to its commit came. */
  #untrack({ id, epoch }: Pick<TurnCommit, 'id' | 'epoch'>): void {
    if (this.#held.get(id) === epoch) this.#held.delete(id);
    if (this.#isolation.release(id, epoch)) this.wake();
  }

  #reportFailure({ settled, error }: Pick<TurnResult, 'settled' | 'error'>): void {
    const { id, from: state, attempt } = settled;
    this.#parts.events.emit('failed', { actor: String(id), state, attempt, error });
  }

  drain(time: Budget): Promise<void> {
    this.#alarm.stop();
    const reason = new Stopped('the dispatcher is being stopped and its time is up');
    return this.#drain.run({
      time,
      graceMs: GRACE_MS,
      abort: (turns) => {
        for (const turn of turns) turn.abort(reason);
        probe.hit('actor.time_up');
      },
      abandon: (turns) => turns.forEach((turn) => turn.giveUp()),
      written: () => this.settler.flushed(),
    });
  }

  async close(worker: number | undefined): Promise<void> {
    const { store, keeper } = this.#parts;
    await this.#interrupts.stop();
    await this.#subscription?.stop();
    await keeper.remove(this);
    if (worker !== undefined) await store.endWorker(worker).catch(this.onError);
  }
}

/** Whether a semaphore may interrupt turns of it. */
function hasInterrupts({ states }: ActorDefinition): boolean {
  return [...states.values()].some(({ interrupts }) => interrupts.length > 0);
}
