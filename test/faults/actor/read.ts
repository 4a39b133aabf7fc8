import type pg from 'pg';
import type { ActorHistory, Effect, Instance, Move } from './history.ts';

interface Tables {
  readonly history: Pick<ActorHistory, 'instances' | 'moves' | 'effects'>;
  readonly rows: readonly { readonly producer: number; readonly operation: number; readonly id: string }[];
}

const COMMITTED = '(extract(epoch from pg_xact_commit_timestamp(r.xmin)) * 1000)::float8 as "committedAt"';

/** Reads in one snapshot, when all work has ended: otherwise the tables would not fit together. */
export async function readTables(eye: pg.Pool): Promise<Tables> {
  const client = await eye.connect();
  const all = async <T extends object>(sql: string): Promise<T[]> => (await client.query<T>(sql)).rows;
  try {
    await client.query('begin isolation level repeatable read read only');
    const instances = await all<Instance>(`
      select r.id::text, t.name as type, r.state, r.parent::text, r.epoch::int, r.finished_at is not null as "isFinal", r.result,
        coalesce((r.fields ->> 'items')::int, 0) as items
      from pawl.actor_instance r join pawl.actor_type t on t.id = r.type order by r.id`);
    const moves = await all<Move>(`
      select r.actor::text, r.epoch::int, r.from_state as from, r.to_state as to, r.reason, ${COMMITTED}
      from pawl.actor_transition r order by r.actor, r.epoch, r.at`);
    const effects = await all<Effect>(`
      select r.actor::text, r.epoch::int, r.state, r.kind, r.n::int, ${COMMITTED} from faults_effect r`);
    const rows = await all<Tables['rows'][number]>('select r.producer, r.operation, r.id from faults_asked r');
    await client.query('commit');
    return { history: { instances, moves, effects }, rows };
  } finally {
    client.release();
  }
}
