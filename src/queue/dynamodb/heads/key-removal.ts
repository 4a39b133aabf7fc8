/**
 * The removal of the head of a key of which no job is left: its row goes after that of the last job, so that a table does not grow with each
 * key that was ever used. A head that is not there says what one says of which nothing was taken: all jobs that are there are outstanding. So the
 * rows of the jobs go first, and the head only if none is left; and a job is removed only when no claim has its poke.
 *
 * - Fencing tokens rise for ever: the epoch of a key is at least the token of the claim that takes it, and the fence of the shard stays. So
 *   that fence is the floor of all keys of the shard, and no row of its own is needed for it, and no request more.
 * - Versions begin with the token of the claim likewise. No version comes again, so no late change is carried out on another head.
 * - A request that comes late, or a worker that was taken for dead, may make the head anew. Its holder has no poke in any claim, so the
 *   worker that takes the key next takes it from that holder at once, at a greater epoch; and jobs without rows are left out.
 */
import type { Change } from '../../../engine/dynamodb/index.ts';
import type { KeyHead } from './key-head.ts';
import { isVersionBelow } from './key-version.ts';

/**
 * Removes the head of a key, on condition that it is as it was read. Read it after the head of the shard, and before the rows of the key are
 * found to be gone.
 * @param fence  of the head of the shard @returns undefined when it has to stay for now
 */
export function keyForgotten(head: KeyHead, fence: number): Change | undefined {
  const { left, holder, more, rests, epoch, version, fields } = head;
  if (left.length > 0 || holder !== undefined || more || rests) return undefined;
  // The next claim has the token after the fence.
  if (epoch > fence || !isVersionBelow(version, fence)) return undefined;
  return { expect: { v: fields['v'] ?? null }, set: {} };
}
