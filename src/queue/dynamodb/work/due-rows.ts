import { now } from '../../../base/time/clock.ts';
import type { Item } from '../../../engine/dynamodb/index.ts';
import type { QueueRows } from '../database.ts';

/**
 * Once the head has named a row, they are read again, whatever it says: after a second first, and at last every 30 s. The row may come later than
 * the number of its piece: with the transaction of a caller, or from a producer that stood still, and died before it said so once more.
 */
const AGAIN_MS = { first: 1000, last: 30_000 };

interface ShardState {
  readonly told: number;
  readonly toldAt: number;
  readonly nextAt: number;
  readonly readAt: number;
}

/** Rows of a shard that are sorted by a time, and what a process knows about the first of them. */
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
   * Gives those that are due to `move`, which says whether it has moved them. Sends nothing as long as the head names no new row, and
   * none that is known is due; and never where the shard has not had such a row: an idle worker then costs one request for each poll.
   * @param told  rises in the head of the shard before each new row, and once more behind it
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

/** As long as the head has named nothing new. */
function restOf({ toldAt, readAt }: ShardState): number {
  return Math.min(Math.max(readAt - toldAt, AGAIN_MS.first), AGAIN_MS.last);
}

/** The number of the piece that a row is about, which its key ends with. */
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
