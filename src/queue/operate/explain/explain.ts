import type { Backoff } from '../../../base/time/backoff.ts';
import { formatDuration } from '../../../base/time/duration.ts';
import type { JobStatus } from '../../job.ts';
import type { OwnOptions } from '../../job-options.ts';
import { namePart, partOf, type ShownPart } from '../../paused-part.ts';
import { count, type GroupFacts, groupReasons, roughly } from './group.ts';

/** The reasons for the state of a job. */
export interface Explanation {
  readonly status: JobStatus;
  /** Never empty. The first reason decides; the others are true, too. */
  readonly reasons: readonly Reason[];
}

/** One reason, for programs (`code` and the other fields) and for people (`text`). */
export interface Reason {
  readonly code:
    | 'complete'
    | 'error'
    | 'cancelled'
    | 'in_progress'
    | 'cancelling'
    | 'scheduled'
    | 'backing_off'
    | 'no_handler'
    | 'queue_paused'
    | 'part_paused'
    | 'behind_job'
    | 'group_full'
    | 'group_rate'
    | 'key_blocked'
    | 'blocks_key'
    | 'waits_for_kind'
    | 'waits_for_jobs'
    | 'held'
    | 'no_worker'
    | 'workers_busy'
    | 'next'
    | 'own_options';
  readonly text: string;
  /** The job that this job waits for. */
  readonly job?: string | undefined;
  readonly kind?: string | undefined;
  /** The time from which it may run. */
  readonly until?: Date | undefined;
  readonly since?: Date | undefined;
  /** The worker that runs the job: `host:pid`. */
  readonly worker?: string | undefined;
  /** How many jobs come first; {@link COUNT_LIMIT} means that many or more. */
  readonly ahead?: number | undefined;
}

/** The facts that pawl.queue_explain() returns. */
export interface Facts {
  readonly status: JobStatus;
  readonly place: 'ready' | 'delayed' | 'parked' | 'grouped' | 'running' | 'dead' | 'complete';
  readonly queue: string;
  readonly kind: string;
  readonly key: string | null;
  readonly attempt: number;
  readonly runAt: string | null;
  readonly claimedAt: string | null;
  readonly settledAt: string | null;
  readonly error: string | null;
  readonly now: string;
  readonly pausedAt: string | null;
  readonly pausedParts: readonly ShownPart[];
  readonly tags: readonly string[];
  /** The job waits until a part of the queue is resumed. */
  readonly isSetAside: boolean;
  readonly worker: WorkerAddress | null;
  /** The parents (`after`) of the job that have not ended. */
  readonly parents: { readonly jobs: number; readonly first: string | null } | null;
  /** The job ended in error, and its key is stopped. */
  readonly isBlocker?: boolean;
  readonly before: Before | null;
  /** Present if the job waits for a place of its group. */
  readonly group?: GroupFacts | null;
  readonly waits: { readonly job: string; readonly kind: string; readonly place: string } | null;
  readonly ahead: number | null;
  readonly failure: { readonly at: string; readonly reason: string; readonly error: string | null } | null;
  readonly wish: { readonly at: string; readonly reason: string | null } | null;
  /** Workers that take such a job, and their slots. */
  readonly workers: number;
  /** Workers that take other jobs only. */
  readonly others?: number;
  readonly slots: number;
  readonly running: number;
  readonly holder: WorkerAddress | null;
  readonly isHeld: boolean;
  /** The options of this job alone; missing or null if it has none. */
  readonly own?: Pick<OwnOptions, 'attempts' | 'timeout' | 'backoff' | 'expiresAt' | 'onError'> | null;
}

interface WorkerAddress {
  readonly host: string;
  readonly pid: number;
  /** The time of the worker's last heartbeat, if that was too long ago. */
  readonly lostSince?: string | null;
}

interface Before {
  readonly job: string;
  readonly place: 'running' | 'open' | 'ready' | 'delayed' | 'blocked';
  readonly since?: string;
  readonly lostSince?: string | null;
  readonly host?: string;
  readonly pid?: number;
  readonly runAt?: string | null;
}

/** Describes the facts from the database in words. */
export function explainFacts(id: string, facts: Facts): Explanation {
  const reasons =
    facts.status === 'new' ? whyNew(facts) : [whyNot(id, facts), ...blocking(id, facts), ...cancelling(facts)];
  return { status: facts.status, reasons: [...reasons, ...own(facts)] };
}

