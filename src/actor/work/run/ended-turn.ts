import { describeThrown } from '../../../base/error-text.ts';
import { LeaseLost, Stopped, TimedOut } from '../../../base/errors.ts';
import { delay } from '../../../base/time/backoff.ts';
import type { Tries } from '../../definition.ts';
import { Mistake } from '../../option-checks.ts';
import type { ActorClaim, TurnCommit } from '../../store.ts';
import { Effects } from '../../turn/effects.ts';
import { commitOf, retryOf, type Stage, type TurnResult } from './turn-result.ts';

/** The result of a turn that needs no body: `always` requires a transition, or the tries of its state are spent. */
export function forcedTurn(claim: ActorClaim, stage: Stage): TurnResult | undefined {
  return alwaysTransition(claim, stage) ?? giveUpSpent(claim, stage);
}

/** If a semaphore of `always` was raised, it leads to its state without a call of the body. */
function alwaysTransition(claim: ActorClaim, stage: Stage): TurnResult | undefined {
  const { definition, state } = stage;
  for (const [semaphore, target] of definition.always) {
    const raised = claim.semaphores[semaphore] ?? 0;
    if (raised === 0 || state.name === target) continue;
    const settled = commitOf(claim, 'to', {
      waitMs: 0,
      to: target,
      reason: `always: ${semaphore}`,
      delta: { [semaphore]: -raised },
      deadlineMs: definition.states.get(target)?.deadlineMs,
    });
    return { settled, effects: undefined, error: undefined, isLost: false, retry: retryOf(stage) };
  }
  return undefined;
}

/** The tries of this state are spent, and no process recorded the last failure: its process died, or its commit was refused. */
function giveUpSpent(claim: ActorClaim, stage: Stage): TurnResult | undefined {
  const { tries } = stage.state;
  if (tries === undefined || claim.attempt <= tries.most) return undefined;
  const settled = givenUp(claim, stage, tries, claim.error);
  return { settled, effects: undefined, error: undefined, isLost: false, retry: retryOf(stage) };
}

function givenUp(claim: ActorClaim, stage: Stage, { most, giveUp }: Tries, error: string | undefined): TurnCommit {
  return commitOf(claim, 'to', {
    waitMs: 0,
    to: giveUp,
    reason: `gave up after ${most} ${most === 1 ? 'try' : 'tries'}`,
    error,
    deadlineMs: stage.definition.states.get(giveUp)?.deadlineMs,
  });
}

/**
 * The result of a turn that failed, was lost, or is given back. Only `reason`, the reason of its abort, makes it lost or given
 * back, because a body may throw such an error of another turn or job.
 */
export function failedTurn(
  claim: ActorClaim,
  stage: Stage,
  error: unknown,
  reason: unknown,
  isInterrupted: boolean,
): TurnResult {
  const why = reason ?? error;
  const { definition, state } = stage;
  // The outcome is unknown. The semaphore that interrupted the turn is left for the next turn, which begins at once.
  const isReleased = reason instanceof Stopped || (reason === undefined && isInterrupted);
  const isLost = reason instanceof LeaseLost;
  if (isReleased) return { ...releasedTurn(claim), isLost };
  const text = describeThrown(reason instanceof TimedOut ? reason : error);
  if (state.tries !== undefined && claim.attempt >= state.tries.most) {
    return {
      settled: givenUp(claim, stage, state.tries, text),
      effects: undefined,
      error: why,
      isLost,
      retry: retryOf(stage),
    };
  }
  const settled = commitOf(claim, 'failed', {
    waitMs: delay(definition.backoff, claim.attempt, Math.random()),
    reason: reason instanceof TimedOut ? 'timed out' : 'failed',
    error: text,
  });
  return { settled, effects: mistakePage(claim, stage, why), error: why, isLost };
}

/** Another try does not correct a mistake of the program, so the first failure opens a page. */
function mistakePage(claim: ActorClaim, stage: Stage, error: unknown): Effects | undefined {
  const { definition, state } = stage;
  if (!(error instanceof Mistake) || claim.attempt > 1) return undefined;
  const { id } = claim;
  const effects = new Effects();
  const summary = `${definition.name} ${id} fails in "${state.name}" until its program is mended: ${error.message}`;
  effects.page({ tag: `actor-mistake:${id}`, severity: 'error', summary: summary.slice(0, 1000) }, String(id));
  return effects;
}

/** The result of a turn whose body has not run: it spends no try. */
export function releasedTurn(claim: ActorClaim): TurnResult {
  return { settled: commitOf(claim, 'released', { waitMs: 0 }), effects: undefined, error: undefined, isLost: false };
}
