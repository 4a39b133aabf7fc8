/**
 * Jobs that come after others. What such a job waits for is in the row that else says when it is due, and the head of its shard counts these rows.
 * It leaves the wait in one transaction: that row goes, if it is as it was read, the head counts one less, and the job is where it then
 * belongs. So it leaves once, however many look.
 */
import type { Change } from '../../../engine/dynamodb/index.ts';
import { added, backName } from './head.ts';
import { keyCancelled, keyChanged } from './key-changes.ts';
import type { KeyHead } from './key-head.ts';
import { POKE } from './spans.ts';

/** How many jobs of the shard wait for others: a field of its head. */
export const WAITING = 'w';

/** Counts jobs that wait for others. */
export function waiting(by: number): Change {
  return { expect: {}, set: {}, add: { [WAITING]: by } };
}

/** A waiting job of which all that it comes after has ended. */
export interface WaitOver {
  readonly id: number;
  readonly piece: number;
  /** The row of its wait says that it was cancelled. */
  readonly isCancelled: boolean;
  /** Undefined: it has no key by which it is ordered. Read after the row of its wait. */
  readonly keyHead: KeyHead | undefined;
  /** Whether it may run now. */
  readonly isToRun: boolean;
  /** It runs no earlier than then; 0: at once. */
  readonly dueAt: number;
}

export interface WaitLeft {
  /** `over`: it had ended before. */
  readonly kind: 'over' | 'runs' | 'ended';
  /** Of the head of the shard. */
  readonly change: Change;
  /** Of the head of its key; one that sets nothing is a condition. */
  readonly key: Change | undefined;
}

/** @returns undefined when a worker has it: then something else has let it go */
export function waitLeft({ id, piece, isCancelled, keyHead, isToRun, dueAt }: WaitOver): WaitLeft | undefined {
  const over: WaitLeft = { kind: 'over', change: waiting(-1), key: undefined };
  if (isCancelled && keyHead === undefined) return over;
  // It may be brought back meanwhile, and goes on waiting then.
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