/** The options that the declaration of its kind does not show. None for a complete job. */
function own({ own: asked, status }: Facts): Reason[] {
  if (asked === undefined || asked === null || status === 'complete' || status === 'cancelled') return [];
  const { attempts, timeout, backoff, expiresAt, onError } = asked;
  const parts = [
    ...(attempts === undefined ? [] : [attempts === 1 ? '1 attempt' : `${attempts} attempts`]),
    ...(timeout === undefined ? [] : [`a timeout of ${formatDuration(timeout)}`]),
    ...(backoff === undefined ? [] : [waits(backoff)]),
    ...(expiresAt === undefined ? [] : [`an end at ${expiresAt} unless it has begun`]),
    ...(onError === undefined ? [] : [`a dead letter of kind "${onError}"`]),
  ];
  if (parts.length === 0) return [];
  return [{ code: 'own_options', text: `its enqueue set options of its own: ${parts.join(', ')}` }];
}

function waits({ kind, min, max }: Backoff): string {
  const range =
    kind === 'fixed' || min === max ? formatDuration(min) : `${formatDuration(min)} to ${formatDuration(max)}`;
  return `a ${kind} backoff of ${range}`;
}

function whyNot(id: string, facts: Facts): Reason {
  const at = facts.settledAt === null ? '' : ` since ${shown(facts.settledAt)}`;
  switch (facts.status) {
    case 'in-progress': {
      const worker = facts.worker === null ? undefined : where(facts.worker);
      const since = facts.claimedAt === null ? undefined : new Date(facts.claimedAt);
      const by = worker === undefined ? 'a worker that no longer exists; the job is given back within seconds' : worker;
      return {
        code: 'in_progress',
        text: `in progress at ${by}, since ${facts.claimedAt === null ? 'a moment ago' : shown(facts.claimedAt)}, attempt ${facts.attempt}`,
        since,
        worker,
      };
    }
    case 'error':
      return {
        code: 'error',
        text: `ended in error${at}: ${firstLine(facts.error)}; retry it when the cause is fixed`,
      };
    case 'cancelled':
      return { code: 'cancelled', text: `cancelled${at}${facts.error === null ? '' : `: ${firstLine(facts.error)}`}` };
    case 'complete':
    case 'new':
      return { code: 'complete', text: `job ${id} is complete${at}` };
  }
}

/** A time of the database in the form that people see elsewhere: to the millisecond, in UTC. */
function shown(at: string): string {
  return new Date(at).toISOString();
}

function blocking(id: string, { isBlocker, key }: Facts): Reason[] {
  if (isBlocker !== true) return [];
  const text = `it blocks its key "${key}": the later jobs of that key wait until job ${id} is retried or skipped`;
  return [{ code: 'blocks_key', text }];
}

function cancelling({ wish }: Facts): Reason[] {
  if (wish === null) return [];
  const why = wish.reason === null ? '' : `: ${wish.reason}`;
  return [{ code: 'cancelling', text: `its worker was asked to cancel it${why}`, since: new Date(wish.at) }];
}

/** The reasons, in the order in which an operator has to remove them. */
function whyNew(facts: Facts): Reason[] {
  const reasons = [
    ...cancelling(facts),
    ...held(facts),
    ...later(facts),
    ...parents(facts),
    ...groupReasons(facts.group, facts.now),
    ...blocked(facts),
    ...paused(facts),
    ...partPaused(facts),
    ...workers(facts),
  ];
  if (reasons.length > 0) return reasons;
  const ahead = facts.ahead ?? 0;
  return [{ code: 'next', text: `it is ready, ${count(ahead)} ahead of it, and a worker is about to take it`, ahead }];
}

function held({ isHeld, holder }: Facts): Reason[] {
  if (!isHeld && holder === null) return [];
  const worker = holder === null ? undefined : where(holder);
  const by = worker === undefined ? '' : ` at ${worker}`;
  const why = lost(holder?.lostSince) ?? 'its handler runs now, or it is being claimed';
  return [{ code: 'held', text: `an open transaction holds it${by}: ${why}`, worker }];
}

function lost(since: string | null | undefined): string | undefined {
  if (since === undefined || since === null) return undefined;
  return `its process has sent no heartbeat since ${shown(since)}; workers of this queue end that transaction within seconds`;
}

function later({ place, runAt, now, failure, attempt }: Facts): Reason[] {
  if (place !== 'delayed' || runAt === null) return [];
  const until = new Date(runAt);
  const wait = Math.max(0, until.getTime() - new Date(now).getTime());
  // No statement runs at the very moment when a job is due: the job becomes ready at the next poll.
  const isDue = wait === 0;
  const when = `until ${shown(runAt)}, in ${formatDuration(roughly(wait))}`;
  if (attempt > 0 && failure !== null) {
    const begin = isDue ? DUE : `backing off ${when}`;
    const text = `${begin}, after attempt ${attempt} ${failure.reason}: ${firstLine(failure.error)}`;
    return [{ code: 'backing_off', text, until }];
  }
  // This reason is written only if a worker gives a job back for a while.
  if (failure?.reason === 'snoozed') return [{ code: 'scheduled', text: `snoozed by its handler ${when}`, until }];
  if (failure?.reason.startsWith('no handler') === true) {
    const text = `given back until ${shown(runAt)}: the worker that took it has ${failure.reason}; start one whose queue is declared with that kind`;
    return [{ code: 'no_handler', text, until }];
  }
  return [{ code: 'scheduled', text: isDue ? DUE : `scheduled for later: ${when}`, until }];
}

