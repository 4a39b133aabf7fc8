/**
 * The rows by which workers find actors that are in a state for longer than declared. They are in the order of time. A row is written before the
 * commit that enters the state, and names the epoch of that turn and the visit that the turn begins. If the actor leaves the state in time, the row
 * stays until its time, and is then over.
 */
import type { Change } from '../../../engine/dynamodb/index.ts';
import { type ActorHead, F } from './head.ts';

export interface LateRow {
  readonly at: number;
  readonly actor: number;
  /** The visit that has the deadline. */
  readonly visit: number;
  /** The epoch of the turn that begins the visit. */
  readonly epoch: number;
}

/** Tells apart rows of one actor and time. So a late request of a lost turn overwrites no other row. */
export function lateName({ visit, epoch }: Pick<LateRow, 'visit' | 'epoch'>): string {
  return `${visit}#${epoch}`;
}

/** The decision about a row whose time has come. */
export type LateLook =
  /** The commit that enters the state is under way. */
  | { readonly kind: 'leave' }
  | { readonly kind: 'drop' }
  /** The actor is late: a page is opened in one transaction with this change, so it is opened once. */
  | { readonly kind: 'late'; readonly change: Change };

/** @param head  the head, read after the row; undefined: there is no such actor */
export function lookedLate(row: LateRow, head: ActorHead | undefined, now: number): LateLook {
  if (head === undefined || head.isFinal) return { kind: 'drop' };
  if (head.visit < row.visit) return { kind: head.worker !== 0 && head.epoch === row.epoch ? 'leave' : 'drop' };
  if (head.visit > row.visit || head.deadlineAt !== row.at) return { kind: 'drop' };
  if (row.at > now) return { kind: 'leave' };
  const expect = { [F.visit]: head.visit, [F.deadlineAt]: row.at, [F.finishedAt]: null };
  return { kind: 'late', change: { expect, set: { [F.deadlineAt]: null, [F.late]: 1 } } };
}
