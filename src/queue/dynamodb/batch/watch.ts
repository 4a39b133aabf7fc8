/** Counts the members of batches that have ended. Once all members of a batch have ended, it enqueues the callbacks of the batch. */
import { InvalidInput, NotFound, NotSupported } from '../../../base/errors.ts';
import { isObject } from '../../../base/options/shape.ts';
import { type Change, creation, Expression, type PartialWrite, TTL, written } from '../../../engine/dynamodb/index.ts';
import type { Definition } from '../../definition.ts';
import type { QueueIds } from '../../store.ts';
import type { QueueRows } from '../database.ts';
import { Deciding } from '../enqueue/deciding.ts';
import { Homes } from '../enqueue/homes.ts';
import { type EndedCounts, noneEnded } from '../heads/ended.ts';
import type { JobRef } from '../heads/place.ts';
import { LEAST_MS } from '../records.ts';
import { headOf } from '../rows.ts';
import type { AwaitedJobs } from '../work/waits.ts';
import {
  BATCH,
  type BatchHead,
  batchesOpen,
  batchKey,
  doneOf,
  idIn,
  isWholeComplete,
  MEMBERS,
  readBatchHead,
  shardOfBatch,
  WATCHES,
  watchOf,
} from './head.ts';
import { endedOf, jobsOf, type Member, readMember, sumOf } from './members.ts';

/** How many batches of a shard one check reads. */
const MOST_BATCHES = 100;
/** How many rows of members one request reads. */
const PAGE = 100;
/** How many members one transaction counts; it has at most 100 rows. */
const AT_ONCE = 50;
/** A check stops after so many members that go on, since the batch is then not done in any case. */
const MOST_GOING_ON = 2;

/** The progress of a batch. */
export interface BatchCounted {
  readonly head: BatchHead;
  /** The jobs that have ended, of members that go on. */
  readonly ended: EndedCounts;
}

export class BatchWatch {
  readonly #rows: QueueRows;
  readonly #definition: Definition;
  readonly #ids: () => Promise<QueueIds>;
  readonly #awaited: AwaitedJobs;
  readonly #homes: Homes;
  /** By shard: where the next check goes on. Otherwise batches that stay open would keep others from being checked. */
  readonly #from = new Map<number, string>();

  constructor(rows: QueueRows, definition: Definition, ids: () => Promise<QueueIds>, awaited: AwaitedJobs) {
    this.#rows = rows;
    this.#definition = definition;
    this.#ids = ids;
    this.#awaited = awaited;
    this.#homes = new Homes(rows, definition);
  }

  /**
   * Checks the batches of a shard. Call it only if the head of the shard says that batches are not done. It takes a read unit, two for each batch,
   * and one for each member that goes on.
   * @returns whether a batch is done now
   */
  async look(shard: number): Promise<boolean> {
    const awaited = this.#awaited.beginCheck(shard);
    if (awaited === undefined) return false;
    const from = this.#from.get(shard) ?? WATCHES.first;
    const { items, isWhole } = await this.#rows.page(this.#rows.shard(shard), from, WATCHES.last, MOST_BATCHES);
    const last = items.at(-1)?.sk;
    if (isWhole || last === undefined || !('S' in last)) this.#from.delete(shard);
    else this.#from.set(shard, `${last.S}~`);
    let isMoved = false;
    for (const item of items) isMoved = (await this.lookAt(String(idIn(item)), awaited)) || isMoved;
    return isMoved;
  }

