import { InvalidInput } from '../../../base/errors.ts';
import { show } from '../../../base/options/refusal.ts';
import { validate } from '../../../base/options/schema.ts';
import { isObject } from '../../../base/options/shape.ts';
import { toJson } from '../../../base/storable.ts';
import { asFields, fieldsOf, Mistake, requireFields } from '../../option-checks.ts';
import type { ActorClaim, TurnCommit } from '../../store.ts';
import { MadeOutcome } from '../../turn/outcome.ts';
import { type AnyTurn, commitOf, retryOf, type Stage, type TurnResult } from './turn-result.ts';

const OUTCOMES = 'a.to(state), a.stay(), a.nap(duration), a.hibernate() or a.done()';

/**
 * The result of a turn whose body returned an outcome.
 * @param isMigrated  its fields are of an older version, and are written anew
 */
export function completedTurn(
  claim: ActorClaim,
  stage: Stage,
  turn: AnyTurn,
  outcome: unknown,
  isMigrated: boolean,
): TurnResult | Promise<TurnResult> {
  const { definition, state } = stage;
  turn.life.throwIfAborted();
  if (!(outcome instanceof MadeOutcome)) {
    const was = outcome === undefined ? 'nothing: one of its branches has no return' : show(outcome);
    throw new Mistake(
      `the body of state "${state.name}" of ${definition.name} must return ${OUTCOMES}, but gave ${was}`,
    );
  }
  if (outcome.turn !== turn) {
    throw new InvalidInput(
      `the body of state "${state.name}" of ${definition.name} gave an outcome of another turn; create the outcome in the turn that returns it`,
    );
  }
  const patch: unknown = outcome.patch;
  if (patch !== undefined && !isObject(patch))
    throw new InvalidInput(`a fields patch must be an object, but was ${show(patch)}`);
  if (patch === undefined && !isMigrated) return completed(claim, stage, turn, outcome, undefined);
  const succeeded = (made: unknown): TurnResult => {
    // A schema may take long, too.
    turn.life.throwIfAborted();
    const fields = asFields(made);
    if (patch !== undefined) requireFields(definition.name, patch, fields);
    return completed(claim, stage, turn, outcome, fieldsOf(fields));
  };
  const valid: unknown = validate(definition.schema, { ...turn.fields, ...patch }, 'fields');
  return valid instanceof Promise ? valid.then(succeeded) : succeeded(valid);
}

function completed(
  claim: ActorClaim,
  stage: Stage,
  turn: AnyTurn,
  outcome: MadeOutcome<string>,
  fields: string | undefined,
): TurnResult {
  const { definition, state } = stage;
  const { kind, state: to, ms, result, error } = outcome;
  const effects = turn.effects;
  const common = {
    children: effects === undefined || effects.children.length === 0 ? undefined : effects.children.length,
    delta: deltaOf(claim, stage, turn),
    fields,
    version: fields === undefined ? undefined : definition.version,
    keepsFields: fields !== undefined && definition.fieldHistoryMs !== undefined,
  };
  const finished = (settled: TurnCommit): TurnResult => ({
    settled,
    effects,
    error: undefined,
    isLost: false,
    retry: retryOf(stage),
  });
  switch (kind) {
    case 'to':
      return finished(
        commitOf(claim, 'to', {
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
        commitOf(claim, 'done', {
          ...common,
          waitMs: undefined,
          result: result === undefined ? undefined : toJson(result, 'the result of done()'),
        }),
      );
    case 'stay':
      return finished(commitOf(claim, 'stay', { ...common, ...turn.timing, waitMs: state.everyMs }));
    case 'nap':
      return finished(commitOf(claim, 'stay', { ...common, ...turn.timing, waitMs: ms }));
    case 'hibernate':
      return finished(commitOf(claim, 'stay', { ...common, ...turn.timing, waitMs: undefined }));
  }
}

/** In the state to which a semaphore of `always` leads, that semaphore has had its effect, and is lowered. */
function deltaOf(claim: ActorClaim, stage: Stage, turn: AnyTurn): Record<string, number> | undefined {
  const { definition, state } = stage;
  if (definition.always.size === 0) return turn.delta;
  for (const [semaphore, target] of definition.always) {
    if (target === state.name && (claim.semaphores[semaphore] ?? 0) > 0) turn.decr(semaphore);
  }
  return turn.delta;
}
