/** How the members of a batch have ended. */
import { fieldsOf, type Item } from '../../../engine/dynamodb/index.ts';
import { type QueueRows, unlessMissing } from '../database.ts';
import { type EndedCounts, noneEnded } from '../heads/ended.ts';
import { jobNumber } from '../heads/place.ts';
import { statusesOf } from '../operate/standing.ts';
import { isOver, recordsOfPiece } from '../records.ts';
import { isWholeComplete, readBatchHead } from './head.ts';

/** A member of a batch that is not counted yet. */
export interface Member {
  readonly sk: string;
  /** The id of a batch; undefined: the member is a piece of jobs. */
  readonly nested: string | undefined;
  readonly shard: number;
  readonly piece: number;
  readonly n: number;
}

export function readMember(item: Item): Member {
  const sk = item['sk'] !== undefined && 'S' in item['sk'] ? item['sk'].S : '';
  const [, first = '', second = ''] = sk.split('#');
  const isBatch = first === 'b';
  const n = Number(fieldsOf(item)['n'] ?? 0);
  return {
    sk,
    nested: isBatch ? String(Number(second)) : undefined,
    shard: isBatch ? 0 : Number(first),
    piece: Number(second),
    n,
  };
}

/** The ids of the jobs of a member; none if it is a batch. */
export function jobsOf({ nested, shard, piece, n }: Member): number[] {
  return nested === undefined ? Array.from({ length: n }, (_, index) => jobNumber(shard, piece, index)) : [];
}

/**
 * How many jobs of a member have ended, by their ends.
 * @param isRough  the counts matter only once all jobs have ended. So one request is enough as long as a job has no record.
 */
export async function endedOf(rows: QueueRows, member: Member, isRough: boolean): Promise<EndedCounts> {
  const { nested, shard, piece, n } = member;
  if (nested !== undefined) {
    const head = await readBatchHead(rows, nested).catch(unlessMissing);
    if (head === undefined) return { ...noneEnded(), complete: 1 };
    if (head.doneAt === undefined) return noneEnded();
    return { ...noneEnded(), [isWholeComplete(head) ? 'complete' : 'error']: 1 };
  }
  const records = await recordsOfPiece(rows, shard, piece);
  const recorded = new Set(records.filter(isOver).map(({ id }) => id));
  if (isRough && recorded.size < n) return noneEnded();
  const statuses = recorded.size === 0 ? [] : await statusesOf(rows, shard, piece, records);
  // Statuses are undefined if the history is over. The records are kept for longer.
  const last = (id: number): string =>
    records.findLast((record) => record.id === id && isOver(record))?.to ?? 'complete';
  const counts = noneEnded();
  for (const status of statuses ?? jobsOf(member).map(last)) {
    if (status === 'complete' || status === 'error' || status === 'cancelled') counts[status] += 1;
  }
  return counts;
}

export function sumOf({ complete, error, cancelled }: EndedCounts): number {
  return complete + error + cancelled;
}
