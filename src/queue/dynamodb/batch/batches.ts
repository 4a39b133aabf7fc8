/** Makes batches of a queue, adds jobs to them, seals them, and reads their progress. */
import { randomInt } from 'node:crypto';
import { Conflict, InvalidInput, Throttled } from '../../../base/errors.ts';
import { type PartialWrite, written } from '../../../engine/dynamodb/index.ts';
import type { Definition } from '../../definition.ts';
import type { NewJobs } from '../../store.ts';
import type { BatchRecord } from '../../watch/batch.ts';
import type { QueueRows } from '../database.ts';
import { piecesOf } from '../enqueue/pieces.ts';
import { addPiece } from '../enqueue/producing.ts';
import { findUnique, type OnceRequest, placeOfOnce } from '../enqueue/unique.ts';
import { type EndedCounts, noneEnded } from '../heads/ended.ts';
import { jobNumber, placeOf } from '../heads/place.ts';
import { headOf } from '../rows.ts';
import {
  BATCH,
  type BatchHead,
  batchesOpen,
  batchKey,
  doneOf,
  idIn,
  memberAdded,
  memberOf,
  nestedOf,
  newMember,
  readBatchHead,
  shardOfBatch,
  watchOf,
} from './head.ts';
import type { BatchWatch } from './watch.ts';

const MOST_TRIES = 20;
/** 2024. An id is the time since then with a random part. So the newest batch has the greatest id, below 2^53 until 2093. */
const EPOCH = 1_704_067_200_000;
const RANDOM = 4096;

export class Batches {
  readonly #rows: QueueRows;
  readonly #definition: Definition;
  readonly #watch: BatchWatch;

  constructor(rows: QueueRows, definition: Definition, watch: BatchWatch) {
    this.#rows = rows;
    this.#definition = definition;
    this.#watch = watch;
  }

  /**
   * Makes an open batch, in a transaction of three rows; five if it is a member of another batch.
   * @param callbacks  checked requests, by their names @throws NotFound, Conflict  the other batch does not exist, or is sealed
   */
  async make(callbacks: Readonly<Record<string, object>>, parent: string | undefined): Promise<string> {
    return (await this.makeOnce(undefined, callbacks, parent)).id;
  }

