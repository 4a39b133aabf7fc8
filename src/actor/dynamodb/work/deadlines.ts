import { type PartialWrite, written } from '../../../engine/dynamodb/index.ts';
import { type ActorRows, wakeKey } from '../database.ts';
import { type ActorHead, F } from '../heads/head.ts';
import { type LateRow, lateName, lookedLate } from '../heads/late.ts';
import type { Pages } from '../pages/pages.ts';
import { headOf, lateLineOf, sortKey } from '../rows.ts';
import type { TypeRow, Types } from '../types.ts';

const READ_AT_ONCE = 40;

/** Opens pages about actors that are in a state for longer than declared. Any number of processes may run it at once. */
export class Deadlines {
  readonly #rows: ActorRows;
  readonly #types: Types;
  readonly #pages: Pages;

  constructor(rows: ActorRows, types: Types, pages: Pages) {
    this.#rows = rows;
    this.#types = types;
    this.#pages = pages;
  }

  /** Checks all deadlines, with one query for each shard of a type that declares a deadline. @returns milliseconds until the next deadline */
  async check(): Promise<number> {
    let wait = Infinity;
    for (const type of (await this.#types.fresh()).values()) {
      if (!hasDeadlines(type)) continue;
      for (let shard = 0; shard < type.shards; shard += 1) wait = Math.min(wait, await this.#checkLine(type, shard));
    }
    return wait;
  }

  async #checkLine(type: TypeRow, shard: number): Promise<number> {
    const pk = lateLineOf(type.id, shard);
    const items = await this.#rows.range(pk, 'w#', 'w#~', READ_AT_ONCE);
    if (items.length === 0) return Infinity;
    const now = await this.#rows.engine.serviceTime(this.#rows.limits);
    for (const item of items) {
      const [, at = 0, actor = 0, visit = 0, epoch = 0] = sortKey(item).split('#').map(Number);
      if (at > now) return at - now;
      const row = { at, actor, visit, epoch };
      if (await this.#look(row, type, now)) await this.#rows.drop({ pk, sk: sortKey(item) });
    }
    return items.length < READ_AT_ONCE ? Infinity : 0;
  }

  /** @returns whether the row is over */
  async #look(row: LateRow, type: TypeRow, now: number): Promise<boolean> {
    const head = await this.#rows.head(row.actor);
    const look = lookedLate(row, head, now);
    if (look.kind !== 'late' || head === undefined) return look.kind === 'drop';
    const { parts } = await this.#pages.opening({
      tag: deadlineTag(row.actor),
      severity: 3,
      summary: `${type.name} ${row.actor} is in "${head.state}" since ${secondsOf(head)}, longer than its deadline`,
      details: { state: head.state, error: head.fields[F.error] ?? null },
      root: undefined,
      actor: String(row.actor),
    });
    // If it is refused, the actor has left the state, or another process has opened the page. The next check reads the row again.
    const isDone = await this.#rows.together([{ key: headOf(row.actor), written: written(look.change) }, ...parts]);
    if (isDone) this.#pages.noteNotices();
    return isDone;
  }
}

function secondsOf({ fields }: ActorHead): string {
  return `${new Date(Number(fields[F.enteredAt] ?? 0)).toISOString().slice(0, 19)}Z`;
}

export function deadlineTag(actor: number): string {
  return `actor-deadline:${actor}`;
}

function hasDeadlines({ machine }: TypeRow): boolean {
  return Object.values(machine.states).some(({ deadlineMs }) => deadlineMs !== undefined);
}

/** How long a state of a type may last. */
export function deadlineOf(type: TypeRow, state: string): number | undefined {
  return type.machine.states[state]?.deadlineMs;
}

/** The row by which workers find the end of a deadline. */
export function lateWrite(type: TypeRow, row: LateRow): PartialWrite {
  const pk = lateLineOf(type.id, row.actor % type.shards);
  const { at, actor, epoch } = row;
  const key = wakeKey(pk, { at, actor, kind: 'time', epoch, name: lateName(row) });
  return { key, written: written({ expect: {}, set: { e: epoch } }) };
}
