/**
 * The removal of the head of a key that has no job left. The head is removed after the row of the last job, so that a table does not grow with each
 * key that was ever used. A missing head means the same as a head of which nothing was taken: all jobs that have rows are outstanding. So the rows
 * of the jobs are removed first, and the head only if no row is left. A job is removed only when no claim has its poke.
 *
 * - Fencing tokens rise for ever. The epoch of a key is at least the token of the claim that takes it, and the fence of the shard stays. So this
 *   fence is the floor of the epochs of all keys of the shard, without a row and a request of its own.
 * - Versions also begin with the token of the claim. No version is used twice, so no late change is carried out on another head.
 * - A request that arrives late, or a worker that was declared dead, may make the head again. Its holder has no poke in any claim. So the worker
 *   that takes the key next takes it from that holder at once, at a greater epoch. It leaves out jobs without rows.
 */
import type { Change } from '../../../engine/dynamodb/index.ts';
import type { KeyHead } from './key-head.ts';
import { isVersionBelow } from './key-version.ts';

/**
 * Removes the head of a key, on condition that it is as it was read. Read it after the head of the shard, and before the check that the rows of the
 * key are gone.
 * @param fence  of the head of the shard @returns undefined if the head has to stay for now
 */
export function keyForgotten(head: KeyHead, fence: number): Change | undefined {
  const { left, holder, more, rests, epoch, version, fields } = head;
  if (left.length > 0 || holder !== undefined || more || rests) return undefined;
  // The next claim has the token after the fence.
  if (epoch > fence || !isVersionBelow(version, fence)) return undefined;
  return { expect: { v: fields['v'] ?? null }, set: {} };
}
