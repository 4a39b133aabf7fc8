import type { Events } from '../../base/events.ts';
import type { Outcome } from './attempt.ts';
import type { WorkerEvents } from './lease-worker.ts';
import type { Job, Unit } from './unit.ts';
import { SNOOZED } from './verdict.ts';

/** The `ended` event: a job has its last status, unless a person retries it. */
export interface EndedEvent {
  readonly unit: Unit;
  readonly job: Job;
  readonly status: 'complete' | 'error' | 'cancelled';
  /** Undefined for a complete job. */
  readonly error: string | undefined;
}

/** Emits what an attempt has come to, job by job. Costs three look-ups where no listener waits for it. */
export function reportOutcome(events: Events<WorkerEvents>, unit: Unit, { failed, complete }: Outcome): void {
  if (complete.length > 0 && (events.has('completed') || events.has('ended'))) {
    for (const job of complete) {
      events.emit('completed', { unit, job });
      events.emit('ended', { unit, job, status: 'complete', error: undefined });
    }
  }
  if (failed.length > 0) reportFailures(events, unit, failed);
}

/** The same for jobs that failed. */
export function reportFailures(events: Events<WorkerEvents>, unit: Unit, failed: Outcome['failed']): void {
  if (!events.has('failed') && !events.has('ended')) return;
  const jobs = new Map(unit.jobs.map((job) => [job.number, job]));
  for (const { id, to, error, reason } of failed) {
    const job = jobs.get(id);
    if (job === undefined || reason === SNOOZED) continue;
    events.emit('failed', { unit, job, to, error });
    if (to === 'error' || to === 'cancelled') events.emit('ended', { unit, job, status: to, error });
  }
}