const DUE = 'it is due, and the next poll of a worker makes it ready';

function parents({ parents: left }: Facts): Reason[] {
  if (left === null) return [];
  if (left.first === null) {
    return [
      {
        code: 'waits_for_jobs',
        text: 'the jobs that it comes after have just ended, and it is about to be made ready',
      },
    ];
  }
  const others = left.jobs > 1 ? `, and ${left.jobs - 1} more,` : '';
  const text = `it comes after job ${left.first}${others} which ${left.jobs > 1 ? 'have' : 'has'} not ended; explain('${left.first}') says why`;
  return [{ code: 'waits_for_jobs', text, job: left.first }];
}

function blocked({ key, kind, before, waits, place }: Facts): Reason[] {
  const reasons: Reason[] = [];
  if (waits !== null) {
    const text = `kind "${kind}" comes after kind "${waits.kind}", and job ${waits.job} of that kind and key is ${waits.place}`;
    reasons.push({ code: 'waits_for_kind', text, job: waits.job, kind: waits.kind });
  }
  if (before === null) {
    if (place === 'parked' && waits === null) {
      reasons.push({ code: 'behind_job', text: `behind another job of key "${key}" that is just being settled` });
    }
    return reasons;
  }
  if (before.place === 'blocked') {
    const text = `the key "${key}" is blocked by job ${before.job}, which ended in error; retry or skip it`;
    const since = before.since === undefined ? undefined : new Date(before.since);
    return [{ code: 'key_blocked', text, job: before.job, since }];
  }
  const worker = before.host === undefined || before.pid === undefined ? undefined : `${before.host}:${before.pid}`;
  const doing = {
    running: `is in progress${worker === undefined ? '' : ` at ${worker}`} since ${before.since === undefined ? 'a moment ago' : shown(before.since)}`,
    open: `runs in an open transaction${worker === undefined ? '' : ` at ${worker}`}${before.lostSince ? `; ${lost(before.lostSince)}` : ''}`,
    ready: 'is ready and has not started',
    delayed: `waits until ${before.runAt ? shown(before.runAt) : 'later'}`,
  }[before.place];
  const text = `behind job ${before.job} of its key "${key}", which ${doing}`;
  return [...reasons, { code: 'behind_job', text, job: before.job, worker }];
}

function paused({ pausedAt, queue }: Facts): Reason[] {
  if (pausedAt === null) return [];
  const text = `queue "${queue}" has been paused since ${shown(pausedAt)}; resume it`;
  return [{ code: 'queue_paused', text, since: new Date(pausedAt) }];
}

function partPaused({ pausedParts, isSetAside, ...job }: Facts): Reason[] {
  const part = partOf(pausedParts, job);
  if (part !== undefined) {
    const text = `${namePart(part)} of queue "${job.queue}" has been paused since ${shown(part.since)}; resume it`;
    return [{ code: 'part_paused', text, since: new Date(part.since) }];
  }
  if (!isSetAside) return [];
  return [{ code: 'next', text: 'it was set aside by a pause that has ended, and is about to be made ready' }];
}

function workers({ queue, kind, workers: live, others = 0, slots, running, ahead, place }: Facts): Reason[] {
  if (live === 0 && others > 0) {
    const text = `no running worker of queue "${queue}" takes kind "${kind}" at this priority; start one that does`;
    return [{ code: 'no_worker', text }];
  }
  if (live === 0) {
    return [{ code: 'no_worker', text: `no worker of queue "${queue}" is running; start one` }];
  }
  if (place !== 'ready' || running < slots) return [];
  const text = `all ${slots} slots of ${live} ${live === 1 ? 'worker' : 'workers'} are busy, and ${count(ahead ?? 0)} ahead of it`;
  return [{ code: 'workers_busy', text, ahead: ahead ?? 0 }];
}

function where({ host, pid }: WorkerAddress): string {
  return `${host}:${pid}`;
}

function firstLine(error: string | null): string {
  return error?.split('\n', 1)[0]?.slice(0, 200) ?? 'no error was kept';
}
