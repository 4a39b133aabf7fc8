import { describeThrown } from '../../base/error-text.ts';
import type { Interrupted } from '../../base/errors.ts';
import { Conflict, InvalidInput, LeaseLost, PawlError, Stopped, TimedOut } from '../../base/errors.ts';
import { show } from '../../base/options/refusal.ts';
import { validate } from '../../base/options/schema.ts';
import { isObject, isThenable } from '../../base/options/shape.ts';
import { toJson } from '../../base/storable.ts';
import { BACKOFF, type Backoff, delay } from '../../base/time/backoff.ts';
import { after } from '../../base/time/clock.ts';
import { formatDuration } from '../../base/time/duration.ts';
import { currentTask } from '../../base/work/current-task.ts';
import { GRACE_MS } from '../../base/work/deadlines.ts';
import type { ActorDefinition, StateDefinition, Tries } from '../definition.ts';
import type { LooseFields } from '../kind.ts';
import { asFields, fieldsOf, Mistake, requireFields } from '../option-checks.ts';
import type { ActorClaim, TurnCommit } from '../store.ts';
import { Effects } from '../turn/effects.ts';
import { MadeOutcome } from '../turn/outcome.ts';
import { Turn, type TurnOwner } from '../turn/turn.ts';

export type AnyTurn = Turn<LooseFields, string, string>;

/** A turn that came to its end. */
export interface TurnResult {
  readonly settled: TurnCommit;
  /** What else is to be committed with it. */
  readonly effects: Effects | undefined;
  /** What was thrown, of a turn that failed. */
  readonly error: unknown;
  /** Somebody else owns the actor: nothing may be written. */
  readonly isLost: boolean;
  /** How it is tried again if its commit is refused. */
  readonly retry?: Retry | undefined;
  /** It was committed already, in the transaction of its body. */
  readonly isWritten?: boolean | undefined;
}

/** The wait after a turn that failed, and how often it is tried. */
interface Retry {
  readonly backoff: Backoff;
  readonly tries: Tries | undefined;
}

const OUTCOMES = 'a.to(state), a.stay(), a.nap(duration), a.hibernate() or a.done()';

/** What a turn is run with. */
export interface Stage {
  readonly definition: ActorDefinition;
  readonly state: StateDefinition;
  readonly worker: number;
  readonly owner: TurnOwner;
}

/** A turn that is under way. */
export interface RunningTurn {
  readonly id: number;
  /** Tells the body to end, and ends the turn without it if it does not. */
  abort(reason: unknown): void;
  /** Semaphores that interrupt it, and how often each was raised when it was claimed. */
  readonly interrupts: readonly string[];
  readonly raised: Readonly<Record<string, number>>;
  /** Tells the body that one of them was raised. What the body comes to still counts. */
  interrupt(reason: Interrupted): void;
  /** Ends it without its body, which was told to end and has not. */
  giveUp(): void;
  /** The actor is somebody else's: tells the body, and ends the turn now. What its body does later no longer counts. */
  lose(reason: LeaseLost): void;
}

/**
 * Runs one turn: what `always` demands, or the body. `end` is called exactly once, maybe before this returns.
 * @param hold  runs the body of a state with `hold: 'transaction'`, and commits it; `end` is then called after that
 * @param announce  called before any of that
 */
export function startTurn(
  claim: ActorClaim,
  stage: Stage,
  end: (finished: TurnResult) => void,
  hold?: (turn: AnyTurn, body: () => Promise<TurnResult>) => Promise<TurnResult>,
  announce?: (turn: RunningTurn) => void,
): RunningTurn {
  const attempt = new Attempt(claim, stage, end, hold);
  announce?.(attempt);
  attempt.start();
  return attempt;
}

class Attempt implements RunningTurn {
  readonly id: number;
  readonly #claim: ActorClaim;
  readonly #stage: Stage;
  readonly #end: (finished: TurnResult) => void;
  readonly #hold: ((turn: AnyTurn, body: () => Promise<TurnResult>) => Promise<TurnResult>) | undefined;
  #turn: AnyTurn | undefined;
  /** Why it was told to end. */
  #reason: unknown;
  #cancelTimer: (() => void) | undefined;
  #isMigrated = false;
  #isOver = false;
  #interruption: Interrupted | undefined;

