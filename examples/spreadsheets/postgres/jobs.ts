import { type PostgresEngine, statement } from 'pawl/postgres';
import type { Move, Request } from '../store.ts';

// The views are there for everyone to read. This queue has one shard, number 0; naming it lets the index on keys be used.
const REQUESTS = statement(
  'spreadsheet.requests',
  `select id::text, kind, status, attempt, enqueued_at as "enqueuedAt", settled_at as "settledAt", error
   from pawl.job
   where shard = 0 and queue = 'spreadsheets' and key = $1
   order by id desc
   limit $2`,
);

const MOVES = statement(
  'spreadsheet.moves',
  `select job::text, at, from_status as "from", to_status as "to", attempt, process_id as "processId", reason, error
   from pawl.job_history
   where shard = 0 and job = any ($1::bigint[])
   order by at desc, job desc`,
);

const STATUSES = statement(
  'spreadsheet.statuses',
  'select id::text, status from pawl.job where shard = 0 and id = any ($1::bigint[])',
);

/** The latest requests for a spreadsheet, newest first. */
export function latestRequests(engine: PostgresEngine, id: string, limit: number): Promise<Request[]> {
  return engine.query<Request>(REQUESTS, [id, limit]);
}

/** Everything that happened to these requests, latest first. */
export function movesOf(engine: PostgresEngine, requests: readonly Request[]): Promise<Move[]> {
  return engine.query<Move>(MOVES, [requests.map(({ id }) => id)]);
}

/** Where each of these jobs is now; one that is missing here does not exist. */
export async function statusesOf(
  engine: PostgresEngine,
  jobs: readonly string[],
): Promise<ReadonlyMap<string, Request['status']>> {
  const rows = await engine.query<Pick<Request, 'id' | 'status'>>(STATUSES, [jobs]);
  return new Map(rows.map(({ id, status }) => [id, status]));
}
