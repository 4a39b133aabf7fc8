/**
 * The moves of actors that are held because no running program knows their state. A worker that holds an actor names it in a row, then reads the list
 * of workers, then changes the head. A worker that starts lists itself, then reads these rows, then reads each head. So either the holder sees the
 * worker that knows the state, or that worker sees the row.
 *
 * The key of a row has the epoch of its turn, and the row is about a hold at that epoch only. So a late request of an earlier hold overwrites no row
 * of a later hold.
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

/** Whether the actor is held because no program knew its state. */
export function isHeldUnknown({ held, lost }: ActorHead): boolean {
  return held !== undefined && held !== STATE_PAUSED && lost < ALONE;
}

/** The decision of a worker that knows the state about a row. */
export type UnknownLook =
  /** The turn runs that may be about to hold the actor, so the worker reads the row again later. */
  | { readonly kind: 'leave' }
  /** The actor is not held at this epoch, and will not be. */
  | { readonly kind: 'drop' }
  /** The actor becomes due, by a wake row in the same transaction. */
  | { readonly kind: 'wake'; readonly change: Change };

/** @param epoch  the epoch that the row names @param head  the head, read after the row */
export function lookedUnknown(head: ActorHead | undefined, epoch: number, now: number): UnknownLook {
  if (head?.epoch !== epoch) return { kind: 'drop' };
  if (head.worker !== 0) return { kind: 'leave' };
  if (!isHeldUnknown(head)) return { kind: 'drop' };
  return {
    kind: 'wake',
    change: { expect: unchanged(head, [F.epoch, F.held]), set: { [F.held]: null, [F.wakeAt]: now } },
  };
}
