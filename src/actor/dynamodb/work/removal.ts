import { written } from '../../../engine/dynamodb/index.ts';
import { type ActorRows, wakeKey } from '../database.ts';
import { type ActorHead, F } from '../heads/head.ts';
import { actorKey, HEAD, headOf, keyOf, listOf, overLineOf, sortKey } from '../rows.ts';
import type { TypeRow, Types } from '../types.ts';

const AT_ONCE = 20;
/** When a child is looked at again whose parent may still read its result. */
const AGAIN_MS = 3_600_000;

/**
 * Removes final actors once they have been kept for the history of their type. A row in the order of time is put before the commit that
 * makes an actor final, and names the epoch of that turn. Each row of an actor is a write; then the head, then what has come
 * meanwhile. Only then is the row in the order of time removed, so that a removal which was cut short is gone on with. What comes later
 * has a row of the line, and is removed by the worker that finds it.
 */
export class Removal {
  readonly #rows: ActorRows;
  readonly #types: Types;

  constructor(rows: ActorRows, types: Types) {
    this.#rows = rows;
    this.#types = types;
  }

  /** Before the commit that makes it final. */
  async plan(type: TypeRow, actor: number, epoch: number, now: number): Promise<void> {
    if (type.historyMs === null) return;
    await this.#put(type, actor, epoch, now + type.historyMs);
  }

  /** One query for each type and shard. @returns how many were removed */
  async check(): Promise<number> {
    let removed = 0;
    const now = await this.#rows.engine.serviceTime(this.#rows.limits);
    for (const type of (await this.#types.fresh()).values()) {
      for (let shard = 0; shard < type.shards; shard += 1) {
        const pk = overLineOf(type.id, shard);
        const due = await this.#rows.range(pk, 'w#', wakeKey(pk, { ...NONE, at: now + 1 }).sk, AT_ONCE);
        for (const item of due) {
          const [, , actor = '0', epoch = '0'] = sortKey(item).split('#');
          const outcome = await this.#look(type, Number(actor), Number(epoch), now);
          if (outcome !== 'leave') await this.#rows.drop({ pk, sk: sortKey(item) });
          if (outcome === 'removed') removed += 1;
        }
      }
    }
    return removed;
  }

  async #look(type: TypeRow, actor: number, epoch: number, now: number): Promise<'leave' | 'drop' | 'removed'> {
    const head = await this.#rows.head(actor);
    if (head === undefined) {
      // A removal that was cut short.
      await clear(this.#rows, actor);
      return 'drop';
    }
    // Its commit is under way; or it was refused, and a later one has a row of its own.
    if (!head.isFinal) return head.worker !== 0 && head.epoch === epoch ? 'leave' : 'drop';
    if (type.historyMs === null) return 'drop';
    const until = Number(head.fields[F.finishedAt]) + type.historyMs;
    if (until > now) return this.#later(type, actor, epoch, until);
    const parent = Number(head.fields[F.parent] ?? 0);
    const above = parent === 0 ? undefined : await this.#rows.head(parent);
    if (above !== undefined && !above.isFinal) return this.#later(type, actor, epoch, now + AGAIN_MS);
    await this.#remove(type, actor, head);
    return 'removed';
  }

  async #later(type: TypeRow, actor: number, epoch: number, at: number): Promise<'drop'> {
    await this.#put(type, actor, epoch, at);
    return 'drop';
  }

  async #put(type: TypeRow, actor: number, epoch: number, at: number): Promise<void> {
    const row = { ...NONE, at, actor, name: String(epoch) };
    await this.#rows.put(wakeKey(overLineOf(type.id, actor % type.shards), row), { e: epoch });
  }

  async #remove(type: TypeRow, actor: number, head: ActorHead): Promise<void> {
    await clear(this.#rows, actor);
    await this.#rows.drop(listOf(type.id, actor, type.shards));
    const key = head.fields[F.key];
    if (key !== undefined) {
      const isIts = written({ expect: { q: actor }, set: {} });
      await this.#rows.engine.remove(keyOf(type.id, String(key)), isIts, this.#rows.limits);
    }
    await this.#rows.drop(headOf(actor));
    // What was raised or sent since the first query, by a caller that had found it before it was final.
    await clear(this.#rows, actor);
  }
}

/** Removes all rows of an actor but its head. */
export async function clear(rows: ActorRows, actor: number): Promise<void> {
  const pk = actorKey(actor);
  for (const item of await rows.all(pk, '!', '~')) {
    if (sortKey(item) !== HEAD) await rows.drop({ pk, sk: sortKey(item) });
  }
}

const NONE = { at: 0, actor: 0, kind: 'time', epoch: 0, name: '' } as const;
