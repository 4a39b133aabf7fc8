import { ConnectionFailed, NotSupported } from '../../../base/errors.ts';
import { creation, type PartialWrite, written } from '../../../engine/dynamodb/index.ts';
import type { CommitAnswer, TurnCommit } from '../../store.ts';
import type { Effects } from '../../turn/effects.ts';
import { type ActorRows, lineFor, requireFits, wakeFields, wakeKey } from '../database.ts';
import { ALONE, committed, F, isCommitted, type TurnEnd } from '../heads/head.ts';
import type { Producing } from '../producing.ts';
import { headOf, messageOf, transitionOf } from '../rows.ts';
import type { HeldTurn } from './claiming.ts';
import type { Notes } from './notes.ts';

/** Rows of one transaction, the head and the transition not counted. */
const MOST_PARTS = 98;

type Outcome = { readonly kind: 'done'; readonly wakeAt: number | undefined } | { readonly kind: 'stale' };

/** Commits the outcomes of turns: each by one write of its head, or by one transaction with all that it asks for. */
export class Settling {
  readonly #rows: ActorRows;
  readonly #notes: Notes;
  readonly #producing: Producing;
  readonly #held: Map<number, HeldTurn>;
  readonly #later: (work: Promise<unknown>) => void;
  /** Of turns that were committed, or lost: a batch is tried again as a whole. */
  readonly #outcomes = new WeakMap<TurnCommit, Outcome>();

  constructor(
    rows: ActorRows,
    notes: Notes,
    producing: Producing,
    held: Map<number, HeldTurn>,
    later: (work: Promise<unknown>) => void,
  ) {
    this.#rows = rows;
    this.#notes = notes;
    this.#producing = producing;
    this.#held = held;
    this.#later = later;
  }

  async commit(worker: number, turns: readonly TurnCommit[], effects?: Effects): Promise<CommitAnswer> {
    const now = await this.#rows.engine.serviceTime(this.#rows.limits);
    // One that cannot be written keeps no other from being so; it is tried again with the others, whose outcomes are known then.
    const all = await Promise.allSettled(turns.map((turn) => this.#once(worker, turn, effects, now)));
    const outcomes = all.map((one) => {
      if (one.status === 'rejected') throw one.reason;
      return one.value;
    });
    const times = outcomes.flatMap((one) => (one.kind === 'done' ? (one.wakeAt ?? []) : []));
    return {
      stale: turns.filter((_, at) => outcomes[at]?.kind === 'stale').map(({ id }) => id),
      refused: [],
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
    // A failed turn asks for a page about its mistake at most, which its error tells as well.
    const parts = effects === undefined || turn.kind === 'failed' ? [] : await this.#partsOf(effects);
    const end = endOf(turn, held, gone, now);
    const isCut = effects !== undefined && (await this.#isCut(id, effects));
    for (let isMarked = false; ; isMarked = true) {
      const outcome = await this.#write(turn, end, held, { isCut, isMarked }, parts, now);
      if (outcome === 'marked') continue;
      this.#end(worker, id, turn.epoch);
      for (const message of outcome.kind === 'done' ? gone : []) this.#later(this.#rows.drop(messageOf(id, message)));
      return outcome;
    }
  }

  /** @returns `marked`: something came meanwhile, and the commit is to be decided anew */
  async #write(
    turn: TurnCommit,
    end: TurnEnd,
    held: HeldTurn,
    { isCut, isMarked }: { readonly isCut: boolean; readonly isMarked: boolean },
    parts: readonly PartialWrite[],
    now: number,
  ): Promise<Outcome | 'marked'> {
    const { id, epoch } = turn;
    const { change, wakeAt } = committed(end, isCut || isMarked, now);
    const marked = { ...change, expect: { ...change.expect, [F.signal]: isMarked ? 1 : null } };
    if (wakeAt !== undefined) {
      const row = { at: wakeAt, actor: id, kind: 'time', epoch, name: String(epoch) } as const;
      const line = lineFor(held.type.id, id, held.type.shards, turn.kind === 'released' && held.lost === ALONE);
      await this.#rows.put(wakeKey(line, row), wakeFields(row));
    }
    const told = transitionWrite(turn, held, now);
    const head = { key: headOf(id), written: written(marked) };
    const isDone =
      told.length + parts.length === 0
        ? (await this.#rows.change(head.key, marked)).isDone
        : await this.#rows.together([head, ...told, ...parts]);
    return isDone ? { kind: 'done', wakeAt } : this.#refused(turn, held, wakeAt, isMarked);
  }

  async #refused(
    { id, epoch }: TurnCommit,
    { worker }: HeldTurn,
    wakeAt: number | undefined,
    isMarked: boolean,
  ): Promise<Outcome | 'marked'> {
    const head = await this.#rows.head(id);
    if (head === undefined) return { kind: 'stale' };
    // An earlier try has come through.
    if (isCommitted(head, epoch)) return { kind: 'done', wakeAt };
    if (head.worker !== worker || head.epoch !== epoch) return { kind: 'stale' };
    if (head.signal && !isMarked) return 'marked';
    throw new ConnectionFailed(`the commit of actor ${id} met another transaction; it is tried again`, {
      outcome: 'nothing_written',
    });
  }

  #end(worker: number, actor: number, epoch: number): void {
    if (this.#held.get(actor)?.epoch === epoch) this.#held.delete(actor);
    const note = this.#notes.over(worker, actor);
    if (note !== undefined) this.#later(this.#notes.remove(note));
  }

  async #partsOf(effects: Effects): Promise<PartialWrite[]> {
    refuse(effects);
    const parts = await this.#producing.partsOf(effects.incrs, effects.messages);
    if (parts.length <= MOST_PARTS) return parts;
    throw new NotSupported(
      `a turn on DynamoDB raises and sends at most ${MOST_PARTS / 2} times, since a transaction has 100 rows, but this one did ${parts.length / 2} times; do a part of it in the next turn`,
    );
  }

  /** Whether messages are left of names of which not all were taken. */
  async #isCut(actor: number, { cut, received }: Effects): Promise<boolean> {
    if (cut.size === 0) return false;
    const items = await this.#rows.all(messageOf(actor, 0).pk, 'm#', 'm#~');
    return items.some((item) => {
      const id = item['sk'] !== undefined && 'S' in item['sk'] ? String(Number(item['sk'].S.slice(2))) : '';
      const name = item['n'] !== undefined && 'S' in item['n'] ? item['n'].S : '';
      return !received.has(id) && (cut.has('') || cut.has(name));
    });
  }
}

function refuse({ children, jobs, callbacks, replies, resolved, hasPages }: Effects): void {
  const asked = [
    [children.length, 'a.create()'],
    [jobs.length, 'a.enqueue()'],
    [callbacks.length, 'a.atCommit()'],
    [replies.size, 'message.reply()'],
    [resolved.size + (hasPages ? 1 : 0), 'a.page() and a.resolve()'],
  ] as const;
  const [, what] = asked.find(([n]) => n > 0) ?? [];
  if (what !== undefined) throw new NotSupported(`${what} is not there for actors on DynamoDB`);
}

function endOf(turn: TurnCommit, held: HeldTurn, gone: readonly number[], now: number): TurnEnd {
  const { kind, to, fields, version, error, result, timers, timerAtMs } = turn;
  requireFits('fields', fields);
  requireFits('result', result);
  const set: Record<string, string | number | null> = {};
  if (to !== undefined) set[F.state] = to;
  if (kind === 'to') {
    set[F.enteredAt] = now;
    set[F.cause] = error ?? null;
  }
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
