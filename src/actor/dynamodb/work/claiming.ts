import type { ActorClaim, ClaimAnswer } from '../../store.ts';
import {
  type ActorRows,
  freshName,
  type LineRow,
  lineFor,
  readWake,
  type SeenActor,
  wakeFields,
  wakeKey,
} from '../database.ts';
import { absorbable } from '../heads/absorbable.ts';
import {
  type ActorHead,
  absorbedFrom,
  claimed,
  F,
  type HeadClaim,
  isFree,
  readHead,
  type Semaphores,
} from '../heads/head.ts';
import { type Look, looked } from '../heads/wake.ts';
import { headOf, inboxOf, lineFrom, lineOf, messageOf } from '../rows.ts';
import { backoffOf, type TypeRow, type Types } from '../types.ts';
import { pagesOf } from './holding.ts';
import type { Notes } from './notes.ts';
import { clear } from './removal.ts';
import type { StatePauses } from './state-pauses.ts';

/** The facts of a claim that its commit needs. */
export interface HeldTurn {
  readonly epoch: number;
  readonly worker: number;
  readonly attempt: number;
  readonly visit: number;
  readonly semaphores: Semaphores;
  readonly lost: number;
  readonly type: TypeRow;
  /** 0: the actor has no parent. */
  readonly parent: number;
  /** The field of the head that counts its children. */
  readonly children: number | null;
  /** Tags of pages about the actor that were opened, and may still be open. */
  readonly pages: readonly string[];
  /** When a page is opened, since the actor has been in its state for too long. */
  readonly deadlineAt: number | undefined;
  /** Such a page was opened. */
  readonly isLate: boolean;
  /** Numbers of the questions that the turn was given. */
  readonly asked: Set<number>;
  /** The turn was not given all questions, or not all raises: another turn follows at once. */
  isCut: boolean;
}

/** How many rows of a line one request reads at least: some 4 KB. */
const LEAST_ROWS = 40;

/** The longest wait after a poll whose actors were all taken by other workers. */
const REFUSED_MS = 20;

interface Candidate {
  readonly actor: number;
  readonly seen: SeenActor;
  readonly head: ActorHead;
  readonly type: TypeRow;
  /** The wake rows that its claim answers. */
  readonly rows: readonly LineRow[];
}

/** Finds due actors by the rows of lines, and claims them. */
export class Claiming {
  readonly #rows: ActorRows;
  readonly #types: Types;
  readonly #notes: Notes;
  readonly #statePauses: StatePauses;
  /** By actor. */
  readonly #held: Map<number, HeldTurn>;
  readonly #later: (work: Promise<unknown>) => void;
  /** Counts polls. Each poll begins with another line. */
  #turn = 0;

  /** @param later  takes work for which no caller waits, and whose failure changes nothing */
  constructor(
    rows: ActorRows,
    types: Types,
    notes: Notes,
    statePauses: StatePauses,
    held: Map<number, HeldTurn>,
    later: (work: Promise<unknown>) => void,
  ) {
    this.#rows = rows;
    this.#types = types;
    this.#notes = notes;
    this.#statePauses = statePauses;
    this.#held = held;
    this.#later = later;
  }

  /** Claims due actors. It takes one query for each line; for due actors also one query and one write for each actor, and a note. */
  async claim(worker: number, types: readonly number[], limit: number): Promise<ClaimAnswer> {
    const known = await this.#types.fresh();
    const active = types.flatMap((id) => known.get(id) ?? []).filter(({ pausedAt }) => pausedAt === 0);
    const lines = active.flatMap((type) =>
      Array.from({ length: type.shards }, (_, shard) => ({ type, pk: lineOf(type.id, shard) })),
    );
    const claims: ActorClaim[] = [];
    let due = Infinity;
    let again = false;
    const first = this.#turn++ % Math.max(lines.length, 1);
    for (const { type, pk } of [...lines.slice(first), ...lines.slice(0, first)]) {
      const room = limit - claims.length;
      if (room <= 0) {
        again = true;
        break;
      }
      const answer = await this.#claimIn(worker, type, pk, room, false);
      claims.push(...answer.claims);
      again ||= answer.again;
      due = Math.min(due, answer.due);
    }
    return { claims, ...(again && claims.length > 0 && { again }), ...(due < Infinity && { due }) };
  }

  /** Claims an actor that is to run alone. @param isIdle  the worker runs nothing else */
  async claimAlone(worker: number, types: readonly number[], isIdle: boolean): Promise<ActorClaim | undefined> {
    const known = await this.#types.fresh();
    for (const id of types) {
      const type = known.get(id);
      if (type === undefined || type.pausedAt > 0) continue;
      // After a minute a busy worker claims it, too. Otherwise it would wait for ever if every process is always busy.
      const answer = await this.#claimIn(worker, type, lineOf(id, undefined), 1, true, isIdle ? 0 : 60_000);
      if (answer.claims[0] !== undefined) return answer.claims[0];
    }
    return undefined;
  }

