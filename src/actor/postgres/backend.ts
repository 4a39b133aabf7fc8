import { answerDeadline } from '../../base/work/deadlines.ts';
import type { PostgresEngine } from '../../engine/postgres/index.ts';
import type { ActorBackend } from '../backend.ts';
import { Keeper } from '../work/keeper.ts';
import type { TurnWriter } from '../work/ports.ts';
import { runInTransaction } from '../work/run/transaction-turn.ts';
import { commitWithEffects } from '../work/settler.ts';
import { PostgresActorOperator } from './operator.ts';
import { PostgresActorReader } from './reader.ts';
import { PostgresActorStore } from './store.ts';

/** Rescues and cleaning may take long, and are not urgent. */
const CHORE_MS = 30_000;

/** Actors on Postgres. */
export function postgresBackend(engine: PostgresEngine): ActorBackend {
  const store = new PostgresActorStore(engine);
  const reader = new PostgresActorReader(engine);
  return {
    store,
    reader,
    notices: reader,
    operator: new PostgresActorOperator(engine),
    connections: engine.connections,
    ports: (leaseMs) => {
      const within = store.within(answerDeadline(leaseMs));
      return { store: within, keeper: new Keeper(store.within(CHORE_MS), leaseMs), writer: postgresWriter(within) };
    },
    byHand: (leaseMs) => ({ store, keeper: new Keeper(store, leaseMs), writer: postgresWriter(store) }),
  };
}

/** Writes turns with this store. */
export function postgresWriter(store: PostgresActorStore): TurnWriter {
  return {
    commit: (worker, result, idleMs) => commitWithEffects(store, worker, result, { idleMs }),
    hold: (turn, body, timeoutMs) => runInTransaction(store, turn, body, timeoutMs),
  };
}
