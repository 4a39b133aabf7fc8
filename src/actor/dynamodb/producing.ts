import { Conflict, InvalidInput, NotFound } from '../../base/errors.ts';
import { creation, fieldsOf, type PartialWrite, written } from '../../engine/dynamodb/index.ts';
import type { Effects } from '../turn/effects.ts';
import { type ActorRows, freshName, inboxWrite, lineFor, requireFits, wakeWrite } from './database.ts';
import { type ActorHead, ALONE, F } from './heads/head.ts';
import { newQuestion } from './heads/question.ts';
import type { WakeRow } from './heads/wake.ts';
import { boxOf, childOf, headOf, IDS, keyOf, listOf, messageOf, questionOf, transitionOf } from './rows.ts';
import type { TypeRow, Types } from './types.ts';
import { deadlineOf, lateWrite } from './work/deadlines.ts';

/** How long rows of a question outlast the wait of its sender. No machine is wrong about the service's clock by this time. */
const KEPT_MS = 3_600_000;
/** How many ids a process takes at once. Gaps between ids mean nothing. */
const IDS_AT_ONCE = 50;

export interface NewActor {
  readonly type: string;
  readonly version: number;
  readonly key: string | undefined;
  readonly parent?: number | undefined;
}

/** Creates actors, raises their semaphores, and sends them messages, each in one transaction with the row that wakes the actor. */
export class Producing {
  readonly #rows: ActorRows;
  readonly #types: Types;
  #ids: number[] = [];

  constructor(rows: ActorRows, types: Types) {
    this.#rows = rows;
    this.#types = types;
  }