  constructor(
    claim: ActorClaim,
    stage: Stage,
    end: (finished: TurnResult) => void,
    hold: ((turn: AnyTurn, body: () => Promise<TurnResult>) => Promise<TurnResult>) | undefined,
  ) {
    this.id = claim.id;
    this.#claim = claim;
    this.#stage = stage;
    this.#end = end;
    this.#hold = hold;
  }

  get interrupts(): readonly string[] {
    return this.#stage.state.interrupts;
  }

  get raised(): Readonly<Record<string, number>> {
    return this.#claim.semaphores;
  }

  interrupt(reason: Interrupted): void {
    this.#interruption ??= reason;
    this.#turn?.interrupt(reason);
  }

  start(): void {
    const forced = this.#alwaysTransition() ?? this.#giveUpUnheard();
    if (forced !== undefined) return this.#finish(forced);
    try {
      const fields = this.#fields();
      if (fields instanceof Promise) {
        this.#limit();
        fields.then((late) => this.#run(late)).catch((error: unknown) => this.#fail(error));
      } else this.#run(fields);
    } catch (error) {
      this.#fail(error);
    }
  }

  abort(reason: unknown): void {
    this.#abort(reason);
    this.#cancelTimer?.();
    this.#cancelTimer = after(GRACE_MS, () => this.#fail(reason), { unref: true });
  }

  giveUp(): void {
    this.#fail(this.#reason);
  }

  lose(reason: LeaseLost): void {
    this.#abort(reason);
    this.#fail(reason);
  }

  #abort(reason: unknown): void {
    this.#reason ??= reason;
    this.#turn?.abort(reason);
  }

