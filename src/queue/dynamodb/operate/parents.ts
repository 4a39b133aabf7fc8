/** The jobs that a job comes after. */
import type { Definition } from '../../definition.ts';
import type { ParentRecord } from '../../job.ts';
import { type QueueRows, unlessMissing } from '../database.ts';
import { Homes, isBatchRef, type JobHome } from '../enqueue/homes.ts';
import { type JobRef, placeOf } from '../heads/place.ts';
import { pieceOf, readJobRow } from '../rows.ts';
import { findJob } from './standing.ts';

/** The parents, in the order in which they were named, without those whose history is over. Some read units for each. */
export async function parentsOf(
  rows: QueueRows,
  definition: Definition,
  kindName: ReadonlyMap<number, string>,
  job: number,
): Promise<readonly ParentRecord[]> {
  const { shard, piece } = placeOf(job);
  const item = await rows.get(pieceOf(rows.shard(shard), piece));
  const { parents = [] } = item === undefined ? {} : readJobRow(item);
  const homes = new Homes(rows, definition);
  const read = async (parent: JobRef): Promise<ParentRecord> => {
    const own = { rows, definition, kindName };
    return parentRecord(typeof parent === 'number' ? { ...own, id: parent } : await homes.of(parent), String(parent));
  };
  const found = await Promise.all(
    parents.filter((parent) => !isBatchRef(parent)).map((parent) => read(parent).catch(unlessMissing)),
  );
  return found.flatMap((one) => one ?? []);
}

/** @param name  the reference by which the job names its parent */
async function parentRecord({ rows, definition, kindName, id }: JobHome, name: string): Promise<ParentRecord> {
  const { kind, label, status, payload, records } = await findJob(rows, definition, String(id));
  const last = records.at(-1);
  const isOver = status !== 'new' && status !== 'in-progress';
  return {
    id: name,
    queue: definition.name,
    kind: kindName.get(kind) ?? `unknown kind ${kind}`,
    key: label ?? null,
    status,
    payload,
    result: isOver && last?.result !== undefined ? JSON.parse(last.result) : null,
    error: last?.error ?? null,
  };
}
