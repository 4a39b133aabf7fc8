import { randomUUID } from 'node:crypto';
import { type Statement, type Step, statement, withoutLimits } from '../../../engine/postgres/index.ts';
import type { OpenClaim } from '../../postgres/texts.ts';
import type { Candidate, ClaimAnswer } from '../../store.ts';

/** A handler gets its token before its transaction is on disk: see pawl.queue_raise_tokens. */
export const RAISE_TOKENS: Statement = statement('queue.raise_tokens', 'select pawl.queue_raise_tokens()', {
  prepare: false,
});
const TAKE = statement(
  'queue.take',
  'select pawl.queue_take_row($1::smallint, $2::smallint, $3::bigint, $4::tid, $5::xid, $6::boolean)',
);
const RECEIPT = statement(
  'queue.receipt',
  `
insert into pawl.queue_receipt_one (claim, worker, claimed_at, settled_at, process_id, shard, queue, attempt, id)
values ($1::bigint, $2::bigint, $3::timestamptz, clock_timestamp(), $4::uuid, $5::smallint, $6::smallint, $7::smallint,
  case when pawl.queue_has_watches() then pawl.queue_ended_alone($5::smallint, $8::bigint, $6::smallint) else $8::bigint end)`,
);

/** By this lock a rescue finds the transactions of a dead worker: see pawl.queue_lanes(). */
const OF_WORKERS = 1_885_435_757;

/** Records the new worker of a connection's transactions in place of the one before. */
export function enrolText(worker: number, before: number | undefined): string {
  const unlock = before === undefined ? '' : `pg_advisory_unlock_shared(${ofWorker(before)}), `;
  return `select ${unlock}pg_advisory_lock_shared(${ofWorker(worker)})`;
}

/**
 * The same for one transaction, on a pooled connection that belongs to others before and after it; also lifts its time
 * limits.
 */
export function enrolTransactionText(worker: number): string {
  return `select pg_advisory_xact_lock_shared(${ofWorker(worker)}), ${withoutLimits(true)};`;
}

function ofWorker(worker: number): string {
  return `${OF_WORKERS}, ${Number(worker) % 2_147_483_647}`;
}

/** Takes this one job, by the place of its row; {@link readTaken} reads the answer. */
export function takeStep(
  { queue, shard }: { queue: number; shard: number },
  { id, tid, xmin, payload }: Candidate,
): Step {
  return { statement: TAKE, values: [queue, shard, id, tid, xmin, payload === undefined ? 'true' : 'false'] };
}

/** Writes the receipt of a complete job. */
export function receiptStep(open: OpenClaim): Step {
  const { claim, worker, claimedAt, processId, shard, queue, attempt, id } = open;
  return { statement: RECEIPT, values: [claim, worker, claimedAt, processId, shard, queue, attempt, id] };
}

/** @returns an answer like that of `pawl.queue_claim_one` */
export function readTaken(text: string, { id, priority, kind, origin, payload }: Candidate): ClaimAnswer {
  const taken = JSON.parse(text) as TakenRow;
  const { claim, attempt, claimedAt } = taken;
  return {
    runs: [
      { claim, first: id, n: 1, kind, attempt, origin, payloads: [payload === undefined ? taken.payload : payload] },
    ],
    keys: [],
    processes: { [claim]: randomUUID() },
    seen: 1,
    last: { priority, id },
    claimedAt,
  };
}

interface TakenRow {
  readonly claim: number;
  readonly attempt: number;
  readonly claimedAt: string;
  /** Set if the candidate came without its payload. */
  readonly payload?: unknown;
}
