/** Where a job is, by its delay, the head of its shard, the head of its key, and its records. */

import { NotFound } from '../../../base/errors.ts';
import { fieldsOf } from '../../../engine/dynamodb/index.ts';
import type { Definition } from '../../definition.ts';
import type { JobStatus } from '../../job.ts';
import type { OwnOptions } from '../../job-options.ts';
import type { QueueRows } from '../database.ts';
import { type ShardHead, type Standing } from '../heads/head.ts';
import { type KeyHead, type KeyStanding, keyStandingOf, readKeyHead } from '../heads/key-head.ts';
import { jobNumber, placeOf } from '../heads/place.ts';
import { isIn, POKE, type Spot } from '../heads/spans.ts';
import { standingIn, statusOf } from '../heads/status.ts';
import { type JobRecordEntry, readRecords } from '../records.ts';
import { delayOf, headOf, type JobRow, keyOf, pieceOf, readJobRow } from '../rows.ts';
import { cancelledIn } from '../work/delays.ts';

/** A job, and all facts that tell where it is. */
export interface FoundJob {
  readonly id: number;
  readonly shard: number;
  readonly spot: Spot;
  readonly kind: number;
  /** The key by which the job is ordered. */
  readonly key: string | undefined;
  /** The key with which it was enqueued. */
  readonly label: string | undefined;
  readonly priority: number;
  readonly payload: unknown;
  readonly own: OwnOptions | undefined;
  readonly enqueuedAt: number;
  /** The time for which it was enqueued. */
  readonly dueAt: number;
  /** The time that counts: a person may have changed it. */
  readonly runAt: number;
  /** The row with its payload. */
  readonly body: JobRow;
  /** The place of the job in that row. */
  readonly at: number;
  readonly head: ShardHead;
  readonly standing: Standing;
  readonly keyHead: KeyHead | undefined;
  readonly keyStanding: KeyStanding | undefined;
  readonly isDelayed: boolean;
  readonly records: readonly JobRecordEntry[];
  readonly status: JobStatus;
}

/** @throws NotFound */
export async function findJob(rows: QueueRows, { shards }: Definition, id: string): Promise<FoundJob> {
  const number = Number(id);
  const { shard, piece, index } = placeOf(number);
  const pk = rows.shard(shard);
  const item = shard < shards ? await rows.get(pieceOf(pk, piece)) : undefined;
  const row = item === undefined ? undefined : readJobRow(item);
  if (row === undefined || index >= row.n) throw new NotFound(`there is no job ${id}`);
  const label = row.keys?.[index];
  const key = row.isLabelled ? undefined : label;
  // The delay is read before the head, since jobs move from delays to heads. Otherwise a job that becomes due meanwhile is in neither.
  const delay = row.dueAt > 0 ? await rows.get(delayOf(pk, row.dueAt, piece)) : undefined;
  const [body, [head, keyHead]] = await Promise.all([
    key === undefined ? row : bodyOf(rows, keyOf(pk, key), piece),
    headsOf(rows, shard, key),
  ]);
  // The records are read after the heads, since the record of a job is written before a head lets go of it.
  const records = await readRecords(rows, number);
  const at = body.indexes.indexOf(index);
  const spot = { piece, index };
  const found = {
    id: number,
    shard,
    spot,
    kind: body.kinds[at] ?? 0,
    key,
    label: label === '' ? undefined : label,
    priority: body.priorities[at] ?? 0,
    payload: body.payloads[at] ?? null,
    own: body.options?.[at] ?? undefined,
    enqueuedAt: row.enqueuedAt,
    dueAt: row.dueAt,
    runAt: body.times[index] ?? row.dueAt,
    body,
    at,
    head,
    standing: standingIn(head, spot, row.dueAt),
    keyHead,
    keyStanding: keyHead === undefined ? undefined : keyStandingOf(keyHead, number),
    isDelayed: delay !== undefined && !cancelledIn(delay).includes(index),
    records,
  };
  return { ...found, status: statusOf(found) };
}

/** Reads the head of the shard, then the head of the key. If the key is given up meanwhile, its job is found over, or in the head of the shard. */
async function headsOf(
  rows: QueueRows,
  shard: number,
  key: string | undefined,
): Promise<[ShardHead, KeyHead | undefined]> {
  const head = await rows.head(shard);
  if (key === undefined) return [head, undefined];
  return [head, readKeyHead(fieldsOf(await rows.get(headOf(keyOf(rows.shard(shard), key)))))];
}

async function bodyOf(rows: QueueRows, pk: string, piece: number): Promise<JobRow> {
  const item = await rows.get(pieceOf(pk, piece));
  if (item === undefined) throw new NotFound(`the jobs of piece ${piece} no longer exist`);
  return readJobRow(item);
}

/** The status of each job of a piece; undefined if its history is over. One read for each of its keys, and two or three more. */
export async function statusesOf(
  rows: QueueRows,
  shard: number,
  piece: number,
  records: readonly JobRecordEntry[],
): Promise<JobStatus[] | undefined> {
  const pk = rows.shard(shard);
  const item = await rows.get(pieceOf(pk, piece));
  if (item === undefined) return undefined;
  const row = readJobRow(item);
  const delay = row.dueAt > 0 ? await rows.get(delayOf(pk, row.dueAt, piece)) : undefined;
  const head = await rows.head(shard);
  const keys = row.isLabelled ? [] : [...new Set(row.keys)];
  const heads = new Map(
    await Promise.all(
      keys.map(async (key) => [key, readKeyHead(fieldsOf(await rows.get(headOf(keyOf(pk, key)))))] as const),
    ),
  );
  return Array.from({ length: row.n }, (_, index) => {
    const id = jobNumber(shard, piece, index);
    const keyHead = row.isLabelled ? undefined : heads.get(row.keys?.[index] ?? '');
    return statusOf({
      standing: standingIn(head, { piece, index }, row.dueAt),
      keyStanding: keyHead === undefined ? undefined : keyStandingOf(keyHead, id),
      isDelayed: delay !== undefined && !cancelledIn(delay).includes(index),
      records: records.filter((record) => record.id === id),
    });
  });
}

/** @throws NotFound */
export async function statusOfJob(rows: QueueRows, definition: Definition, id: number): Promise<JobStatus> {
  return (await findJob(rows, definition, String(id))).status;
}

export function attemptOf({ head, spot, keyHead, id, records, status }: FoundJob): number {
  const left = keyHead?.left.find((one) => one.id === id);
  if (left !== undefined) return left.attempt;
  // For a job with a key, the head of the shard has only its poke, which may be there for a moment after the job is over.
  const spans = keyHead !== undefined ? [] : [...head.claims, ...head.back].flatMap((one) => one.spans);
  const span = spans.find((one) => isIn([one], spot));
  if (span !== undefined && span.attempts !== POKE) return span.attempts + Number(status === 'in-progress');
  return records.findLast(({ to }) => to !== 'release')?.attempt ?? 0;
}

export function backUntil({ head, spot }: FoundJob): number {
  for (const { spans } of head.back) for (const span of spans) if (isIn([span], spot)) return span.dueAt;
  return 0;
}

/** The worker that has the job. */
export function holderOf({ head, spot, keyHead, keyStanding }: FoundJob): number | undefined {
  if (keyStanding === 'held') return keyHead?.holder?.worker;
  return head.claims.find(({ spans }) => isIn(spans, spot))?.worker;
}
