/**
 * Removes jobs whose history is over: the rows of pieces, and of the keys among them. Time to live removes records and progress. With the last
 * job of a key its head goes, too: that costs a read unit to see that there is no other job, and a write unit.
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

/** One poll of a shard reads so many rows, of at most a megabyte. */
const PAGE = 25;
/** With old rows left, it goes on after a second; else it rests for a tenth of the history, and at most for ten minutes. */
const REST_MS = { min: 1000, max: 600_000 } as const;
/** Pieces of one run: the loop has other shards, and ends soon when it is stopped. */
const MOST = 500;

/** The jobs of a key in a piece. */
interface KeyPiece {
  readonly shard: number;
  /** Of the shard, as it was read before. */
  readonly fence: number;
  readonly piece: number;
  readonly key: string;
}

export class Pruning {
  readonly #rows: QueueRows;
  readonly #definition: Definition;
  readonly #ids: () => Promise<QueueIds>;
  /** By shard and band: behind which piece to look next. What has to stay is read once in a round. */
  readonly #from = new Map<string, number>();

  constructor(rows: QueueRows, definition: Definition, ids: () => Promise<QueueIds>) {
    this.#rows = rows;
    this.#definition = definition;
    this.#ids = ids;
  }

  /** Looks at all shards. @returns milliseconds until it should look again */
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
      // From the beginning again, as what had to stay may be over by then.
      if (isEnd) this.#from.delete(place);
      else this.#from.set(place, sequenceOf(readJobRow(items.at(-1) ?? {}).piece) + 1);
      if (isEnd) return false;
    }
    return true;
  }

  async #removeIfOver(shard: number, head: ShardHead, row: JobRow, oldest: number): Promise<void> {
    const pk = this.#rows.shard(shard);
    // Before it is judged: a job that is brought back by hand after that raises the counts, and keeps its rows.
    const changes = new Map<string, number>();
    for (const key of row.changes === 0 ? [] : keysOf(row)) {
      const item = await this.#rows.get(pieceOf(keyOf(pk, key), row.piece));
      changes.set(key, item === undefined ? 0 : readJobRow(item).changes);
    }
    const keyHeads = await this.#keysIfOver(shard, head, row, oldest);
    if (keyHeads === undefined) return;
    const { engine, limits } = this.#rows;
    const places = await this.#placesOf(shard, row);
    // The rows of keys first: a piece that is there names them.
    for (const [key, keyHead] of keyHeads) {
      if (
        !(await this.#removeOfKey({ shard, fence: head.fence, piece: row.piece, key }, keyHead, changes.get(key) ?? 0))
      )
        return;
    }
    const { isDone } = await engine.remove(pieceOf(pk, row.piece), unchangedByHand(row.changes), limits);
    if (isDone) for (const [id, place] of places) await removeUnique(this.#rows, place, id);
  }

  /** The row of its jobs in a piece, and the head with the last one. @returns false when the piece has to stay for now */
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
    // Where it is refused, the key is used again.
    if (hasHead && forgotten !== undefined) await engine.remove(headOf(pk), written(forgotten), limits);
    return true;
  }

  /** The places that its jobs of unique kinds may still have. */
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

  /** @returns the heads of its keys, when all jobs of a piece are over, and their records old */
  async #keysIfOver(
    shard: number,
    before: ShardHead,
    row: JobRow,
    oldest: number,
  ): Promise<Map<string, KeyHead> | undefined> {
    const pk = this.#rows.shard(shard);
    const { kindName } = await this.#ids();
    // A job that is unique for ever is there for ever.
    const isKept = row.kinds.some((kind) => isForEver(this.#definition.kinds.get(kindName.get(kind) ?? '')?.unique));
    if (row.n > 0 && isKept) return undefined;
    let head = before;
    if (row.dueAt > 0) {
      if ((await this.#rows.get(delayOf(pk, row.dueAt, row.piece))) !== undefined) return undefined;
      // They may have become due since the head was read: only one that is read after their delay shows them.
      head = await this.#rows.head(shard);
    }
    // An empty piece stands for the number of a producer that was given up, until the line has passed it.
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
      // Rows of the key may be gone already, and its head with them, which says that later jobs are outstanding.
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
