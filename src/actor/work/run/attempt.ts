import type { Interrupted } from '../../../base/errors.ts';
import { LeaseLost, TimedOut } from '../../../base/errors.ts';
import { validate } from '../../../base/options/schema.ts';
import { isThenable } from '../../../base/options/shape.ts';
import { after } from '../../../base/time/clock.ts';
import { formatDuration } from '../../../base/time/duration.ts';
import { currentTask } from '../../../base/work/current-task.ts';
import { GRACE_MS } from '../../../base/work/deadlines.ts';
import type { LooseFields } from '../../kind.ts';
import { asFields } from '../../option-checks.ts';
import type { ActorClaim } from '../../store.ts';
import { Turn } from '../../turn/turn.ts';
import { completedTurn } from './completed-turn.ts';
import { failedTurn, forcedTurn } from './ended-turn.ts';
import type { AnyTurn, Stage, TurnResult } from './turn-result.ts';

/** A turn that runs now. */
export interface RunningTurn {
  readonly id: number;
  /** Tells the body to end. If it does not end, the turn ends without it. */
  abort(reason: unknown): void;
  /** Semaphores that interrupt it, and how often each was raised at the claim. */
  readonly interrupts: readonly string[];
  readonly raised: Readonly<Record<string, number>>;
  /** Tells the body that one of them was raised. The body's outcome still counts. */
  interrupt(reason: Interrupted): void;
  /** Ends the turn without its body, which was told to end and has not ended. */
  giveUp(): void;
  /** Called when another worker has the actor: tells the body, and ends the turn now. Nothing that its body does later counts. */
  lose(reason: LeaseLost): void;
}

/**
 * Runs one turn: the transition that `always` requires, or the body. Calls `end` exactly once, possibly before it returns.
 * @param hold  runs the body of a state with `hold: 'transaction'`, and commits it; `end` is called after that
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
  /** Why the turn was told to end. */
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
    this.#turn?.life.interrupt(reason);
  }

  start(): void {
    const forced = forcedTurn(this.#claim, this.#stage);
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
    this.#turn?.life.abort(reason);
  }

  #fail(error: unknown): void {
    this.#finish(this.#failed(error));
  }

  #failed(error: unknown): TurnResult {
    const reason = this.#reason ?? this.#turn?.life.reason;
    return failedTurn(this.#claim, this.#stage, error, reason, this.#interruption !== undefined);
  }

  #interpret(turn: AnyTurn, outcome: unknown): TurnResult | Promise<TurnResult> {
    return completedTurn(this.#claim, this.#stage, turn, outcome, this.#isMigrated);
  }

  /** The fields in the form of this version of the program. */
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
    if (this.#interruption !== undefined) turn.life.interrupt(this.#interruption);
    if (state.hold === 'transaction' && this.#hold !== undefined) {
      this.#limit();
      const body = async (): Promise<TurnResult> => this.#interpret(turn, await this.#call(turn));
      const told = (): Promise<TurnResult> => body().catch((error: unknown) => this.#failed(error));
      this.#hold(turn, told).then(
        (finished) => this.#finish(finished),
        // An error of the body becomes its outcome: this is the turn's own transaction.
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

  /** Calls the body within its task, so that a stop by the body knows its caller, and does not wait for it. */
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

  #limit(): void {
    // The body may have ended its worker before it returned.
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
