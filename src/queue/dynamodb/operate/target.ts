/** Finds the job that a call names by its id, or by its key. */
import { NotFound, NotSupported } from '../../../base/errors.ts';
import { fieldsOf } from '../../../engine/dynamodb/index.ts';
import type { Definition } from '../../definition.ts';
import { shardOf } from '../../enqueue.ts';
import { type JobTarget, readJobTarget } from '../../job-id.ts';
import type { QueueIds } from '../../store.ts';
import type { QueueRows } from '../database.ts';
import { type KeyHead, keyStandingOf, readKeyHead } from '../heads/key-head.ts';
import { jobNumber, placeOf } from '../heads/place.ts';
import { headOf, keyOf, pieceOf, readJobRow } from '../rows.ts';

/** How many rows of a key are searched for a job of a kind. */
const MOST = 100;

/**
 * The id of a job. A key names the newest of its jobs that has not ended, or, if all have ended, the newest job: two read units and more.
 * @throws InvalidInput, NotFound @throws NotSupported  a key, in a queue whose keys have no order
 */
export async function idOf(
  rows: QueueRows,
  definition: Definition,
  ids: QueueIds,
  call: string,
  target: JobTarget,
): Promise<string> {
  const { id, key = '', kind } = readJobTarget(call, definition.name, target);
  if (id !== undefined) return id;
  if (!definition.keyed) {
    throw new NotSupported(
      'on DynamoDB jobs have no place by their key where keys run side by side (perKey: Infinity): name the job by its id',
    );
  }
  const shard = shardOf(key, definition.shards);
  const kindId = kind === undefined ? undefined : ids.kindId.get(kind);
  const found = await newestOf(rows, shard, key, (one) => kind === undefined || one === kindId);
  if (found !== undefined) return String(found);
  throw new NotFound(
    `queue "${definition.name}" has no job of key "${key}"${kind === undefined ? '' : `, kind "${kind}"`}`,
  );
}

async function newestOf(
  rows: QueueRows,
  shard: number,
  key: string,
  isMeant: (kind: number) => boolean,
): Promise<number | undefined> {
  const pk = keyOf(rows.shard(shard), key);
  const { items } = await rows.page(pk, pieceOf(pk, 0).sk, 'j#~', MOST, 'newest first');
  // The head is read after the rows: a job that is over by then was over when its row was read, or ended a moment later.
  const head = readKeyHead(fieldsOf(await rows.get(headOf(pk))));
  const all = items.flatMap((item) => {
    const { piece, indexes, kinds } = readJobRow(item);
    return indexes
      .map((index, at) => ({ id: jobNumber(shard, piece, index), kind: kinds[at] ?? 0 }))
      .toReversed()
      .filter((one) => isMeant(one.kind));
  });
  const outstanding = all.find(({ id }) => isOutstanding(head, id));
  if (outstanding !== undefined) return outstanding.id;
  for (const { id } of head.left.toReversed()) {
    const { piece, index } = placeOf(id);
    const row = await rows.get(pieceOf(pk, piece));
    if (row === undefined) continue;
    const { indexes, kinds } = readJobRow(row);
    if (isMeant(kinds[indexes.indexOf(index)] ?? -1)) return id;
  }
  return all[0]?.id;
}

function isOutstanding(head: KeyHead, id: number): boolean {
  const standing = keyStandingOf(head, id);
  return standing !== 'over' && standing !== 'cancelled';
}
