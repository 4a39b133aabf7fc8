/**
 * Batches: jobs that are counted together. A batch has a partition of its own with its head, and a row for each member that is not counted yet: a
 * piece of jobs, or another batch. One transaction removes the row of a member and raises the counts of the head, so each member is counted once.
 * A row in a shard of the queue leads workers to each batch that is not done, and the head of that shard counts these rows.
 */
import { NotFound } from '../../../base/errors.ts';
import {
  type Change,
  creation,
  digits,
  type Fields,
  fieldsOf,
  type Item,
  type Key,
} from '../../../engine/dynamodb/index.ts';
import type { JobStatus } from '../../job.ts';
import type { QueueRows } from '../database.ts';
import { headOf, queueKey } from '../rows.ts';

export const BATCH = {
  total: 't',
  left: 'l',
  complete: 'k',
  errors: 'e',
  cancelled: 'x',
  sealedAt: 's',
  doneAt: 'd',
  callbacks: 'c',
  problem: 'w',
} as const;

export interface BatchHead {
  readonly total: number;
  /** How many members are not counted yet. */
  readonly left: number;
  readonly complete: number;
  readonly errors: number;
  readonly cancelled: number;
  readonly sealedAt: number | undefined;
  readonly doneAt: number | undefined;
  /** The callbacks that are not enqueued yet, by their names. */
  readonly callbacks: Readonly<Record<string, object>>;
  readonly problem: string | undefined;
  readonly fields: Fields;
}

/** The shard of a batch. Batches are spread over the shards of the queue. */
export function shardOfBatch(id: string, shards: number): number {
  return Number(BigInt(id) % BigInt(shards));
}

/** The partition of a batch. */
export function batchKey(queue: string, id: string): string {
  return `${queueKey(queue)}:b:${id}`;
}

/** The row of a member that is a piece of jobs, until it is counted. */
export function memberOf(pk: string, shard: number, piece: number): Key {
  return { pk, sk: `m#${digits(shard, 3)}#${digits(piece, 12)}` };
}

/** The row of a member that is a batch, until it is counted. */
export function nestedOf(pk: string, id: string): Key {
  return { pk, sk: `m#b#${digits(Number(id), 16)}` };
}

export const MEMBERS = { first: 'm#', last: 'm#~' } as const;

/** The row that leads workers of a shard to a batch that is not done. */
export function watchOf(shard: string, id: string): Key {
  return { pk: shard, sk: `w#${digits(Number(id), 16)}` };
}

export const WATCHES = { first: 'w#', last: 'w#~' } as const;

/** The row that leads people to a batch that is done, as long as its history is kept. */
export function doneOf(shard: string, id: string): Key {
  return { pk: shard, sk: `v#${digits(Number(id), 16)}` };
}

/** The batch to which such a row leads. */
export function idIn({ sk }: Item): number {
  return sk !== undefined && 'S' in sk ? Number(sk.S.slice(WATCHES.first.length)) : 0;
}

/** A field of the head of a shard: how many of its batches are not done. */
const OPEN = 'v';

export function batchesOpen(by: number): Change {
  return { expect: {}, set: {}, add: { [OPEN]: by } };
}

export function isAnyBatchOpen(fields: Fields): boolean {
  return Number(fields[OPEN] ?? 0) > 0;
}

/** @throws NotFound  there is no such batch */
export async function readBatchHead(rows: QueueRows, id: string): Promise<BatchHead> {
  const fields = fieldsOf(await rows.get(headOf(batchKey(rows.queue, id))));
  if (fields[BATCH.total] === undefined) {
    throw new NotFound(`there is no batch ${id} of queue "${rows.queue}"; or its history is over`);
  }
  const time = (name: string): number | undefined => (fields[name] === undefined ? undefined : Number(fields[name]));
  return {
    total: Number(fields[BATCH.total]),
    left: Number(fields[BATCH.left] ?? 0),
    complete: Number(fields[BATCH.complete] ?? 0),
    errors: Number(fields[BATCH.errors] ?? 0),
    cancelled: Number(fields[BATCH.cancelled] ?? 0),
    sealedAt: time(BATCH.sealedAt),
    doneAt: time(BATCH.doneAt),
    callbacks: JSON.parse(String(fields[BATCH.callbacks] ?? '{}')),
    problem: fields[BATCH.problem] === undefined ? undefined : String(fields[BATCH.problem]),
    fields,
  };
}

/** The status of a batch for the jobs that come after it. */
export function batchStatusOf({ doneAt, errors, cancelled }: BatchHead): JobStatus {
  if (doneAt === undefined) return 'new';
  if (errors > 0) return 'error';
  return cancelled > 0 ? 'cancelled' : 'complete';
}

/** Whether all members of the batch are complete. */
export function isWholeComplete({ errors, cancelled }: BatchHead): boolean {
  return errors === 0 && cancelled === 0;
}

/** Adds a member of so many jobs, if the batch is open. */
export function memberAdded(n: number): Change {
  return { expect: { [BATCH.sealedAt]: null }, set: {}, add: { [BATCH.total]: n, [BATCH.left]: 1 } };
}

export function newMember(n: number): ReturnType<typeof creation> {
  return creation({ n });
}
