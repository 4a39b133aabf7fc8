import { ConnectionFailed } from '../../../base/errors.ts';
import { creation, type PartialWrite, written } from '../../../engine/dynamodb/index.ts';
import type { CommitAnswer, TurnCommit } from '../../store.ts';
import { type Effects, QuestionTakenBack } from '../../turn/effects.ts';
import { type ActorRows, lineFor, requireFits, wakeFields, wakeKey } from '../database.ts';
import {
  ALONE,
  absorbedFrom,
  committed,
  F,
  isCommitted,
  type Mark,
  marked,
  markOf,
  type TurnEnd,
} from '../heads/head.ts';
import type { Pages } from '../pages/pages.ts';
import type { Producing } from '../producing.ts';
import { headOf, messageOf, transitionOf } from '../rows.ts';
import type { HeldTurn } from './claiming.ts';
import { lateWrite } from './deadlines.ts';
import type { Notes } from './notes.ts';
import type { Removal } from './removal.ts';
import { hasPages, isTakenBack, type Part, pagesAfter, requireRoom, resolvedBy, TurnParts } from './turn-parts.ts';

type Outcome = { readonly kind: 'done' | 'refused'; readonly wakeAt: number | undefined } | { readonly kind: 'stale' };
/** Why a commit is decided again: a signal came meanwhile, or the actor has other children by now. `conflict`: another row has refused it. */
type Again = { readonly mark: Mark } | 'conflict' | { readonly children: number | null };

const ORPHANS =
  "done() with children that are not final, or are being created: end them first, with a.incrChildren('destroy'), and hibernate() until they are";

interface WriteAs {
  /** The turn has not read all questions, raises or messages. */
  readonly isCut: boolean;
  /** The mark in the head. */
  readonly mark: Mark;
  /** For an actor that ends: the field that counts its children, which must not change meanwhile. */
  readonly children: number | null;
}

/** Commits the outcomes of turns, each by one write of the head, or by one transaction with all rows for which the turn asks. */
export class Settling {
  readonly #rows: ActorRows;
  readonly #notes: Notes;
  readonly #parts: TurnParts;
  readonly #producing: Producing;
  readonly #held: Map<number, HeldTurn>;
  readonly #later: (work: Promise<unknown>) => void;
  readonly #pages: Pages;
  readonly #removal: Removal;
  readonly #onAnswer: (actor: number, message: number) => void;
  /** The outcomes of turns that were committed, or lost, since a batch is tried again as a whole. */
  readonly #outcomes = new WeakMap<TurnCommit, Outcome>();

  constructor(
    rows: ActorRows,
    notes: Notes,
    producing: Producing,
    pages: Pages,
    removal: Removal,
    held: Map<number, HeldTurn>,
    later: (work: Promise<unknown>) => void,
    onAnswer: (actor: number, message: number) => void,
  ) {
    this.#rows = rows;
    this.#notes = notes;
    this.#pages = pages;
    this.#removal = removal;
    this.#producing = producing;
    this.#parts = new TurnParts(rows, producing, pages);
    this.#held = held;
    this.#later = later;
    this.#onAnswer = onAnswer;
  }

