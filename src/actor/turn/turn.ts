import { createHash } from 'node:crypto';
import { setMaxListeners } from 'node:events';
import { describeThrown } from '../../base/error-text.ts';
import { Conflict, type Interrupted, LeaseLost } from '../../base/errors.ts';
import { checkOptions, func, text } from '../../base/options/options.ts';
import type { StandardSchemaV1 } from '../../base/options/schema.ts';
import { toJson } from '../../base/storable.ts';
import { type Duration, parseDuration } from '../../base/time/duration.ts';
import type { OpenTransaction, Transaction } from '../../engine/postgres/index.ts';
import type { ActorKind } from '../kind.ts';
import type { MachineState } from '../machine.ts';
import { readKey, requireMessageName, requireSemaphore, unknownName } from '../option-checks.ts';
import type { PageOptions } from '../pages/page.ts';
import type { ActorClaim, ChildRecord, MessageFilter, MessageRow, TurnCommit, TurnToken } from '../store.ts';
import { type ActorHandle, type ActorTarget, idOf } from '../target.ts';
import { Effects, type JobRequest } from './effects.ts';
import { Inbox, type PayloadOf, type ReceiveOptions } from './inbox.ts';
import type { Message } from './message.ts';
import { MadeOutcome, type Outcome } from './outcome.ts';
import { Timers, type VisitTimerOptions } from './timers.ts';

/** What a turn asks of those who run it. */
export interface TurnOwner {
  allocate(): Promise<number>;
  /** @throws InvalidInput, NotFound */
  readNew(type: string, fields: unknown): Promise<{ type: string; version: number; fields: string }>;
  recall(actor: number, visit: number, key: string): Promise<{ result: unknown } | undefined>;
  remember(token: TurnToken, visit: number, key: string, result: string): Promise<void>;
  messages(actor: number, which: MessageFilter): Promise<MessageRow[]>;
  children(actor: number): Promise<ChildRecord[]>;
  guard(token: TurnToken, tx: unknown): Promise<void>;
}

/** What a fields patch may hold. */
export type Patch<F> = { readonly [K in keyof F]?: F[K] | undefined };

/** How a child is created. */
export interface ChildOptions {
  /** One actor of this type and key, ever: if there is one already, the turn fails. 1 to 1000 bytes. */
  readonly key?: string | undefined;
}

const keyShape = { name: text({ min: 1 }) };
const onceShape = { ...keyShape, fn: func<(key: string) => unknown>() };
const commitShape = { fn: func<(tx: Transaction) => unknown>() };

/**
 * One turn of an actor, as the body of its state gets it. Everything it asks for is committed with its outcome, in one
 * transaction, or not at all; only `once`, `key` and what the body does by itself happen before that.
 *
 * Every method throws once the turn is over, or somebody else has taken the actor over.
 */
export class Turn<F, S extends string, To extends string> {
  readonly id: string;
  readonly type: string;
  readonly state: string;
  /** As they were when the turn began. Change them by what you give to the outcome. */
  readonly fields: F;
  /** 1 for the first try in a row. */
  readonly attempt: number;
  /** Rises with each transition: the same number is the same visit of the same state. */
  readonly visit: number;
  readonly enteredAt: Date;
  /** When the turn was claimed, by the database's clock. */
  readonly now: Date;
  /** Why the turn before failed; null when it did not. */
  readonly error: string | null;
  /** Why the actor was moved to this state, where that was a failure: by `fatal()` or after so many `tries`. For the whole visit. */
  readonly cause: string | null;
  readonly parent: string | null;
  /** Children that were not final when the turn began. */
  readonly openChildren: number;
  /** Rises with each turn of this actor: pass it to whatever you write, to refuse a late owner's writes there. */
  readonly token: bigint;
  /** @internal */
  readonly claim: ActorClaim;
  /** @internal */
  readonly worker: number;
  readonly #definition: ActorKind<unknown, never, never>;
  readonly #state: Pick<MachineState, 'to'>;
  readonly #owner: TurnOwner;
  readonly #lowered = new Set<string>();
  readonly #raised = new Map<string, number>();
  #effects: Effects | undefined;
  #timers: Timers | undefined;
  #interruption: Interrupted | undefined;
  #abort: AbortController | undefined;
  #reason: unknown;
  #tx: Transaction | undefined;
  #isOver = false;

