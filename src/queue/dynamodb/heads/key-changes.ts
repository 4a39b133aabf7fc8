/** Changes of the head of a key by hand, by enqueues for later, and by expiry: jobs are added, given another time, or taken out. */
import type { Change } from '../../../engine/dynamodb/index.ts';
import { type KeyHead, keyStandingOf, type LeftJob, writtenOn } from './key-head.ts';
import { versionFor } from './key-version.ts';

/** Adds a job that was enqueued for later, or is retried by hand. @returns undefined if the head has the job already */
export function jobAdded(head: KeyHead, job: Omit<LeftJob, 'isTaken'>): Change | undefined {
  return head.left.some(({ id }) => id === job.id) ? undefined : jobsAdded(head, [job]);
}

/** Adds those of the jobs that the head does not have already. */
export function jobsAdded(head: KeyHead, jobs: readonly Omit<LeftJob, 'isTaken'>[]): Change {
  const added = jobs.filter((job) => !head.left.some(({ id }) => id === job.id));
  const left = [...head.left, ...added.map((job) => ({ ...job, isTaken: false }))].sort((a, b) => a.id - b.id);
  const cancelled = head.cancelled.filter((id) => !added.some((job) => job.id === id));
  return writtenOn(head, { left, cancelled }, versionFor(versionIn(head), jobs[0]?.id ?? 0));
}

/**
 * Changes a job that waits. A worker that has read the row of the job before takes nothing by that. If the job is given a later time, other jobs of
 * the key pass it, unless it has been tried and backs off. If the job becomes due now, it brings a poke of its own. From then on that poke answers
 * for the key, unless a worker has the key: see {@link answersForKey}. @returns undefined if a worker has the job, or it is over
 */
export function keyChanged(head: KeyHead, id: number, dueAt: number | undefined): Change | undefined {
  const standing = keyStandingOf(head, id);
  if (standing !== 'later' && standing !== 'left') return undefined;
  const guardian = dueAt !== undefined && answersForKey(head, dueAt) ? { guardian: id } : {};
  if (dueAt === undefined || (standing === 'later' && dueAt === 0)) {
    return writtenOn(head, guardian, versionFor(versionIn(head), id));
  }
  if (standing === 'later') return jobAdded(head, { id, attempt: 0, dueAt, isScheduled: true });
  const left = head.left.map((job) =>
    job.id === id ? { ...job, dueAt, isScheduled: job.isScheduled || job.attempt === 0 } : job,
  );
  return writtenOn(head, { left, ...guardian });
}

/** Whether the poke of a job that was given this time replaces the guardian's poke. A holder's poke stays until the key is given up. */
export function answersForKey({ holder }: KeyHead, dueAt: number): boolean {
  return dueAt === 0 && holder === undefined;
}

/**
 * Takes a job out, if no worker has it, and none has had it since it was found.
 * @param seen  the head when the record of the job was written @param isUntried  takes the job out only if no attempt at it has begun
 * @returns undefined if a worker has the job or has had it, or the job is over
 */
export function keyCancelled(head: KeyHead, id: number, seen: KeyHead, isUntried = false): Change | undefined {
  const attempt = attemptIn(head, id);
  if ((isUntried && attempt > 0) || attempt !== attemptIn(seen, id)) return undefined;
  const standing = keyStandingOf(head, id);
  if (standing !== 'later' && standing !== 'left') return undefined;
  const cancelled = id > head.upto ? [...head.cancelled, id].sort((a, b) => a - b) : head.cancelled;
  return writtenOn(
    head,
    { left: head.left.filter((job) => job.id !== id), cancelled },
    versionFor(versionIn(head), id),
  );
}

/**
 * Cancels a job that came late to its key, after younger jobs had run. The head does not name such a job, so nothing is taken out of it. If a worker
 * is about to take the job, the new version makes it read the records again, and the last record says that the job is cancelled.
 * @param seen  the head when the record of the job was written @returns undefined if the head has changed since, or names the job
 */
export function keyLateCancelled(head: KeyHead, id: number, seen: KeyHead): Change | undefined {
  if (head.version !== seen.version || keyStandingOf(head, id) !== 'over') return undefined;
  return writtenOn(head, {});
}

function attemptIn({ left }: KeyHead, id: number): number {
  return left.find((one) => one.id === id)?.attempt ?? 0;
}

function versionIn({ fields, version }: KeyHead): number | undefined {
  return fields['v'] === undefined ? undefined : version;
}
