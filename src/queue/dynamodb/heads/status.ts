/**
 * The status of a job, out of what was read about it, in this order: its delay, the head of its shard, the head of its key, its records. A job
 * moves along these rows in the same order, and its record comes before a head lets go of it; so one that moves meanwhile is found.
 */
import type { JobStatus } from '../../job.ts';
import { type ShardHead, type Standing, standingOf } from './head.ts';
import type { KeyHead, KeyStanding } from './key-head.ts';
import type { Spot } from './spans.ts';

/** What says where a job is. */
export interface JobPlaces {
  readonly standing: Standing;
  /** Undefined: it has no key by which it is ordered. */
  readonly keyStanding: KeyStanding | undefined;
  readonly isDelayed: boolean;
  /** What was written about it, oldest first. */
  readonly records: readonly { readonly to: 'complete' | 'retry' | 'release' | 'error' | 'cancelled' }[];
}

/** What people found when they looked for a job. */
export interface JobSeen {
  readonly head: ShardHead;
  /** Undefined: it has no key by which it is ordered. */
  readonly keyHead: KeyHead | undefined;
  readonly isDelayed: boolean;
}

/** @param dueAt  of its piece: a delayed one is passed over by the line, whether that has come to it or not */
export function standingIn(head: ShardHead, spot: Spot, dueAt: number): Standing {
  const standing = standingOf(head, spot);
  return dueAt > 0 && standing === 'line' ? 'gone' : standing;
}

export function statusOf({ standing, keyStanding, isDelayed, records }: JobPlaces): JobStatus {
  const last = records.findLast(({ to }) => to === 'complete' || to === 'error' || to === 'cancelled');
  const over: JobStatus = last === undefined || last.to === 'retry' || last.to === 'release' ? 'new' : last.to;
  if (keyStanding !== undefined) {
    if (keyStanding === 'held') return 'in-progress';
    return keyStanding === 'over' || keyStanding === 'cancelled' ? over : 'new';
  }
  if (standing === 'claimed') return 'in-progress';
  // One that was put off by hand is left out of the line, too: what was said last about it counts.
  if (standing === 'cancelled') return over;
  return standing !== 'gone' || isDelayed ? 'new' : over;
}

/**
 * The token of a record that people write about a job: no less than that of any claim that had the job before, and no greater than that of any claim
 * that may still have it. What a worker writes later counts for more, and is not hidden if the job could not be taken out.
 */
export function tokenByHand({ head, keyHead, isDelayed }: JobSeen): number {
  // A claim that is older than what the head of the shard says may still take the key, but none that is older than the last taker's.
  if (keyHead !== undefined) return keyHead.token;
  return isDelayed ? 0 : head.fence;
}
