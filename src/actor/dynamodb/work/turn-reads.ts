import { LeaseLost } from '../../../base/errors.ts';
import { sleep } from '../../../base/time/clock.ts';
import { creation, Expression, type Fields, fieldsOf, num } from '../../../engine/dynamodb/index.ts';
import type { ChildRecord, MessageFilter, MessageRow, TurnToken } from '../../store.ts';
import type { ActorRows } from '../database.ts';
import { F } from '../heads/head.ts';
import { actorKey, CHILDREN, effectOf, headOf, MESSAGES, sortKey } from '../rows.ts';
import type { Types } from '../types.ts';
import type { HeldTurn } from './claiming.ts';

/** The requests of a turn while its body runs: messages, children, and the results of `once`. */
export class TurnReads {
  readonly #rows: ActorRows;
  readonly #types: Types;
  /** By actor. */
  readonly #held: ReadonlyMap<number, HeldTurn>;

  constructor(rows: ActorRows, types: Types, held: ReadonlyMap<number, HeldTurn>) {
    this.#rows = rows;
    this.#types = types;
    this.#held = held;
  }

  async recall(actor: number, visit: number, key: string): Promise<{ result: unknown } | undefined> {
    const item = await this.#rows.get(effectOf(actor, visit, key));
    return item === undefined ? undefined : { result: JSON.parse(String(fieldsOf(item)['r'])) };
  }

  /** Stores a result in one transaction with a check that the turn is current. @throws LeaseLost */
  async remember({ actor, epoch, worker }: TurnToken, visit: number, key: string, result: string): Promise<void> {
    const checked = new Expression().whenIs(F.epoch, num(epoch)).whenIs(F.worker, num(worker)).write();
    const written = creation({ r: result });
    const writes = [
      { key: effectOf(actor, visit, key), written },
      { key: headOf(actor), checked },
    ];
    for (let tries = 1; ; tries += 1) {
      if (await this.#rows.together(writes)) return;
      // An earlier try was carried out.
      if ((await this.recall(actor, visit, key)) !== undefined) return;
      const head = await this.#rows.head(actor);
      if (head?.epoch !== epoch || head.worker !== worker) break;
      // Another write of the head was under way.
      await sleep(Math.random() * 5 * tries);
    }
    throw new LeaseLost(
      `turn ${epoch} of actor ${actor} is no longer current: its lease ended, and another worker took over`,
    );
  }

  /** All children of an actor, oldest first, with one read for each. */
  async children(actor: number): Promise<ChildRecord[]> {
    const items = await this.#rows.all(actorKey(actor), CHILDREN.first, CHILDREN.last);
    const ids = items.map((item) => Number(sortKey(item).slice(2)));
    const all = await Promise.all(ids.map(async (id) => ({ id, head: await this.#rows.head(id) })));
    const records: ChildRecord[] = [];
    for (const { id, head } of all) {
      if (head === undefined) continue;
      const { fields, state, isFinal } = head;
      const { name } = await this.#types.withId(head.type);
      const key = fields[F.key] === undefined ? null : String(fields[F.key]);
      const result = JSON.parse(String(fields[F.result] ?? 'null'));
      records.push({
        id: String(id),
        type: name,
        state,
        key,
        isFinal,
        result,
        fields: JSON.parse(String(fields[F.fields] ?? '{}')),
      });
    }
    return records;
  }

  /** The messages of an actor, without questions whose senders do not wait any more. Time to live removes the rows of these. */
  async messages(actor: number, { name, limit, except }: MessageFilter): Promise<MessageRow[]> {
    const items = await this.#rows.all(actorKey(actor), MESSAGES.first, MESSAGES.last);
    const now = await this.#rows.engine.serviceTime(this.#rows.limits);
    const gone = new Set(except);
    const found = items
      .map((item) => ({ id: Number(sortKey(item).slice(2)), fields: fieldsOf(item) }))
      .filter(({ id, fields }) => !gone.has(String(id)) && (name === undefined || fields['n'] === name))
      .filter(({ fields }) => !isOver(fields, now));
    return this.#bounded(actor, found)
      .slice(0, limit)
      .map(({ id, fields }) => {
        const isAsked = fields['x'] !== undefined;
        if (isAsked) this.#held.get(actor)?.asked.add(id);
        return {
          id: String(id),
          name: String(fields['n']),
          payload: JSON.parse(String(fields['y'])),
          at: new Date(Number(fields['t'])),
          isAsked,
        };
      });
  }

  /** The messages up to the first question for which the transaction of the turn has no room. */
  #bounded<M extends { readonly fields: Fields }>(actor: number, found: readonly M[]): readonly M[] {
    const held = this.#held.get(actor);
    let room = MOST_ASKED - (held?.asked.size ?? 0);
    const end = found.findIndex(({ fields }) => fields['x'] !== undefined && (room -= 1) < 0);
    if (end === -1) return found;
    if (held !== undefined) held.isCut = true;
    return found.slice(0, end);
  }
}

/** The most questions of a turn, since each is a row of its transaction. */
const MOST_ASKED = 16;

/** Whether it is a question whose sender does not wait any more. */
export function isOver(fields: Fields, now: number): boolean {
  return fields['x'] !== undefined && Number(fields['x']) < now;
}
