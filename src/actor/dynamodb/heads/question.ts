/**
 * Messages whose senders wait for an answer. The row of a question stands next to its message. The turn that reads the message marks that row
 * in the transaction that commits it, on condition that it is there; the sender takes it back on condition that there is no mark. So either a turn
 * has read a message, or its sender knows that none will.
 */
import type { Change, Fields } from '../../../engine/dynamodb/index.ts';

const Q = { overAt: 'x', read: 'r', answer: 'a' } as const;

/** @param overAt  until when its sender waits, in ms since 1970 by the service's clock */
export function newQuestion(overAt: number): Readonly<Record<string, number>> {
  return { [Q.overAt]: overAt };
}

/** How its sender finds it: `over`, it was taken back, or is too old. */
export type QuestionSeen =
  | { readonly state: 'waiting' | 'unanswered' | 'over' }
  | { readonly state: 'answered'; readonly answer: string };

export function questionIn(fields: Fields): QuestionSeen {
  if (fields[Q.overAt] === undefined) return { state: 'over' };
  if (fields[Q.answer] !== undefined) return { state: 'answered', answer: String(fields[Q.answer]) };
  return { state: fields[Q.read] === undefined ? 'waiting' : 'unanswered' };
}

/** A turn has read its message. @param answer  JSON; undefined: it gives none */
export function questionRead(answer: string | undefined): Change {
  return { isThere: true, expect: {}, set: { [Q.read]: 1, ...(answer !== undefined && { [Q.answer]: answer }) } };
}

/** Removes it, in one transaction with its message. */
export function questionTakenBack(): Change {
  return { isThere: true, expect: { [Q.read]: null }, set: {} };
}
