import { InvalidInput } from '../../../base/errors.ts';
import { checkOptions, integer, optional, suggest, text } from '../../../base/options/options.ts';
import type { EnqueueResult } from '../../enqueue.ts';
import type { BatchesOptions, BatchRecord } from '../../watch/batch.ts';
import {
  checkFlow,
  type HandBatch,
  type HandJob,
  type HandNode,
  readHandCallbacks,
  readHandJob,
} from '../../watch/by-hand.ts';
import { NAMED_ID } from '../../watch/flow.ts';
import { unlessMissing } from '../database.ts';
import type { DeclarationRow } from '../declaration.ts';
import type { OnceRequest } from '../enqueue/unique.ts';
import type { DynamoQueue } from '../queue.ts';
import { RefusedCalls } from '../refused-calls.ts';
import type { DynamoQueueStore } from '../store.ts';

/** A queue that was opened by its stored declaration, without its program. */
export interface OpenQueue {
  readonly declared: DeclarationRow;
  readonly queue: DynamoQueue;
  readonly store: DynamoQueueStore;
}

const listShape = {
  queue: optional(text({ min: 1, max: 100 })),
  before: optional(text({ min: 1, max: 120 })),
  limit: integer({ min: 1, max: 200, default: 20 }),
};

/** Operates the batches and flows of all queues of a table of DynamoDB. A batch is named with its queue: `mail:1042`. */
export abstract class TableBatchAdmin extends RefusedCalls {
  /** @internal */
  protected abstract open(name: string): Promise<OpenQueue>;

  /** @internal */
  protected abstract jobOf(name: string): Promise<{ readonly queue: DynamoQueue; readonly id: string }>;

  /** @internal */
  protected abstract names(): Promise<readonly string[]>;

  /** How far a batch is. @param batch  such as `mail:1042` @throws NotFound, InvalidInput */
  async batch(batch: string): Promise<BatchRecord> {
    const { queue, id } = await this.jobOf(batch);
    return { id: batch, queue: queue.name, ...(await queue.openBatch(id).progress()) };
  }

  /**
   * Batches of one queue, or of all, newest first: two requests for each shard, and one for each batch. The records count a job that has ended as
   * outstanding until a worker has counted it. @throws NotFound  no such queue @throws InvalidInput
   */
  async batches(options: BatchesOptions = {}): Promise<BatchRecord[]> {
    const { queue, before, limit } = checkOptions('batches', options, listShape);
    const last = before === undefined ? undefined : Number(before.slice(before.lastIndexOf(':') + 1));
    if (last !== undefined && !Number.isSafeInteger(last)) {
      throw new InvalidInput(`before must be the id of a batch, such as "mail:1042", not "${before}"`, {
        field: 'before',
      });
    }
    const found = await Promise.all(
      (queue === undefined ? await this.names() : [queue]).map(async (name) => {
        const { store } = await this.open(name);
        return (await store.batches.newest(last, limit)).map((id) => ({ name, id, store }));
      }),
    );
    const newest = found.flat().sort((a, b) => b.id - a.id);
    const records = await Promise.all(
      newest.slice(0, limit).map(async ({ name, id, store }) => {
        const record = await store.batches.counted(String(id)).catch(unlessMissing);
        return record === undefined ? [] : [{ ...record, id: `${name}:${id}` }];
      }),
    );
    return records.flat();
  }

  /** Does nothing if the batch is sealed already. @throws NotFound, InvalidInput */
  async sealBatch(batch: string): Promise<void> {
    const { queue, id } = await this.jobOf(batch);
    await queue.openBatch(id).seal();
  }

  /** Makes an open batch, and then adds its first jobs, row by row. @returns its id @throws NotFound, InvalidInput, Conflict */
  async newBatch(queue: string, batch: HandBatch = {}, jobs: readonly HandJob[] = []): Promise<string> {
    const { id } = await this.newBatchOnce(undefined, queue, batch);
    if (jobs.length > 0) await this.addToBatch(id, jobs);
    return id;
  }

  /** Makes one open batch for all requests of one name within a day. @throws NotFound, InvalidInput, Conflict */
  async newBatchOnce(
    once: OnceRequest | undefined,
    queue: string,
    batch: HandBatch,
  ): Promise<{ readonly id: string; readonly duplicate: boolean }> {
    const { store } = await this.open(queue);
    const callbacks = readHandCallbacks(queue, batch);
    for (const [name, callback] of Object.entries(callbacks)) await this.#checkKind(name, callback);
    const parent = batch.parent === undefined ? undefined : (await this.jobOf(batch.parent)).id;
    const { id, isDuplicate } = await store.batches.makeOnce(once, callbacks, parent);
    return { id: `${queue}:${id}`, duplicate: isDuplicate };
  }

  /** Adds jobs to an open batch, row by row; each row is added as a whole. @throws Conflict  the batch is sealed @throws NotFound, InvalidInput */
  async addToBatch(batch: string, jobs: readonly HandJob[]): Promise<EnqueueResult[]> {
    const { queue, id } = await this.jobOf(batch);
    const added = await queue.openBatch(id).enqueueMany(jobs as never);
    return added.map((job) => ({ id: `${queue.name}:${job}`, status: 'new', duplicate: false }));
  }

  /**
   * Adds one job to an open batch for all requests of one name within a day. A unique job that exists already does not become a member.
   * @throws Conflict  the batch is sealed, or another request has used the name @throws NotFound, InvalidInput
   */
  async addOneToBatch(once: OnceRequest | undefined, batch: string, job: HandJob): Promise<EnqueueResult> {
    const { queue, id } = await this.jobOf(batch);
    const { store } = await this.open(queue.name);
    const added = await store.enqueueInto(id, { ...readHandJob(queue.name, job), once });
    return { ...added, id: `${queue.name}:${added.id}` };
  }

  /**
   * Adds a graph of jobs in one transaction, so at most some 45 nodes. @returns the id of each node, by its name
   * @throws InvalidInput  names the node @throws NotFound  no such queue, kind or job @throws NotSupported  the graph is too large
   */
  async flow(nodes: readonly HandNode[]): Promise<Record<string, string>> {
    checkFlow(nodes, NAMED_ID);
    const queues = new Map<string, DynamoQueue>();
    for (const { queue } of nodes) if (!queues.has(queue)) queues.set(queue, (await this.open(queue)).queue);
    const [home] = queues.values();
    if (home === undefined) return {};
    const given = nodes.map(({ queue, ...node }) => ({ ...node, queue: queues.get(queue) }));
    const ids = await home.flow(given as never);
    const named = (id: string): string => (id.includes(':') ? id : `${home.name}:${id}`);
    return Object.fromEntries(Object.entries(ids).map(([name, id]) => [name, named(id)]));
  }

  /** @throws InvalidInput  its queue has no such kind @throws NotFound  there is no such queue */
  async #checkKind(name: string, callback: object): Promise<void> {
    const [queue, kind] = [String(Reflect.get(callback, 'queue')), String(Reflect.get(callback, 'kind'))];
    const { kinds } = (await this.open(queue)).declared;
    if (kinds.includes(kind)) return;
    const near = suggest(kind, kinds);
    const advice = near === undefined ? `it has ${kinds.join(', ')}` : `did you mean "${near}"?`;
    throw new InvalidInput(`queue "${queue}" has no kind "${kind}"; ${advice}`, { field: name });
  }
}
