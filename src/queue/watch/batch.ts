import { NotFound } from '../../base/errors.ts';
import { checkOptions, integer, optional, text } from '../../base/options/options.ts';
import type { OpenTransaction, PostgresEngine } from '../../engine/postgres/index.ts';
import { readJobId } from '../job-id.ts';
import type { JobInput } from '../job-input.ts';
import { type BatchRow, PostgresQueueFlows } from '../postgres/watch/flows.ts';

/** How far a batch is. Its members are its jobs, and the batches in it. */
export interface BatchProgress {
  readonly total: number;
  readonly outstanding: number;
  /** Members that completed. A nested batch is complete if all of its members completed. */
  readonly complete: number;
  readonly errors: number;
  readonly cancelled: number;
  /** From this time on, nothing can be added; null while the batch is open. */
  readonly sealedAt: Date | null;
  /** The time when the last member had ended and the batch was sealed; null before. */
  readonly doneAt: Date | null;
  /** Why a callback could not be enqueued; null if none failed. */
  readonly problem: string | null;
}

/** The queue of a batch, as far as the batch needs it. */
export interface BatchHome {
  manyInto(batch: string, jobs: readonly JobInput[], options: TxOption): Promise<string[]>;
  /** @returns the id of a batch */
  newBatch(parent: string | undefined, callbacks: object, options: TxOption): Promise<string>;
  seal(batch: string): Promise<void>;
  progress(batch: string): Promise<BatchRecord>;
}

interface TxOption {
  readonly tx?: OpenTransaction | undefined;
}

/**
 * Jobs that are counted together. While the batch is open, any process can add to it, also the handlers of its own jobs. When it
 * is sealed and its last member has ended, its callbacks are enqueued, each exactly once: on Postgres in the transaction that
 * settles that member, on DynamoDB within a second by a worker of the queue.
 */
export class Batch<J extends JobInput = JobInput, C extends object = object> {
  readonly #home: BatchHome;
  readonly id: string;

  /** @internal */
  constructor(home: BatchHome, id: string) {
    this.#home = home;
    this.id = id;
  }

  /** For `after`, if another job comes after this batch, and for `JSON.stringify`. */
  get batch(): string {
    return this.id;
  }

  /**
   * Adds jobs to the batch and to its queue, like `queue.enqueueMany`. With `tx`, they are members once you commit; a seal waits
   * for your commit.
   * @returns the ids, in the order of the jobs
   * @throws Conflict  the batch is sealed @throws NotFound  there is no such batch @throws InvalidInput
   */
  enqueueMany<I extends J>(jobs: readonly NoInfer<I>[], options: TxOption = {}): Promise<string[]> {
    return this.#home.manyInto(this.id, jobs, options);
  }

  /** Adds one job. @returns its id @throws Conflict, NotFound, InvalidInput */
  async enqueue<I extends J>(job: NoInfer<I>, options: TxOption = {}): Promise<string> {
    const [id] = await this.#home.manyInto(this.id, [job], options);
    if (id === undefined) throw new Error('a job that was added always has an id');
    return id;
  }

  /** Makes a batch that is a member of this one. This one waits for it: seal both. @throws Conflict  this one is sealed */
  async nested<D extends C>(callbacks: NoInfer<D>, options: TxOption = {}): Promise<Batch<J, C>> {
    return new Batch<J, C>(this.#home, await this.#home.newBatch(this.id, callbacks, options));
  }

  /**
   * After this call nothing can be added. Waits for the transactions that are adding. If no member is outstanding, the batch is
   * done at once. Does nothing if the batch is sealed. @throws NotFound
   */
  seal(): Promise<void> {
    return this.#home.seal(this.id);
  }

  /** @throws NotFound  there is no such batch, or its history is over */
  async progress(): Promise<BatchProgress> {
    const { id: _id, queue: _queue, ...progress } = await this.#home.progress(this.id);
    return progress;
  }

  toJSON(): object {
    return { batch: this.id };
  }
}

/** A batch of any queue. */
export interface BatchRecord extends BatchProgress {
  readonly id: string;
  /** The queue in which the batch was made. */
  readonly queue: string;
}

/** @throws NotFound  there is no such batch, or its history is over */
export async function readBatch(engine: PostgresEngine, id: string): Promise<BatchRecord> {
  const row = await new PostgresQueueFlows(engine).progress(id);
  if (row === undefined) throw new NotFound(`there is no batch ${id}; it was never committed, or its history is over`);
  return toRecord(id, row);
}

export interface BatchesOptions {
  /** Batches of this queue. Default: of all. */
  readonly queue?: string | undefined;
  /** The last batch of the previous page. */
  readonly before?: string | undefined;
  /** 1 to 200; default 20. */
  readonly limit?: number | undefined;
}

const listShape = {
  queue: optional(text({ min: 1, max: 100 })),
  before: optional(text({ min: 1, max: 19 })),
  limit: integer({ min: 1, max: 200, default: 20 }),
};

/** Newest first. @throws NotFound  no such queue @throws InvalidInput */
export async function listBatches(engine: PostgresEngine, options: BatchesOptions): Promise<BatchRecord[]> {
  const { queue = null, before, limit } = checkOptions('batches', options, listShape);
  const last = before === undefined ? null : readJobId(before);
  const rows = await new PostgresQueueFlows(engine).batches(queue, last, limit);
  return rows.map(({ id, progress }) => toRecord(id, progress));
}

function toRecord(id: string, row: BatchRow): BatchRecord {
  const { queue, total, outstanding, errors, cancelled, sealedAt, doneAt, problem } = row;
  return {
    id,
    queue,
    total,
    outstanding,
    complete: total - outstanding - errors - cancelled,
    errors,
    cancelled,
    sealedAt: sealedAt === null ? null : new Date(sealedAt),
    doneAt: doneAt === null ? null : new Date(doneAt),
    problem,
  };
}
