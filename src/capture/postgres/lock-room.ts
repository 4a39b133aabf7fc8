import { only, type PostgresEngine, statement } from '../../engine/postgres/index.ts';

const ROOM = statement(
  'capture.lock_room',
  `
select current_setting('max_locks_per_transaction')::int * (current_setting('max_connections')::int + current_setting('max_prepared_transactions')::int) as room`,
);

/**
 * How many keys the batches of a process may lock at the same time: half of what the server's table of locks is made for. If the
 * table is full, transactions of every program on the server fail, with "out of shared memory".
 */
export async function mostLockedKeys(engine: PostgresEngine): Promise<number> {
  const { room } = only(await engine.query<{ room: number }>(ROOM));
  return Math.max(1, Math.floor(room / 2));
}
