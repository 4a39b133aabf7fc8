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

/** Moves jobs that were enqueued for later into the head of their shard when they are due. */
export class Delays {
  readonly #rows: QueueRows;
  readonly #due: DueRows;

  constructor(rows: QueueRows) {
    this.#rows = rows;
    this.#due = new DueRows(rows, DELAYS, AT_ONCE);
  }

  /** Sends nothing as long as the head has counted no new delay, and no known delay is due. */
  moveDue(shard: number, { delays }: ShardHead): Promise<{ readonly isMoved: boolean; readonly nextAt: number }> {
    return this.#due.moveDue(shard, delays, (due) => this.#move(shard, due));
  }

  /** Removes the rows and writes the head in one transaction. So a job is always in exactly one of the two. */
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

/** The jobs of a row of a delay, without those that were cancelled. */
function spansOf(item: Item): Span[] {
  const cancelled = cancelledIn(item);
  const n = Number(fieldsOf(item)['n'] ?? 1);
  const indexes = Array.from({ length: n }, (_, index) => index).filter((index) => !cancelled.includes(index));
  if (indexes.length === n) return [{ piece: pieceIn(item), index: 0, n, attempts: 0, dueAt: 0 }];
  return indexes.map((index) => ({ piece: pieceIn(item), index, n: 1, attempts: 0, dueAt: 0 }));
}

/** The indexes of the jobs of the row that were cancelled. */
export function cancelledIn(item: Item): number[] {
  return JSON.parse(String(fieldsOf(item)['x'] ?? '[]'));
}

/** The condition that the row exists, and that none of its jobs was cancelled, or given another time, since the row was read. */
export function unchanged(item: Item): Expression {
  const request = new Expression().when('attribute_exists(pk)');
  const { x, r, p } = fieldsOf(item);
  // `r` is the time of a job that waits for others. People may change it.
  if (r !== undefined) request.whenIs('r', attribute(r));
  else if (p !== undefined) request.whenAbsent('r');
  return x === undefined ? request.whenAbsent('x') : request.whenIs('x', attribute(x));
}

/** Sets which jobs of a row are cancelled, if the row has not changed since it was read. */
export function withCancelled(item: Item, cancelled: readonly number[]): RequestTexts {
  return unchanged(item)
    .set('x', attribute(JSON.stringify(cancelled)))
    .write();
}
