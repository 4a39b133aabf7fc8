import { Conflict } from '../../../base/errors.ts';
import type { Definition } from '../../definition.ts';
import type { Producer } from '../../enqueue.ts';
import type { JobStatus } from '../../job.ts';
import type { JobChange } from '../../operate/operations.ts';
import type { ChangedJob } from '../../postgres/reader.ts';
import type { QueueRows } from '../database.ts';
import { pauseSet } from '../heads/by-hand.ts';
import { readHead } from '../heads/head.ts';
import { headOf } from '../rows.ts';
import type { DynamoQueueStore } from '../store.ts';
import { retryByHand } from './retrying.ts';
import { findJob, holderOf } from './standing.ts';
import { cancelWaiting, recordByHand } from './taking-out.ts';
import { newTime, readChange, updateWaiting } from './updating.ts';

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
          `job ${id} is ${job.status === 'error' ? 'in error' : 'complete'}: it can no longer be cancelled`,
        );
      }
      if (job.status === 'in-progress') {
        const worker = holderOf(job);
        if (worker !== undefined && (await this.#store.workers.wishToCancel(worker, job.id, reason)))
          return 'in-progress';
        continue;
      }
      const ending = { reason: 'cancel', error: reason, isUntried: false } as const;
      if (await cancelWaiting(this.#rows, this.#definition, job, ending)) return 'cancelled';
    }
    throw new Conflict(`job ${id} changes all the time; try again`);
  }

  /** Brings back a job that has ended. Makes a job that waits for its time, or for its next attempt, due now. */
  async retry(id: string, kindName: ReadonlyMap<number, string>): Promise<JobStatus> {
    const job =
      (await retryByHand(this.#rows, this.#definition, id, kindName)) ??
      (await updateWaiting(this.#rows, this.#definition, id, newTime(Math.floor(this.#rows.engine.now())), kindName));
    await recordByHand(this.#rows, this.#definition, job, { to: 'release', reason: 'retry by hand', error: null });
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
    await recordByHand(this.#rows, this.#definition, job, { to: 'release', reason: 'update', error: null });
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
}
