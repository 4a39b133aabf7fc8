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
  /** A handler has completed a job. Emitted once for each job of its unit, before the outcome is written; see `stale`. */
  completed: { readonly unit: Unit; readonly job: Job };
  /**
   * An attempt failed; `to` is the next state of the job. If a job of a lost worker had no attempt left, one worker of the
   * process that found it emits this event, too: `unit` is then over, and has only this job, its payload as enqueued, and `token`
   * 0.
   */
  failed: FailedJob;
  /**
   * A job has ended, as `complete`, `error` or `cancelled`, also a job of a lost worker. It is the last event of a job whose
   * attempts `completed` and `failed` report. Some jobs end without a worker: jobs that were cancelled or completed by hand, that
   * expired or ended with the jobs that they come after, that their caller claimed by `claim()` and settled, or that such a call
   * or `releaseWorker()` took from a dead worker. For such a job, one worker of one process emits the event within seconds,
   * provided that it has a listener by then; if that process dies meanwhile, another worker emits it once more. `unit` is then
   * over, as for `failed`.
   */
  ended: EndedEvent;
  /** Outcomes came too late and were not written: other workers own the jobs of these claims. */
  stale: { readonly claims: readonly number[] };
  /** The worker has lost its lease. The signals of all its units are aborted, and the worker registers anew. */
  lost: { readonly reason: LeaseLost };
  /** The queue exceeds a limit of the option `warn`; emitted once, until `caughtUp`. */
  backlog: Backlog;
  /** The queue exceeded a limit of `warn`, and no longer does. */
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

/** The `ended` event: the job has its last status, unless somebody retries it. */
export interface EndedEvent {
  readonly unit: Unit;
  readonly job: Job;
  readonly status: 'complete' | 'error' | 'cancelled';
  /** Null for a complete job, and if nothing was thrown. */
  readonly error: string | null;
}

/** The payload of the events `backlog` and `caughtUp`. */
export interface Backlog {
  /** How many jobs are ready. Counting stops at 10,000. */
  readonly ready: number;
  /** How long the oldest ready job has waited, in ms; null when none is ready. */
  readonly oldestMs: number | null;
  /** The exceeded limits; empty in `caughtUp`. */
  readonly exceeds: readonly ('ready' | 'oldest')[];
}

/** Emits the outcome of an attempt, job by job. Without listeners it costs three look-ups. */
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
