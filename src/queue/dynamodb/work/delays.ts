import {
  attribute,
  Expression,
  fieldsOf,
  type Item,
  type RequestTexts,
  written,
} from '../../../engine/dynamodb/index.ts';
import type { QueueRows } from '../database.ts';
import { added, backName, type ShardHead } from '../heads/head.ts';
import { type Span } from '../heads/spans.ts';
import { DELAYS, headOf } from '../rows.ts';
import { DueRows, pieceIn, sortKeyOf } from './due-rows.ts';

/** A transaction has at most 100 rows, and one of them is the head. */
const AT_ONCE = 50;

/** Jobs that were enqueued for later: moves those that are due into the head of their shard. */
export class Delays {
  readonly #rows: QueueRows;
  readonly #due: DueRows;

  constructor(rows: QueueRows) {
    this.#rows = rows;
    this.#due = new DueRows(rows, DELAYS, AT_ONCE);
  }

  /** Sends nothing as long as the head names no new delay, and none that is known is due. */
  moveDue(shard: number, { delays }: ShardHead): Promise<{ readonly isMoved: boolean; readonly nextAt: number }> {
    return this.#due.moveDue(shard, delays, (due) => this.#move(shard, due));
  }

  /** All rows and the head together: a job is in one of the two, and in one only. */
  #move(shard: number, due: readonly Item[]): Promise<boolean> {
    const pk = this.#rows.shard(shard);
    const spans = due.flatMap(spansOf);
    const name = backName(`d${pieceIn(due[0])}.${due.length}`);
    const change = added({ name, spans });
    const removals = due.map((item) => ({ key: { pk, sk: sortKeyOf(item) }, removed: unchanged(item).write() }));
    const head = spans.length === 0 ? [] : [{ key: headOf(pk), written: written(change) }];
    return this.#rows.together([...head, ...removals]);
  }
}

/** The jobs of a row of delayed ones, without those that were cancelled. */
function spansOf(item: Item): Span[] {
  const cancelled = cancelledIn(item);
  const n = Number(fieldsOf(item)['n'] ?? 1);
  const indexes = Array.from({ length: n }, (_, index) => index).filter((index) => !cancelled.includes(index));
  if (indexes.length === n) return [{ piece: pieceIn(item), index: 0, n, attempts: 0, dueAt: 0 }];
  return indexes.map((index) => ({ piece: pieceIn(item), index, n: 1, attempts: 0, dueAt: 0 }));
}

/** The jobs of it that were cancelled, by their index. */
export function cancelledIn(item: Item): number[] {
  return JSON.parse(String(fieldsOf(item)['x'] ?? '[]'));
}

/** That it is there, and none of its jobs was cancelled, or given another time, since it was read. */
export function unchanged(item: Item): Expression {
  const request = new Expression().when('attribute_exists(pk)');
  const { x, r, p } = fieldsOf(item);
  // The time of a job that waits for others, which people change.
  if (r !== undefined) request.whenIs('r', attribute(r));
  else if (p !== undefined) request.whenAbsent('r');
  return x === undefined ? request.whenAbsent('x') : request.whenIs('x', attribute(x));
}

/** Says which jobs of a row are cancelled, if that has not changed since it was read. */
export function withCancelled(item: Item, cancelled: readonly number[]): RequestTexts {
  return unchanged(item)
    .set('x', attribute(JSON.stringify(cancelled)))
    .write();
}
