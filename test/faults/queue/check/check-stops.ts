import type { Violation } from '../../plan.ts';
import { BATCH_SIZE } from '../declaration.ts';
import type { Job, Move } from '../history.ts';
import { FINAL, groupBy, type Observation } from './observation.ts';

/** A key of the ledger stops at an error, and a call of a batch handler has jobs of different keys, and no more than it takes. */
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
 * From the end of a job in error until it is skipped, or has run again to another end, nothing else of its key begins. Once it is
 * retried, earlier jobs of the key that were retried, too, come before it.
 */
function checkStop(job: Job, jobs: readonly Job[], seen: Observation): Violation[] {
  return seen.moves(job.id).flatMap((move, nth, moves) => {
    // What ends without an attempt stops nothing.
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

/** When what stops a key stops it no longer. One that ends in error once more stops it from then on, as that move says. */
function endsAt(later: readonly Move[]): number {
  const end = later.find(({ to, reason }) => reason === 'skip by hand' || FINAL.includes(to));
  return end?.committedAt ?? Infinity;
}
