import { now } from '../../../base/time/clock.ts';
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
import { DELAYS, delayFrom, headOf } from '../rows.ts';

/** The rows of delayed jobs are read again after this time, whatever the head says: its notice may never have been written. */
const AGAIN_MS = 30_000;
/** A transaction has at most 100 rows, and one of them is the head. */
const AT_ONCE = 50;

interface DelayState {
  readonly delays: number;
  readonly nextAt: number;
  readonly readAt: number;
}

/** Jobs that were enqueued for later: moves those that are due into the head of their shard. */
export class Delays {
  readonly #rows: QueueRows;
  readonly #known = new Map<number, DelayState>();

  constructor(rows: QueueRows) {
    this.#rows = rows;
  }

  /** Sends nothing as long as the head names no new delay, and none that is known is due. */
  async moveDue(shard: number, head: ShardHead): Promise<{ readonly isMoved: boolean; readonly nextAt: number }> {
    const known = this.#known.get(shard);
    const time = this.#rows.engine.now();
    const isFresh = known !== undefined && known.delays === head.delays && now() - known.readAt < AGAIN_MS;
    if (isFresh && known.nextAt > time) return { isMoved: false, nextAt: known.nextAt };
    if (known === undefined && head.delays === 0) {
      this.#known.set(shard, { delays: 0, nextAt: Infinity, readAt: now() });
      return { isMoved: false, nextAt: Infinity };
    }
    const pk = this.#rows.shard(shard);
    const items = await this.#rows.range(pk, DELAYS.first, DELAYS.last, AT_ONCE);
    const due = items.filter((item) => dueAtOf(item) <= time);
    const isMoved = due.length > 0 && (await this.#move(shard, due));
    const next = items.find((item) => dueAtOf(item) > time);
    const nextAt = next === undefined ? (due.length === items.length && due.length > 0 ? 0 : Infinity) : dueAtOf(next);
    this.#known.set(shard, { delays: head.delays, nextAt: isMoved || due.length === 0 ? nextAt : 0, readAt: now() });
    return { isMoved, nextAt };
  }

  /** All rows and the head together: a job is in one of the two, and in one only. */
  #move(shard: number, due: readonly Item[]): Promise<boolean> {
    const pk = this.#rows.shard(shard);
    const spans = due.flatMap(spansOf);
    const name = backName(`d${pieceIn(due[0])}.${due.length}`);
    const change = added({ name, spans });
    const removals = due.map((item) => ({ key: { pk, sk: textOf(item, 'sk') }, removed: unchanged(item).write() }));
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

/** That it is there, and none of its jobs was cancelled since it was read. */
export function unchanged(item: Item): Expression {
  const request = new Expression().when('attribute_exists(pk)');
  const cancelled = fieldsOf(item)['x'];
  if (cancelled === undefined) return request.whenAbsent('x');
  return request.whenIs('x', attribute(cancelled));
}

/** Says which jobs of a row are cancelled, if that has not changed since it was read. */
export function withCancelled(item: Item, cancelled: readonly number[]): RequestTexts {
  return unchanged(item)
    .set('x', attribute(JSON.stringify(cancelled)))
    .write();
}

/** The number of the piece whose jobs it delays. */
export function pieceIn(item: Item | undefined): number {
  const sk = item === undefined ? '' : textOf(item, 'sk');
  return Number(sk.slice(sk.lastIndexOf('#') + 1));
}

function dueAtOf(item: Item): number {
  const sk = textOf(item, 'sk');
  return Number(sk.slice(delayFrom(0).indexOf('#') + 1, sk.lastIndexOf('#')));
}

function textOf(item: Item, name: string): string {
  const value = item[name];
  return value !== undefined && 'S' in value ? value.S : '';
}