  /** Whether an actor of the type that is to run alone is due. */
  async hasSuspect(type: number): Promise<boolean> {
    const now = await this.#rows.engine.serviceTime(this.#rows.limits);
    return (await this.#rows.range(lineOf(type, undefined), 'w#', `${lineFrom(now)}~`, 1)).length > 0;
  }

  async #claimIn(
    worker: number,
    type: TypeRow,
    pk: string,
    room: number,
    alone: boolean,
    waitedMs: number = 0,
  ): Promise<{ claims: readonly ActorClaim[]; again: boolean; due: number }> {
    const now = await this.#rows.engine.serviceTime(this.#rows.limits);
    const limit = Math.max(room + 1, LEAST_ROWS);
    const items = await this.#rows.range(pk, 'w#', 'w#~', limit);
    const all = items.map((item) => readWake(pk, item));
    const rows = all.filter(({ at }) => at <= now - waitedMs);
    const next = all.find(({ at }) => at > now);
    const due = next === undefined ? Infinity : next.at - now;
    if (rows.length === 0) return { claims: [], again: false, due };
    const byActor = grouped(rows);
    // If there are more actors than room, begins at a random one. Otherwise several workers would claim the oldest, and all except one be refused.
    const first = Math.floor(Math.random() * Math.max(1, byActor.size - room + 1));
    const chosen = [...byActor].slice(first, first + room);
    const candidates: Candidate[] = [];
    await Promise.all(
      chosen.map(async ([actor, found]) => {
        const seen = await this.#rows.look(actor);
        const isDue = await this.#judge(found, seen, type, { now, alone });
        if (isDue && seen.head !== undefined) candidates.push({ actor, seen, head: seen.head, type, rows: found });
      }),
    );
    const claims = await this.#take(worker, candidates, now);
    const again = byActor.size > room || items.length >= limit;
    // Others have taken all of them. There may be more behind them.
    const isRefused = claims.length === 0 && (candidates.length > 0 || again);
    return { claims, again, due: isRefused ? Math.min(due, 1 + Math.random() * REFUSED_MS) : due };
  }

