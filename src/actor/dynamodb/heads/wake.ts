/**
 * The wake rows by which workers find due actors. They are in the partition of a line, in the order of their time; each type has one or more lines.
 * The row of an actor that naps is behind the rows of all due actors. An actor that hibernates has no row.
 *
 * - A row of kind `time` is written before the commit to which it belongs, and names the epoch of that turn. While a turn of this epoch runs, the
 *   commit is under way, and the row stays. Once the head has a later epoch, or another time, the row is over. A rescue writes the row after its
 *   change, and the note of the dead worker stays until both are written.
 * - A row of kind `signal` is written after the raise or message for the actor, or together with it. It asks for one more turn.
 *
 * Names of rows are never used again. So a worker that has read the row and then the head may remove the row if the head answers it: by the worker's
 * claim, by the mark of a running turn, or because there is nothing to do.
 */
import type { Change } from '../../../engine/dynamodb/index.ts';
import { type ActorHead, ALONE, absorbedFrom, type InboxRow, isFree, signalled } from './head.ts';

export interface WakeRow {
  /** The row does not wake the actor before this time. */
  readonly at: number;
  readonly actor: number;
  readonly kind: 'time' | 'signal' | 'always' | 'child';
  /** For kind `time`: the epoch of the head to which the row belongs. */
  readonly epoch: number;
  /** Tells apart rows of one actor and time; never used again. */
  readonly name: string;
}

/** The reason of the hold of an actor that was due in a paused state. */
export const STATE_PAUSED = 'the state is paused';

/** The decision about a wake row whose time has come. */
export type Look =
  /** The row stays, since the commit to which it belongs is under way. */
  | { readonly kind: 'leave' }
  /** The row is over, once the change is carried out, if there is one. */
  | { readonly kind: 'drop'; readonly change?: Change | undefined }
  /** A turn may begin. */
  | { readonly kind: 'claim' }
  /** A turn may begin at this time. */
  | { readonly kind: 'defer'; readonly until: number }
  /** The row belongs into the line of actors that run alone, or back into the line of its shard. */
  | { readonly kind: 'move'; readonly alone: boolean };

export interface LookAt {
  readonly now: number;
  /** Whether the row is in the line of actors that run alone. */
  readonly alone: boolean;
  readonly inbox: readonly InboxRow[];
  /** The end of each child wakes the actor, and not only the end of the last one. */
  readonly eachChild: boolean;
  /** The states to which raised semaphores lead, whatever the state of the actor is. */
  readonly always: Readonly<Record<string, string>>;
}

/** @param head  the head, read after the row; undefined: there is no such actor */
export function looked(row: WakeRow, head: ActorHead | undefined, at: LookAt): Look {
  if (head === undefined || head.isFinal) return { kind: 'drop' };
  if (row.kind !== 'time' && head.absorbed.includes(row.name)) return { kind: 'drop' };
  if (row.kind === 'time' && head.epoch !== row.epoch) return { kind: 'drop' };
  if (row.kind === 'child' && !wakesForChild(head, at)) return { kind: 'drop' };
  if (head.worker !== 0)
    return row.kind === 'time' ? { kind: 'leave' } : { kind: 'drop', change: signalled(head, leadsOn(head, at)) };
  if (row.kind === 'time' && (head.wakeAt === undefined || head.wakeAt > at.now)) return { kind: 'drop' };
  // The end of the pause reads in the head whether the actor is due.
  if (!isFree(head)) return { kind: 'drop', change: row.kind === 'time' ? undefined : signalled(head, false) };
  const isAlone = head.lost === ALONE;
  if (isAlone !== at.alone) return { kind: 'move', alone: isAlone };
  // A failing actor that gets many signals must not run in a loop. But an `always` semaphore leads the actor to another state, so it need not wait.
  if (row.kind !== 'time' && row.kind !== 'always' && head.floorAt > at.now)
    return { kind: 'defer', until: head.floorAt };
  return { kind: 'claim' };
}

function leadsOn(head: ActorHead, { inbox, always }: LookAt): boolean {
  return Object.keys(absorbedFrom(head, inbox).semaphores).some((name) => (always[name] ?? head.state) !== head.state);
}

function wakesForChild(head: ActorHead, { inbox, eachChild }: LookAt): boolean {
  return eachChild || head.children - absorbedFrom(head, inbox).ended <= 0;
}
