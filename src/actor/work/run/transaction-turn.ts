import { LeaseLost } from '../../../base/errors.ts';
import { aborted } from '../../../base/time/clock.ts';
import { GRACE_MS } from '../../../base/work/deadlines.ts';
import type { Transaction } from '../../../engine/postgres/index.ts';
import type { PostgresActorStore } from '../../postgres/store.ts';
import { commitWithEffects } from '../settler.ts';
import { type AnyTurn, asOrphaning, asRefused, type TurnResult } from './turn-result.ts';

/** Runs the body while the actor's row is locked, in the transaction that commits the outcome. */
export async function runInTransaction(
  store: PostgresActorStore,
  turn: AnyTurn,
  body: () => Promise<TurnResult>,
  timeoutMs: number,
): Promise<TurnResult> {
  const run = async (tx: Transaction): Promise<TurnResult> => {
    turn.life.throwIfAborted();
    turn.attachTx(tx);
    // A body that does not end when it is told to must not keep the row locked.
    const came = await Promise.race([body(), aborted(turn.signal)]);
    // The failure is written under the same lock, so no worker can claim the actor before the failure and its backoff are
    // written.
    if (came.settled.kind === 'failed' || came.settled.kind === 'released') await store.undo(tx);
    return written(await writeUnderLock(store, tx, turn, came));
  };
  return store.inTransaction(turn.turnToken, run, timeoutMs + GRACE_MS);
}

/**
 * Writes the turn. If it is refused, that is written under the same lock, because a worker that claimed the actor in between would
 * declare its process dead.
 */
async function writeUnderLock(
  store: PostgresActorStore,
  tx: Transaction,
  turn: AnyTurn,
  came: TurnResult,
): Promise<TurnResult> {
  try {
    const { refused } = await commitWithEffects(store, turn.worker, came, { tx });
    if (refused.length > 0) throw asOrphaning(came).error;
    return came;
  } catch (error) {
    const isOver = error instanceof LeaseLost || store.engine.isTransient(error);
    if (isOver || came.settled.kind === 'failed') throw error;
    await store.undo(tx);
    const refused = asRefused(came, error);
    await commitWithEffects(store, turn.worker, refused, { tx });
    return refused;
  }
}

function written(result: TurnResult): TurnResult {
  return { ...result, effects: undefined, isWritten: true };
}
