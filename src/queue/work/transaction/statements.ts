import { randomUUID } from 'node:crypto';
import { type Statement, type Step, statement, withoutLimits } from '../../../engine/postgres/index.ts';
import type { OpenClaim } from '../../postgres/store.ts';
import type { ClaimAnswer, Cursor } from '../../store.ts';
import type { Candidate, Seen } from './candidates.ts';

/** Where a job without a key is taken from: see `pawl.queue_take`. */
export interface TakeRequest {
  readonly queue: number;
  readonly shard: number;
  readonly from: Cursor;
  readonly to: Cursor;
}

/** A handler hears of its token before anything of its transaction is on disk: see pawl.queue_raise_tokens. */
export const RAISE_TOKENS: Statement = statement('queue.raise_tokens', 'select pawl.queue_raise_tokens()', {
  prepare: false,
});
const TAKE = statement(
  'queue.take',
  'select pawl.queue_take($1::smallint, $2::smallint, $3::smallint, $4::bigint, $5::smallint, $6::bigint)',
);
const TAKE_SEEN = statement(
  'queue.take_seen',
  'select pawl.queue_take_seen($1::smallint, $2::smallint, $3::smallint, $4::bigint, $5::smallint, $6::bigint)',
);
const TAKE_AT = statement(
  'queue.take_at',
  'select pawl.queue_take_at($1::smallint, $2::smallint, $3::bigint, $4::tid)',
);
/** The answer is as a look's, for one job. */
export const JOB: Statement = statement(
  'queue.taken_job',
  `
select pg_catalog.concat('[', j.id, ',', j.kind, ',', (date_part('epoch', j.created_at) * 1000::float8)::bigint, ',', j.payload, ']') as job
from pawl.queue_job j where j.shard = $1::smallint and j.id = $2::bigint`,
);
const RECEIPT = statement(
  'queue.receipt',
  `
insert into pawl.queue_receipt_one (claim, worker, claimed_at, settled_at, process_id, shard, queue, attempt, id)
values ($1::bigint, $2::bigint, $3::timestamptz, clock_timestamp(), $4::uuid, $5::smallint, $6::smallint, $7::smallint, $8::bigint)`,
);

/** By this lock whoever finds a worker dead finds its transactions: see pawl.queue_lanes(). */
const OF_WORKERS = 1_885_435_757;

/** Says whose the transactions of a connection are from now on, and no longer are. */
export function enrolText(worker: number, before: number | undefined): string {
  const unlock = before === undefined ? '' : `pg_advisory_unlock_shared(${ofWorker(before)}), `;
  return `select ${unlock}pg_advisory_lock_shared(${ofWorker(worker)})`;
}

/** Says so for one transaction, whose connection is somebody else's before and after it, and lifts its limits of time. */
export function enrolTransactionText(worker: number): string {
  return `select pg_advisory_xact_lock_shared(${ofWorker(worker)}), ${withoutLimits(true)};`;
}

function ofWorker(worker: number): string {
  return `${OF_WORKERS}, ${Number(worker) % 2_147_483_647}`;
}

/** Takes a job: {@link readTaken} reads the answer. */
export function takeStep(request: TakeRequest): Step {
  return { statement: TAKE, values: takeValues(request) };
}

/** Takes a job that a look has read: {@link readTakenSeen} reads the answer. */
export function takeSeenStep(request: TakeRequest): Step {
  return { statement: TAKE_SEEN, values: takeValues(request) };
}

/** Takes this very job, from where its row stood: {@link readTakenSeen} reads the answer. */
export function takeAtStep({ queue, shard }: { queue: number; shard: number }, { id, seen }: Candidate): Step {
  return { statement: TAKE_AT, values: [queue, shard, id, seen.tid ?? null] };
}

function takeValues({ queue, shard, from, to }: TakeRequest): number[] {
  return [queue, shard, from.priority, from.id, to.priority, to.id];
}

/** The receipt of a job that completed. */
export function receiptStep(open: OpenClaim): Step {
  const { claim, worker, claimedAt, processId, shard, queue, attempt, id } = open;
  return { statement: RECEIPT, values: [claim, worker, claimedAt, processId, shard, queue, attempt, id] };
}

/** As an answer of `pawl.queue_claim_one`. */
export function readTaken(text: string): ClaimAnswer {
  const [claim, id, kind, attempt, at, priority, claimedAt, processId, payload] = JSON.parse(text) as Taken;
  return claimed({ claim, id, attempt, priority, claimedAt, processId }, { kind, at, payload });
}

/** Which job was taken, and as which claim; the look knows the rest of it. */
export function readTakenSeen(text: string): TakenSeen {
  const [claim, id, attempt, priority, claimedAt] = text.split(',');
  return {
    claim: Number(claim),
    id: Number(id),
    attempt: Number(attempt),
    priority: Number(priority),
    claimedAt: JSON.parse(claimedAt ?? '""') as string,
    processId: randomUUID(),
  };
}

/** One job that was taken, as an answer of `pawl.queue_claim_one`. */
export function claimed(taken: TakenSeen, { kind, at, payload }: Seen): ClaimAnswer {
  const { claim, id, attempt, priority, claimedAt, processId } = taken;
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

export interface TakenSeen {
  readonly claim: number;
  readonly id: number;
  readonly attempt: number;
  readonly priority: number;
  readonly claimedAt: string;
  readonly processId: string;
}
