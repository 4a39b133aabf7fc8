import { LeaseLost } from '../../base/errors.ts';
import type { EndedJob } from '../store.ts';
import { Job, Unit, type UnitOwner } from './unit.ts';

/** What the `failed` event says of a job. */
export interface FailedJob {
  readonly unit: Unit;
  readonly job: Job;
  readonly to: string;
  readonly error: string | undefined;
}

/**
 * A job that ended in error without the worker that had it, in the words of the `failed` event of the one that found it: by itself,
 * in a unit that is over, so that nothing can be written under it.
 */
export function toFailedJob(
  { id, kind, key, attempt, error, origin, process, payload }: EndedJob,
  owner: UnitOwner,
): FailedJob {
  const claim = { id: 0, shard: 0, processId: process ?? '', isAlone: true, left: 0 };
  const job = new Job(id, claim, attempt, origin, payload);
  // The database has written out which process it was, whether the job was alone in its unit or not.
  const unit = new Unit(owner, kind, key, [job], { epoch: null, brokenBy: null, isCoalesced: true });
  unit.isOver = true;
  unit.abort(new LeaseLost(error));
  return { unit, job, to: 'error', error };
}
