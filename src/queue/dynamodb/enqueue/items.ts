/** The parts of a transaction of the caller that enqueue a job. */
import type { Definition } from '../../definition.ts';
import { type EnqueueOptions, Producer } from '../../enqueue.ts';
import type { NewJobs, QueueIds } from '../../store.ts';
import type { QueueRows } from '../database.ts';
import { notInParts } from '../limits.ts';
import { type EnqueueItem, partsOf } from './producing.ts';

/** The part of a store that this file needs. */
interface Adding {
  readonly rows: QueueRows;
  readonly withoutWaits: (batch: NewJobs) => NewJobs;
}

/** See {@link DynamoQueue.enqueueItems}. */
export async function itemsOf(
  { rows, withoutWaits }: Adding,
  definition: Definition,
  register: () => Promise<QueueIds>,
  kind: string,
  payload: unknown,
  options: Omit<EnqueueOptions, 'tx'>,
): Promise<{ readonly id: string; readonly items: readonly EnqueueItem[] }> {
  let items: readonly EnqueueItem[] = [];
  const collector = new Producer(
    {
      add: async (_, batch, __, trace) => {
        const parts = await partsOf(rows, withoutWaits(batch), trace, definition.keyed);
        items = parts.items;
        return [parts.id];
      },
      enqueue: notInParts,
      enqueueAll: notInParts,
      addUnique: notInParts,
      addAwaited: notInParts,
      addInto: notInParts,
    },
    definition,
    register,
  );
  const { id } = await collector.one(kind, payload, options);
  return { id, items };
}
