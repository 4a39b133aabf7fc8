/**
 * The moves of actors that are held by the pause of their state. Who holds one names it in a row, then reads the type once more, then changes
 * the head. Who ends the pause changes the type, then reads these rows, then looks at each head. So either the holder sees that the pause is
 * over, or its row is seen.
 *
 * A row says only that the head has to be looked at: it may come late. Its key names epoch and fence, and whatever leaves an actor free changes
 * its fence: so no request of an earlier hold writes or removes the row of a later one.
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
