import { aborted } from '../../base/time/clock.ts';
import type { Transaction } from '../../engine/postgres/index.ts';
import type { PostgresActorStore } from '../postgres/store.ts';
import { type AnyTurn, type Finished, GRACE_MS, orphaning } from './attempt.ts';
import { commitWithEffects } from './settler.ts';

/** The body runs while its row is locked, in the transaction that commits its outcome. */
export async function holdTransaction(
  store: PostgresActorStore,
  turn: AnyTurn,
  body: () => Promise<Finished>,
  timeoutMs: number,
): Promise<Finished> {
  const run = async (tx: Transaction): Promise<Finished> => {
    turn.throwIfAborted();
    turn.lend(tx);
    // A body that does not end when told to must not keep the row locked.
    const came = await Promise.race([body(), aborted(turn.signal)]);
    // Failed under the lock: nobody can have claimed it before the failure and its back-off are written.
    if (came.settled.kind === 'failed' || came.settled.kind === 'released') await store.undo(tx);
    const { refused } = await commitWithEffects(store, turn.worker, came, { tx });
    if (refused.length > 0) throw orphaning(came).error;
    return { ...came, effects: undefined, isWritten: true };
  };
  return store.holding(turn.turnToken, run, timeoutMs + GRACE_MS);
}