  #fail(error: unknown): void {
    this.#finish(this.#failed(error));
  }

  /** A semaphore of `always` that was raised leads to its state without asking the body. */
  #alwaysTransition(): TurnResult | undefined {
    const { definition, state } = this.#stage;
    for (const [semaphore, target] of definition.always) {
      const raised = this.#claim.semaphores[semaphore] ?? 0;
      if (raised === 0 || state.name === target) continue;
      const settled = this.#commit('to', {
        waitMs: 0,
        to: target,
        reason: `always: ${semaphore}`,
        delta: { [semaphore]: -raised },
        deadlineMs: definition.states.get(target)?.deadlineMs,
      });
      return { settled, effects: undefined, error: undefined, isLost: false, retry: this.#retry };
    }
    return undefined;
  }

  /** The tries of this state are spent, and the last of them was not told here: its process died, or its commit was refused. */
  #giveUpUnheard(): TurnResult | undefined {
    const { tries } = this.#stage.state;
    if (tries === undefined || this.#claim.attempt <= tries.most) return undefined;
    const settled = this.#givenUp(tries, this.#claim.error);
    return { settled, effects: undefined, error: undefined, isLost: false, retry: this.#retry };
  }

  #givenUp({ most, giveUp }: Tries, error: string | undefined): TurnCommit {
    return this.#commit('to', {
      waitMs: 0,
      to: giveUp,
      reason: `gave up after ${most} ${most === 1 ? 'try' : 'tries'}`,
      error,
      deadlineMs: this.#stage.definition.states.get(giveUp)?.deadlineMs,
    });
  }

  get #retry(): Retry {
    return { backoff: this.#stage.definition.backoff, tries: this.#stage.state.tries };
  }

  /** The fields as this version of the program knows them. */
  #fields(): LooseFields | Promise<LooseFields> {
    const { definition } = this.#stage;
    const { version, fields: stored } = this.#claim;
    let fields: unknown = stored;
    if (version < definition.version && definition.migrate !== undefined) {
      fields = definition.migrate(asFields(stored), version);
      this.#isMigrated = true;
    }
    const valid: unknown = validate(definition.schema, fields, 'fields');
    return valid instanceof Promise ? valid.then(asFields) : asFields(valid);
  }

  #run(fields: LooseFields): void {
    const { definition, state, worker, owner } = this.#stage;
    if (this.#reason !== undefined) return this.#fail(this.#reason);
    const turn: AnyTurn = new Turn(this.#claim, worker, definition, state, fields, owner);
    this.#turn = turn;
    if (this.#interruption !== undefined) turn.interrupt(this.#interruption);
    if (state.hold === 'transaction' && this.#hold !== undefined) {
      this.#limit();
      const body = async (): Promise<TurnResult> => this.#interpret(turn, await this.#call(turn));
      const told = (): Promise<TurnResult> => body().catch((error: unknown) => this.#failed(error));
      this.#hold(turn, told).then(
        (finished) => this.#finish(finished),
        // What the body throws is told as what came of it: this is the turn's own transaction.
        (error: unknown) => (error instanceof LeaseLost ? this.lose(error) : this.#fail(error)),
      );
      return;
    }
    const value = this.#call(turn);
    if (isThenable(value)) {
      this.#limit();
      Promise.resolve(value).then(
        (outcome) => this.#resolve(turn, outcome),
        (error: unknown) => this.#fail(error),
      );
    } else this.#resolve(turn, value);
  }

  /** What the body stops is told from what it does: a stop does not wait for the body that waits for it. */
  #call(turn: AnyTurn): unknown {
    return currentTask.run(this, undefined, this.#stage.state.run, turn);
  }

  #resolve(turn: AnyTurn, outcome: unknown): void {
    try {
      const finished = this.#interpret(turn, outcome);
      if (finished instanceof Promise) {
        this.#limit();
        finished.then((late) => this.#finish(late)).catch((error: unknown) => this.#fail(error));
      } else this.#finish(finished);
    } catch (error) {
      this.#fail(error);
    }
  }

  /** What the body's outcome means. */
  #interpret(turn: AnyTurn, outcome: unknown): TurnResult | Promise<TurnResult> {
    const { definition, state } = this.#stage;
    turn.throwIfAborted();
    if (!(outcome instanceof MadeOutcome)) {
      const was = outcome === undefined ? 'nothing: a way through it has no return' : show(outcome);
      throw new Mistake(
        `the body of state "${state.name}" of ${definition.name} must return ${OUTCOMES}, but gave ${was}`,
      );
    }
    if (outcome.turn !== turn) {
      throw new InvalidInput(
        `the body of state "${state.name}" of ${definition.name} gave an outcome of another turn; an outcome is made anew by each turn, and not kept`,
      );
    }
    const patch: unknown = outcome.patch;
    if (patch !== undefined && !isObject(patch))
      throw new InvalidInput(`a fields patch must be an object, but was ${show(patch)}`);
    if (patch === undefined && !this.#isMigrated) return this.#succeeded(turn, outcome, undefined);
    const succeeded = (made: unknown): TurnResult => {
      // A schema may take its time, too.
      turn.throwIfAborted();
      const fields = asFields(made);
      if (patch !== undefined) requireFields(definition.name, patch, fields);
      return this.#succeeded(turn, outcome, fieldsOf(fields));
    };
    const valid: unknown = validate(definition.schema, { ...turn.fields, ...patch }, 'fields');
    return valid instanceof Promise ? valid.then(succeeded) : succeeded(valid);
  }

  #succeeded(turn: AnyTurn, outcome: MadeOutcome<string>, fields: string | undefined): TurnResult {
    const { definition, state } = this.#stage;
    const { kind, state: to, ms, result, error } = outcome;
    const effects = turn.effects;
    const common = {
      children: effects === undefined || effects.children.length === 0 ? undefined : effects.children.length,
      delta: this.#delta(turn),
      fields,
      version: fields === undefined ? undefined : definition.version,
      keepsFields: fields !== undefined && definition.fieldHistoryMs !== undefined,
    };
    const finished = (settled: TurnCommit): TurnResult => ({
      settled,
      effects,
      error: undefined,
      isLost: false,
      retry: this.#retry,
    });
    switch (kind) {
      case 'to':
        return finished(
          this.#commit('to', {
            ...common,
            to,
            error,
            reason: error === undefined ? undefined : 'fatal',
            waitMs: 0,
            deadlineMs: definition.states.get(String(to))?.deadlineMs,
          }),
        );
      case 'done':
        if (common.children !== undefined) {
          throw new InvalidInput('a turn cannot create children and be done(): they would be orphans');
        }
        return finished(
          this.#commit('done', {
            ...common,
            waitMs: undefined,
            result: result === undefined ? undefined : toJson(result, 'the result of done()'),
          }),
        );
      case 'stay':
        return finished(this.#commit('stay', { ...common, ...turn.timing, waitMs: state.everyMs }));
      case 'nap':
        return finished(this.#commit('stay', { ...common, ...turn.timing, waitMs: ms }));
      case 'hibernate':
        return finished(this.#commit('stay', { ...common, ...turn.timing, waitMs: undefined }));
    }
  }

  /** In the state that a semaphore of `always` leads to, it has done its work. */
  #delta(turn: AnyTurn): Record<string, number> | undefined {
    const { definition, state } = this.#stage;
    if (definition.always.size === 0) return turn.delta;
    for (const [semaphore, target] of definition.always) {
      if (target === state.name && (this.#claim.semaphores[semaphore] ?? 0) > 0) turn.decr(semaphore);
    }
    return turn.delta;
  }

  /** A turn is lost or released only by what it was told itself: its body may also throw such an error of another turn or job. */
  #failed(error: unknown): TurnResult {
    const reason = this.#reason ?? this.#turn?.abortReason;
    const why = reason ?? error;
    const { definition, state } = this.#stage;
    // What it would have come to is not known: what interrupted it is for the next turn, which begins at once.
    const isReleased = reason instanceof Stopped || (reason === undefined && this.#interruption !== undefined);
    const isLost = reason instanceof LeaseLost;
    if (isReleased) {
      return { settled: this.#commit('released', { waitMs: 0 }), effects: undefined, error: undefined, isLost };
    }
    const text = describeThrown(reason instanceof TimedOut ? reason : error);
    if (state.tries !== undefined && this.#claim.attempt >= state.tries.most) {
      return { settled: this.#givenUp(state.tries, text), effects: undefined, error: why, isLost, retry: this.#retry };
    }
    const settled = this.#commit('failed', {
      waitMs: delay(definition.backoff, this.#claim.attempt, Math.random()),
      reason: reason instanceof TimedOut ? 'timed out' : 'failed',
      error: text,
    });
    return { settled, effects: this.#mistakePage(why), error: why, isLost };
  }

  /** What no further try mends: a person is told at the first one. */
  #mistakePage(error: unknown): Effects | undefined {
    const { definition, state } = this.#stage;
    if (!(error instanceof Mistake) || this.#claim.attempt > 1) return undefined;
    const { id } = this.#claim;
    const effects = new Effects();
    const summary = `${definition.name} ${id} fails in "${state.name}" until its program is mended: ${error.message}`;
    effects.page({ tag: `actor-mistake:${id}`, severity: 'error', summary: summary.slice(0, 1000) }, String(id));
    return effects;
  }

  #commit(kind: TurnCommit['kind'], parts: Omit<TurnCommit, 'id' | 'epoch' | 'attempt' | 'kind' | 'from'>): TurnCommit {
    const { id, epoch, attempt, state: from } = this.#claim;
    return { id, epoch, attempt, kind, from, ...parts };
  }

  #limit(): void {
    // Its body may have ended its worker before it gave anything back.
    if (this.#cancelTimer !== undefined || this.#isOver) return;
    const { timeoutMs } = this.#stage.state;
    this.#cancelTimer = after(timeoutMs, () =>
      this.abort(new TimedOut(`the turn took longer than its ${formatDuration(timeoutMs)}`)),
    );
  }

  #finish(finished: TurnResult): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#cancelTimer?.();
    this.#turn?.end();
    this.#end(finished);
  }
}

