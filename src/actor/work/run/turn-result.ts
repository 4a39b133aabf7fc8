import { describeThrown } from '../../../base/error-text.ts';
import { Conflict, PawlError } from '../../../base/errors.ts';
import { BACKOFF, type Backoff, delay } from '../../../base/time/backoff.ts';
import type { ActorDefinition, StateDefinition, Tries } from '../../definition.ts';
import type { LooseFields } from '../../kind.ts';
import type { ActorClaim, TurnCommit } from '../../store.ts';
import { type Effects, QuestionTakenBack } from '../../turn/effects.ts';
import type { Turn } from '../../turn/turn.ts';
import type { TurnOwner } from '../../turn/turn-requests.ts';

export type AnyTurn = Turn<LooseFields, string, string>;

/** The parts with which a turn runs. */
export interface Stage {
  readonly definition: ActorDefinition;
  readonly state: StateDefinition;
  readonly worker: number;
  readonly owner: TurnOwner;
}

/** A turn that has ended. */
export interface TurnResult {
  readonly settled: TurnCommit;
  /** The effects to commit with it. */
  readonly effects: Effects | undefined;
  /** The error of a turn that failed. */
  readonly error: unknown;
  /** True: another worker owns the actor, and nothing may be written. */
  readonly isLost: boolean;
  /** How the turn is tried again if its commit is refused. */
  readonly retry?: Retry | undefined;
  /** True: the transaction of the body has committed it already. */
  readonly isWritten?: boolean | undefined;
}

/** The pause after a turn that failed, and the number of its tries. */
export interface Retry {
  readonly backoff: Backoff;
  readonly tries: Tries | undefined;
}

export function retryOf(stage: Stage): Retry {
  return { backoff: stage.definition.backoff, tries: stage.state.tries };
}

export function commitOf(
  claim: ActorClaim,
  kind: TurnCommit['kind'],
  parts: Omit<TurnCommit, 'id' | 'epoch' | 'attempt' | 'kind' | 'from'>,
): TurnCommit {
  const { id, epoch, attempt, state: from } = claim;
  return { id, epoch, attempt, kind, from, ...parts };
}

/**
 * A turn whose commit was refused. It has failed, and is written as failed; or its question was taken back, and it runs again
 * uncharged.
 */
export function asRefused({ settled, retry }: TurnResult, error: unknown): TurnResult {
  const { id, epoch, attempt, from } = settled;
  if (error instanceof QuestionTakenBack) {
    const released: TurnCommit = { id, epoch, attempt, kind: 'released', from, waitMs: 0 };
    return { settled: released, effects: undefined, error: undefined, isLost: false };
  }
  const isLast = retry?.tries !== undefined && attempt >= retry.tries.most;
  const failed: TurnCommit = {
    id,
    epoch,
    attempt,
    kind: 'failed',
    from,
    // The next turn finds that its tries are spent, and moves the actor to `giveUp`.
    waitMs: isLast ? 0 : delay(retry?.backoff ?? BACKOFF, attempt, Math.random()),
    reason: COMMIT_REFUSED,
    error: error instanceof PawlError ? error.message : describeThrown(error),
  };
  return { settled: failed, effects: undefined, error, isLost: false };
}

export const COMMIT_REFUSED = 'commit refused';

/** A turn that would have ended its actor while it has children that are not final: the database has written it as failed. */
export function asOrphaning({ settled }: TurnResult): TurnResult {
  const error = new Conflict(
    `done() with children of actor ${settled.id} that are not final, or are being created: end them first`,
  );
  const { id, epoch, attempt, from } = settled;
  const failed: TurnCommit = { id, epoch, attempt, from, kind: 'failed', waitMs: undefined, reason: COMMIT_REFUSED };
  return { settled: failed, effects: undefined, error, isLost: false };
}
