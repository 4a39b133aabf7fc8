import { TimedOut } from '../../base/errors.ts';
import { now, sleep } from '../../base/time/clock.ts';
import { hasEnded, notEnded, outcomeOf, readWaitOptions, type WaitForOptions } from '../watch/wait-for.ts';
import type { QueueRows } from './database.ts';
import { placeOf } from './heads/place.ts';
import type { DynamoQueueReader } from './operate/reader.ts';
import { isRecorded } from './records.ts';

/** A waiter learns soon of the end of a job that takes milliseconds, and polls for a job that takes minutes once a second. */
const POLL_MS = { min: 20, max: 1000, growth: 1.5 } as const;

/** Polls for the record of the end of a job until it exists. See {@link DynamoQueue.waitFor}. */
export async function waitForEnd(
  reader: DynamoQueueReader,
  rows: QueueRows,
  id: string,
  kindName: ReadonlyMap<number, string>,
  options: WaitForOptions,
): Promise<unknown> {
  const { timeout, signal } = readWaitOptions('waitFor', options);
  const until = now() + timeout;
  const { shard } = placeOf(Number(id));
  let job = await reader.get(id, kindName);
  for (let poll: number = POLL_MS.min; ; poll = Math.min(POLL_MS.max, poll * POLL_MS.growth)) {
    signal?.throwIfAborted();
    if (hasEnded(job)) return outcomeOf(job);
    const left = until - now();
    if (left <= 0) throw new TimedOut(notEnded(job.queue, id, job.status, timeout));
    await sleep(Math.min(left, poll * (0.75 + Math.random() / 2)), signal);
    // A record is written before the head lets go of its job. So the job is over only when both the record and the head say so.
    if ((await isRecorded(rows, shard, Number(id))) || now() >= until) job = await reader.get(id, kindName);
  }
}
