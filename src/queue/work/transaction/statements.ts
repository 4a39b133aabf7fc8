import { randomUUID } from 'node:crypto';
import { type Statement, type Step, statement, withoutLimits } from '../../../engine/postgres/index.ts';
import type { OpenClaim } from '../../postgres/texts.ts';
import type { Candidate, ClaimAnswer } from '../../store.ts';

/** A handler hears of its token before anything of its transaction is on disk: see pawl.queue_raise_tokens. */
export const RAISE_TOKENS: Statement = statement('queue.raise_tokens', 'select pawl.queue_raise_tokens()', {
  prepare: false,
});
const TAKE = statement(
  'queue.take',
  'select pawl.queue_take_row($1::smallint, $2::smallint, $3::bigint, $4::tid, $5::boolean)',
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

/** Takes this very job, from where its row stands: {@link readTaken} reads the answer. */
export function takeStep({ queue, shard }: { queue: number; shard: number }, { id, tid, payload }: Candidate): Step {
  return { statement: TAKE, values: [queue, shard, id, tid, payload === undefined ? 'true' : 'false'] };
}

/** The receipt of a job that completed. */
export function receiptStep(open: OpenClaim): Step {
  const { claim, worker, claimedAt, processId, shard, queue, attempt, id } = open;
  return { statement: RECEIPT, values: [claim, worker, claimedAt, processId, shard, queue, attempt, id] };
}

/** @returns as `pawl.queue_claim_one` answers */
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
  /** Where the candidate came without it. */
  readonly payload?: unknown;
}