  async commit(worker: number, turns: readonly TurnCommit[], effects?: Effects): Promise<CommitAnswer> {
    const now = await this.#rows.engine.serviceTime(this.#rows.limits);
    // If one turn cannot be written, the others still are. It is tried again with the whole batch, and then the others have their outcomes.
    const all = await Promise.allSettled(turns.map((turn) => this.#once(worker, turn, effects, now)));
    const outcomes = all.map((one) => {
      if (one.status === 'rejected') throw one.reason;
      return one.value;
    });
    const times = outcomes.flatMap((one) => (one.kind === 'stale' ? [] : (one.wakeAt ?? [])));
    return {
      stale: turns.filter((_, at) => outcomes[at]?.kind === 'stale').map(({ id }) => id),
      refused: turns.filter((_, at) => outcomes[at]?.kind === 'refused').map(({ id }) => id),
      ...(times.length > 0 && { due: Math.max(0, Math.min(...times) - now) }),
    };
  }

  async #once(worker: number, turn: TurnCommit, effects: Effects | undefined, now: number): Promise<Outcome> {
    const known = this.#outcomes.get(turn);
    if (known !== undefined) return known;
    const outcome = await this.#commitOne(worker, turn, effects, now);
    this.#outcomes.set(turn, outcome);
    return outcome;
  }

  async #commitOne(worker: number, turn: TurnCommit, effects: Effects | undefined, now: number): Promise<Outcome> {
    const { id } = turn;
    const held = this.#held.get(id);
    if (held?.epoch !== turn.epoch || held.worker !== worker) return { kind: 'stale' };
    const gone = [...(effects?.received ?? [])].map(Number);
    const parts = effects === undefined ? [] : await this.#parts.of(id, held, effects, now);
    if (turn.kind === 'done' && held.parent !== 0) parts.push(...(await this.#producing.ended(id, held.parent)));
    requireRoom(parts);
    const isCut = held.isCut || (effects !== undefined && (await this.#parts.isCut(id, effects, now)));
    let children = held.children;
    for (let mark: Mark = false; ; ) {
      const open = turn.kind === 'done' && (children ?? 0) > 0 ? await this.#openChildren(id) : undefined;
      if (open !== undefined && open.left > 0) return this.#writeOrphaning(turn, held, mark, now);
      if (open !== undefined) children = open.field;
      const end = endOf(turn, held, gone, now, pagesAfter(turn, held, effects));
      const outcome = await this.#write(turn, end, held, { isCut, mark, children }, parts, now);
      if (outcome === 'conflict') {
        if (effects !== undefined && (await isTakenBack(this.#rows, id, held, effects)))
          throw new QuestionTakenBack(id);
        throw metAnother(id);
      }
      if ('mark' in outcome) ({ mark } = outcome);
      else if ('children' in outcome) ({ children } = outcome);
      else return this.#ended(worker, turn, held, outcome, effects, now);
    }
  }

  /** The children that are not final. The end of a child may be only in the inbox. */
  async #openChildren(actor: number): Promise<{ readonly left: number; readonly field: number | null }> {
    const { head, inbox } = await this.#rows.look(actor);
    if (head === undefined) return { left: 0, field: null };
    const counted = head.fields[F.children];
    const field = counted === undefined ? null : Number(counted);
    return { left: head.children - absorbedFrom(head, inbox).ended, field };
  }

  /** Writes a failure for a turn that would have ended its actor while children are not final. */
  async #writeOrphaning(turn: TurnCommit, held: HeldTurn, known: Mark, now: number): Promise<Outcome> {
    const { id, epoch, attempt, from } = turn;
    const failed: TurnCommit = {
      id,
      epoch,
      attempt,
      kind: 'failed',
      waitMs: 1000,
      from,
      reason: 'failed',
      error: ORPHANS,
    };
    for (let mark = known; ; ) {
      const end = endOf(failed, held, [], now, undefined);
      const outcome = await this.#write(failed, end, held, { isCut: false, mark, children: null }, [], now);
      if (outcome === 'conflict' || 'children' in outcome) throw metAnother(id);
      if ('mark' in outcome) {
        ({ mark } = outcome);
        continue;
      }
      this.end(held.worker, id, epoch);
      return outcome.kind === 'done' ? { ...outcome, kind: 'refused' } : outcome;
    }
  }

  /** Starts the work after a commit for which no caller waits. */
  #ended(
    worker: number,
    turn: TurnCommit,
    held: HeldTurn,
    outcome: Outcome,
    effects: Effects | undefined,
    now: number,
  ): Outcome {
    const { id, epoch } = turn;
    this.end(worker, id, epoch);
    if (outcome.kind !== 'done') return outcome;
    if (effects !== undefined && hasPages(effects)) this.#pages.noteNotices();
    for (const tag of resolvedBy(turn, held, now)) this.#later(this.#pages.resolve(tag));
    const received = [...(effects?.received ?? [])].map((message) => messageOf(id, Number(message)));
    this.#later(this.#rows.dropAll(received));
    for (const message of effects?.replies.keys() ?? []) this.#onAnswer(id, Number(message));
    return outcome;
  }

  async #write(
    turn: TurnCommit,
    end: TurnEnd,
    held: HeldTurn,
    { isCut, mark, children }: WriteAs,
    parts: readonly Part[],
    now: number,
  ): Promise<Outcome | Again> {
    const { id, epoch } = turn;
    const family = turn.kind === 'done' ? { field: children } : undefined;
    const { change, wakeAt } = committed(end, mark === false && isCut ? 'signal' : mark, now, family);
    await this.#putLate(turn, held, now);
    if (turn.kind === 'done') await this.#removal.plan(held.type, id, epoch, now);
    const expecting = { ...change, expect: { ...change.expect, ...marked(mark, epoch) } };
    if (wakeAt !== undefined) {
      const row = { at: wakeAt, actor: id, kind: 'time', epoch, name: String(epoch) } as const;
      const line = lineFor(held.type.id, id, held.type.shards, turn.kind === 'released' && held.lost === ALONE);
      await this.#rows.put(wakeKey(line, row), wakeFields(row));
    }
    const told = transitionWrite(turn, held, now);
    const head = { key: headOf(id), written: written(expecting) };
    const isDone =
      told.length + parts.length === 0
        ? (await this.#rows.change(head.key, expecting)).isDone
        : await this.#rows.together([head, ...told, ...parts]);
    return isDone ? { kind: 'done', wakeAt } : this.#refused(turn, held, wakeAt, { mark, children });
  }

  /** Writes the row of a deadline, before the commit, like the row of a nap. */
  async #putLate({ id, epoch, kind, deadlineMs }: TurnCommit, { type, visit }: HeldTurn, now: number): Promise<void> {
    if (kind !== 'to' || deadlineMs === undefined) return;
    const { key } = lateWrite(type, { at: now + deadlineMs, actor: id, visit: visit + 1, epoch });
    await this.#rows.put(key, { e: epoch });
  }

  async #refused(
    { id, epoch, kind }: TurnCommit,
    { worker }: HeldTurn,
    wakeAt: number | undefined,
    { mark, children }: Pick<WriteAs, 'mark' | 'children'>,
  ): Promise<Outcome | Again> {
    const head = await this.#rows.head(id);
    if (head === undefined) return { kind: 'stale' };
    // An earlier try was carried out.
    if (isCommitted(head, epoch)) return { kind: 'done', wakeAt };
    if (head.worker !== worker || head.epoch !== epoch) return { kind: 'stale' };
    if (markOf(head) !== mark) return { mark: markOf(head) };
    const counted = head.fields[F.children] ?? null;
    if (kind === 'done' && counted !== children) return { children: counted === null ? null : Number(counted) };
    return 'conflict';
  }

  /** Forgets a turn of this worker that is over. */
  end(worker: number, actor: number, epoch: number): void {
    if (this.#held.get(actor)?.epoch === epoch) this.#held.delete(actor);
    const note = this.#notes.over(worker, actor);
    if (note !== undefined) this.#later(this.#notes.remove(note));
  }
}

function metAnother(actor: number): ConnectionFailed {
  return new ConnectionFailed(`the commit of actor ${actor} met another transaction; it is tried again`, {
    outcome: 'nothing_written',
  });
}

function endOf(
  turn: TurnCommit,
  held: HeldTurn,
  gone: readonly number[],
  now: number,
  pages: string | null | undefined,
): TurnEnd {
  const { kind, to, fields, version, error, result, timers, timerAtMs } = turn;
  requireFits('fields', fields);
  requireFits('result', result);
  const set: Record<string, string | number | null> = {};
  if (to !== undefined) set[F.state] = to;
  if (kind === 'to') {
    set[F.enteredAt] = now;
    set[F.cause] = error ?? null;
  }
  if (pages !== undefined) set[F.pages] = pages;
  if (kind === 'to') set[F.late] = null;
  if (kind === 'to') set[F.deadlineAt] = turn.deadlineMs === undefined ? null : now + turn.deadlineMs;
  if (kind === 'done') set[F.deadlineAt] = null;
  if (kind === 'done') set[F.finishedAt] = now;
  if (kind === 'to' || kind === 'done') set[F.timers] = null;
  else if (timers !== undefined) set[F.timers] = timers === '{}' ? null : timers;
  if (kind === 'failed') set[F.error] = error ?? null;
  else if (kind !== 'released') set[F.error] = null;
  if (fields !== undefined) set[F.fields] = fields;
  if (version !== undefined) set[F.version] = version;
  if (result !== undefined) set[F.result] = result;
  return {
    kind,
    epoch: held.epoch,
    worker: held.worker,
    attempt: held.attempt,
    semaphores: held.semaphores,
    visit: held.visit,
    delta: turn.delta,
    waitMs: turn.waitMs,
    timerAt: timerAtMs,
    children: turn.children ?? 0,
    gone,
    set,
  };
}

function transitionWrite(turn: TurnCommit, { type, attempt }: HeldTurn, now: number): PartialWrite[] {
  const { id, kind, epoch, from, to, reason, error } = turn;
  if (kind === 'stay' || kind === 'released') return [];
  const ttlAt = type.historyMs === null ? undefined : now + type.historyMs;
  const fields = {
    t: now,
    o: from,
    s: to ?? from,
    r: reason ?? kind,
    a: kind === 'failed' ? attempt : 0,
    e: error,
  };
  return [{ key: transitionOf(id, epoch), written: creation(fields, ttlAt) }];
}
