import { Conflict } from '../../../base/errors.ts';
import { type Item, type Key } from '../../../engine/dynamodb/index.ts';
import type { Definition } from '../../definition.ts';
import type { Producer } from '../../enqueue.ts';
import type { JobStatus } from '../../job.ts';
import type { JobChange } from '../../operate/operations.ts';
import type { ChangedJob } from '../../postgres/reader.ts';
import type { QueueRows } from '../database.ts';
import { cancelledInLine, pauseSet, withdrawn } from '../heads/by-hand.ts';
import { counting, noneEnded } from '../heads/ended.ts';
import { readHead } from '../heads/head.ts';
import { keyCancelled, readKeyHead } from '../heads/key-head.ts';
import { isIn } from '../heads/spans.ts';
import { type JobRecordEntry, writeRecords } from '../records.ts';
import { delayOf, headOf, keyOf } from '../rows.ts';
import type { DynamoQueueStore } from '../store.ts';
import { cancelledIn, withCancelled } from '../work/delays.ts';
import { retryByHand } from './retrying.ts';
import { attemptOf, type FoundJob, findJob, holderOf } from './standing.ts';
import { readChange, updateWaiting } from './updating.ts';

const MOST_TRIES = 20;

/** Changes the jobs of a queue by hand, and pauses it. */
export class DynamoQueueChanges {
  readonly #store: DynamoQueueStore;
  readonly #rows: QueueRows;
  readonly #definition: Definition;

  constructor(store: DynamoQueueStore, definition: Definition) {
    this.#store = store;
    this.#rows = store.rows;
    this.#definition = definition;
  }

  async cancel(id: string, reason: string | null): Promise<JobStatus> {
    for (let tries = 0; tries < MOST_TRIES; tries += 1) {
      const job = await findJob(this.#rows, this.#definition, id);
      if (job.status === 'cancelled') return 'cancelled';
      if (job.status !== 'new' && job.status !== 'in-progress') {
        throw new Conflict(
          `job ${id} is ${job.status === 'error' ? 'in error' : 'complete'}: it cannot be cancelled any more`,
        );
      }
      if (job.status === 'in-progress') {
        const worker = holderOf(job);
        if (worker !== undefined && (await this.#store.workers.wishToCancel(worker, job.id, reason)))
          return 'in-progress';
        continue;
      }
      await this.#recordByHand(job, 'cancelled', 'cancel', reason);
      if (!(await this.#takeOut(job))) continue;
      await this.#count(job, 'cancelled', 1);
      return 'cancelled';
    }
    throw new Conflict(`job ${id} changes all the time; try again`);
  }

  async retry(id: string, kindName: ReadonlyMap<number, string>): Promise<JobStatus> {
    const job = await retryByHand(this.#rows, this.#definition, id, kindName);
    await this.#recordByHand(job, 'release', 'retry by hand', null);
    this.#store.household.notify();
    return 'new';
  }

  /** @param producer  checks the payload by the schema of its kind */
  async update(
    id: string,
    given: Omit<JobChange, 'tx'>,
    producer: Producer,
    kindName: ReadonlyMap<number, string>,
  ): Promise<ChangedJob> {
    const change = await readChange(this.#rows, given, async (payload) => {
      const { kind } = await findJob(this.#rows, this.#definition, id);
      return producer.json(kindName.get(kind) ?? '', payload);
    });
    const job = await updateWaiting(this.#rows, this.#definition, id, change, kindName);
    await this.#recordByHand(job, 'release', 'update', null);
    this.#store.household.notify();
    return { id, status: 'new' };
  }

  async setPause(isPaused: boolean): Promise<void> {
    const at = Math.floor(await this.#rows.engine.serviceTime(this.#rows.limits));
    for (let shard = 0; shard < this.#definition.shards; shard += 1) {
      await this.#rows.decide(headOf(this.#rows.shard(shard)), (fields) => {
        const head = readHead(fields);
        if (head.isPaused === isPaused) return undefined;
        return pauseSet(head, isPaused ? at : undefined);
      });
    }
    if (!isPaused) this.#store.household.notify();
  }

  async #count(job: FoundJob, status: 'error' | 'cancelled', by: number): Promise<void> {
    const change = counting({ expect: {}, set: {} }, { ...noneEnded(), [status]: by }, this.#rows.engine.now());
    await this.#rows.change(this.#head(job), change);
  }

  #head({ shard }: FoundJob): { pk: string; sk: string } {
    return headOf(this.#rows.shard(shard));
  }

  /** Takes out a job that no worker has. @returns false when it has moved meanwhile */
  async #takeOut(job: FoundJob): Promise<boolean> {
    const { shard, spot, key } = job;
    const pk = this.#rows.shard(shard);
    if (key !== undefined) {
      const done = await this.#rows.decide(headOf(keyOf(pk, key)), (fields) =>
        keyCancelled(readKeyHead(fields), job.id),
      );
      return done !== undefined;
    }
    if (job.isDelayed) {
      const place = delayOf(pk, job.dueAt, spot.piece);
      const item = await this.#rows.get(place);
      if (item === undefined) return false;
      return this.#setCancelled(place, item, [...cancelledIn(item), spot.index]);
    }
    const done = await this.#rows.decide(this.#head(job), (fields) => {
      const head = readHead(fields);
      return withdrawn(head, spot) ?? (isIn(head.cancelled, spot) ? undefined : cancelledInLine(head, spot));
    });
    return done !== undefined;
  }

  /** Says which jobs of a delayed piece are cancelled. @returns false when it has changed meanwhile, or is due */
  async #setCancelled(place: Key, item: Item, cancelled: readonly number[]): Promise<boolean> {
    const request = withCancelled(item, cancelled);
    const { isDone, isRepeated } = await this.#rows.engine.update(place, request, 'NONE', this.#rows.limits);
    if (isDone || !isRepeated) return isDone;
    // The first of two requests may have been carried out, and have made the row refuse the second one.
    const left = await this.#rows.get(place);
    return left !== undefined && cancelledIn(left).join() === cancelled.join();
  }

  /** Its token is that of the head: what a worker writes later counts for more. */
  #recordByHand(job: FoundJob, to: JobRecordEntry['to'], reason: string, error: string | null): Promise<void> {
    const { id, shard, head } = job;
    return writeRecords(this.#rows, [{ id, to, attempt: attemptOf(job), reason, error, result: undefined }], {
      shard,
      token: Math.max(head.fence, job.records.at(-1)?.token ?? 0),
      part: `h${Math.floor(this.#rows.engine.now())}.${id}`,
      processId: null,
      claimedAt: null,
      historyMs: this.#definition.historyMs,
    });
  }
}
