/**
 * Questions: messages whose senders wait for an answer. The row of a question is next to its message. The commit of the turn that reads the message
 * marks the row of the question, on condition that the row exists. The sender takes the question back on condition that there is no mark. So either
 * a turn has read the message, or its sender knows that no turn will read it.
 */
import type { Change, Fields } from '../../../engine/dynamodb/index.ts';

const Q = { overAt: 'x', read: 'r', answer: 'a' } as const;

/** @param overAt  the time until which the sender waits, in ms since 1970 by the service's clock */
export function newQuestion(overAt: number): Readonly<Record<string, number>> {
  return { [Q.overAt]: overAt };
}

/** The state of a question for its sender. `over`: it was taken back, or is too old. */
export type QuestionSeen =
  | { readonly state: 'waiting' | 'unanswered' | 'over' }
  | { readonly state: 'answered'; readonly answer: string };

export function questionIn(fields: Fields): QuestionSeen {
  if (fields[Q.overAt] === undefined) return { state: 'over' };
  if (fields[Q.answer] !== undefined) return { state: 'answered', answer: String(fields[Q.answer]) };
  return { state: fields[Q.read] === undefined ? 'waiting' : 'unanswered' };
}

/** Marks that a turn has read the message. @param answer  JSON; undefined: the turn gives no answer */
export function questionRead(answer: string | undefined): Change {
  return { isThere: true, expect: {}, set: { [Q.read]: 1, ...(answer !== undefined && { [Q.answer]: answer }) } };
}

/** Removes the row of the question, in one transaction with its message. */
export function questionTakenBack(): Change {
  return { isThere: true, expect: { [Q.read]: null }, set: {} };
}
