/** The history of a job, from its records. */
import type { JobTransition } from '../../job.ts';
import type { JobRecordEntry } from '../records.ts';
import type { FoundJob } from './standing.ts';

const ENQUEUE = {
  from: null,
  to: 'new',
  attempt: 0,
  processId: null,
  worker: null,
  reason: 'enqueue',
  error: null,
} as const;

/** All transitions of a job, oldest first. Each claim has one outcome, and a job is complete at most once. */
export function transitionsOf({ enqueuedAt, records, status }: FoundJob): JobTransition[] {
  const outcomes = lastOfClaims(records);
  const moves = outcomes.flatMap((record, nth) => {
    const counts = record.to !== 'complete' || (nth === outcomes.length - 1 && status === 'complete');
    return movesOf(counts ? record : lost(record));
  });
  return [{ ...ENQUEUE, at: new Date(enqueuedAt) }, ...moves];
}

/** The last record of each claim. If a settlement gets no answer to its write of the head, it is repeated, and writes its records once more. */
function lastOfClaims(records: readonly JobRecordEntry[]): JobRecordEntry[] {
  return records.filter(
    ({ token, claimedAt }, nth) =>
      claimedAt === null ||
      !records.some((other, later) => later > nth && other.token === token && other.claimedAt !== null),
  );
}

/** The record of a worker that was declared dead. It says `complete`, but other records follow, because another worker got the job. */
function lost(record: JobRecordEntry): JobRecordEntry {
  return { ...record, to: 'release', reason: 'worker lost' };
}

function movesOf({ to, attempt, reason, error, processId, claimedAt, at }: JobRecordEntry): JobTransition[] {
  const shared = { attempt, processId, worker: null };
  const from = claimedAt === null ? ('new' as const) : ('in-progress' as const);
  const end = to === 'retry' || to === 'release' ? ('new' as const) : to;
  const move: JobTransition = { ...shared, at: new Date(at), from, to: end, reason, error };
  if (claimedAt === null) return [move];
  return [{ ...shared, at: new Date(claimedAt), from: 'new', to: 'in-progress', reason: 'claim', error: null }, move];
}
