import { Cancelled, LeaseLost } from '../../../base/errors.ts';
import type { Events } from '../../../base/events.ts';
import type { EndedJob } from '../../lost-jobs.ts';
import type { FailedJob, WorkerEvents } from '../report.ts';
import { Job } from './claimed-job.ts';
import { Unit, type UnitOwner } from './unit.ts';

/** Emits the end of a job of a lost worker: see {@link toFailedJob}. */
export function reportLost(events: Events<WorkerEvents>, ended: EndedJob, owner: UnitOwner): void {
  const failed = toFailedJob(ended, owner);
  events.emit('failed', failed);
  events.emit('ended', { unit: failed.unit, job: failed.job, status: 'error', error: failed.error ?? null });
}

/**
 * Emits the end of a job without a worker: it was cancelled or completed by hand, has expired, ended with the jobs that it comes
 * after, or its caller had claimed it and settled it.
 */
export function reportEndedWaiting(events: Events<WorkerEvents>, ended: EndedJob, owner: UnitOwner): void {
  const { unit, job } = toFailedJob(ended, owner);
  events.emit('ended', { unit, job, status: ended.status, error: ended.error });
}

/**
 * The `failed` event for a job that ended without this worker, on the worker that found it. The job is alone in a unit that is
 * over, so that nothing can be written for it.
 */
export function toFailedJob(
  { id, kind, key, attempt, status, error, origin, process, payload }: EndedJob,
  owner: UnitOwner,
): FailedJob {
  const claim = { id: 0, shard: 0, processId: process ?? '', isAlone: true, left: 0 };
  const job = new Job(id, claim, attempt, origin, payload);
  // The database returns the full process id, whether the job was alone in its unit or not.
  const unit = new Unit(owner, kind, key, [job], { epoch: null, brokenBy: null, isCoalesced: true });
  unit.isOver = true;
  if (status !== 'complete')
    unit.abort(status === 'error' ? new LeaseLost(error ?? 'lost') : new Cancelled(error ?? 'cancelled'));
  return { unit, job, to: status, error: error ?? undefined };
}
