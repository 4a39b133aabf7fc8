/**
 * The moves of actors that are held since no running program knows their state. Who holds one names it in a row, then reads which workers there
 * are, then changes the head. A worker lists itself, then reads these rows, then looks at each head. So either the holder sees the worker that knows
 * the state, or that worker sees the row.
 *
 * A row has the epoch of its turn in its key, and speaks for a hold at that epoch alone: a request of an earlier hold that comes late
 * writes over no row of a later one.
 */
import type { Change } from '../../../engine/dynamodb/index.ts';
import { type ActorHead, ALONE, F, unchanged } from './head.ts';
import { STATE_PAUSED } from './wake.ts';

/** Holds an actor whose turn is this worker's. */
export function heldUnknown(
  head: ActorHead,
  { epoch, worker }: { readonly epoch: number; readonly worker: number },
  now: number,
  reason: string,
): Change {
  const set = {
    [F.worker]: null,
    [F.signal]: null,
    [F.lost]: null,
    [F.attempt]: Math.max(head.attempt - 1, 0),
    [F.wakeAt]: now,
    [F.held]: reason,
    [F.error]: reason,
  };
  return { expect: { [F.epoch]: epoch, [F.worker]: worker }, set };
}

/** It is held since no program knew its state. */
export function isHeldUnknown({ held, lost }: ActorHead): boolean {
  return held !== undefined && held !== STATE_PAUSED && lost < ALONE;
}

/** What a worker that knows the state does about a row. */
export type UnknownLook =
  /** The turn runs that may be about to hold it: it looks again. */
  | { readonly kind: 'leave' }
  /** Nothing is held at this epoch, and nothing will be. */
  | { readonly kind: 'drop' }
  /** It is due, by a row of its line in the same transaction. */
  | { readonly kind: 'wake'; readonly change: Change };

/** @param epoch  that the row names @param head  read after the row */
export function lookedUnknown(head: ActorHead | undefined, epoch: number, now: number): UnknownLook {
  if (head?.epoch !== epoch) return { kind: 'drop' };
  if (head.worker !== 0) return { kind: 'leave' };
  if (!isHeldUnknown(head)) return { kind: 'drop' };
  return {
    kind: 'wake',
    change: { expect: unchanged(head, [F.epoch, F.held]), set: { [F.held]: null, [F.wakeAt]: now } },
  };
}
