/** Jobs of any queue of the table: of the queue itself by their numbers, of others by names such as `mail:1042`. */
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

/** Where the rows of a job are. */
export interface JobHome {
  readonly rows: QueueRows;
  readonly definition: Definition;
  readonly kindName: ReadonlyMap<number, string>;
  readonly id: number;
}

type QueueHome = Omit<JobHome, 'id'>;

/** @param queue  of the one who names it */
export function refOf(queue: string, name: string): JobRef {
  const at = name.lastIndexOf(':');
  return at < 0 || name.slice(0, at) === queue ? Number(name.slice(at + 1)) : name;
}

const BATCH = 'b#';

/**
 * A batch of the same queue, as what others come after. The name of a job of another queue has a colon.
 * @param queue  of the one who names it @throws NotSupported  it is one of another queue
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

/** The id of such a batch. */
export function batchIn(ref: string): string {
  return ref.slice(BATCH.length);
}

/** Finds the rows of jobs of other queues: a read for each queue, once. */
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

  /** Whether a record says that it is over: one request. @throws NotFound  there is no such queue */
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