  /** An id for a new actor. */
  async allocate(): Promise<number> {
    if (this.#ids.length === 0) {
      const last = await this.#rows.count(IDS, IDS_AT_ONCE);
      this.#ids = Array.from({ length: IDS_AT_ONCE }, (_, at) => last - IDS_AT_ONCE + 1 + at);
    }
    return Number(this.#ids.shift());
  }

  /** @param fields  JSON @returns the new actor, or the existing actor of this type and key */
  async create(wish: NewActor, fields: string): Promise<{ id: string; created: boolean; state: string }> {
    requireFits('fields', fields);
    const type = await this.#types.named(wish.type);
    const id = await this.allocate();
    const now = await this.#rows.engine.serviceTime(this.#rows.limits);
    const parent = wish.parent === undefined ? [] : [await this.#adoption(wish.parent)];
    if (await this.#rows.together([...newActor({ id, type, wish, fields, now }), ...parent])) {
      return { id: String(id), created: true, state: type.machine.initial };
    }
    // Either another actor has the key, or an earlier try of this request was carried out.
    const there = wish.key === undefined ? id : await this.find(type.id, wish.key);
    const head = there === undefined ? undefined : await this.#rows.head(there);
    if (head === undefined) return this.create(wish, fields);
    return { id: String(there), created: there === id, state: head.state };
  }

  /** The write that counts a new child in its parent, on condition that the parent is not final. @throws NotFound, Conflict */
  async #adoption(parent: number): Promise<PartialWrite> {
    const head = await this.#rows.head(parent);
    if (head === undefined) throw new NotFound(`there is no actor ${parent}, so it cannot be the parent`);
    if (head.isFinal) throw new Conflict(`actor ${parent} is final, so it cannot be the parent`);
    const expect = { [F.createdAt]: head.fields[F.createdAt] ?? null, [F.finishedAt]: null };
    return { key: headOf(parent), written: written({ expect, set: {}, add: { [F.children]: 1 } }) };
  }

  /** The writes that create the children of a turn. Its commit counts the children. @throws InvalidInput  an actor of this type and key exists */
  async births(parent: number, children: Effects['children']): Promise<PartialWrite[]> {
    const now = await this.#rows.engine.serviceTime(this.#rows.limits);
    const parts: PartialWrite[] = [];
    const born = new Map<string, number>();
    for (const { id, type: name, version, key, fields } of children) {
      requireFits('fields', fields);
      const type = await this.#types.named(name);
      const twin = key === undefined ? undefined : born.get(`${type.id} ${key}`);
      const known = twin ?? (key === undefined ? undefined : await this.find(type.id, key));
      born.set(`${type.id} ${key}`, id);
      // The existing actor may be the child itself, if an earlier try of the commit was carried out.
      if (known !== undefined && known !== id) throw childIsThere(name, key, known, parent);
      parts.push(...newActor({ id, type, wish: { type: name, version, key, parent }, fields, now }));
    }
    return parts;
  }

  /** The writes that tell a parent of its final child, in the transaction that makes the child final. */
  async ended(child: number, parent: number): Promise<PartialWrite[]> {
    const head = await this.#rows.head(parent);
    if (head === undefined || head.isFinal) return [];
    const type = await this.#types.withId(head.type);
    const now = await this.#rows.engine.serviceTime(this.#rows.limits);
    // A child ends once, so the name is never used again.
    const name = `end${child}`;
    const row = inboxWrite(parent, { name, semaphore: undefined, n: 1 });
    return [row, wake({ actor: parent, type, head, now }, 'child', name)];
  }

  async find(type: number, key: string): Promise<number | undefined> {
    const item = await this.#rows.get(keyOf(type, key));
    return item === undefined ? undefined : Number(fieldsOf(item)['q']);
  }

  /** @returns false if the actor is final; then nothing is written @throws NotFound, InvalidInput */
  async incr(actor: number, semaphore: string, n: number): Promise<boolean> {
    const { head, type } = await this.#target(actor);
    requireSemaphore(actor, semaphore, type);
    if (head.isFinal) return false;
    const now = await this.#rows.engine.serviceTime(this.#rows.limits);
    await this.#rows.together(raise({ actor, type, head, now }, semaphore, n));
    return true;
  }

  /** @param payload  JSON @returns false if the actor is final; then nothing is written @throws NotFound */
  async send(actor: number, name: string, payload: string): Promise<boolean> {
    return (await this.#send(actor, name, payload, undefined)) !== undefined;
  }

  /** @param waitMs  how long the sender waits @returns the number of the message; undefined: the actor is final */
  ask(actor: number, name: string, payload: string, waitMs: number): Promise<number | undefined> {
    return this.#send(actor, name, payload, waitMs);
  }

  async #send(actor: number, name: string, payload: string, waitMs: number | undefined): Promise<number | undefined> {
    requireFits('payload', payload);
    const { head, type } = await this.#target(actor);
    if (head.isFinal) return undefined;
    const now = await this.#rows.engine.serviceTime(this.#rows.limits);
    const number = await this.#rows.count(boxOf(actor));
    const parts = message({ actor, type, head, now }, number, name, payload, waitMs);
    await this.#rows.together(parts);
    return number;
  }

  /** The raises and messages of a turn, as parts of the transaction that commits it. */
  async partsOf(
    incrs: readonly { readonly actor: number; readonly semaphore: string }[],
    messages: readonly { readonly actor: number; readonly name: string; readonly json: string }[],
  ): Promise<PartialWrite[]> {
    const now = await this.#rows.engine.serviceTime(this.#rows.limits);
    const parts: PartialWrite[] = [];
    for (const { actor, semaphore } of incrs) {
      const { head, type } = await this.#target(actor);
      requireSemaphore(actor, semaphore, type);
      if (!head.isFinal) parts.push(...raise({ actor, type, head, now }, semaphore, 1));
    }
    for (const { actor, name, json } of messages) {
      requireFits('payload', json);
      const { head, type } = await this.#target(actor);
      if (!head.isFinal)
        parts.push(...message({ actor, type, head, now }, await this.#rows.count(boxOf(actor)), name, json, undefined));
    }
    return parts;
  }

  async #target(actor: number): Promise<{ head: ActorHead; type: TypeRow }> {
    const head = await this.#rows.head(actor);
    if (head === undefined) throw new NotFound(`there is no actor ${actor}`);
    return { head, type: await this.#types.withId(head.type) };
  }
}

function childIsThere(type: string, key: string | undefined, known: number, parent: number): InvalidInput {
  return new InvalidInput(
    `a ${type} with the key "${key}" exists already (${known}), so it cannot be created as a child of ${parent}; find it first`,
    { field: 'key' },
  );
}

interface Target {
  readonly actor: number;
  readonly type: TypeRow;
  readonly head: ActorHead;
  readonly now: number;
}

function requireSemaphore(actor: number, semaphore: string, { semaphores }: TypeRow): void {
  if (semaphores.includes(semaphore)) return;
  const known = semaphores.length === 0 ? 'its type declares none' : `its semaphores are ${semaphores.join(', ')}`;
  throw new InvalidInput(`actor ${actor} has no semaphore "${semaphore}"; ${known}`, { field: 'semaphore' });
}

function raise(target: Target, semaphore: string, n: number): PartialWrite[] {
  const name = freshName();
  const kind = target.type.always.includes(semaphore) ? 'always' : 'signal';
  return [inboxWrite(target.actor, { name, semaphore, n }), wake(target, kind, name)];
}

/** @param waitMs  how long the sender waits for an answer; undefined: it does not wait */
function message(
  target: Target,
  number: number,
  name: string,
  payload: string,
  waitMs: number | undefined,
): PartialWrite[] {
  const { actor, now } = target;
  const key = messageOf(actor, number);
  const woken = wake(target, 'signal', freshName());
  if (waitMs === undefined) return [{ key, written: creation({ n: name, y: payload, t: now }) }, woken];
  const overAt = now + waitMs;
  return [
    { key, written: creation({ n: name, y: payload, t: now, x: overAt }, overAt + KEPT_MS) },
    { key: questionOf(actor, number), written: creation(newQuestion(overAt), overAt + KEPT_MS) },
    woken,
  ];
}

function wake({ actor, type, head, now }: Target, kind: WakeRow['kind'], name: string): PartialWrite {
  const line = lineFor(type.id, actor, type.shards, head.lost === ALONE);
  return wakeWrite(line, { at: now, actor, kind, epoch: 0, name });
}

interface Birth {
  readonly id: number;
  readonly type: TypeRow;
  readonly wish: NewActor;
  readonly fields: string;
  readonly now: number;
}

function newActor({ id, type, wish, fields, now }: Birth): PartialWrite[] {
  const { initial } = type.machine;
  const deadlineMs = deadlineOf(type, initial);
  const head = {
    [F.visit]: 1,
    [F.wakeAt]: now,
    [F.state]: initial,
    [F.type]: type.id,
    [F.version]: wish.version,
    [F.enteredAt]: now,
    [F.createdAt]: now,
    [F.key]: wish.key,
    [F.parent]: wish.parent,
    [F.fields]: fields,
    ...(deadlineMs !== undefined && { [F.deadlineAt]: now + deadlineMs }),
  };
  const birth = creation({ t: now, s: initial, r: 'created', a: 0 });
  const late =
    deadlineMs === undefined ? [] : [lateWrite(type, { at: now + deadlineMs, actor: id, visit: 1, epoch: 0 })];
  return [
    { key: headOf(id), written: creation(head) },
    ...late,
    wakeWrite(lineFor(type.id, id, type.shards), { at: now, actor: id, kind: 'time', epoch: 0, name: '0' }),
    { key: transitionOf(id, 0), written: birth },
    { key: listOf(type.id, id, type.shards), written: creation({ q: id }) },
    ...(wish.parent === undefined ? [] : [{ key: childOf(wish.parent, id), written: creation({ q: id }) }]),
    ...(wish.key === undefined ? [] : [{ key: keyOf(type.id, wish.key), written: creation({ q: id }) }]),
  ];
}