  /** Answers the rows that are no reason for a claim. @returns whether one of the rows is a reason */
  async #judge(
    rows: readonly LineRow[],
    { head, inbox }: SeenActor,
    type: TypeRow,
    { now, alone }: { readonly now: number; readonly alone: boolean },
  ): Promise<boolean> {
    const eachChild = head !== undefined && type.machine.states[head.state]?.children === 'each';
    for (const row of rows) {
      const look = looked(row, head, { now, alone, inbox, eachChild, always: type.machine.always });
      // The raise or message of this row came while the actor was being removed, so its rows are removed, too.
      if (head === undefined && row.kind !== 'time') await clear(this.#rows, row.actor);
      if (look.kind !== 'claim') await this.#answer(row, look, type);
      else if (head === undefined || type.pausedStates[head.state] === undefined) return true;
      else if (await this.#statePauses.hold(row.actor, head, type)) await this.#rows.drop(row.key);
    }
    return false;
  }

  async #answer(row: LineRow, look: Exclude<Look, { kind: 'claim' }>, type: TypeRow): Promise<void> {
    switch (look.kind) {
      case 'leave':
        return;
      case 'drop':
        // If the mark is refused, the head has changed, and the next poll reads it again.
        if (look.change !== undefined && !(await this.#rows.change(headOf(row.actor), look.change)).isDone) return;
        break;
      case 'defer':
        await this.#put(row, row.key.pk, look.until);
        break;
      case 'move':
        await this.#put(row, lineFor(type.id, row.actor, type.shards, look.alone), row.at);
        break;
    }
    await this.#rows.drop(row.key);
  }

  #put(row: LineRow, line: string, at: number): Promise<void> {
    const moved = { ...row, at, name: freshName() };
    return this.#rows.put(wakeKey(line, moved), wakeFields(moved));
  }

  /** Writes a note, then claims the heads. */
  async #take(worker: number, candidates: readonly Candidate[], now: number): Promise<ActorClaim[]> {
    if (candidates.length === 0) return [];
    await this.#notes.write(
      worker,
      candidates.map(({ actor, head }) => [actor, head.epoch]),
    );
    const taken = await Promise.all(candidates.map((candidate) => this.#takeOne(worker, candidate, now)));
    // In the order in which they became due.
    return taken.flatMap((claim) => claim ?? []);
  }

  async #takeOne(worker: number, candidate: Candidate, now: number): Promise<ActorClaim | undefined> {
    const { actor, head, type, seen } = candidate;
    await this.#removeGone(actor, head);
    const retryMs = backoffOf(type, head.attempt + 1);
    const answered = candidate.rows.flatMap(({ kind, name }) => (kind === 'time' ? [] : name));
    const inbox = absorbable(head, seen.inbox, answered);
    const claim = claimed(head, { worker, now, retryMs, inbox: inbox.rows, answered });
    const { isDone, fields } = await this.#rows.change(headOf(actor), claim.change);
    const after = readHead(fields);
    if (!isDone && !(after.worker === worker && after.epoch === claim.epoch)) {
      const note = this.#notes.over(worker, actor);
      if (note !== undefined) this.#later(this.#notes.remove(note));
      return undefined;
    }
    const { attempt, epoch, semaphores } = claim;
    const { visit, lost, deadlineAt } = head;
    const isLate = head.fields[F.late] !== undefined;
    const counted = after.fields[F.children];
    const family = {
      parent: Number(head.fields[F.parent] ?? 0),
      children: counted === undefined ? null : Number(counted),
    };
    const given = {
      ...family,
      pages: pagesOf(head.fields),
      deadlineAt,
      isLate,
      asked: new Set<number>(),
      isCut: inbox.isCut,
    };
    this.#held.set(actor, { epoch, worker, attempt, visit, semaphores, lost, type, ...given });
    const dropped = this.#rows.dropAll([
      ...candidate.rows.map(({ key }) => key),
      ...inbox.rows.map(({ name }) => inboxOf(actor, name)),
    ]);
    // If the inbox is cut, waits for the removals. Otherwise the next turn would find the same rows again.
    if (inbox.isCut) await dropped.catch(() => {});
    else this.#later(dropped);
    return toClaim(actor, after, claim, now);
  }

  /** Removes messages that the last turn has read, since its process may have died before it removed them. */
  async #removeGone(actor: number, { gone }: ActorHead): Promise<void> {
    if (gone.length === 0) return;
    const [first, last] = [Math.min(...gone), Math.max(...gone)];
    const there = await this.#rows.all(
      messageOf(actor, first).pk,
      messageOf(actor, first).sk,
      messageOf(actor, last).sk,
    );
    const left = there.map((item) =>
      Number(String(item['sk'] !== undefined && 'S' in item['sk'] ? item['sk'].S : '').slice(2)),
    );
    await this.#rows.dropAll(left.filter((id) => gone.includes(id)).map((id) => messageOf(actor, id)));
  }

  /** Claims one actor by hand, whether it is due or not, and paused or not. */
  async claimOne(worker: number, actor: number): Promise<ActorClaim | undefined> {
    const seen = await this.#rows.look(actor);
    const { head } = seen;
    if (head === undefined || !isFree(head, true)) return undefined;
    const type = await this.#types.withId(head.type);
    const now = await this.#rows.engine.serviceTime(this.#rows.limits);
    const [claim] = await this.#take(worker, [{ actor, seen, head, type, rows: [] }], now);
    return claim;
  }

  /** The semaphores of these actors, by actor. */
  async raised(actors: readonly number[]): Promise<Record<string, Semaphores>> {
    const all = await Promise.all(
      actors.map(async (actor) => {
        const { head, inbox } = await this.#rows.look(actor);
        return head === undefined ? [] : [[String(actor), absorbedFrom(head, inbox).semaphores] as const];
      }),
    );
    return Object.fromEntries(all.flat());
  }
}

function grouped(rows: readonly LineRow[]): Map<number, LineRow[]> {
  const byActor = new Map<number, LineRow[]>();
  for (const row of rows) byActor.set(row.actor, [...(byActor.get(row.actor) ?? []), row]);
  return byActor;
}

function toClaim(actor: number, after: ActorHead, claim: HeadClaim, now: number): ActorClaim {
  const { fields } = after;
  const text = (name: string): string | undefined => (fields[name] === undefined ? undefined : String(fields[name]));
  const timers = text(F.timers);
  return {
    id: actor,
    type: after.type,
    state: after.state,
    visit: after.visit,
    epoch: claim.epoch,
    attempt: claim.attempt,
    version: Number(fields[F.version] ?? 1),
    children: after.children,
    enteredMs: Number(fields[F.enteredAt] ?? 0),
    parent: Number(fields[F.parent] ?? 0),
    semaphores: claim.semaphores,
    fields: JSON.parse(text(F.fields) ?? '{}'),
    timers: timers === undefined ? undefined : JSON.parse(timers),
    error: text(F.error),
    cause: text(F.cause),
    nowMs: now,
  };
}
