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

/** Rows of one transaction, the head and the transition not counted. */
const MOST_PARTS = 98;
/** How far apart two machines may take the service's clock to be. */
const CLOCKS_MS = 5000;
/** An answer is kept for longer than any sender waits. */
const ANSWER_MS = 2 * 3_600_000;

/** What is written, removed or checked with the head. */
export type Part = PartialWrite | PartialCondition;

/** What a turn asks for besides its own row: parts of the transaction that commits it. */
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
      // No notification is written of one that the turn resolves as well.
      if (!resolved.has(tag)) parts.push(...(await this.#pages.opening(page)).parts);
    }
    for (const tag of resolved) parts.push(...(await this.#pages.resolving(tag)).parts);
    return parts;
  }

  /** Whether messages are left of names of which not all were taken. */
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

/** Whether a question that the turn has read was taken back by its sender. */
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
 * What is read is marked so, with or without an answer: a sender takes back only what no turn has read. One that is taken back by then has no
 * row any more, and the whole commit is refused.
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
  if (what !== undefined) throw new NotSupported(`${what} is not there for actors on DynamoDB`);
}

export function hasPages({ pages, resolved }: Effects): boolean {
  return pages.size + resolved.size > 0;
}

/** Pages about the actor are kept in mind by its head, so that no commit has to look for them. @returns undefined: as they were */
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

/** Pages that are over with this commit. A process that dies before it resolves them leaves that to a sweep. */
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
