/** References to jobs of any queue of the table: numbers in the queue itself, names such as `mail:1042` in other queues. */
import { NotSupported } from '../../../base/errors.ts';
import { isObject } from '../../../base/options/shape.ts';
import type { Definition } from '../../definition.ts';
import type { JobStatus } from '../../job.ts';
import { batchStatusOf, readBatchHead } from '../batch/head.ts';
import { QueueRows } from '../database.ts';
import { declaredOf, definitionOf } from '../declaration.ts';
import { type JobRef, placeOf } from '../heads/place.ts';
import { statusOfJob } from '../operate/standing.ts';
import { isRecorded } from '../records.ts';

/** The queue of a job, and the id of the job in it. */
export interface JobHome {
  readonly rows: QueueRows;
  readonly definition: Definition;
  readonly kindName: ReadonlyMap<number, string>;
  readonly id: number;
}

type QueueHome = Omit<JobHome, 'id'>;

/** @param queue  the queue in which the name is used */
export function refOf(queue: string, name: string): JobRef {
  const at = name.lastIndexOf(':');
  return at < 0 || name.slice(0, at) === queue ? Number(name.slice(at + 1)) : name;
}

const BATCH = 'b#';

/**
 * The reference to a batch of the same queue that is a parent. It has no colon, unlike the name of a job of another queue.
 * @param queue  the queue in which the batch is named @throws NotSupported  the batch is of another queue
 */
export function batchRef(queue: string, given: unknown): JobRef {
  const name = isObject(given) ? String(given['batch']) : '';
  const ref = refOf(queue, name);
  if (typeof ref === 'number') return `${BATCH}${ref}`;
  throw new NotSupported(
    `on DynamoDB a job comes after batches of its own queue alone, which is "${queue}": let batch ${name} enqueue it, as a callback`,
  );
}

export function isBatchRef(ref: JobRef): ref is string {
  return typeof ref === 'string' && ref.startsWith(BATCH) && !ref.includes(':');
}

/** The id of the batch of such a reference. */
export function batchIn(ref: string): string {
  return ref.slice(BATCH.length);
}

/** Finds the queues of jobs of other queues, with one read for each queue. */
export class Homes {
  readonly #rows: QueueRows;
  readonly #definition: Definition;
  readonly #known = new Map<string, Promise<QueueHome>>();

  constructor(rows: QueueRows, definition: Definition) {
    this.#rows = rows;
    this.#definition = definition;
  }

  /** @throws NotFound  there is no such queue, or no such job */
  async statusOf(ref: JobRef): Promise<JobStatus> {
    if (typeof ref === 'number') return statusOfJob(this.#rows, this.#definition, ref);
    if (isBatchRef(ref)) return batchStatusOf(await readBatchHead(this.#rows, batchIn(ref)));
    const { rows, definition, id } = await this.of(ref);
    return statusOfJob(rows, definition, id);
  }

  /** Whether a record says that the job is over, or the head of a batch that it is done. One request. @throws NotFound  no such queue or batch */
  async isRecorded(ref: JobRef): Promise<boolean> {
    if (typeof ref === 'number') return isRecorded(this.#rows, placeOf(ref).shard, ref);
    if (isBatchRef(ref)) return (await readBatchHead(this.#rows, batchIn(ref))).doneAt !== undefined;
    const { rows, id } = await this.of(ref);
    return isRecorded(rows, placeOf(id).shard, id);
  }

  async of(name: string): Promise<JobHome> {
    const at = name.lastIndexOf(':');
    const queue = name.slice(0, at);
    const home = this.#known.get(queue) ?? this.#open(queue);
    this.#known.set(queue, home);
    return { ...(await home), id: Number(name.slice(at + 1)) };
  }

  async #open(queue: string): Promise<QueueHome> {
    try {
      const rows = new QueueRows(this.#rows.engine, queue, this.#rows.limits.timeoutMs);
      const declared = await declaredOf(rows);
      return { rows, definition: definitionOf(declared), kindName: new Map(declared.kinds.entries()) };
    } catch (error) {
      this.#known.delete(queue);
      throw error;
    }
  }
}