  /** Checks a batch. @param awaited  the check adds jobs for which the batch waits @returns whether the batch is done now @throws NotFound */
  async lookAt(id: string, awaited: Set<JobRef> = new Set()): Promise<boolean> {
    await this.#fold(id, (member) => {
      for (const job of jobsOf(member)) awaited.add(job);
    });
    const head = await readBatchHead(this.#rows, id);
    if (head.sealedAt === undefined || head.left > 0 || head.doneAt !== undefined) return false;
    return this.#finish(id, head);
  }

  /** Counts all members that have ended, and the ended jobs of members that go on. @throws NotFound */
  async count(id: string): Promise<BatchCounted> {
    const ended = noneEnded();
    await this.#fold(id, undefined, ended);
    return { head: await readBatchHead(this.#rows, id), ended };
  }

  /**
   * Counts the members that have ended.
   * @param onGoingOn  called with each member that goes on @param others  sums up the ended jobs of members that go on. Without it, the count stops
   *   at the second such member.
   */
  async #fold(id: string, onGoingOn?: (member: Member) => void, others?: EndedCounts): Promise<void> {
    const pk = batchKey(this.#rows.queue, id);
    let goingOn = 0;
    for (let from: string = MEMBERS.first; ; ) {
      const { items, isWhole } = await this.#rows.page(pk, from, MEMBERS.last, PAGE);
      const members = items.map(readMember);
      let over: [Member, EndedCounts][] = [];
      for (const member of members) {
        const counts = await endedOf(this.#rows, member, others === undefined);
        if (sumOf(counts) === Math.max(member.n, 1)) over.push([member, counts]);
        else {
          goingOn += 1;
          onGoingOn?.(member);
          if (others !== undefined) for (const name of ENDS) others[name] += counts[name];
        }
        if (over.length === AT_ONCE) {
          await this.#countIn(pk, over);
          over = [];
        }
        if (others === undefined && goingOn >= MOST_GOING_ON) break;
      }
      if (over.length > 0) await this.#countIn(pk, over);
      const last = members.at(-1);
      if (isWhole || last === undefined || (others === undefined && goingOn >= MOST_GOING_ON)) return;
      from = `${last.sk}~`;
    }
  }

  /** Counts members, each once, since the row of a member exists only until it is counted. If refused, another worker has counted some of them. */
  async #countIn(pk: string, over: readonly [Member, EndedCounts][]): Promise<void> {
    const add: Record<string, number> = { [BATCH.left]: -over.length };
    for (const [, { complete, error, cancelled }] of over) {
      for (const [name, by] of [
        [BATCH.complete, complete],
        [BATCH.errors, error],
        [BATCH.cancelled, cancelled],
      ] as const) {
        if (by > 0) add[name] = (add[name] ?? 0) + by;
      }
    }
    await this.#rows.together([
      ...over.map(([{ sk }]) => ({ key: { pk, sk }, removed: IS_THERE })),
      { key: headOf(pk), written: written({ expect: {}, set: {}, add }) },
    ]);
  }

  /** Enqueues each callback in a transaction with the head, which names the callback until then. */
  async #finish(id: string, first: BatchHead): Promise<boolean> {
    let head = first;
    for (;;) {
      const name = nextCallback(head);
      if (name === undefined) return this.#close(id, head);
      await this.#call(id, head, name);
      head = await readBatchHead(this.#rows, id);
      if (head.doneAt !== undefined) return true;
    }
  }

  async #call(id: string, head: BatchHead, name: string): Promise<void> {
    const place = headOf(batchKey(this.#rows.queue, id));
    const { [name]: request = {}, ...rest } = head.callbacks;
    const called = (set: Change['set'] = {}): PartialWrite => ({
      key: place,
      written: written({
        expect: { [BATCH.callbacks]: head.fields[BATCH.callbacks] ?? null },
        set: { [BATCH.callbacks]: JSON.stringify(rest), ...set },
      }),
    });
    const { total, errors, cancelled } = head;
    const own: unknown = Reflect.get(request, 'meta');
    const meta = { ...(isObject(own) ? own : {}), batch: { id, total, errors, cancelled } };
    try {
      const deciding = await this.#decidingOf(String(Reflect.get(request, 'queue')));
      await deciding.enqueueWith({ ...request, meta }, [called()]);
    } catch (error) {
      const isRefused = error instanceof InvalidInput || error instanceof NotFound || error instanceof NotSupported;
      if (!isRefused) throw error;
      await this.#rows.together([called({ [BATCH.problem]: `${name} was not enqueued: ${error.message}` })]);
    }
  }

  /** Adds jobs to the queue of a callback. @throws NotFound  there is no such queue */
  async #decidingOf(queue: string): Promise<Deciding> {
    if (queue === this.#rows.queue) return new Deciding(this.#rows, this.#definition, this.#ids);
    const { rows, definition, kindName } = await this.#homes.of(`${queue}:1`);
    const kindId = new Map(Array.from(kindName, ([kind, name]) => [name, kind]));
    return new Deciding(rows, definition, () => Promise.resolve({ queue: 0, kindId, kindName }));
  }

  /** Marks the batch as done. @returns whether this call has done it */
  async #close(id: string, { fields }: BatchHead): Promise<boolean> {
    const pk = batchKey(this.#rows.queue, id);
    const shard = this.#rows.shard(shardOfBatch(id, this.#definition.shards));
    const at = Math.floor(this.#rows.engine.now());
    const callbacks = fields[BATCH.callbacks] ?? null;
    const keptMs = Math.max(this.#definition.historyMs, LEAST_MS);
    const ttl = Number.isFinite(keptMs) ? { [TTL]: Math.ceil((at + keptMs) / 1000) } : {};
    const expect = { [BATCH.doneAt]: null, [BATCH.callbacks]: callbacks };
    return this.#rows.together([
      { key: headOf(pk), written: written({ expect, set: { [BATCH.doneAt]: at, ...ttl } }) },
      { key: watchOf(shard, id), removed: IS_THERE },
      { key: doneOf(shard, id), written: creation({ t: at }, Number.isFinite(keptMs) ? at + keptMs : undefined) },
      { key: headOf(shard), written: written(batchesOpen(-1)) },
    ]);
  }
}

const IS_THERE = new Expression().when('attribute_exists(pk)').write();
const ENDS = ['complete', 'error', 'cancelled'] as const;

/** The next callback to enqueue. Callbacks that do not apply stay in the head. */
function nextCallback(head: BatchHead): string | undefined {
  const names = [isWholeComplete(head) ? 'onComplete' : 'onError', 'onDone'];
  return names.find((name) => head.callbacks[name] !== undefined);
}
