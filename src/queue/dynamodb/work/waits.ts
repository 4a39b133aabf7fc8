/** Checks the jobs that wait for others. Once all parents of such a job have ended, it lets the job run, or ends it. */
import { now } from '../../../base/time/clock.ts';
import {
  type Change,
  fieldsOf,
  type Item,
  type Key,
  type PartialCondition,
  type PartialWrite,
  written,
} from '../../../engine/dynamodb/index.ts';
import type { Definition } from '../../definition.ts';
import type { QueueIds } from '../../store.ts';
import { type QueueRows, unlessMissing } from '../database.ts';
import {
  AFTER_OTHERS,
  endOf,
  type ParentEnd,
  termsIn,
  type Verdict,
  verdictOf,
  type WaitTerms,
} from '../enqueue/after.ts';
import { Homes } from '../enqueue/homes.ts';
import { addWith } from '../enqueue/producing.ts';
import { counting, noneEnded } from '../heads/ended.ts';
import { readKeyHead } from '../heads/key-head.ts';
import { type JobRef, jobNumber, placeOf } from '../heads/place.ts';
import { waitLeft } from '../heads/waiting.ts';
import { readRecords, writeRecords } from '../records.ts';
import { delayFrom, delayOf, headOf, type JobRow, keyOf, pieceOf, readJobRow } from '../rows.ts';
import { cancelledIn, unchanged } from './delays.ts';
import { pieceIn } from './due-rows.ts';
import { letterOf } from './letters.ts';

/** A process checks a shard at most this often, unless a parent has ended in this process. */
const LOOK_MS = 500;
/** How often the whole status of a parent without a record is read: its history may be over. */
const WHOLE_MS = 60_000;
const PAGE = 100;
/** How many pages one check reads at most. The next check goes on behind them. */
const MOST_PAGES = 10;
const MOST_KNOWN = 10_000;

/** The parents that this process knows, by the shard of the jobs that wait for them, and the time of the last check of each shard. */
export class AwaitedJobs {
  readonly #byShard = new Map<number, ReadonlySet<JobRef>>();
  readonly #checkedAt = new Map<number, number>();
  readonly #hurried = new Set<number>();