  /** @internal */
  constructor(
    claim: ActorClaim,
    worker: number,
    definition: ActorKind<unknown, never, never>,
    current: Pick<MachineState, 'to'>,
    fields: F,
    owner: TurnOwner,
  ) {
    const { id, state, visit, epoch, attempt, children, enteredMs, parent } = claim;
    this.id = String(id);
    this.type = definition.name;
    this.state = state;
    this.fields = fields;
    this.attempt = attempt;
    this.visit = visit;
    this.enteredAt = new Date(enteredMs);
    this.now = new Date(claim.nowMs);
    this.error = claim.error ?? null;
    this.cause = claim.cause ?? null;
    this.parent = parent === 0 ? null : String(parent);
    this.openChildren = children;
    this.token = BigInt(epoch);
    this.claim = claim;
    this.worker = worker;
    this.#definition = definition;
    this.#state = current;
    this.#owner = owner;
  }

  /**
   * Aborts when the turn has run past its `timeout`, when the actor is somebody else's by now, when the worker stops, and with the
   * reason `Interrupted` when a semaphore of `always` or of the state's `interrupt` is raised. What the body returns after that
   * last one still counts; when it throws instead, the turn is given back uncharged, and the next one begins at once.
   */
  get signal(): AbortSignal {
    if (this.#abort === undefined) {
      this.#abort = new AbortController();
      setMaxListeners(0, this.#abort.signal);
      const reason = this.#reason ?? this.#interruption;
      if (reason !== undefined) this.#abort.abort(reason);
    }
    return this.#abort.signal;
  }

  // What comes next.

  /** Leads to a declared state, as a new visit, at once. @throws InvalidInput  this state does not declare that target */
  to<T extends To>(state: T, patch?: Patch<F>): Outcome<T> {
    this.#check();
    if (!this.#state.to.includes(state)) {
      throw unknownName(`transition from "${this.state}" to state`, state, this.#state.to, 'to');
    }
    return new MadeOutcome(this, 'to', { state, patch });
  }

  /** Stays, until the next semaphore, message, timer or last child, or until `every` has passed, if the state has that. */
  stay(patch?: Patch<F>): Outcome<never> {
    this.#check();
    return new MadeOutcome<never>(this, 'stay', { patch });
  }

  /** Stays, and comes back after this long, or when something wakes it before: what is to last whatever comes is a `timer()`. */
  nap(duration: Duration, patch?: Patch<F>): Outcome<never> {
    this.#check();
    return new MadeOutcome<never>(this, 'nap', {
      ms: parseDuration(duration, { field: 'duration', what: 'nap' }),
      patch,
    });
  }

  /** Stays, at no cost at all, until something wakes it or a timer passes, whatever `every` says. */
  hibernate(patch?: Patch<F>): Outcome<never> {
    this.#check();
    return new MadeOutcome<never>(this, 'hibernate', { patch });
  }

  /** The end: the actor is final. Its parent is told; a turn with children that are not final fails instead. */
  done(result?: unknown, patch?: Patch<F>): Outcome<never> {
    this.#check();
    return new MadeOutcome<never>(this, 'done', { result, patch });
  }

  /**
   * Leads to a declared state because of a failure that no further try would mend. The text of `error` goes into the history, and
   * into `a.cause` of that visit. Unlike after a throw, everything that the turn has asked for is committed.
   * @throws InvalidInput  this state does not declare that target
   */
  fatal<T extends To>(state: T, error: unknown, patch?: Patch<F>): Outcome<T> {
    const { kind, ...rest } = this.to(state, patch);
    return new MadeOutcome(this, kind, { ...rest, error: describeThrown(error) });
  }

  // Time.

  /**
   * Whether so much time has passed since the actor entered this state, by the database's clock. Once asked for, the timer runs until
   * the state is left or it is cancelled: it wakes the actor when it passes, whatever came before and whichever way the turns
   * end. One that has passed says so to every turn; with `repeat` to one turn each time.
   * @throws InvalidInput  more than 100 in one visit
   */
  timer(name: string, duration: Duration, options: VisitTimerOptions = {}): boolean {
    this.#check();
    return this.#timed().hasPassed(name, duration, options);
  }

  /** Ends a timer. Asked for again, it counts from this turn on. @returns whether it was there, passed or not */
  cancelTimer(name: string): boolean {
    this.#check();
    return this.#timed().cancel(name);
  }

  /** The timers that had passed when the turn began, in the order in which they did. */
  get fired(): readonly string[] {
    return this.claim.timers === undefined ? [] : this.#timed().fired;
  }

  // Semaphores.

  /** How often it was raised, and not lowered, when the turn began. @throws InvalidInput  it is not declared */
  val(semaphore: S): number {
    this.#check();
    this.#requireSemaphore(semaphore);
    return this.#lowered.has(semaphore) ? 0 : (this.claim.semaphores[semaphore] ?? 0);
  }

  /** Whether it was raised when the turn began. */
  pos(semaphore: S): boolean {
    return this.val(semaphore) > 0;
  }

  /** Lowers it by exactly what it was when the turn began: what is raised meanwhile counts for another turn. */
  decr(semaphore: S): void {
    this.val(semaphore);
    this.#lowered.add(semaphore);
  }

  /** Lowers it, and says whether it had been raised. */
  take(semaphore: S): boolean {
    const wasRaised = this.pos(semaphore);
    this.decr(semaphore);
    return wasRaised;
  }

  /** Raises one of its own. It is seen by the next turn, and does not cut this turn's `nap` short. */
  raise(semaphore: S): void {
    this.#check();
    this.#requireSemaphore(semaphore);
    this.#raised.set(semaphore, (this.#raised.get(semaphore) ?? 0) + 1);
  }

  // Side effects.

  /**
   * A key for whatever takes one (an idempotency key, a client token, a name): the same for every try of this visit of the
   * state, another on the next visit, with another name or other arguments, and for another actor.
   */
  key(name: string, args?: unknown): string {
    checkOptions('key', { name }, keyShape);
    const parts = toJson([this.type, this.id, this.visit, name, args ?? null], `the arguments of key("${name}")`);
    return createHash('sha256').update(parts).digest('hex').slice(0, 32);
  }

  /**
   * Runs `fn` and keeps what it gave; a later try of the same visit gets that, and `fn` is not run again. A crash between
   * the effect and the keeping runs it again: give it the key, which is the same then.
   * @throws InvalidInput  the result is no JSON @throws Conflict  in a state with `hold: 'transaction'`
   */
  async once<T>(name: string, args: unknown, fn: (key: string) => T | Promise<T>): Promise<T> {
    this.#check();
    checkOptions('once', { name, fn }, onceShape);
    if (this.#tx !== undefined) {
      // The result is kept apart from the body's transaction, which has the row locked: each would wait for the other.
      throw new Conflict(`a.once("${name}") is not for hold: 'transaction', whose writes are undone with the turn`);
    }
    this.throwIfAborted();
    const key = this.key(name, args);
    const known = await this.#owner.recall(this.claim.id, this.visit, key);
    if (known !== undefined) return known.result as T;
    this.throwIfAborted();
    const result = await fn(key);
    this.#check();
    const json = toJson(result, `the result of once("${name}")`);
    await this.#unlessLost(this.#owner.remember(this.turnToken, this.visit, key, json));
    return JSON.parse(json) as T;
  }

  /**
   * Inside your own transaction: fails unless this turn is still the current one, and keeps it so until that ends. Call it last, and
   * end the transaction soon: the turn cannot be committed before.
   * @throws LeaseLost  somebody else has the actor @throws TimedOut, Stopped  the turn was told to end: it will not be committed
   */
  async guard(tx: OpenTransaction): Promise<void> {
    this.#check();
    this.throwIfAborted();
    await this.#unlessLost(this.#owner.guard(this.turnToken, tx));
  }

  /** The transaction that commits the turn, in a state with `hold: 'transaction'`. @throws Conflict  in any other */
  get tx(): Transaction {
    this.#check();
    if (this.#tx === undefined) {
      throw new Conflict(
        `state "${this.state}" has no transaction while it runs; declare hold: 'transaction', or use a.atCommit(async (tx) => …)`,
      );
    }
    return this.#tx;
  }

  // What is committed with the outcome.

  /** Runs `fn` in the transaction that commits the turn, after everything else. What it throws fails the turn. */
  atCommit(fn: (tx: Transaction) => unknown): void {
    checkOptions('atCommit', { fn }, commitShape);
    this.#pendingEffects().callbacks.push(fn);
  }

  /** Creates a child. It is there once the turn is committed; its id is known at once, for the fields. */
  async create<CF, CS extends string, In>(
    definition: ActorKind<CF, CS, In>,
    fields: NoInfer<In>,
    options: ChildOptions = {},
  ): Promise<ActorHandle<CS>> {
    const effects = this.#pendingEffects();
    const key = readKey(options);
    const made = await this.#owner.readNew(definition.name, fields);
    const id = await this.#owner.allocate();
    this.#check();
    effects.children.push({ ...made, id, key });
    return { id: String(id), type: made.type };
  }

  /** Raises a semaphore of another actor. */
  incr<OS extends string>(target: ActorTarget<OS>, semaphore: NoInfer<OS>): void {
    this.#pendingEffects().incrs.push({ actor: idOf(target), semaphore });
  }

  /** Raises a semaphore of every child that is not final; `destroy` by default. */
  async incrChildren(semaphore = 'destroy'): Promise<number> {
    const open = (await this.children()).filter(({ isFinal }) => !isFinal);
    for (const child of open) this.incr(child.id, semaphore);
    return open.length;
  }

  /** Sends a message to another actor, which `receive()`s it. */
  send(target: ActorTarget<never>, name: string, payload?: unknown): void {
    requireMessageName(name);
    const json = toJson(payload, `the payload of "${name}"`);
    this.#pendingEffects().messages.push({ actor: idOf(target), name, json });
  }

  /**
   * The messages that are there, oldest first, a thousand at most; read once the turn is committed, else again next time. Those
   * that are left because there were more wake the actor again.
   */
  async receive(): Promise<Message[]>;
  /**
   * The messages of one name; those of other names stay for a later turn, and do not wake the actor again.
   * @throws InvalidInput  one of them was refused by `schema`: it names the message
   */
  async receive<S extends StandardSchemaV1 | undefined = undefined>(
    name: string,
    options?: ReceiveOptions<S>,
  ): Promise<Message<PayloadOf<S>>[]>;
  async receive(name?: string, options: ReceiveOptions<StandardSchemaV1 | undefined> = {}): Promise<Message[]> {
    const inbox = new Inbox(
      () => this.#pendingEffects(),
      (which) => this.#owner.messages(this.claim.id, which),
    );
    return inbox.take(name, options);
  }

  /** All its children, oldest first, with the results of those that are final. */
  children(): Promise<ChildRecord[]> {
    this.#check();
    return this.#owner.children(this.claim.id);
  }

  /** Adds a job to a queue. */
  enqueue(job: JobRequest): void {
    this.#pendingEffects().jobs.push(toJson(job, 'a job'));
  }

  /** Opens a page about this actor, or repeats it: one is open per tag. */
  page(page: PageOptions): void {
    this.#pendingEffects().page(page, this.id);
  }

  /** Resolves the page with this tag, if one is open. */
  resolve(tag: string): void {
    this.#pendingEffects().resolved.add(tag);
  }

  // What those who run it do.

  /** @internal */
  get turnToken(): TurnToken {
    return { actor: this.claim.id, epoch: this.claim.epoch, worker: this.worker };
  }

  /** @internal */
  get effects(): Effects | undefined {
    return this.#effects?.isEmpty === false ? this.#effects : undefined;
  }

  /** What the turn takes from the semaphores, and adds. @internal */
  get delta(): Record<string, number> | undefined {
    if (this.#lowered.size + this.#raised.size === 0) return undefined;
    const delta: Record<string, number> = {};
    for (const name of this.#lowered) delta[name] = -(this.claim.semaphores[name] ?? 0);
    for (const [name, n] of this.#raised) delta[name] = (delta[name] ?? 0) + n;
    return delta;
  }

  /** What its timers are from here on, and when the first of them wakes the actor. @internal */
  get timing(): Pick<TurnCommit, 'timers' | 'timerAtMs'> | undefined {
    const timers = this.#timers ?? (this.claim.timers === undefined ? undefined : this.#timed());
    return timers && { timers: timers.changed, timerAtMs: timers.nextMs };
  }

  /** @internal */
  get interruption(): Interrupted | undefined {
    return this.#interruption;
  }

  /** Tells the body, and leaves to it what the turn comes to. @internal */
  interrupt(reason: Interrupted): void {
    this.#interruption ??= reason;
    this.#abort?.abort(reason);
  }

  /** @internal */
  get abortReason(): unknown {
    return this.#reason;
  }

  /** @internal */
  throwIfAborted(): void {
    if (this.#reason === undefined) return;
    // The signal may have been aborted by an interruption before.
    AbortSignal.abort(this.#reason).throwIfAborted();
  }

  /** @internal */
  abort(reason: unknown): void {
    this.#reason ??= reason;
    this.#abort?.abort(this.#reason);
  }

  /** Nothing that the body does from here on counts. @internal */
  end(): void {
    this.#isOver = true;
    this.#tx = undefined;
  }

  /** @internal */
  attachTx(tx: Transaction): void {
    this.#tx = tx;
  }

  /** What the database says of this turn ends it, whatever the body makes of the error. */
  async #unlessLost(work: Promise<void>): Promise<void> {
    try {
      await work;
    } catch (error) {
      if (error instanceof LeaseLost) this.abort(error);
      throw error;
    }
  }

  #timed(): Timers {
    this.#timers ??= new Timers(this.claim.timers, this.claim.nowMs, this.claim.enteredMs);
    return this.#timers;
  }

  #pendingEffects(): Effects {
    this.#check();
    this.#effects ??= new Effects();
    return this.#effects;
  }

  #check(): void {
    if (this.#reason instanceof LeaseLost) throw this.#reason;
    if (this.#isOver) {
      throw new Conflict(
        `this turn of ${this.type} ${this.id} is over; what a body does must be awaited before it returns`,
      );
    }
  }

  #requireSemaphore(name: string): void {
    requireSemaphore(this.type, name, this.#definition.semaphores);
  }
}
