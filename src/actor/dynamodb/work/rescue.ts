import { creation, type Liveness, type PartialWrite, written } from '../../../engine/dynamodb/index.ts';
import type { PageRequest } from '../../pages/page.ts';
import { type ActorRows, lineFor, wakeFields, wakeKey } from '../database.ts';
import { type ActorHead, ALONE, F } from '../heads/head.ts';
import { type Rescue, rescued } from '../heads/rescued.ts';
import type { Pages } from '../pages/pages.ts';
import { headOf, transitionOf } from '../rows.ts';
import type { Types } from '../types.ts';
import { pagesOf } from './holding.ts';
import type { Note, Notes } from './notes.ts';

const LOST = 'the worker was lost during the turn';
const POISON = 'its process died or was suspended three times in a row';

/** Rescues the actors of dead workers. Any number of processes may run it at once. */
export class Rescuing {
  readonly #rows: ActorRows;
  readonly #types: Types;
  readonly #notes: Notes;
  readonly #liveness: Liveness;
  readonly #pages: Pages;

  constructor(rows: ActorRows, types: Types, notes: Notes, liveness: Liveness, pages: Pages) {
    this.#rows = rows;
    this.#types = types;
    this.#notes = notes;
    this.#liveness = liveness;
    this.#pages = pages;
  }

  /** @returns how many actors it has freed */
  async rescue(): Promise<number> {
    await this.#liveness.removeDead();
    const byWorker = new Map<number, Note[]>();
    for (const note of await this.#notes.read()) {
      byWorker.set(note.worker, [...(byWorker.get(note.worker) ?? []), note]);
    }
    let freed = 0;
    for (const [worker, notes] of byWorker) {
      if (!(await this.#liveness.isAlive(worker))) freed += await this.#rescueOf(worker, notes);
    }
    return freed;
  }

  async #rescueOf(worker: number, notes: readonly Note[]): Promise<number> {
    const noted = notes.flatMap(({ actors }) => actors);
    const heads = new Map<number, ActorHead | undefined>();
    for (const [actor] of noted) heads.set(actor, await this.#rows.head(actor));
    // If an actor of the worker had been lost before, it is the suspect, and the others are innocent.
    const isSuspected = [...heads.values()].some((head) => head?.worker === worker && head.lost > 0);
    let freed = 0;
    for (const note of notes) {
      let isOver = true;
      for (const [actor, epoch] of note.actors) {
        const outcome = await this.#free(actor, heads.get(actor), worker, epoch, isSuspected);
        if (outcome === 'freed') freed += 1;
        if (outcome === 'changed') isOver = false;
      }
      if (isOver) await this.#notes.remove(note);
    }
    return freed;
  }

  /** @returns `changed`: the head has changed since, and the note stays for the next rescue */
  async #free(
    actor: number,
    head: ActorHead | undefined,
    worker: number,
    epoch: number,
    isSuspected: boolean,
  ): Promise<'freed' | 'over' | 'changed'> {
    if (head === undefined) return 'over';
    const now = await this.#rows.engine.serviceTime(this.#rows.limits);
    const saved = rescued(head, worker, epoch, { isSuspected, now, error: LOST });
    if (saved === undefined) return 'over';
    if (!(await this.#change(actor, head, saved, now))) return 'changed';
    if (saved.row === undefined) return 'over';
    const type = await this.#types.withId(head.type);
    const after = lostAfter(head, saved);
    const row = { ...saved.row, actor, kind: 'time', name: String(saved.row.epoch) } as const;
    const line = lineFor(type.id, actor, type.shards, after === ALONE);
    await this.#rows.put(wakeKey(line, row), wakeFields(row));
    return 'freed';
  }

  async #change(actor: number, head: ActorHead, saved: Rescue, now: number): Promise<boolean> {
    if (saved.change === undefined) return true;
    const lost = lostAfter(head, saved);
    if (saved.row === undefined) {
      return (await this.#rows.change(headOf(actor), saved.change)).isDone;
    }
    const isPoison = lost > ALONE;
    const tags = JSON.stringify([...new Set([...pagesOf(head.fields), lostTag(actor)])]);
    const held = { ...saved.change.set, [F.held]: POISON, [F.pages]: tags };
    const change = isPoison ? { ...saved.change, set: held } : saved.change;
    const type = await this.#types.withId(head.type);
    const page = isPoison ? await this.#pages.opening(lostPage(actor, type.name, head.state)) : undefined;
    const fields = {
      t: now,
      o: head.state,
      s: head.state,
      r: isPoison ? 'held' : 'worker lost',
      a: head.attempt,
      e: isPoison ? POISON : LOST,
    };
    const ttlAt = type.historyMs === null ? undefined : now + type.historyMs;
    const writes: PartialWrite[] = [
      { key: headOf(actor), written: written(change) },
      { key: transitionOf(actor, saved.row.epoch), written: creation(fields, ttlAt) },
      ...(page?.parts ?? []),
    ];
    const isDone = await this.#rows.together(writes);
    if (isDone && page !== undefined) this.#pages.noteNotices();
    return isDone;
  }
}

export function lostTag(actor: number): string {
  return `actor-lost:${actor}`;
}

function lostPage(actor: number, type: string, state: string): PageRequest {
  const summary = `${type} ${actor} is held in "${state}": ${POISON}`;
  return { tag: lostTag(actor), severity: 3, summary, details: null, root: undefined, actor: String(actor) };
}

function lostAfter(head: ActorHead, { change }: Rescue): number {
  if (change === undefined) return head.lost;
  return F.lost in change.set ? Number(change.set[F.lost] ?? 0) : head.lost;
}
