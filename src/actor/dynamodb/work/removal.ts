import { written } from '../../../engine/dynamodb/index.ts';
import { type ActorRows, wakeKey } from '../database.ts';
import { type ActorHead, F } from '../heads/head.ts';
import { actorKey, HEAD, headOf, keyOf, listOf, overLineOf, sortKey } from '../rows.ts';
import type { TypeRow, Types } from '../types.ts';

const AT_ONCE = 20;
/** How long the removal of a child is put off, if its parent may still read its result. */
const AGAIN_MS = 3_600_000;

/**
 * Removes final actors after the history of their type. A row in the order of time is written before the commit that makes an actor final, and names
 * the epoch of that turn. A removal removes the rows of the actor, one write for each, then the head, then rows that have come meanwhile. The row in
 * the order of time is removed last, so that a removal that was cut short is continued. Rows that come even later have a wake row, and the worker
 * that finds it removes them.
 */
export class Removal {
  readonly #rows: ActorRows;
  readonly #types: Types;

  constructor(rows: ActorRows, types: Types) {
    this.#rows = rows;
    this.#types = types;
  }

  /** Writes the row in the order of time. Call it before the commit that makes the actor final. */
  async plan(type: TypeRow, actor: number, epoch: number, now: number): Promise<void> {
    if (type.historyMs === null) return;
    await this.#put(type, actor, epoch, now + type.historyMs);
  }

  /** Removes actors whose history is over. One query for each type and shard. @returns how many were removed */
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
      // A removal was cut short.
      await clear(this.#rows, actor);
      return 'drop';
    }
    // Either the commit is under way, or it was refused. A later commit has a row of its own.
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
    // Removes raises and messages since the first query, by callers that had read the actor before it was final.
    await clear(this.#rows, actor);
  }
}

/** Removes all rows of an actor, except its head. */
export async function clear(rows: ActorRows, actor: number): Promise<void> {
  const pk = actorKey(actor);
  for (const item of await rows.all(pk, '!', '~')) {
    if (sortKey(item) !== HEAD) await rows.drop({ pk, sk: sortKey(item) });
  }
}

const NONE = { at: 0, actor: 0, kind: 'time', epoch: 0, name: '' } as const;
