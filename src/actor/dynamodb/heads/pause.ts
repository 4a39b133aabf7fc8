/**
 * The moves of actors that are held by the pause of their state. Who holds one names it in a row, then reads the type once more, then changes
 * the head. Who ends the pause changes the type, then reads these rows, then looks at each head. So either the holder sees that the pause is
 * over, or its row is seen.
 *
 * A row says only that somebody has to look: a late request may have written it over another one. So what is done about it depends on the head
 * alone, and it is removed on condition that it is the one that was read: whatever leaves an actor free changes its fence, and
 * so no later hold writes the same row.
 */
import type { Change, Fields } from '../../../engine/dynamodb/index.ts';
import { type ActorHead, F, unchanged } from './head.ts';
import { STATE_PAUSED } from './wake.ts';

/** The row of an actor that is about to be held. */
export function namedBy({ epoch, fence, state }: ActorHead): Fields {
  return { e: epoch, n: fence, s: state };
}

/** Holds an actor that is due. */
export function heldByPause(head: ActorHead): Change {
  const expect = unchanged(head, [F.epoch, F.fence, F.worker, F.held, F.pausedAt]);
  return { expect, set: { [F.held]: STATE_PAUSED } };
}

export type LetGo =
  | { readonly kind: 'drop' }
  /** It was only named: a hold that is under way is refused by this. */
  | { readonly kind: 'fence'; readonly change: Change }
  /** It is due, by a row of its line in the same transaction. */
  | { readonly kind: 'wake'; readonly change: Change };

/** What the end of the pause does about an actor that a row names. @param head  read after the row */
export function letGo(head: ActorHead | undefined, now: number): LetGo {
  // A turn that runs has another epoch than those who would hold the actor have seen.
  if (head === undefined || head.isFinal || head.worker !== 0) return { kind: 'drop' };
  const expect = unchanged(head, [F.epoch, F.fence, F.worker, F.held]);
  const fence = { [F.fence]: head.fence + 1 };
  if (head.held === STATE_PAUSED) {
    return { kind: 'wake', change: { expect, set: { ...fence, [F.held]: null, [F.signal]: null, [F.wakeAt]: now } } };
  }
  return head.held === undefined ? { kind: 'fence', change: { expect, set: fence } } : { kind: 'drop' };
}
