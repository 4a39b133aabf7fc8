import { InvalidInput, NotFound } from '../../base/errors.ts';
import { creation, fieldsOf, type PartialWrite } from '../../engine/dynamodb/index.ts';
import { type ActorRows, freshName, inboxWrite, lineFor, requireFits, wakeWrite } from './database.ts';
import { type ActorHead, ALONE, F } from './heads/head.ts';
import type { WakeRow } from './heads/wake.ts';
import { ACTORS, boxOf, headOf, IDS, keyOf, messageOf, transitionOf } from './rows.ts';
import type { TypeRow, Types } from './types.ts';

/** Numbers that a process takes at once: gaps mean nothing. */
const IDS_AT_ONCE = 50;

export interface NewActor {
  readonly type: string;
  readonly version: number;
  readonly key: string | undefined;
}

/** What others want of an actor: create it, raise a semaphore, send a message. Each in one transaction with the row that wakes it. */
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

  /** @param fields  JSON @returns the actor of this type and key that was there, or the new one */
  async create(wish: NewActor, fields: string): Promise<{ id: string; created: boolean; state: string }> {
    requireFits('fields', fields);
    const type = await this.#types.named(wish.type);
    const id = await this.allocate();
    const now = await this.#rows.engine.serviceTime(this.#rows.limits);
    if (await this.#rows.together(newActor({ id, type, wish, fields, now }))) {
      return { id: String(id), created: true, state: type.machine.initial };
    }
    // The key is taken; or an earlier try of this request has come through.
    const there = wish.key === undefined ? id : await this.find(type.id, wish.key);
    const head = there === undefined ? undefined : await this.#rows.head(there);
    if (head === undefined) return this.create(wish, fields);
    return { id: String(there), created: there === id, state: head.state };
  }

  async find(type: number, key: string): Promise<number | undefined> {
    const item = await this.#rows.get(keyOf(type, key));
    return item === undefined ? undefined : Number(fieldsOf(item)['q']);
  }

  /** @returns whether it counts: an actor that is final has no use for it @throws NotFound, InvalidInput */
  async incr(actor: number, semaphore: string, n: number): Promise<boolean> {
    const { head, type } = await this.#target(actor);
    requireSemaphore(actor, semaphore, type);
    if (head.isFinal) return false;
    const now = await this.#rows.engine.serviceTime(this.#rows.limits);
    await this.#rows.together(raise({ actor, type, head, now }, semaphore, n));
    return true;
  }

  /** @param payload  JSON @returns whether anybody will read it @throws NotFound */
  async send(actor: number, name: string, payload: string): Promise<boolean> {
    requireFits('payload', payload);
    const { head, type } = await this.#target(actor);
    if (head.isFinal) return false;
    const now = await this.#rows.engine.serviceTime(this.#rows.limits);
    await this.#rows.together(message({ actor, type, head, now }, await this.#rows.count(boxOf(actor)), name, payload));
    return true;
  }

  /** What a turn raises and sends, as parts of the transaction that commits it. */
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
        parts.push(...message({ actor, type, head, now }, await this.#rows.count(boxOf(actor)), name, json));
    }
    return parts;
  }

  async #target(actor: number): Promise<{ head: ActorHead; type: TypeRow }> {
    const head = await this.#rows.head(actor);
    if (head === undefined) throw new NotFound(`there is no actor ${actor}`);
    return { head, type: await this.#types.withId(head.type) };
  }
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

function message(target: Target, number: number, name: string, payload: string): PartialWrite[] {
  const { actor, now } = target;
  const written = creation({ n: name, y: payload, t: now });
  return [{ key: messageOf(actor, number), written }, wake(target, 'signal', freshName())];
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
  const head = {
    [F.visit]: 1,
    [F.wakeAt]: now,
    [F.state]: initial,
    [F.type]: type.id,
    [F.version]: wish.version,
    [F.enteredAt]: now,
    [F.createdAt]: now,
    [F.key]: wish.key,
    [F.fields]: fields,
  };
  const birth = creation({ t: now, s: initial, r: 'created', a: 0 });
  return [
    { key: headOf(id), written: creation(head) },
    wakeWrite(lineFor(type.id, id, type.shards), { at: now, actor: id, kind: 'time', epoch: 0, name: '0' }),
    { key: transitionOf(id, 0), written: birth },
    {
      key: { pk: `${ACTORS}:list:${type.id}:${id % type.shards}`, sk: String(id).padStart(16, '0') },
      written: creation({ q: id }),
    },
    ...(wish.key === undefined ? [] : [{ key: keyOf(type.id, wish.key), written: creation({ q: id }) }]),
  ];
}
