import { describeThrown } from '../../base/error-text.ts';
import { Conflict, LeaseLost } from '../../base/errors.ts';
import { checkOptions, func, text } from '../../base/options/options.ts';
import { toJson } from '../../base/storable.ts';
import { type Duration, parseDuration } from '../../base/time/duration.ts';
import type { OpenTransaction, Transaction } from '../../engine/postgres/index.ts';
import type { ActorKind } from '../kind.ts';
import type { MachineState } from '../machine.ts';
import { requireSemaphore, unknownName } from '../option-checks.ts';
import type { ActorClaim, TurnCommit } from '../store.ts';
import { MadeOutcome, type Outcome, type Patch } from './outcome.ts';
import { SemaphoreChanges } from './semaphore-changes.ts';
import { Timers, type VisitTimerOptions } from './timers.ts';
import { type TurnOwner, TurnRequests } from './turn-requests.ts';

const onceShape = { name: text({ min: 1 }), fn: func<(key: string) => unknown>() };

/**
 * One turn of an actor, as the body of its state gets it. Everything it asks for is committed with its outcome, in one
 * transaction, or not at all; only `once`, `key` and what the body does by itself happen before that.
 *
 * Every method throws once the turn is over, or somebody else has taken the actor over.
 */
export class Turn<F, S extends string, To extends string> extends TurnRequests<F> {
  readonly #definition: ActorKind<unknown, never, never>;
  readonly #state: Pick<MachineState, 'to'>;
  readonly #semaphores: SemaphoreChanges;
  #timers: Timers | undefined;
  #tx: Transaction | undefined;

  /** @internal */
  constructor(
    claim: ActorClaim,
    worker: number,
    definition: ActorKind<unknown, never, never>,
    current: Pick<MachineState, 'to'>,
    fields: F,
    owner: TurnOwner,
  ) {
    super(claim, worker, definition.name, fields, owner);
    this.#definition = definition;
    this.#semaphores = new SemaphoreChanges(claim.semaphores);
    this.#state = current;
  }

  /**
   * Aborts when the turn has run past its `timeout`, when the actor is somebody else's by now, when the worker stops, and with the
   * reason `Interrupted` when a semaphore of `always` or of the state's `interrupt` is raised. What the body returns after that
   * last one still counts; when it throws instead, the turn is given back uncharged, and the next one begins at once.
   */
  get signal(): AbortSignal {
    return this.life.signal;
  }

  // What comes next.

