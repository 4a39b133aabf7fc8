/**
 * The rows by which actors are found that are longer in a state than declared. A row is put before the commit that enters the state, in the
 * order of time, and names the epoch of that turn and the visit that it begins. A state that is left in time leaves the row: it is over
 * once its time has come.
 */
import type { Change } from '../../../engine/dynamodb/index.ts';
import { type ActorHead, F } from './head.ts';

export interface LateRow {
  readonly at: number;
  readonly actor: number;
  /** Which visit may last so long. */
  readonly visit: number;
  /** Of the turn that begins it. */
  readonly epoch: number;
}

/** What tells apart rows of one actor and time: a request of a turn that was lost may come late, and write over no other row. */
export function lateName({ visit, epoch }: Pick<LateRow, 'visit' | 'epoch'>): string {
  return `${visit}#${epoch}`;
}

/** What is to be done about a row whose time has come. */
export type LateLook =
  /** The commit that enters the state is under way. */
  | { readonly kind: 'leave' }
  | { readonly kind: 'drop' }
  /** A page is opened in one transaction with this change, so that there is one. */
  | { readonly kind: 'late'; readonly change: Change };

/** @param head  undefined: there is no such actor; read after the row */
export function lookedLate(row: LateRow, head: ActorHead | undefined, now: number): LateLook {
  if (head === undefined || head.isFinal) return { kind: 'drop' };
  if (head.visit < row.visit) return { kind: head.worker !== 0 && head.epoch === row.epoch ? 'leave' : 'drop' };
  if (head.visit > row.visit || head.deadlineAt !== row.at) return { kind: 'drop' };
  if (row.at > now) return { kind: 'leave' };
  const expect = { [F.visit]: head.visit, [F.deadlineAt]: row.at, [F.finishedAt]: null };
  return { kind: 'late', change: { expect, set: { [F.deadlineAt]: null, [F.late]: 1 } } };
}
