/**
 * The moves of actors that are held by the pause of their state. A worker that holds an actor names it in a row, then reads the type once more, then
 * changes the head. The call that ends the pause changes the type, then reads these rows, then reads each head. So either the worker sees that the
 * pause is over, or the call sees its row.
 *
 * A row only says that the head has to be read, since the row may come late. Its key names the epoch and the fence of the head, and every move that
 * leaves an actor free changes its fence. So no request of an earlier hold writes or removes the row of a later hold.
 */
import type { Change } from '../../../engine/dynamodb/index.ts';
import { type ActorHead, F, unchanged } from './head.ts';
import { STATE_PAUSED } from './wake.ts';

/** The name of the row of an actor that is about to be held. */
export function holdName({ epoch, fence }: ActorHead): string {
  return `${epoch}.${fence}`;
}

/** Holds an actor that is due. */
export function heldByPause(head: ActorHead): Change {
  const expect = unchanged(head, [F.epoch, F.fence, F.worker, F.held, F.pausedAt]);
  return { expect, set: { [F.held]: STATE_PAUSED } };
}

export type LetGo =
  | { readonly kind: 'drop' }
  /** The actor was only named. This change makes the head refuse a hold that is under way. */
  | { readonly kind: 'fence'; readonly change: Change }
  /** The actor was held, and becomes due by a wake row in the same transaction. */
  | { readonly kind: 'wake'; readonly change: Change };

/** The move of the end of the pause for an actor that a row names. @param head  the head, read after the row */
export function letGo(head: ActorHead | undefined, now: number): LetGo {
  // If a turn runs, its epoch differs from the epoch that a worker which would hold the actor has read.
  if (head === undefined || head.isFinal || head.worker !== 0) return { kind: 'drop' };
  const expect = unchanged(head, [F.epoch, F.fence, F.worker, F.held]);
  const fence = { [F.fence]: head.fence + 1 };
  if (head.held === STATE_PAUSED) {
    return { kind: 'wake', change: { expect, set: { ...fence, [F.held]: null, [F.signal]: null, [F.wakeAt]: now } } };
  }
  return head.held === undefined ? { kind: 'fence', change: { expect, set: fence } } : { kind: 'drop' };
}