  /** Leads to a declared state, as a new visit, at once. @throws InvalidInput  this state does not declare that target */
  to<T extends To>(state: T, patch?: Patch<F>): Outcome<T> {
    this.life.check();
    if (!this.#state.to.includes(state)) {
      throw unknownName(`transition from "${this.state}" to state`, state, this.#state.to, 'to');
    }
    return new MadeOutcome(this, 'to', { state, patch });
  }

  /** Stays, until the next semaphore, message, timer or last child, or until `every` has passed, if the state has that. */
  stay(patch?: Patch<F>): Outcome<never> {
    this.life.check();
    return new MadeOutcome<never>(this, 'stay', { patch });
  }

  /** Stays, and comes back after this long, or when something wakes it before: what is to last whatever comes is a `timer()`. */
  nap(duration: Duration, patch?: Patch<F>): Outcome<never> {
    this.life.check();
    return new MadeOutcome<never>(this, 'nap', {
      ms: parseDuration(duration, { field: 'duration', what: 'nap' }),
      patch,
    });
  }

  /** Stays, at no cost at all, until something wakes it or a timer passes, whatever `every` says. */
  hibernate(patch?: Patch<F>): Outcome<never> {
    this.life.check();
    return new MadeOutcome<never>(this, 'hibernate', { patch });
  }

  /** The end: the actor is final. Its parent is told; a turn with children that are not final fails instead. */
  done(result?: unknown, patch?: Patch<F>): Outcome<never> {
    this.life.check();
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
    this.life.check();
    return this.#timed().hasPassed(name, duration, options);
  }

  /** Ends a timer. Asked for again, it counts from this turn on. @returns whether it was there, passed or not */
  cancelTimer(name: string): boolean {
    this.life.check();
    return this.#timed().cancel(name);
  }

  /** The timers that had passed when the turn began, in the order in which they did. */
  get fired(): readonly string[] {
    return this.claim.timers === undefined ? [] : this.#timed().fired;
  }

  // Semaphores.

  /** How often it was raised, and not lowered, when the turn began. @throws InvalidInput  it is not declared */
  val(semaphore: S): number {
    this.life.check();
    this.#requireSemaphore(semaphore);
    return this.#semaphores.value(semaphore);
  }

  /** Whether it was raised when the turn began. */
  pos(semaphore: S): boolean {
    return this.val(semaphore) > 0;
  }

  /** Lowers it by exactly what it was when the turn began: what is raised meanwhile counts for another turn. */
  decr(semaphore: S): void {
    this.life.check();
    this.#requireSemaphore(semaphore);
    this.#semaphores.lower(semaphore);
  }

  /** Lowers it, and says whether it had been raised. */
  take(semaphore: S): boolean {
    const wasRaised = this.pos(semaphore);
    this.decr(semaphore);
    return wasRaised;
  }

  /** Raises one of its own. It is seen by the next turn, and does not cut this turn's `nap` short. */
  raise(semaphore: S): void {
    this.life.check();
    this.#requireSemaphore(semaphore);
    this.#semaphores.raise(semaphore);
  }

  // Side effects.

  /**
   * Runs `fn` and keeps what it gave; a later try of the same visit gets that, and `fn` is not run again. A crash between
   * the effect and the keeping runs it again: give it the key, which is the same then.
   * @throws InvalidInput  the result is no JSON @throws Conflict  in a state with `hold: 'transaction'`
   */
  async once<T>(name: string, args: unknown, fn: (key: string) => T | Promise<T>): Promise<T> {
    this.life.check();
    checkOptions('once', { name, fn }, onceShape);
    if (this.#tx !== undefined) {
      // The result is kept apart from the body's transaction, which has the row locked: each would wait for the other.
      throw new Conflict(`a.once("${name}") is not for hold: 'transaction', whose writes are undone with the turn`);
    }
    this.life.throwIfAborted();
    const key = this.key(name, args);
    const known = await this.owner.recall(this.claim.id, this.visit, key);
    if (known !== undefined) return known.result as T;
    this.life.throwIfAborted();
    const result = await fn(key);
    this.life.check();
    const json = toJson(result, `the result of once("${name}")`);
    await this.#unlessLost(this.owner.remember(this.turnToken, this.visit, key, json));
    return JSON.parse(json) as T;
  }

  /**
   * Inside your own transaction: fails unless this turn is still the current one, and keeps it so until that ends. Call it last, and
   * end the transaction soon: the turn cannot be committed before.
   * @throws LeaseLost  somebody else has the actor @throws TimedOut, Stopped  the turn was told to end: it will not be committed
   */
  async guard(tx: OpenTransaction): Promise<void> {
    this.life.check();
    this.life.throwIfAborted();
    await this.#unlessLost(this.owner.guard(this.turnToken, tx));
  }

  /** The transaction that commits the turn, in a state with `hold: 'transaction'`. @throws Conflict  in any other */
  get tx(): Transaction {
    this.life.check();
    if (this.#tx === undefined) {
      throw new Conflict(
        `state "${this.state}" has no transaction while it runs; declare hold: 'transaction', or use a.atCommit(async (tx) => …)`,
      );
    }
    return this.#tx;
  }

  // What those who run it do.

  /** What the turn takes from the semaphores, and adds. @internal */
  get delta(): Record<string, number> | undefined {
    return this.#semaphores.delta;
  }

  /** What its timers are from here on, and when the first of them wakes the actor. @internal */
  get timing(): Pick<TurnCommit, 'timers' | 'timerAtMs'> | undefined {
    const timers = this.#timers ?? (this.claim.timers === undefined ? undefined : this.#timed());
    return timers && { timers: timers.changed, timerAtMs: timers.nextMs };
  }

  /** Nothing that the body does from here on counts. @internal */
  end(): void {
    this.life.end();
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
      if (error instanceof LeaseLost) this.life.abort(error);
      throw error;
    }
  }

  #timed(): Timers {
    this.#timers ??= new Timers(this.claim.timers, this.claim.nowMs, this.claim.enteredMs);
    return this.#timers;
  }

  #requireSemaphore(name: string): void {
    requireSemaphore(this.type, name, this.#definition.semaphores);
  }
}
