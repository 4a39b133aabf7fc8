import { type Step, statement } from '../engine/postgres/index.ts';
import type { OpenClaim } from './postgres.ts';
import type { Claimed, Cursor } from './store.ts';

/** Where a job without a key is taken from: see `pawl.queue_take`. */
export interface TakeRequest {
  readonly queue: number;
  readonly shard: number;
  readonly from: Cursor;
  readonly to: Cursor;
}

const TAKE = statement(
  'queue.take',
  'select pawl.queue_take($1::smallint, $2::smallint, $3::smallint, $4::bigint, $5::smallint, $6::bigint)',
);
const RECEIPT = statement(
  'queue.receipt',
  `
insert into pawl.queue_receipt (claim, worker, claimed_at, settled_at, process_id, shard, queue, attempt, unit, ids)
values ($1::bigint, $2::bigint, $3::timestamptz, clock_timestamp(), $4::uuid, $5::smallint, $6::smallint, $7::smallint, false, int8multirange(int8range($8::bigint, $8::bigint + 1)))`,
);

/** As a step of a batch. */
export function takeStep({ queue, shard, from, to }: TakeRequest): Step {
  return { statement: TAKE, values: [queue, shard, from.priority, from.id, to.priority, to.id] };
}

/** As text, where nothing can be prepared. In quotes: a minus sign before a number is an operator, whose result does not fit a smallint. */
export function takeText({ queue, shard, from, to }: TakeRequest): string {
  const [q, sh, p, id, toP, toId] = [queue, shard, from.priority, from.id, to.priority, to.id].map(Number);
  return `select pawl.queue_take('${q}', '${sh}', '${p}', ${id}, '${toP}', ${toId})`;
}

/** The receipt of a job that completed, as a step of a batch. */
export function receiptStep(open: OpenClaim): Step {
  const { claim, worker, claimedAt, processId, shard, queue, attempt, id } = open;
  return { statement: RECEIPT, values: [claim, worker, claimedAt, processId, shard, queue, attempt, id] };
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