/** A turn whose commit was refused: it has failed, and is written as that. */
export function asRefused({ settled, retry }: TurnResult, error: unknown): TurnResult {
  const { id, epoch, attempt, from } = settled;
  const isLast = retry?.tries !== undefined && attempt >= retry.tries.most;
  const failed: TurnCommit = {
    id,
    epoch,
    attempt,
    kind: 'failed',
    from,
    // The next turn finds that its tries are spent, and leads on.
    waitMs: isLast ? 0 : delay(retry?.backoff ?? BACKOFF, attempt, Math.random()),
    reason: COMMIT_REFUSED,
    error: error instanceof PawlError ? error.message : describeThrown(error),
  };
  return { settled: failed, effects: undefined, error, isLost: false };
}

export const COMMIT_REFUSED = 'commit refused';

/** A turn that would have ended its actor while children of it are not final: the database has written it as failed. */
export function asOrphaning({ settled }: TurnResult): TurnResult {
  const error = new Conflict(
    `done() with children of actor ${settled.id} that are not final, or are being created: end them first`,
  );
  const { id, epoch, attempt, from } = settled;
  const failed: TurnCommit = { id, epoch, attempt, from, kind: 'failed', waitMs: undefined, reason: COMMIT_REFUSED };
  return { settled: failed, effects: undefined, error, isLost: false };
}
