/**
 * Batches: jobs that are counted together. A batch has a partition of its own: its head, and a row for each piece of jobs, and for each batch,
 * that has not been counted. Counting a piece removes its row and raises the counts of the head in one transaction, so each is counted once.
 * A row in a shard of the queue leads workers to each batch that is not done, and the head of that shard says how many there are.
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
  /** Rows of members that were not counted yet. */
  readonly left: number;
  readonly complete: number;
  readonly errors: number;
  readonly cancelled: number;
  readonly sealedAt: number | undefined;
  readonly doneAt: number | undefined;
  /** Requests that are still to be enqueued, by their names. */
  readonly callbacks: Readonly<Record<string, object>>;
  readonly problem: string | undefined;
  readonly fields: Fields;
}

/** Shards that batches are spread over is the number of those of the queue. */
export function shardOfBatch(id: string, shards: number): number {
  return Number(BigInt(id) % BigInt(shards));
}

/** The partition of a batch. */
export function batchKey(queue: string, id: string): string {
  return `${queueKey(queue)}:b:${id}`;
}

/** Not counted yet. */
export function memberOf(pk: string, shard: number, piece: number): Key {
  return { pk, sk: `m#${digits(shard, 3)}#${digits(piece, 12)}` };
}

export function nestedOf(pk: string, id: string): Key {
  return { pk, sk: `m#b#${digits(Number(id), 16)}` };
}

export const MEMBERS = { first: 'm#', last: 'm#~' } as const;

/** Leads workers of a shard to a batch that is not done. */
export function watchOf(shard: string, id: string): Key {
  return { pk: shard, sk: `w#${digits(Number(id), 16)}` };
}

export const WATCHES = { first: 'w#', last: 'w#~' } as const;

/** Leads people to a batch that is done, as long as its history is kept. */
export function doneOf(shard: string, id: string): Key {
  return { pk: shard, sk: `v#${digits(Number(id), 16)}` };
}

/** The batch that such a row leads to. */
export function idIn({ sk }: Item): number {
  return sk !== undefined && 'S' in sk ? Number(sk.S.slice(WATCHES.first.length)) : 0;
}

/** How many batches of the shard are not done: a field of its head. */
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

/** For what comes after it. */
export function batchStatusOf({ doneAt, errors, cancelled }: BatchHead): JobStatus {
  if (doneAt === undefined) return 'new';
  if (errors > 0) return 'error';
  return cancelled > 0 ? 'cancelled' : 'complete';
}

/** Whether all of its members completed. */
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
