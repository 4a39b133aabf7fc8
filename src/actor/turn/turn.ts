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
 * One turn of an actor, the argument of the body of its state. All effects that the body requests are committed with its outcome,
 * in one transaction, or not at all. Only `once` and the body's own calls have an effect before that; `key` can be used at any
 * time.
 *
 * Every method throws if the turn is over, or if another worker has taken over the actor.
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
   * Aborts if the turn has exceeded its `timeout`, another worker owns the actor, or the worker stops; and with the reason
   * `Interrupted` if a semaphore of `always` or of the state's `interrupt` is raised. After an interruption the value that the
   * body returns still counts. If the body throws instead, the turn is given back uncharged, and the next one begins at once.
   */
  get signal(): AbortSignal {
    return this.life.signal;
  }

  // What comes next.

  /** Moves to a declared state, as a new visit, at once. @throws InvalidInput  this state does not declare that target */
  to<T extends To>(state: T, patch?: Patch<F>): Outcome<T> {
    this.life.check();
    if (!this.#state.to.includes(state)) {
      throw unknownName(`transition from "${this.state}" to state`, state, this.#state.to, 'to');
    }
    return new MadeOutcome(this, 'to', { state, patch });
  }

  /**
   * Stays in the state until the next semaphore, message, timer or last child, or until `every` has passed, if the state has it.
   */
  stay(patch?: Patch<F>): Outcome<never> {
    this.life.check();
    return new MadeOutcome<never>(this, 'stay', { patch });
  }

  /**
   * Stays in the state until this time has passed, or until something wakes the actor before. For a time that nothing cuts short,
   * use `timer()`.
   */
  nap(duration: Duration, patch?: Patch<F>): Outcome<never> {
    this.life.check();
    return new MadeOutcome<never>(this, 'nap', {
      ms: parseDuration(duration, { field: 'duration', what: 'nap' }),
      patch,
    });
  }

  /** Stays in the state, at no cost, until something wakes the actor or a timer passes, whatever `every` says. */
  hibernate(patch?: Patch<F>): Outcome<never> {
    this.life.check();
    return new MadeOutcome<never>(this, 'hibernate', { patch });
  }

  /**
   * Ends the actor: it is final. Its parent is notified. If the actor has children that are not final, the turn fails instead.
   */
  done(result?: unknown, patch?: Patch<F>): Outcome<never> {
    this.life.check();
    return new MadeOutcome<never>(this, 'done', { result, patch });
  }

  /**
   * Moves to a declared state because of a failure that further tries would not repair. The text of `error` goes into the
   * history, and into `a.cause` of that visit. Unlike after a throw, all effects of the turn are committed.
   * @throws InvalidInput  this state does not declare that target
   */
  fatal<T extends To>(state: T, error: unknown, patch?: Patch<F>): Outcome<T> {
    const { kind, ...rest } = this.to(state, patch);
    return new MadeOutcome(this, kind, { ...rest, error: describeThrown(error) });
  }

  // Time.

  /**
   * Whether this time has passed since the actor entered the state, by the database's clock. The first call starts the timer. It
   * runs until the actor leaves the state or cancels it. When it passes, it wakes the actor, whatever came before and however
   * turns end. A timer that has passed returns true in every turn; with `repeat`, in one turn for each time.
   * @throws InvalidInput  more than 100 in one visit
   */
  timer(name: string, duration: Duration, options: VisitTimerOptions = {}): boolean {
    this.life.check();
    return this.#timed().hasPassed(name, duration, options);
  }

  /** Ends a timer. If it is asked for again, it begins at that turn. @returns whether there was such a timer, passed or not */
  cancelTimer(name: string): boolean {
    this.life.check();
    return this.#timed().cancel(name);
  }

  /** The timers that had passed when the turn began, in the order in which they passed. */
  get fired(): readonly string[] {
    return this.claim.timers === undefined ? [] : this.#timed().fired;
  }

  // Semaphores.

  /** How often the semaphore was raised and not lowered when the turn began. @throws InvalidInput  it is not declared */
  val(semaphore: S): number {
    this.life.check();
    this.#requireSemaphore(semaphore);
    return this.#semaphores.value(semaphore);
  }

  /** Whether the semaphore was raised when the turn began. */
  pos(semaphore: S): boolean {
    return this.val(semaphore) > 0;
  }

  /** Lowers the semaphore by its value at the beginning of the turn; a later raise counts for another turn. */
  decr(semaphore: S): void {
    this.life.check();
    this.#requireSemaphore(semaphore);
    this.#semaphores.lower(semaphore);
  }

  /** Lowers the semaphore, and returns whether it was raised. */
  take(semaphore: S): boolean {
    const wasRaised = this.pos(semaphore);
    this.decr(semaphore);
    return wasRaised;
  }

  /** Raises a semaphore of this actor. The next turn sees it, and it does not cut this turn's `nap` short. */
  raise(semaphore: S): void {
    this.life.check();
    this.#requireSemaphore(semaphore);
    this.#semaphores.raise(semaphore);
  }

  // Side effects.

  /**
   * Runs `fn` and stores its result. A later try of the same visit gets the stored result, and `fn` does not run again. If a
   * crash comes between the effect and the storing, `fn` runs again: pass its `key` to the service, because the key is then the
   * same.
   * @throws InvalidInput  the result is no JSON @throws Conflict  in a state with `hold: 'transaction'`
   */
  async once<T>(name: string, args: unknown, fn: (key: string) => T | Promise<T>): Promise<T> {
    this.life.check();
    checkOptions('once', { name, fn }, onceShape);
    if (this.#tx !== undefined) {
      // The result is stored outside of the body's transaction, which has the row locked: each would wait for the other.
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
   * In your own transaction: fails unless this turn is still the current one, and keeps it so until that transaction ends. Call
   * it last, and end the transaction soon, because the turn commits only after it.
   * @throws LeaseLost  another worker has the actor @throws TimedOut, Stopped  the turn has to end, and will not be committed
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

  /** The numbers that the turn adds to the semaphores; negative ones lower them. @internal */
  get delta(): Record<string, number> | undefined {
    return this.#semaphores.delta;
  }

  /** The timers after this turn, and when the first of them wakes the actor. @internal */
  get timing(): Pick<TurnCommit, 'timers' | 'timerAtMs'> | undefined {
    const timers = this.#timers ?? (this.claim.timers === undefined ? undefined : this.#timed());
    return timers && { timers: timers.changed, timerAtMs: timers.nextMs };
  }

  /** From now on, nothing that the body does counts. @internal */
  end(): void {
    this.life.end();
    this.#tx = undefined;
  }

  /** @internal */
  attachTx(tx: Transaction): void {
    this.#tx = tx;
  }

  /** If the database says that this turn is lost, the turn ends, even if the body handles the error. */
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
