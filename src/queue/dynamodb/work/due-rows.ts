import { now } from '../../../base/time/clock.ts';
import type { Item } from '../../../engine/dynamodb/index.ts';
import type { QueueRows } from '../database.ts';

/**
 * After the head has counted a new row, the rows are read again even if it counts no other: first after a second, and finally every 30 s. The row
 * may arrive later than the number of its piece: in the transaction of a caller, or from a slow producer that dies before it counts the row again.
 */
const AGAIN_MS = { first: 1000, last: 30_000 };

interface ShardState {
  readonly told: number;
  readonly toldAt: number;
  readonly nextAt: number;
  readonly readAt: number;
}

/** Rows of a shard that are sorted by a time, and the time of the first of them, as far as this process knows it. */
export class DueRows {
  readonly #rows: QueueRows;
  readonly #range: { readonly first: string; readonly last: string };
  readonly #atOnce: number;
  readonly #known = new Map<number, ShardState>();

  constructor(rows: QueueRows, range: { readonly first: string; readonly last: string }, atOnce: number) {
    this.#rows = rows;
    this.#range = range;
    this.#atOnce = atOnce;
  }

  /**
   * Gives the due rows to `move`, which returns whether it has moved them. Sends nothing as long as the head has counted no new row, and no known row
   * is due. Sends nothing at all if the shard has never had such a row, so that an idle worker costs one request for each poll.
   * @param told  a count in the head of the shard that rises before each new row, and once more after it
   */
  async moveDue(
    shard: number,
    told: number,
    move: (due: readonly Item[]) => Promise<boolean>,
  ): Promise<{ readonly isMoved: boolean; readonly nextAt: number }> {
    if (told === 0) return { isMoved: false, nextAt: Infinity };
    const known = this.#known.get(shard);
    const time = this.#rows.engine.now();
    const isFresh = known?.told === told && now() - known.readAt < restOf(known);
    if (isFresh && known.nextAt > time) return { isMoved: false, nextAt: known.nextAt };
    const items = await this.#rows.range(this.#rows.shard(shard), this.#range.first, this.#range.last, this.#atOnce);
    const due = items.filter((item) => dueAtOf(item) <= time);
    const isMoved = due.length > 0 && (await move(due));
    const next = items.find((item) => dueAtOf(item) > time);
    const toldAt = known?.told === told ? known.toldAt : now();
    const nextAt = next === undefined ? (due.length === items.length && due.length > 0 ? 0 : Infinity) : dueAtOf(next);
    this.#known.set(shard, { told, toldAt, nextAt: isMoved || due.length === 0 ? nextAt : 0, readAt: now() });
    return { isMoved, nextAt };
  }
}

/** How long the rows are not read again, as long as the head counts no new row. */
function restOf({ toldAt, readAt }: ShardState): number {
  return Math.min(Math.max(readAt - toldAt, AGAIN_MS.first), AGAIN_MS.last);
}

/** The number of the piece of a row. The sort key ends with it. */
export function pieceIn(item: Item | undefined): number {
  const sk = item === undefined ? '' : sortKeyOf(item);
  return Number(sk.slice(sk.lastIndexOf('#') + 1));
}

export function sortKeyOf({ sk }: Item): string {
  return sk !== undefined && 'S' in sk ? sk.S : '';
}

function dueAtOf(item: Item): number {
  return Number(sortKeyOf(item).split('#')[1]);
}
