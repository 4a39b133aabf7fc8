/** The jobs that a job comes after. */
import { NotFound } from '../../../base/errors.ts';
import type { Definition } from '../../definition.ts';
import type { ParentRecord } from '../../job.ts';
import type { QueueRows } from '../database.ts';
import { placeOf } from '../heads/place.ts';
import { pieceOf, readJobRow } from '../rows.ts';
import { findJob } from './standing.ts';

/** In the order in which they were named; one whose history is over is left out. Some read units for each. */
export async function parentsOf(
  rows: QueueRows,
  definition: Definition,
  kindName: ReadonlyMap<number, string>,
  job: number,
): Promise<readonly ParentRecord[]> {
  const { shard, piece } = placeOf(job);
  const item = await rows.get(pieceOf(rows.shard(shard), piece));
  const { parents = [] } = item === undefined ? {} : readJobRow(item);
  const found = await Promise.all(
    parents.map((id) => parentRecord(rows, definition, kindName, String(id)).catch(unlessMissing)),
  );
  return found.flatMap((one) => one ?? []);
}

async function parentRecord(
  rows: QueueRows,
  definition: Definition,
  kindName: ReadonlyMap<number, string>,
  id: string,
): Promise<ParentRecord> {
  const { kind, label, status, payload, records } = await findJob(rows, definition, id);
  const last = records.at(-1);
  const isOver = status !== 'new' && status !== 'in-progress';
  return {
    id,
    queue: definition.name,
    kind: kindName.get(kind) ?? `unknown kind ${kind}`,
    key: label ?? null,
    status,
    payload,
    result: isOver && last?.result !== undefined ? JSON.parse(last.result) : null,
    error: last?.error ?? null,
  };
}

function unlessMissing(error: unknown): undefined {
  if (error instanceof NotFound) return undefined;
  throw error;
}
