import type { LeaseLost } from '../../base/errors.ts';
import type { Events } from '../../base/events.ts';
import type { AttemptResult } from './run/attempt.ts';
import type { Job } from './run/claimed-job.ts';
import type { Unit } from './run/unit.ts';
import { SNOOZED } from './run/verdict.ts';

/** The events of a worker, for logs, metrics and tests. */
export interface WorkerEvents {
  /** Jobs were claimed. */
  claimed: { readonly jobs: number };
  /** A handler is about to be called. */
  started: { readonly unit: Unit };
  /** A handler has completed a job: once for each job of its unit, before the outcome is written; see `stale`. */
  completed: { readonly unit: Unit; readonly job: Job };
  /**
   * An attempt failed; `to` is the next state of the job. Also emitted for a job of a lost worker that had no attempt left,
   * on one worker of the process that found it: `unit` is then over, and has only this job, its payload as enqueued, and
   * `token` 0.
   */
  failed: FailedJob;
  /**
   * A job has ended, as `complete`, `error` or `cancelled`: the end of what `completed` and `failed` tell, also for jobs of
   * lost workers. Of a job that no worker ends (cancelled or completed by hand, expired, ended with the jobs that it comes after,
   * settled by the caller that had claimed it by `claim()`, or taken from a dead worker by such a call or `releaseWorker()`), one worker of one
   * process tells it within seconds, if it has a listener by then, and another one once more if that process dies meanwhile: `unit` is over, as for `failed`.
   */
  ended: EndedEvent;
  /** Outcomes came too late and were not written: other workers own these claims. */
  stale: { readonly claims: readonly number[] };
  /** The worker has lost its lease; the signals of all its units are aborted. It registers anew. */
  lost: { readonly reason: LeaseLost };
  /** There is too much to do, by the limits of the option `warn`; once, until `caughtUp`. */
  backlog: Backlog;
  /** There was too much to do, and no longer is. */
  caughtUp: Backlog;
  /** The database could not be reached, or refused a statement; the worker keeps trying. */
  error: { readonly error: unknown };
}

/** The payload of the `failed` event. */
export interface FailedJob {
  readonly unit: Unit;
  readonly job: Job;
  readonly to: string;
  readonly error: string | undefined;
}

/** The `ended` event: a job has its last status, unless a person retries it. */
export interface EndedEvent {
  readonly unit: Unit;
  readonly job: Job;
  readonly status: 'complete' | 'error' | 'cancelled';
  /** Null for a complete job, and where nothing was thrown. */
  readonly error: string | null;
}

/** The payload of the events `backlog` and `caughtUp`. */
export interface Backlog {
  /** How many jobs are ready. Counting stops at 10,000. */
  readonly ready: number;
  /** How long the oldest ready job has waited, in ms; null when none is ready. */
  readonly oldestMs: number | null;
  /** What is too much; empty in `caughtUp`. */
  readonly exceeds: readonly ('ready' | 'oldest')[];
}

/** Emits the outcome of an attempt, job by job. Costs three look-ups where no listener waits for it. */
export function reportOutcome(events: Events<WorkerEvents>, unit: Unit, { failed, complete }: AttemptResult): void {
  if (complete.length > 0 && (events.has('completed') || events.has('ended'))) {
    for (const job of complete) {
      events.emit('completed', { unit, job });
      events.emit('ended', { unit, job, status: 'complete', error: null });
    }
  }
  if (failed.length > 0) reportFailures(events, unit, failed);
}

/** The same for jobs that failed. */
export function reportFailures(events: Events<WorkerEvents>, unit: Unit, failed: AttemptResult['failed']): void {
  if (!events.has('failed') && !events.has('ended')) return;
  const jobs = new Map(unit.jobs.map((job) => [job.number, job]));
  for (const { id, to, error, reason } of failed) {
    const job = jobs.get(id);
    if (job === undefined || reason === SNOOZED) continue;
    events.emit('failed', { unit, job, to, error });
    if (to === 'error' || to === 'cancelled') events.emit('ended', { unit, job, status: to, error: error ?? null });
  }
}
