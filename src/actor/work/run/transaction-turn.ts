import { aborted } from '../../../base/time/clock.ts';
import { GRACE_MS } from '../../../base/work/deadlines.ts';
import type { Transaction } from '../../../engine/postgres/index.ts';
import type { PostgresActorStore } from '../../postgres/store.ts';
import { QuestionTakenBack } from '../../turn/effects.ts';
import { commitWithEffects } from '../settler.ts';
import { type AnyTurn, asOrphaning, asRefused, type TurnResult } from './turn-result.ts';

/** Runs the body while the actor's row is locked, in the transaction that commits the outcome. */
export async function runInTransaction(
  store: PostgresActorStore,
  turn: AnyTurn,
  body: () => Promise<TurnResult>,
  timeoutMs: number,
): Promise<TurnResult> {
  let came: TurnResult | undefined;
  const run = async (tx: Transaction): Promise<TurnResult> => {
    turn.life.throwIfAborted();
    turn.attachTx(tx);
    // A body that does not end when it is told to must not keep the row locked.
    came = await Promise.race([body(), aborted(turn.signal)]);
    // The failure is written under the same lock, so no worker can claim the actor before the failure and its backoff are
    // written.
    if (came.settled.kind === 'failed' || came.settled.kind === 'released') await store.undo(tx);
    const { refused } = await commitWithEffects(store, turn.worker, came, { tx });
    if (refused.length > 0) throw asOrphaning(came).error;
    return { ...came, effects: undefined, isWritten: true };
  };
  try {
    return await store.inTransaction(turn.turnToken, run, timeoutMs + GRACE_MS);
  } catch (error) {
    if (came === undefined || !(error instanceof QuestionTakenBack)) throw error;
    // The transaction was rolled back, and nothing is written yet.
    return asRefused(came, error);
  }
}
