/**
 * The rows by which due actors are found. They stand in the partition of a line, one or more for each type, in the order of
 * their time; the row of an actor that naps stands behind all that are due, and one that hibernates has none.
 *
 * - A row of kind `time` is put before the commit that it belongs to, and names the epoch of that turn. While the head runs at this epoch,
 *   the commit is under way, and the row stays. Once the head has a later epoch, or says another time, it is over. A rescue puts the row
 *   after its change, and the note of the dead worker is there until both are done.
 * - A row of kind `signal` is put after, or together with, what came for the actor: it stands for one more turn.
 *
 * Names are never used again. So a worker that has read the row and then the head may remove it, when that head answers for it: by its
 * claim, by the mark of a running turn, or because there is nothing to do.
 */
import type { Change } from '../../../engine/dynamodb/index.ts';
import { type ActorHead, ALONE, absorbedFrom, type InboxRow, isFree, signalled } from './head.ts';

export interface WakeRow {
  /** What the actor may not be woken before. */
  readonly at: number;
  readonly actor: number;
  readonly kind: 'time' | 'signal' | 'always' | 'child';
  /** Of a `time`: the epoch of the head that it is for. */
  readonly epoch: number;
  /** Tells apart rows of one actor and time; never used again. */
  readonly name: string;
}

/** Why an actor is held that was due in a state which is paused. */
export const STATE_PAUSED = 'the state is paused';

/** What is to be done about a row of a line whose time has come. */
export type Look =
  /** The commit to which it belongs is under way. */
  | { readonly kind: 'leave' }
  /** It is over, once the change is carried out, if there is one. */
  | { readonly kind: 'drop'; readonly change?: Change | undefined }
  /** A turn may begin. */
  | { readonly kind: 'claim' }
  /** Not before then. */
  | { readonly kind: 'defer'; readonly until: number }
  /** It belongs into the line of those that run alone, or back. */
  | { readonly kind: 'move'; readonly alone: boolean };

export interface LookAt {
  readonly now: number;
  /** Whether the row is in the line of those that run alone. */
  readonly alone: boolean;
  readonly inbox: readonly InboxRow[];
  /** The end of each child wakes it, and not of the last alone. */
  readonly eachChild: boolean;
}

/** @param head  undefined: there is no such actor; read after the row */
export function looked(row: WakeRow, head: ActorHead | undefined, at: LookAt): Look {
  if (head === undefined || head.isFinal) return { kind: 'drop' };
  if (row.kind !== 'time' && head.absorbed.includes(row.name)) return { kind: 'drop' };
  if (row.kind === 'time' && head.epoch !== row.epoch) return { kind: 'drop' };
  if (row.kind === 'child' && !wakesForChild(head, at)) return { kind: 'drop' };
  if (head.worker !== 0) return row.kind === 'time' ? { kind: 'leave' } : { kind: 'drop', change: signalled(head) };
  if (row.kind === 'time' && (head.wakeAt === undefined || head.wakeAt > at.now)) return { kind: 'drop' };
  // The end of the pause finds in the head what is due.
  if (!isFree(head)) return { kind: 'drop', change: row.kind === 'time' ? undefined : signalled(head) };
  const isAlone = head.lost === ALONE;
  if (isAlone !== at.alone) return { kind: 'move', alone: isAlone };
  // A failing actor that is nudged again and again must not run in a loop; but to be led on by `always` need not wait.
  if (row.kind !== 'time' && row.kind !== 'always' && head.floorAt > at.now)
    return { kind: 'defer', until: head.floorAt };
  return { kind: 'claim' };
}

function wakesForChild(head: ActorHead, { inbox, eachChild }: LookAt): boolean {
  return eachChild || head.children - absorbedFrom(head, inbox).ended <= 0;
}
