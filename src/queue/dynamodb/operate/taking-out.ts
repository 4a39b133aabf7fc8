/** Cancels a job that no worker has: by hand, or since its `expiresAt` has passed. As for every job, the record is written first. */
import type { Item, Key } from '../../../engine/dynamodb/index.ts';
import type { Definition } from '../../definition.ts';
import type { QueueRows } from '../database.ts';
import { AFTER_OTHERS } from '../enqueue/after.ts';
import { cancelledInHead } from '../heads/by-hand.ts';
import { counting, noneEnded } from '../heads/ended.ts';
import { readHead } from '../heads/head.ts';
import { keyCancelled, keyLateCancelled } from '../heads/key-changes.ts';
import { readKeyHead } from '../heads/key-head.ts';
import { tokenByHand } from '../heads/status.ts';
import { type JobRecordEntry, writeRecords } from '../records.ts';
import { delayOf, headOf, keyOf } from '../rows.ts';
import { cancelledIn, withCancelled } from '../work/delays.ts';
import { attemptOf, type FoundJob } from './standing.ts';

/** Why a job is cancelled. */
export interface Ending {
  readonly reason: 'cancel' | 'expired';
  readonly error: string | null;
  /** Cancels the job only if no attempt at it has begun. */
  readonly isUntried: boolean;
}

/** @returns false if the job has moved meanwhile */
export async function cancelWaiting(
  rows: QueueRows,
  definition: Definition,
  job: FoundJob,
  { reason, error, isUntried }: Ending,
): Promise<boolean> {
  await recordByHand(rows, definition, job, { to: 'cancelled', reason, error });
  if (!(await takeOut(rows, job, isUntried))) return false;
  const at = rows.engine.now();
  const change = counting({ expect: {}, set: {} }, { ...noneEnded(), cancelled: 1 }, at);
  await rows.change(headOf(rows.shard(job.shard)), change);
  return true;
}

/** Writes a record by hand. A later record of a worker counts for more. */
export function recordByHand(
  rows: QueueRows,
  { historyMs }: Definition,
  job: FoundJob,
  { to, reason, error }: Pick<JobRecordEntry, 'to' | 'reason' | 'error'>,
): Promise<void> {
  const { id, shard } = job;
  return writeRecords(rows, [{ id, to, attempt: attemptOf(job), reason, error, result: undefined }], {
    shard,
    token: tokenByHand(job),
    part: `h${Math.floor(rows.engine.now())}.${id}`,
    processId: null,
    claimedAt: null,
    historyMs,
  });
}

async function takeOut(rows: QueueRows, job: FoundJob, isUntried: boolean): Promise<boolean> {
  const { shard, spot, key, id } = job;
  const pk = rows.shard(shard);
  if (key !== undefined) {
    const done = await rows.decide(headOf(keyOf(pk, key)), (fields) => {
      const head = readKeyHead(fields);
      const seen = job.keyHead ?? head;
      return keyCancelled(head, id, seen, isUntried) ?? keyLateCancelled(head, id, seen);
    });
    // The delay need not bring the job any more, and must not count it. A job that waits for others keeps its row, since it may be brought back.
    if (done !== undefined && job.isDelayed && job.dueAt < AFTER_OTHERS) await leaveDelay(rows, job);
    return done !== undefined;
  }
  if (job.isDelayed) return leaveDelay(rows, job);
  const done = await rows.decide(headOf(pk), (fields) => cancelledInHead(readHead(fields), spot, job.head, isUntried));
  return done !== undefined;
}

/** Takes the job out of the row of its delay. @returns false if the row has changed meanwhile, or its jobs are due */
async function leaveDelay(rows: QueueRows, { shard, dueAt, spot }: FoundJob): Promise<boolean> {
  const place = delayOf(rows.shard(shard), dueAt, spot.piece);
  const item = await rows.get(place);
  return item !== undefined && setCancelled(rows, place, item, [...cancelledIn(item), spot.index]);
}

/** Sets which jobs of a delayed piece are cancelled. @returns false if the row has changed meanwhile, or its jobs are due */
async function setCancelled(rows: QueueRows, place: Key, item: Item, cancelled: readonly number[]): Promise<boolean> {
  const request = withCancelled(item, cancelled);
  const { isDone, isRepeated } = await rows.engine.update(place, request, 'NONE', rows.limits);
  if (isDone || !isRepeated) return isDone;
  // The request may have been sent twice. If the first one was carried out, the row has refused the second one.
  const left = await rows.get(place);
  return left !== undefined && cancelledIn(left).join() === cancelled.join();
}
