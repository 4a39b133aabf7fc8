/**
 * The status of a job, from its rows. Read them in this order: its delay, the head of its shard, the head of its key, its records. A job moves along
 * these rows in the same order, and its record is written before a head lets go of it. So a job that moves meanwhile is found.
 */
import type { JobStatus } from '../../job.ts';
import { type ShardHead, type Standing, standingOf } from './head.ts';
import type { KeyHead, KeyStanding } from './key-head.ts';
import type { Spot } from './spans.ts';

/** The facts that tell where a job is. */
export interface JobPlaces {
  readonly standing: Standing;
  /** Undefined: the job has no key by which it is ordered. */
  readonly keyStanding: KeyStanding | undefined;
  readonly isDelayed: boolean;
  /** The records of the job, oldest first. */
  readonly records: readonly { readonly to: 'complete' | 'retry' | 'release' | 'error' | 'cancelled' }[];
}

/** A job as a call of a person has found it. */
export interface JobSeen {
  readonly head: ShardHead;
  /** Undefined: the job has no key by which it is ordered. */
  readonly keyHead: KeyHead | undefined;
  readonly isDelayed: boolean;
}

/** @param dueAt  the time of its piece: the line never has the jobs of a delayed piece, whether it has passed the piece or not */
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
  // A job that was delayed by hand is left out of the line, too, so its last record counts.
  if (standing === 'cancelled') return over;
  return standing !== 'gone' || isDelayed ? 'new' : over;
}

/**
 * The token of a record by hand: not below the token of any claim that had the job before, and not above the token of any claim that may still have
 * it. So a later record of a worker counts for more, and is not hidden if the job could not be taken out.
 */
export function tokenByHand({ head, keyHead, isDelayed }: JobSeen): number {
  // A claim below the fence of the shard may still take the key, but no claim below that of the key's last taker.
  if (keyHead !== undefined) return keyHead.token;
  return isDelayed ? 0 : head.fence;
}
