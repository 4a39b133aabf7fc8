/**
 * Removes jobs whose history is over: the rows of pieces, and the rows of their keys. Time to live removes records and progress. With the last job of
 * a key, its head is removed, too. That costs a read unit, to see that the key has no other job, and a write unit.
 */
import { fieldsOf, written } from '../../../engine/dynamodb/index.ts';
import type { UniqueRule } from '../../declare/unique.ts';
import type { Definition } from '../../definition.ts';
import type { QueueIds } from '../../store.ts';
import type { QueueRows } from '../database.ts';
import { placeOfUnique, removeUnique, type UniquePlace } from '../enqueue/unique.ts';
import { type ShardHead, standingOf } from '../heads/head.ts';
import { type KeyHead, keyStandingOf, readKeyHead } from '../heads/key-head.ts';
import { keyForgotten } from '../heads/key-removal.ts';
import { jobNumber, pieceOf as numberOf, sequenceOf } from '../heads/place.ts';
import { lastRecordAt } from '../records.ts';
import { delayOf, headOf, type JobRow, keyOf, pieceOf, readJobRow, unchangedByHand } from '../rows.ts';

/** How many rows one request reads. They have at most a megabyte. */
const PAGE = 25;
/** If old rows are left, the next run begins after a second; otherwise after a tenth of the history, at most ten minutes. */
const REST_MS = { min: 1000, max: 600_000 } as const;
/** How many pieces of a band one run reads, since the loop has other shards, and must end soon when it is stopped. */
const MOST = 500;

/** The jobs of a key in a piece. */
interface KeyPiece {
  readonly shard: number;
  /** The fence of the shard, as it was read before. */
  readonly fence: number;
  readonly piece: number;
  readonly key: string;
}

export class Pruning {
  readonly #rows: QueueRows;
  readonly #definition: Definition;
  readonly #ids: () => Promise<QueueIds>;
  /** By shard and band: the sequence number from which to read next. So pieces that have to stay are read once in a round. */
  readonly #from = new Map<string, number>();

  constructor(rows: QueueRows, definition: Definition, ids: () => Promise<QueueIds>) {
    this.#rows = rows;
    this.#definition = definition;
    this.#ids = ids;
  }

