/** Lists of jobs, for people: reads the rows of a queue from the newest on, and then the jobs that may pass the filter, one by one. */
import { InvalidInput, NotSupported } from '../../../base/errors.ts';
import { checkOptions, custom, duration, integer, optional, text } from '../../../base/options/options.ts';
import { show } from '../../../base/options/refusal.ts';
import { now } from '../../../base/time/clock.ts';
import { shardOf } from '../../enqueue.ts';
import type { JobRecord } from '../../job.ts';
import { parseQuery, type SearchPage, type SearchQuery } from '../../operate/search.ts';
import { type QueueRows, unlessMissing } from '../database.ts';
import { type ShardHead, standingOf } from '../heads/head.ts';
import {
  BANDS,
  bandOfPiece,
  JOBS,
  jobNumber,
  type KeyPlace,
  pieceOf as numberOf,
  placeOf,
  sequenceOf,
} from '../heads/place.ts';
import { readRecords } from '../records.ts';
import { type JobRow, keyOf, pieceOf, readJobRow } from '../rows.ts';

/** How many rows of a shard one request reads. */
const PAGE = 25;
/** The least time budget of a page. If the page has not found enough in its time, it ends with a cursor. */
const LEAST_MS = 500;

const shape = {
  queue: optional(text()),
  limit: integer({ min: 1, max: 1000, default: 50 }),
  after: optional(custom('a cursor', (value) => readCursor(value))),
  budget: duration({ min: 1, max: '1m', default: LEAST_MS }),
};

/** The last job that a page has read. */
interface Cursor {
  readonly queue: string;
  readonly id: number;
}

/** A queue whose jobs are listed. */
export interface ListedQueue {
  readonly rows: QueueRows;
  readonly shards: number;
  /** Whether each key has a partition of its own, with its jobs. */
  readonly keyed: boolean;
  readonly kindId: ReadonlyMap<string, number>;
  readonly get: (id: string) => Promise<JobRecord>;
}

/**
 * One page of the jobs that pass the filters `status:`, `kind:`, `key:`, `tag:`, `since:` and `until:`. Newest first in each shard and band.
 * @param names  the queues in the order of the list @param open  opens a queue when the list reaches it
 * @throws InvalidInput @throws NotSupported  the query has words
 */
export async function listJobs(
  query: string,
  options: object,
  names: () => Promise<readonly string[]>,
  open: (name: string) => Promise<ListedQueue>,
): Promise<SearchPage> {
  const filter = parseQuery(query);
  if (filter.terms.length > 0) {
    throw new NotSupported(
      'not on DynamoDB: it has no index of words; search by status:, kind:, key:, tag:, since: and until:, which are checked job by job',
    );
  }
  const { queue, limit, after, budget } = checkOptions('search', options, shape);
  const all = queue === undefined ? await names() : [queue];
  const from = after === undefined ? 0 : Math.max(0, all.indexOf(after.queue));
  const listing = new Listing(filter, limit, now() + Math.max(budget, LEAST_MS));
  for (const name of all.slice(from)) {
    const isWhole = await listing.list(name, await open(name), after?.queue === name ? after.id : undefined);
    if (!isWhole) break;
  }
  const { jobs, at } = listing;
  return { jobs, after: at === undefined ? null : writeCursor(at), indexBehind: 0 };
}

class Listing {
  readonly jobs: JobRecord[] = [];
  /** Where the next page goes on; undefined if there is none. */
  at: Cursor | undefined;
  readonly #filter: SearchQuery;
  readonly #limit: number;
  readonly #until: number;

  constructor(filter: SearchQuery, limit: number, until: number) {
    this.#filter = filter;
    this.#limit = limit;
    this.#until = until;
  }

