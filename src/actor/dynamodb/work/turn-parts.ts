import { NotSupported } from '../../../base/errors.ts';
import { fieldsOf, type PartialCondition, type PartialWrite, TTL, written } from '../../../engine/dynamodb/index.ts';
import type { TurnCommit } from '../../store.ts';
import type { Effects } from '../../turn/effects.ts';
import { type ActorRows, requireFits } from '../database.ts';
import { questionRead } from '../heads/question.ts';
import type { Pages } from '../pages/pages.ts';
import type { Producing } from '../producing.ts';
import { messageOf, questionOf, sortKey } from '../rows.ts';
import type { HeldTurn } from './claiming.ts';
import { deadlineTag } from './deadlines.ts';
import { isOver } from './turn-reads.ts';

/** The most rows of one transaction, without the head and the transition. */
const MOST_PARTS = 98;
/** By how much two machines may differ about the service's clock. */
const CLOCKS_MS = 5000;
/** How long an answer is kept: longer than any sender waits. */
const ANSWER_MS = 2 * 3_600_000;

/** A row that is written, removed or checked together with the head. */
export type Part = PartialWrite | PartialCondition;

/** The rows for which a turn asks besides its own: parts of the transaction that commits it. */
export class TurnParts {
  readonly #rows: ActorRows;
  readonly #producing: Producing;
  readonly #pages: Pages;

  constructor(rows: ActorRows, producing: Producing, pages: Pages) {
    this.#rows = rows;
    this.#producing = producing;
    this.#pages = pages;
  }

  async of(actor: number, held: HeldTurn, effects: Effects, now: number): Promise<Part[]> {
    refuse(effects);
    return [
      ...(await this.#producing.births(actor, effects.children)),
      ...(await this.#producing.partsOf(effects.incrs, effects.messages)),
      ...answersOf(actor, held, effects, now),
      ...(await this.#pagesOf(effects)),
    ];
  }

  async #pagesOf({ pages, resolved }: Effects): Promise<Part[]> {
    const parts: Part[] = [];
    for (const [tag, page] of pages) {
      // If the turn resolves the page as well, no notification is written.
      if (!resolved.has(tag)) parts.push(...(await this.#pages.opening(page)).parts);
    }
    for (const tag of resolved) parts.push(...(await this.#pages.resolving(tag)).parts);
    return parts;
  }

  /** Whether there are more messages of the names of which the turn has not taken all. */
  async isCut(actor: number, { cut, received }: Effects, now: number): Promise<boolean> {
    if (cut.size === 0) return false;
    const items = await this.#rows.all(messageOf(actor, 0).pk, 'm#', 'm#~');
    return items.some((item) => {
      const fields = fieldsOf(item);
      const isLeft = !received.has(String(Number(sortKey(item).slice(2)))) && !isOver(fields, now);
      return isLeft && (cut.has('') || cut.has(String(fields['n'])));
    });
  }
}

/** Whether a sender has taken back a question that the turn has read. */
export async function isTakenBack(
  rows: ActorRows,
  actor: number,
  { asked }: HeldTurn,
  effects: Effects,
): Promise<boolean> {
  const read = [...effects.received].map(Number).filter((message) => asked.has(message));
  const found = await Promise.all(read.map((message) => rows.get(questionOf(actor, message))));
  return found.some((item) => item === undefined);
}

/** @throws NotSupported  a turn asks for more than its transaction has room for */
export function requireRoom(parts: readonly Part[]): void {
  if (parts.length <= MOST_PARTS) return;
  throw new NotSupported(
    `a turn on DynamoDB writes at most ${MOST_PARTS} rows besides its own, since a transaction has 100, but this one asks for ${parts.length}: five or six for each child, two for each that it raises or sends or page it opens, one for each question; do a part of it in the next turn`,
  );
}

/**
 * Marks the questions that the turn has read, with or without an answer, since a sender takes back only a question that no turn has read. If a
 * sender has taken a question back, its row is gone, and the whole commit is refused.
 */
function answersOf(actor: number, { asked }: HeldTurn, effects: Effects, now: number): PartialWrite[] {
  return [...effects.received].map(Number).flatMap((message) => {
    if (!asked.has(message)) return [];
    const answer = effects.replies.get(String(message));
    requireFits('answer', answer);
    const change = questionRead(answer);
    const set = { ...change.set, [TTL]: Math.ceil((now + ANSWER_MS) / 1000) };
    return [{ key: questionOf(actor, message), written: written({ ...change, set }) }];
  });
}

function refuse({ jobs, callbacks }: Effects): void {
  const asked = [
    [jobs.length, 'a.enqueue()'],
    [callbacks.length, 'a.atCommit()'],
  ] as const;
  const [, what] = asked.find(([n]) => n > 0) ?? [];
  if (what !== undefined) throw new NotSupported(`actors on DynamoDB do not support ${what}`);
}

export function hasPages({ pages, resolved }: Effects): boolean {
  return pages.size + resolved.size > 0;
}

/** The tags of pages about the actor, which its head stores so that no commit has to search for pages. @returns undefined: they stay as they are */
export function pagesAfter(
  { kind, id }: TurnCommit,
  { pages }: HeldTurn,
  effects: Effects | undefined,
): string | null | undefined {
  if (pages.length === 0 && (effects === undefined || !hasPages(effects))) return undefined;
  const isOver = (tag: string): boolean =>
    (kind === 'to' && tag === mistakeTag(id)) || effects?.resolved.has(tag) === true;
  const opened = effects === undefined ? [] : [...effects.pages.keys()];
  const after = [...new Set([...pages.filter((tag) => !isOver(tag)), ...opened.filter((tag) => !isOver(tag))])];
  return after.length === 0 ? null : JSON.stringify(after);
}

/** The tags of pages that are over with this commit. If the process dies before it resolves them, a sweep does. */
export function resolvedBy({ kind, id }: TurnCommit, held: HeldTurn, now: number): readonly string[] {
  if (kind !== 'to' && kind !== 'done') return [];
  const isLate = held.isLate || (held.deadlineAt !== undefined && held.deadlineAt < now + CLOCKS_MS);
  const late = isLate ? [deadlineTag(id)] : [];
  if (kind === 'to') return [...late, ...held.pages.filter((tag) => tag === mistakeTag(id))];
  return [...late, ...held.pages.filter((tag) => !late.includes(tag))];
}

function mistakeTag(actor: number): string {
  return `actor-mistake:${actor}`;
}