  /** Prunes all shards. @returns milliseconds until the next run */
  async run(): Promise<number> {
    const { historyMs, shards } = this.#definition;
    if (!Number.isFinite(historyMs)) return REST_MS.max;
    let isMore = false;
    for (let shard = 0; shard < shards; shard += 1) {
      const head = await this.#rows.head(shard);
      for (const [band, last] of head.last.entries()) {
        if (last > 0) isMore = (await this.#prune(shard, head, band)) || isMore;
      }
    }
    const restMs = isMore ? REST_MS.min : Math.min(REST_MS.max, Math.max(REST_MS.min, historyMs / 10));
    return restMs * (0.75 + Math.random() / 2);
  }

  /** @returns whether there may be more to remove */
  async #prune(shard: number, head: ShardHead, band: number): Promise<boolean> {
    const pk = this.#rows.shard(shard);
    const place = `${shard} ${band}`;
    const oldest = this.#rows.engine.now() - this.#definition.historyMs;
    for (let seen = 0; seen < MOST; seen += PAGE) {
      const from = numberOf(band, this.#from.get(place) ?? 0);
      const to = numberOf(band, head.last[band] ?? 0);
      const { items, isWhole } = await this.#rows.page(pk, pieceOf(pk, from).sk, pieceOf(pk, to).sk, PAGE);
      const old = items.filter((item) => readJobRow(item).enqueuedAt < oldest);
      for (const item of old) await this.#removeIfOver(shard, head, readJobRow(item), oldest);
      const isEnd = isWhole || old.length < items.length;
      // The next run begins anew, since pieces that had to stay may be over by then.
      if (isEnd) this.#from.delete(place);
      else this.#from.set(place, sequenceOf(readJobRow(items.at(-1) ?? {}).piece) + 1);
      if (isEnd) return false;
    }
    return true;
  }

  async #removeIfOver(shard: number, head: ShardHead, row: JobRow, oldest: number): Promise<void> {
    const pk = this.#rows.shard(shard);
    // Read before the piece is judged: if a job is brought back by hand after that, it raises the counts, and its rows stay.
    const changes = new Map<string, number>();
    for (const key of row.changes === 0 ? [] : keysOf(row)) {
      const item = await this.#rows.get(pieceOf(keyOf(pk, key), row.piece));
      changes.set(key, item === undefined ? 0 : readJobRow(item).changes);
    }
    const keyHeads = await this.#keysIfOver(shard, head, row, oldest);
    if (keyHeads === undefined) return;
    const { engine, limits } = this.#rows;
    const places = await this.#placesOf(shard, row);
    // Remove the rows of keys first, since only the piece names them.
    for (const [key, keyHead] of keyHeads) {
      if (
        !(await this.#removeOfKey({ shard, fence: head.fence, piece: row.piece, key }, keyHead, changes.get(key) ?? 0))
      )
        return;
    }
    const { isDone } = await engine.remove(pieceOf(pk, row.piece), unchangedByHand(row.changes), limits);
    if (isDone) for (const [id, place] of places) await removeUnique(this.#rows, place, id);
  }

  /** Removes the row of a key's jobs of a piece, and with the last row the head. @returns false if the piece has to stay for now */
  async #removeOfKey({ shard, fence, piece, key }: KeyPiece, head: KeyHead, changes: number): Promise<boolean> {
    const { engine, limits } = this.#rows;
    const pk = keyOf(this.#rows.shard(shard), key);
    const rows = await this.#rows.range(pk, pieceOf(pk, 0).sk, 'j#~', 2);
    const isLast = rows.every((item) => readJobRow(item).piece === piece);
    const forgotten = isLast ? keyForgotten(head, fence) : undefined;
    const hasHead = head.fields['v'] !== undefined;
    if (isLast && hasHead && forgotten === undefined) return false;
    const { isDone } = await engine.remove(pieceOf(pk, piece), unchangedByHand(changes), limits);
    if (!isDone) return false;
    // If this is refused, the key is used again.
    if (hasHead && forgotten !== undefined) await engine.remove(headOf(pk), written(forgotten), limits);
    return true;
  }

  /** The rows of unique values that may still name jobs of the piece. */
  async #placesOf(shard: number, row: JobRow): Promise<[id: number, place: UniquePlace][]> {
    const { kindName } = await this.#ids();
    const ruleOf = (kind: number): UniqueRule | undefined =>
      this.#definition.kinds.get(kindName.get(kind) ?? '')?.unique;
    if (row.kinds.every((kind) => ruleOf(kind) === undefined)) return [];
    const pk = this.#rows.shard(shard);
    const keys = [...keysOf(row)];
    const bodies = await Promise.all(keys.map((key) => this.#rows.get(pieceOf(keyOf(pk, key), row.piece))));
    const found = keys.length === 0 ? [row] : bodies.flatMap((item) => (item === undefined ? [] : readJobRow(item)));
    return found.flatMap((body) =>
      body.indexes.flatMap((index, at): [number, UniquePlace][] => {
        const rule = ruleOf(body.kinds[at] ?? -1);
        if (rule === undefined) return [];
        const job = { key: row.keys?.[index], payload: body.payloads[at] ?? null };
        const kind = kindName.get(body.kinds[at] ?? -1) ?? '';
        return [[jobNumber(shard, row.piece, index), placeOfUnique(this.#rows.queue, kind, rule, job)]];
      }),
    );
  }

  /** @returns the heads of the keys of a piece, if all its jobs are over and their records are old; else undefined */
  async #keysIfOver(
    shard: number,
    before: ShardHead,
    row: JobRow,
    oldest: number,
  ): Promise<Map<string, KeyHead> | undefined> {
    const pk = this.#rows.shard(shard);
    const { kindName } = await this.#ids();
    // A job that is unique for ever stays for ever.
    const isKept = row.kinds.some((kind) => isForEver(this.#definition.kinds.get(kindName.get(kind) ?? '')?.unique));
    if (row.n > 0 && isKept) return undefined;
    let head = before;
    if (row.dueAt > 0) {
      if ((await this.#rows.get(delayOf(pk, row.dueAt, row.piece))) !== undefined) return undefined;
      // The jobs may have become due since the head was read. Only a head that is read after their delay shows them.
      head = await this.#rows.head(shard);
    }
    // An empty piece fills the number of a producer that was given up. It has to stay until the line has passed it.
    const spots = (row.n === 0 ? [0] : row.indexes).map((index) => ({ piece: row.piece, index }));
    if (spots.some((spot) => standingOf(head, spot) !== 'gone')) return undefined;
    const keyHeads = new Map<string, KeyHead>();
    for (const key of keysOf(row)) {
      const place = keyOf(pk, key);
      const keyHead = readKeyHead(fieldsOf(await this.#rows.get(headOf(place))));
      keyHeads.set(key, keyHead);
      const left = row.indexes.flatMap((index, at) => {
        const standing = keyStandingOf(keyHead, jobNumber(shard, row.piece, index));
        return row.keys?.[at] !== key || standing === 'over' || standing === 'cancelled' ? [] : [standing];
      });
      // The row of the key may be gone already, and its head too. A missing head says that all jobs are outstanding.
      const isGone = (): Promise<boolean> =>
        this.#rows.get(pieceOf(place, row.piece)).then((item) => item === undefined);
      if (left.length > 0 && !(left.every((one) => one === 'later') && (await isGone()))) return undefined;
    }
    return (await lastRecordAt(this.#rows, shard, row.piece)) < oldest ? keyHeads : undefined;
  }
}

function isForEver(rule: UniqueRule | undefined): boolean {
  return rule?.while === 'ever' && rule.per === undefined;
}

function keysOf(row: JobRow): Set<string> {
  return new Set(row.isLabelled ? [] : row.keys);
}
