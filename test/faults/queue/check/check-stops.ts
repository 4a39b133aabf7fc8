import type { Violation } from '../../plan.ts';
import { BATCH_SIZE } from '../declaration.ts';
import type { Job, Move } from '../history.ts';
import { FINAL, groupBy, type Observation } from './observation.ts';

/** A key of the ledger stops at an error. A call of a batch handler has jobs of different keys, and not too many. */
export function checkStops(seen: Observation): Violation[] {
  const booked = groupBy(seen.history.jobs, ({ kind, key }) => (kind === 'book' ? [key ?? ''] : []));
  const calls = groupBy(seen.history.runs, ({ call }) => (call === undefined ? [] : [call]));
  return [
    ...[...booked.values()].flatMap((jobs) => jobs.flatMap((job) => checkStop(job, jobs, seen))),
    ...[...calls].flatMap(([call, runs]) => {
      const keys = runs.flatMap(({ key }) => key ?? []);
      const isRight = runs.length <= BATCH_SIZE && new Set(keys).size === keys.length;
      const ids = runs.flatMap((run) => run.ids);
      return isRight
        ? []
        : [seen.violation('a batch is of different keys, and no larger than asked', `call ${call}`, ids)];
    }),
  ];
}

/**
 * After a job ended in error, no other job of its key begins until that job is skipped, or has run again to another end. Once
 * it is retried, earlier jobs of the key that were also retried come before it.
 */
function checkStop(job: Job, jobs: readonly Job[], seen: Observation): Violation[] {
  return seen.moves(job.id).flatMap((move, nth, moves) => {
    // A job that ends without an attempt stops no key.
    if (move.to !== 'error' || move.from !== 'in-progress') return [];
    const later = moves.slice(nth + 1);
    const goesOnAt = endsAt(later);
    const retriedAt = later.find(({ reason }) => reason === 'retry by hand')?.committedAt ?? Infinity;
    const other = jobs.find(
      ({ id }) =>
        id !== job.id &&
        seen.runs(id).some(({ process, begunAt }) => {
          const claimedAt = seen.movesOf(process).find((one) => one.job === id)?.claimedAt ?? -Infinity;
          const until =
            (Number(id) < Number(job.id) ? Math.min(retriedAt, goesOnAt) : goesOnAt) - seen.history.clockErrorMs;
          return claimedAt > move.committedAt && begunAt < until;
        }),
    );
    return other === undefined ? [] : [seen.violation('a key stops at an error', `key ${job.key}`, [job.id, other.id])];
  });
}

/** The moment from which a job no longer stops its key. If it ends in error again, its later move stops the key again. */
function endsAt(later: readonly Move[]): number {
  const end = later.find(({ to, reason }) => reason === 'skip by hand' || FINAL.includes(to));
  return end?.committedAt ?? Infinity;
}