  /**
   * Begins a check of the jobs that wait in a shard. Call it before you read them: an end of a parent after this call causes another check.
   * @returns a set, to which the check adds the first open parent of each waiting job; undefined if it is too early for a check
   */
  beginCheck(shard: number): Set<JobRef> | undefined {
    const checkedAt = this.#checkedAt.get(shard) ?? -Infinity;
    if (now() - checkedAt < LOOK_MS && !this.#hurried.has(shard)) return undefined;
    this.#checkedAt.set(shard, now());
    this.#hurried.delete(shard);
    const jobs = new Set<JobRef>();
    this.#byShard.set(shard, jobs);
    return jobs;
  }

  /** Notes that these jobs have ended. @returns whether jobs may have waited for them */
  ended(ids: Iterable<number>): boolean {
    if (this.#byShard.size === 0) return false;
    for (const id of ids) {
      for (const [shard, jobs] of this.#byShard) if (jobs.has(id)) this.#hurried.add(shard);
    }
    return this.#hurried.size > 0;
  }
}

export class Waits {
  readonly #rows: QueueRows;
  readonly #definition: Definition;
  readonly #ids: () => Promise<QueueIds>;
  readonly #awaited: AwaitedJobs;
  readonly #homes: Homes;
  /** Parents that are complete, which is final. */
  readonly #complete = new Set<JobRef>();
  /** The ends of other parents, by the waiting job. A parent may be retried by hand, and then it is outstanding for jobs that come after it later. */
  readonly #failed = new Map<number, Map<JobRef, ParentEnd>>();
  readonly #askedAt = new Map<JobRef, number>();
  readonly #from = new Map<number, string>();

  constructor(rows: QueueRows, definition: Definition, ids: () => Promise<QueueIds>, awaited: AwaitedJobs) {
    this.#rows = rows;
    this.#definition = definition;
    this.#ids = ids;
    this.#awaited = awaited;
    this.#homes = new Homes(rows, definition);
  }

  /**
   * Checks the waiting jobs of a shard. Call it only if the head of the shard says that jobs wait. It takes a read unit for some tens of waiting
   * jobs, and one for each parent.
   * @returns whether the wait of a job has ended
   */
  async look(shard: number): Promise<boolean> {
    const awaited = this.#awaited.beginCheck(shard);
    if (awaited === undefined) return false;
    const pk = this.#rows.shard(shard);
    const asked = new Set<JobRef>();
    let isMoved = false;
    for (let pages = 0; pages < MOST_PAGES; pages += 1) {
      const from = this.#from.get(shard) ?? `${delayFrom(AFTER_OTHERS)}#`;
      const { items, isWhole } = await this.#rows.page(pk, from, `${delayFrom(AFTER_OTHERS)}#~`, PAGE);
      for (const item of items) isMoved = (await this.#lookAt(shard, item, asked, awaited)) || isMoved;
      const last = items.at(-1);
      if (isWhole || last === undefined) {
        this.#from.delete(shard);
        break;
      }
      this.#from.set(shard, `${delayFrom(AFTER_OTHERS)}#${String(pieceIn(last) + 1).padStart(12, '0')}`);
    }
    return isMoved;
  }

  /** Checks one job that was just enqueued. */
  async lookAtJob(id: number): Promise<void> {
    const { shard, piece } = placeOf(id);
    const item = await this.#rows.get(delayOf(this.#rows.shard(shard), AFTER_OTHERS, piece));
    if (item !== undefined) await this.#lookAt(shard, item, new Set(), new Set());
  }

  /** @param asked  parents that this check has found to be outstanding */
  async #lookAt(shard: number, item: Item, asked: Set<JobRef>, awaited: Set<JobRef>): Promise<boolean> {
    const terms = termsIn(item);
    if (terms === undefined) return false;
    const ends: ParentEnd[] = [];
    const id = jobNumber(shard, pieceIn(item), 0);
    for (const parent of terms.parents) {
      const end = this.#failed.get(id)?.get(parent) ?? (asked.has(parent) ? undefined : await this.#endOf(parent, id));
      if (end === undefined) {
        asked.add(parent);
        awaited.add(parent);
        return false;
      }
      ends.push(end);
    }
    const isMoved = await this.#decide(shard, item, terms, verdictOf(terms, ends));
    if (isMoved) this.#failed.delete(id);
    return isMoved;
  }

  /** How a parent has ended. The record of a job is written before the job is over. So as long as there is no record, one request is enough. */
  async #endOf(parent: JobRef, child: number): Promise<ParentEnd | undefined> {
    if (this.#complete.has(parent)) return 'complete';
    const askedAt = this.#askedAt.get(parent) ?? -Infinity;
    const isWhole = now() - askedAt > WHOLE_MS;
    // A missing parent has ended long ago.
    const isRecorded = isWhole || (await this.#homes.isRecorded(parent).catch(unlessMissing));
    if (isRecorded === false) return undefined;
    if (this.#askedAt.size > MOST_KNOWN) this.#askedAt.clear();
    this.#askedAt.set(parent, now());
    const end = endOf(await this.#homes.statusOf(parent).catch(unlessMissing));
    if (end === undefined) return undefined;
    if (end !== 'complete') {
      if (this.#failed.size > MOST_KNOWN) this.#failed.clear();
      this.#failed.set(child, new Map(this.#failed.get(child)).set(parent, end));
      return end;
    }
    if (this.#complete.size > MOST_KNOWN) this.#complete.clear();
    this.#complete.add(parent);
    return end;
  }

  async #decide(shard: number, item: Item, terms: WaitTerms, verdict: Verdict): Promise<boolean> {
    const pk = this.#rows.shard(shard);
    const piece = pieceIn(item);
    const found = await this.#rows.get(pieceOf(pk, piece));
    if (found === undefined) return false;
    const [row, id] = [readJobRow(found), jobNumber(shard, piece, 0)];
    const key = keyIn(row);
    const place = key === undefined ? undefined : headOf(keyOf(pk, key));
    const keyHead = place && readKeyHead(fieldsOf(await this.#rows.get(place)));
    const left = waitLeft({
      id,
      piece,
      isCancelled: cancelledIn(item).includes(0),
      keyHead,
      isToRun: verdict.to === 'run',
      dueAt: terms.runAt > this.#rows.engine.now() ? terms.runAt : 0,
    });
    if (left === undefined) return false;
    const job = { shard, piece, item, row, id };
    const others = place === undefined || left.key === undefined ? [] : [partOf(place, left.key)];
    if (left.kind !== 'ended' || verdict.to === 'run') return this.#leave(job, left.change, others);
    return this.#end(job, left.change, others, verdict.to, verdict.error);
  }

  /** Ends a waiting job, with its dead letter if it leaves one. As for every job, the record is written first. */
  async #end(
    job: WaitingJob,
    change: Change,
    others: readonly (PartialWrite | PartialCondition)[],
    to: 'error' | 'cancelled',
    error: string,
  ): Promise<boolean> {
    const { shard, row, id, piece } = job;
    const key = keyIn(row);
    const pk = this.#rows.shard(shard);
    const records = await readRecords(this.#rows, id);
    await writeRecords(this.#rows, [{ id, to, attempt: 0, reason: 'parents', error, result: undefined }], {
      shard,
      token: records.at(-1)?.token ?? 0,
      part: 'a',
      processId: null,
      claimedAt: null,
      historyMs: this.#definition.historyMs,
    });
    const counted = counting(change, { ...noneEnded(), [to]: 1 }, this.#rows.engine.now());
    const ids = await this.#ids();
    const body = key === undefined ? row : readJobRow((await this.#rows.get(pieceOf(keyOf(pk, key), piece))) ?? {});
    const letter =
      to === 'error'
        ? letterOf(this.#definition, ids, { id, shard, row: body, at: 0, label: keyOrLabel(row) }, error, 0)
        : undefined;
    return this.#leave(job, counted, others, letter);
  }

  async #leave(
    { shard, piece, item }: WaitingJob,
    change: Change,
    others: readonly (PartialWrite | PartialCondition)[],
    letter?: ReturnType<typeof letterOf>,
  ): Promise<boolean> {
    const pk = this.#rows.shard(shard);
    const writes: (PartialWrite | PartialCondition)[] = [
      { key: delayOf(pk, AFTER_OTHERS, piece), removed: unchanged(item).write() },
      { key: headOf(pk), written: written(change) },
      ...others,
    ];
    if (letter === undefined) return this.#rows.together(writes);
    const id = await addWith(this.#rows, letter, undefined, this.#definition.keyed, () => writes);
    return id !== undefined;
  }
}

function partOf(key: Key, change: Change): PartialWrite | PartialCondition {
  const request = written(change);
  return Object.keys(change.set).length === 0 ? { key, checked: request } : { key, written: request };
}

interface WaitingJob {
  readonly shard: number;
  readonly piece: number;
  readonly item: Item;
  readonly row: JobRow;
  readonly id: number;
}

/** The key by which the job is ordered. */
function keyIn(row: JobRow): string | undefined {
  return row.isLabelled ? undefined : row.keys?.[0];
}

function keyOrLabel({ keys }: JobRow): string | undefined {
  return keys?.[0] === '' ? undefined : keys?.[0];
}
