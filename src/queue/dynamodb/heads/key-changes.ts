/** What people and times change in the head of a key: jobs that are added, put off, or taken out. */
import type { Change } from '../../../engine/dynamodb/index.ts';
import { type KeyHead, keyStandingOf, type LeftJob, writtenOn } from './key-head.ts';
import { versionFor } from './key-version.ts';

/** Adds a job that was enqueued for later, or is retried by hand. @returns undefined when it is there already */
export function jobAdded(head: KeyHead, job: Omit<LeftJob, 'isTaken'>): Change | undefined {
  return head.left.some(({ id }) => id === job.id) ? undefined : jobsAdded(head, [job]);
}

/** Adds those of the jobs that are not there already. */
export function jobsAdded(head: KeyHead, jobs: readonly Omit<LeftJob, 'isTaken'>[]): Change {
  const added = jobs.filter((job) => !head.left.some(({ id }) => id === job.id));
  const left = [...head.left, ...added.map((job) => ({ ...job, isTaken: false }))].sort((a, b) => a.id - b.id);
  const cancelled = head.cancelled.filter((id) => !added.some((job) => job.id === id));
  return writtenOn(head, { left, cancelled }, versionFor(versionIn(head), jobs[0]?.id ?? 0));
}

/**
 * A job that waits is changed: who has read its row before takes nothing by that. One that is put off and was not tried yet lets the
 * others pass; one that backs off does not. One that is due now brings a poke of its own, which answers for the key from then on unless a worker
 * has that: see {@link answersForKey}. @returns undefined when a worker has it, or it is over
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

/** Whether the poke of a job that was given this time takes the place of the guardian's. That of a holder has it until it is given up. */
export function answersForKey({ holder }: KeyHead, dueAt: number): boolean {
  return dueAt === 0 && holder === undefined;
}

/**
 * Takes a job out that no worker has, and none has had since it was found.
 * @param seen  as it was found when its record was written @param isUntried  only if no attempt at it has begun
 * @returns undefined when a worker has it or has had it, or it is over
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
 * A job that came late to its key, after younger ones had run, stands nowhere in the head, so nothing is taken out of that: a new version tells a
 * worker that is about to take the job to read its records again, of which the last one says that it is cancelled.
 * @param seen  as it was found when its record was written @returns undefined when the head has changed since, or the job stands there
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
