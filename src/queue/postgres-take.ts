import { type OpenClaim, quoted } from './postgres.ts';
import type { Claimed, Cursor } from './store.ts';

/** Where a job without a key is taken from: see `pawl.queue_take`. */
export interface TakeRequest {
  readonly queue: number;
  readonly shard: number;
  readonly from: Cursor;
  readonly to: Cursor;
}

const TAKE = 'select pawl.queue_take($1, $2, $3, $4, $5, $6)';
const RECEIPT =
  'insert into pawl.queue_receipt (claim, worker, claimed_at, settled_at, process_id, shard, queue, attempt, unit, ids) ' +
  'values ($1, $2, $3, clock_timestamp(), $4, $5, $6, $7, false, int8multirange(int8range($8, $8 + 1)))';

/**
 * Prepares what a lane sends for every job, unless the connection has it already. By SQL and not by the protocol, so that it
 * can go in one message with COMMIT and BEGIN: parsed and planned each time, a job's message takes 360 µs of the server
 * instead of 260. Both plans have no choice in them that could become a bad one.
 */
export const PREPARE_TAKES: string = `do $pawl$ begin
  if not exists (select from pg_prepared_statements p where p.name = 'pawl.take') then
    execute 'prepare "pawl.take" (smallint, smallint, smallint, bigint, smallint, bigint) as ${TAKE}';
    execute 'prepare "pawl.receipt" (bigint, bigint, timestamptz, uuid, smallint, smallint, smallint, bigint) as ${RECEIPT}';
  end if;
end $pawl$`;

/** Numbers only. In quotes: a minus sign before a number is an operator, whose result does not fit a smallint. */
export function executeTakeText({ queue, shard, from, to }: TakeRequest): string {
  const [q, sh, p, id, toP, toId] = [queue, shard, from.priority, from.id, to.priority, to.id].map(Number);
  return `execute "pawl.take"(${q}, ${sh}, '${p}', ${id}, '${toP}', ${toId})`;
}

/** The same where nothing is prepared. */
export function takeText({ queue, shard, from, to }: TakeRequest): string {
  const [q, sh, p, id, toP, toId] = [queue, shard, from.priority, from.id, to.priority, to.id].map(Number);
  return `select pawl.queue_take('${q}', '${sh}', '${p}', ${id}, '${toP}', ${toId})`;
}

export function executeReceiptText(open: OpenClaim): string {
  const { claim, worker, claimedAt, processId, shard, queue, attempt, id } = open;
  return (
    `execute "pawl.receipt"(${Number(claim)}, ${Number(worker)}, ${quoted(claimedAt)}, ${quoted(processId)}, ` +
    `${Number(shard)}, ${Number(queue)}, ${Number(attempt)}, ${Number(id)})`
  );
}

/** What `pawl.queue_take` answers, as an answer of `pawl.queue_claim_one`. */
export function readTaken(text: string): Claimed {
  const [claim, id, kind, attempt, at, priority, claimedAt, processId, payload] = JSON.parse(text) as Taken;
  return {
    rows: [[claim, id, 1, kind, attempt, at, [payload]]],
    keys: [],
    processes: { [claim]: processId },
    seen: 1,
    last: [priority, id],
    claimedAt,
  };
}

type Taken = readonly [
  claim: number,
  id: number,
  kind: number,
  attempt: number,
  at: number,
  priority: number,
  claimedAt: string,
  processId: string,
  payload: unknown,
];