  /** @returns whether the list has reached the end of the queue */
  async list(name: string, queue: ListedQueue, after: number | undefined): Promise<boolean> {
    const place = after === undefined ? undefined : placeOf(after);
    const { key } = this.#filter;
    if (queue.keyed && key !== undefined) {
      const isWhole = await this.#listKey(name, queue, key, place);
      if (isWhole) this.at = undefined;
      return isWhole;
    }
    for (let shard = place?.shard ?? 0; shard < queue.shards; shard += 1) {
      const head = await queue.rows.head(shard);
      const isFirst = place !== undefined && shard === place.shard;
      for (let band = isFirst ? bandOfPiece(place.piece) : 0; band < BANDS; band += 1) {
        const isAt = isFirst && band === bandOfPiece(place.piece);
        const start = isAt
          ? place.piece * JOBS + place.index - 1
          : numberOf(band, head.last[band] ?? 0) * JOBS + JOBS - 1;
        if (!(await this.#listBand(name, queue, shard, head, start))) return false;
      }
    }
    this.at = undefined;
    return true;
  }

  /** Lists only the jobs of one key. @param before  the last job that the page before has read */
  async #listKey(name: string, queue: ListedQueue, key: string, before: KeyPlace | undefined): Promise<boolean> {
    const shard = shardOf(key, queue.shards);
    const pk = keyOf(queue.rows.shard(shard), key);
    const from = pieceOf(pk, 0).sk;
    for (let to = before === undefined ? 'j#~' : pieceOf(pk, before.piece).sk; ; ) {
      const { items, isWhole } = await queue.rows.page(pk, from, to, PAGE, 'newest first');
      for (const row of items.map(readJobRow)) {
        for (const [at, index] of [...row.indexes.entries()].toReversed()) {
          if (row.piece === before?.piece && index >= before.index) continue;
          const id = jobNumber(shard, row.piece, index);
          this.at = { queue: name, id };
          if (this.#mayBe(queue, row, at)) await this.#add(queue, id);
          if (this.jobs.length >= this.#limit || now() > this.#until) return false;
        }
        to = pieceOf(pk, row.piece - 1).sk;
      }
      if (isWhole) return true;
    }
  }

  /** @param start  the place of the first job to read: piece × 64 + index */
  async #listBand(name: string, queue: ListedQueue, shard: number, head: ShardHead, start: number): Promise<boolean> {
    const pk = queue.rows.shard(shard);
    const band = bandOfPiece(Math.floor(start / JOBS));
    for (let next = start; sequenceOf(Math.floor(next / JOBS)) >= 1; ) {
      const [from, to] = [pieceOf(pk, numberOf(band, 1)).sk, pieceOf(pk, Math.floor(next / JOBS)).sk];
      const { items, isWhole } = await queue.rows.page(pk, from, to, PAGE, 'newest first');
      for (const row of items.map(readJobRow)) {
        for (let index = row.n - 1; index >= 0; index -= 1) {
          const at = row.piece * JOBS + index;
          if (at > next) continue;
          const id = jobNumber(shard, row.piece, index);
          this.at = { queue: name, id };
          await this.#look(queue, head, row, index, id);
          if (this.jobs.length >= this.#limit || now() > this.#until) return false;
        }
        next = row.piece * JOBS - 1;
      }
      if (isWhole) return true;
    }
    return true;
  }

  async #look(queue: ListedQueue, head: ShardHead, row: JobRow, index: number, id: number): Promise<void> {
    const { key, status } = this.#filter;
    if (!this.#mayBe(queue, row, index)) return;
    if (key !== undefined && row.keys?.[index] !== key) return;
    if (status !== undefined && !(await mayBe(queue.rows, head, row, index, id, status))) return;
    await this.#add(queue, id);
  }

  /** Whether the job may pass the filter, as far as its row tells. @param at  the place of the job in the row */
  #mayBe(queue: ListedQueue, row: JobRow, at: number): boolean {
    const { kind } = this.#filter;
    if (kind !== undefined && row.kinds[at] !== queue.kindId.get(kind)) return false;
    return this.#isInTime(row.enqueuedAt, queue.rows.engine.now());
  }

  async #add(queue: ListedQueue, id: number): Promise<void> {
    const { status } = this.#filter;
    const job = await queue.get(String(id)).catch(unlessMissing);
    if (job === undefined) return;
    if (status !== undefined && job.status !== status) return;
    if (this.#filter.tag !== undefined && !job.tags.includes(this.#filter.tag)) return;
    this.jobs.push(job);
  }

  #isInTime(enqueuedAt: number, at: number): boolean {
    const { since, until, sinceMs, untilMs } = this.#filter;
    const from = since === undefined ? (sinceMs === undefined ? -Infinity : at - sinceMs) : Date.parse(since);
    const to = until === undefined ? (untilMs === undefined ? Infinity : at - untilMs) : Date.parse(until);
    return enqueuedAt >= from && enqueuedAt <= to;
  }
}

/** Whether a job may have this status, by the rows that were read anyway, or by one request. If it may, the caller reads the whole job. */
async function mayBe(
  rows: QueueRows,
  head: ShardHead,
  row: JobRow,
  index: number,
  id: number,
  status: string,
): Promise<boolean> {
  const isPlain = (row.keys === undefined || row.isLabelled) && row.dueAt === 0;
  const standing = standingOf(head, { piece: row.piece, index });
  if (status === 'in-progress') return !isPlain || standing === 'claimed';
  if (status === 'new') return !isPlain || standing === 'line' || standing === 'back' || standing === 'missing';
  if (isPlain && (standing === 'line' || standing === 'claimed' || standing === 'back')) return false;
  return (await readRecords(rows, id)).some(({ to }) => to === status);
}

function writeCursor({ queue, id }: Cursor): string {
  return Buffer.from(`2:${id}:${queue}`).toString('base64url');
}

/** @throws InvalidInput  this is not a cursor of this function */
function readCursor(after: unknown): Cursor | undefined {
  if (after === null) return undefined;
  const given = typeof after === 'string' ? Buffer.from(after, 'base64url').toString() : '';
  const match = /^2:([1-9]\d{0,15}):(.+)$/s.exec(given);
  if (match?.[1] === undefined || match[2] === undefined) {
    throw new InvalidInput(`${show(after)} is no cursor; pass the "after" of the page before`, { field: 'after' });
  }
  return { queue: match[2], id: Number(match[1]) };
}
