/**
 * Jobs that come after others. Such a job has a row of its wait, in the place of the row of a delay; it names the parents. The head of the shard
 * counts these rows. One transaction ends the wait: it removes the row, if that is as it was read, counts one less in the head, and puts the job
 * where it then belongs. So each wait ends once, however many workers check it.
 */
import type { Change } from '../../../engine/dynamodb/index.ts';
import { added, backName } from './head.ts';
import { keyCancelled, keyChanged } from './key-changes.ts';
import type { KeyHead } from './key-head.ts';
import { POKE } from './spans.ts';

/** A field of the head of a shard: how many of its jobs wait for others. */
export const WAITING = 'w';

/** Adds to the count of jobs that wait for others. */
export function waiting(by: number): Change {
  return { expect: {}, set: {}, add: { [WAITING]: by } };
}

/** A waiting job whose parents have all ended. */
export interface WaitOver {
  readonly id: number;
  readonly piece: number;
  /** The row of its wait says that the job was cancelled. */
  readonly isCancelled: boolean;
  /** Read it after the row of the wait. Undefined: the job has no key by which it is ordered. */
  readonly keyHead: KeyHead | undefined;
  /** Whether the job is to run; else it ends. */
  readonly isToRun: boolean;
  /** The job does not run before this time; 0: it may run at once. */
  readonly dueAt: number;
}

export interface WaitLeft {
  /** `over`: the job had ended before. */
  readonly kind: 'over' | 'runs' | 'ended';
  /** The change of the head of the shard. */
  readonly change: Change;
  /** The change of the head of its key. A change that sets nothing is a condition. */
  readonly key: Change | undefined;
}

/** @returns undefined if a worker has the job: its wait has ended otherwise */
export function waitLeft({ id, piece, isCancelled, keyHead, isToRun, dueAt }: WaitOver): WaitLeft | undefined {
  const over: WaitLeft = { kind: 'over', change: waiting(-1), key: undefined };
  if (isCancelled && keyHead === undefined) return over;
  // A person may bring the job back meanwhile, and then it goes on waiting. So its head must not change.
  if (keyHead !== undefined && !keyHead.left.some((one) => one.id === id)) {
    return { ...over, key: { expect: { v: keyHead.fields['v'] ?? null }, set: {} } };
  }
  const kind = isToRun ? 'runs' : 'ended';
  const key = keyHead && (isToRun ? keyChanged(keyHead, id, dueAt) : keyCancelled(keyHead, id, keyHead));
  if (keyHead !== undefined && key === undefined) return undefined;
  if (!isToRun) return { kind, change: waiting(-1), key };
  const attempts = keyHead === undefined ? 0 : POKE;
  const back = added({ name: backName(`a${piece}`), spans: [{ piece, index: 0, n: 1, attempts, dueAt }] });
  return { kind, change: { ...back, add: waiting(-1).add }, key };
}