  /** Makes an open batch, or finds the batch of the first request of this name: one row more. @throws Conflict  another request has used the name */
  async makeOnce(
    once: OnceRequest | undefined,
    callbacks: Readonly<Record<string, object>>,
    parent: string | undefined,
  ): Promise<{ readonly id: string; readonly isDuplicate: boolean }> {
    for (let tries = 0; tries < MOST_TRIES; tries += 1) {
      const found = once === undefined ? undefined : await findUnique(this.#rows, this.#definition, placeOfOnce(once));
      if (found?.there !== undefined) return { id: String(found.there.id), isDuplicate: true };
      const id = String((Math.floor(this.#rows.engine.now()) - EPOCH) * RANDOM + randomInt(RANDOM));
      const shard = this.#rows.shard(shardOfBatch(id, this.#definition.shards));
      const all = Object.keys(callbacks).length === 0 ? null : JSON.stringify(callbacks);
      const set = { [BATCH.total]: 0, [BATCH.callbacks]: all };
      const isDone = await this.#rows.together([
        { key: headOf(batchKey(this.#rows.queue, id)), written: written({ expect: { [BATCH.total]: null }, set }) },
        { key: watchOf(shard, id), written: newMember(0) },
        { key: headOf(shard), written: written(batchesOpen(1)) },
        ...(parent === undefined ? [] : this.#joining(parent, (pk) => nestedOf(pk, id), 1)),
        ...(found === undefined ? [] : [found.mark(Number(id))]),
      ]);
      if (isDone) return { id, isDuplicate: false };
      if (parent !== undefined) await this.requireOpen(parent);
    }
    throw new Throttled('no batch could be made; try again');
  }

  /** Adds jobs. Each piece and its row in the batch are one transaction. @returns the ids @throws NotFound, Conflict */
  async add(batch: string, jobs: NewJobs): Promise<number[]> {
    const ids: number[] = [];
    for (const piece of piecesOf(jobs, this.#rows.engine.now(), this.#definition.keyed)) {
      const { shard } = jobs;
      const member = (id: number): PartialWrite[] =>
        this.#joining(batch, (pk) => memberOf(pk, shard, placeOf(id).piece), piece.jobs.length);
      let first: number | undefined;
      for (let tries = 0; first === undefined && tries < MOST_TRIES; tries += 1) {
        first = await addPiece(this.#rows, { shard, piece, trace: undefined }, member);
        if (first === undefined) await this.requireOpen(batch);
      }
      if (first === undefined) throw new Throttled(`batch ${batch} changes too often; try again`);
      for (const [index, { at }] of piece.jobs.entries()) ids[at] = jobNumber(shard, placeOf(first).piece, index);
    }
    return ids;
  }

  /** The writes that make a job a member, in the transaction that adds the job. */
  membership(batch: string, id: number): PartialWrite[] {
    const { shard, piece } = placeOf(id);
    return this.#joining(batch, (pk) => memberOf(pk, shard, piece), 1);
  }

  /** The ids of the newest batches: two requests for each shard. @param before  the last batch of the page before */
  async newest(before: number | undefined, limit: number): Promise<number[]> {
    const to = before === undefined ? Number.MAX_SAFE_INTEGER : before - 1;
    const found: number[] = [];
    for (let shard = 0; shard < this.#definition.shards; shard += 1) {
      const pk = this.#rows.shard(shard);
      for (const placed of [watchOf, doneOf]) {
        const [first, last] = [placed(pk, '0').sk, placed(pk, String(to)).sk];
        const { items } = await this.#rows.page(pk, first, last, limit, 'newest first');
        found.push(...items.map(idIn));
      }
    }
    return found.sort((a, b) => b - a).slice(0, limit);
  }

  /** @throws NotFound */
  async seal(batch: string): Promise<void> {
    const at = Math.floor(await this.#rows.engine.serviceTime(this.#rows.limits));
    await readBatchHead(this.#rows, batch);
    await this.#rows.decide(headOf(batchKey(this.#rows.queue, batch)), (fields) =>
      fields[BATCH.sealedAt] === undefined
        ? { expect: { [BATCH.sealedAt]: null }, set: { [BATCH.sealedAt]: at } }
        : undefined,
    );
    await this.#watch.lookAt(batch);
  }

  /** Counts the members that have ended, and reads all others. It is meant for people. @throws NotFound */
  async progress(batch: string): Promise<BatchRecord> {
    const { head, ended } = await this.#watch.count(batch);
    return this.#recordOf(batch, head, ended);
  }

  /** The progress, as far as workers have counted: one request. @throws NotFound */
  async counted(batch: string): Promise<BatchRecord> {
    return this.#recordOf(batch, await readBatchHead(this.#rows, batch), noneEnded());
  }

  #recordOf(batch: string, head: BatchHead, ended: EndedCounts): BatchRecord {
    const { total, sealedAt, doneAt, problem } = head;
    const errors = head.errors + ended.error;
    const cancelled = head.cancelled + ended.cancelled;
    const date = (time: number | undefined): Date | null => (time === undefined ? null : new Date(time));
    const complete = head.complete + ended.complete;
    return {
      id: batch,
      queue: this.#rows.queue,
      total,
      outstanding: total - complete - errors - cancelled,
      complete,
      errors,
      cancelled,
      sealedAt: date(sealedAt),
      doneAt: date(doneAt),
      problem: problem ?? null,
    };
  }

  #joining(batch: string, key: (pk: string) => { pk: string; sk: string }, n: number): PartialWrite[] {
    const pk = batchKey(this.#rows.queue, batch);
    const { expect, ...rest } = memberAdded(n);
    const head = written({ ...rest, expect });
    const isThere = `(attribute_exists(${BATCH.total})) AND (${head.ConditionExpression ?? ''})`;
    return [
      { key: headOf(pk), written: { ...head, ConditionExpression: isThere } },
      { key: key(pk), written: newMember(n) },
    ];
  }

  /** @throws NotFound, Conflict */
  async requireOpen(batch: string): Promise<void> {
    const { sealedAt } = await readBatchHead(this.#rows, batch);
    if (sealedAt === undefined) return;
    const at = new Date(sealedAt).toISOString();
    throw new Conflict(`batch ${batch} was sealed at ${at}, so no more jobs can be added; make another batch`);
  }
}

/** @throws InvalidInput */
export function refuseTx(tx: unknown): void {
  if (tx === undefined) return;
  throw new InvalidInput('on DynamoDB a batch takes no tx: each of its calls is a transaction of its own', {
    field: 'tx',
  });
}
