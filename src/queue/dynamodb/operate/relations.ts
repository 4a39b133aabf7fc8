/**
 * The relations of a job to others, for people. No row leads from a job to the jobs that come after it, or to its batch. So this file searches the
 * waiting jobs and the batches that are not done, in the shards whose heads say that there are any.
 */
import type { Item } from '../../../engine/dynamodb/index.ts';
import type { JobRelations, RelatedJob } from '../../postgres/operate/overview.ts';
import { batchKey, idIn, isAnyBatchOpen, memberOf, WATCHES } from '../batch/head.ts';
import { unlessMissing } from '../database.ts';
import { AFTER_OTHERS, isAnyWaiting, termsIn } from '../enqueue/after.ts';
import { batchIn, isBatchRef, type JobHome } from '../enqueue/homes.ts';
import { type JobRef, jobNumber } from '../heads/place.ts';
import { delayFrom, delayOf, keyOf, pieceOf, readJobRow } from '../rows.ts';
import { pieceIn } from '../work/due-rows.ts';
import { type FoundJob, findJob } from './standing.ts';

/** The most relations of each sort. */
const MOST = 50;
/** How many jobs of a key are shown on each side of a job. */
const NEAR = 15;
/** How many rows one request reads. */
const PAGE = 100;
/** The most requests for each shard. */
const MOST_PAGES = 10;

/** A queue of the table. */
export type QueueHome = Omit<JobHome, 'id'>;

/** @param home  the queue of the job @param all  all queues of the table @throws NotFound */
export async function relationsOf(home: QueueHome, all: readonly QueueHome[], id: string): Promise<JobRelations> {
  const job = await findJob(home.rows, home.definition, id);
  const isOver = job.status !== 'new' && job.status !== 'in-progress';
  const [above, children, batches] = await Promise.all([
    parentsOf(home, all, job),
    isOver ? [] : childrenOf(home, all, job),
    isOver ? [] : batchesOf(home, job),
  ]);
  return { ...above, children, batches };
}

/** The name of a job in the table, with its queue. */
function named(queue: string, ref: JobRef): string {
  return typeof ref === 'number' ? `${queue}:${ref}` : ref;
}

async function parentsOf(
  home: QueueHome,
  all: readonly QueueHome[],
  { shard, spot, isDelayed, dueAt }: FoundJob,
): Promise<Omit<JobRelations, 'children' | 'batches'>> {
  const { rows } = home;
  const pk = rows.shard(shard);
  const row = await rows.get(pieceOf(pk, spot.piece));
  const { parents = [] } = row === undefined ? {} : readJobRow(row);
  const waits =
    isDelayed && dueAt === AFTER_OTHERS ? termsIn(await rows.get(delayOf(pk, dueAt, spot.piece))) : undefined;
  const jobs = parents.filter((parent) => !isBatchRef(parent)).slice(0, MOST);
  const found = await Promise.all(jobs.map((parent) => related(all, named(rows.queue, parent))));
  return {
    parents: found.flatMap((one) => one ?? []),
    afterError: waits?.afterError ?? null,
    afterCancel: waits?.afterCancel ?? null,
    afterBatches: parents.filter(isBatchRef).map((batch) => `${rows.queue}:${batchIn(batch)}`),
  };
}

/** @returns undefined if the history of the job is over */
async function related(all: readonly QueueHome[], name: string): Promise<RelatedJob | undefined> {
  const at = name.lastIndexOf(':');
  const [queue, id] = [name.slice(0, at), name.slice(at + 1)];
  const home = all.find(({ rows }) => rows.queue === queue);
  if (home === undefined) return undefined;
  const job = await findJob(home.rows, home.definition, id).catch(unlessMissing);
  return job && { id: name, queue, kind: kindOf(home, job.kind), status: job.status };
}

/** The jobs of the key of a job before and after it, in order; none if keys have no order. One request for each side. @throws NotFound */
export async function siblingsOf({ rows, definition }: QueueHome, id: string): Promise<string[]> {
  const { shard, spot, key, id: own } = await findJob(rows, definition, id);
  if (key === undefined) return [];
  const pk = keyOf(rows.shard(shard), key);
  const at = pieceOf(pk, spot.piece).sk;
  const [older, newer] = await Promise.all([
    rows.page(pk, pieceOf(pk, 0).sk, at, NEAR, 'newest first'),
    rows.page(pk, at, 'j#~', NEAR),
  ]);
  const idsIn = (items: readonly Item[]): number[] =>
    items.map(readJobRow).flatMap(({ piece, indexes }) => indexes.map((index) => jobNumber(shard, piece, index)));
  const before = idsIn(older.items).filter((one) => one < own);
  const after = idsIn(newer.items).filter((one) => one > own);
  const near = [...before.toSorted((a, b) => b - a).slice(0, NEAR), ...after.toSorted((a, b) => a - b).slice(0, NEAR)];
  return near.toSorted((a, b) => a - b).map((one) => `${rows.queue}:${one}`);
}

/** The jobs that come after a job. Reads the head of each shard of each queue, and the rows of jobs that wait there. */
async function childrenOf(
  { rows: own }: QueueHome,
  all: readonly QueueHome[],
  { id }: FoundJob,
): Promise<RelatedJob[]> {
  const children: RelatedJob[] = [];
  for (const home of all) {
    const { rows, definition } = home;
    const ref = rows.queue === own.queue ? id : `${own.queue}:${id}`;
    for (let shard = 0; shard < definition.shards && children.length < MOST; shard += 1) {
      if (!isAnyWaiting((await rows.head(shard)).fields)) continue;
      const pk = rows.shard(shard);
      for await (const item of pagesOf(home, pk, `${delayFrom(AFTER_OTHERS)}#`, `${delayFrom(AFTER_OTHERS)}#~`)) {
        if (termsIn(item)?.parents.includes(ref) !== true) continue;
        const piece = pieceIn(item);
        const row = readJobRow((await rows.get(pieceOf(pk, piece))) ?? {});
        const child = `${rows.queue}:${jobNumber(shard, piece, 0)}`;
        children.push({ id: child, queue: rows.queue, kind: kindOf(home, row.kinds[0] ?? 0), status: 'new' });
      }
    }
  }
  return children.slice(0, MOST);
}

/** The batches of a job, with one read for each batch of the queue that is not done. */
async function batchesOf(home: QueueHome, job: FoundJob): Promise<string[]> {
  const { rows, definition } = home;
  const batches: string[] = [];
  for (let shard = 0; shard < definition.shards && batches.length < MOST; shard += 1) {
    if (!isAnyBatchOpen((await rows.head(shard)).fields)) continue;
    for await (const item of pagesOf(home, rows.shard(shard), WATCHES.first, WATCHES.last)) {
      const batch = String(idIn(item));
      const member = memberOf(batchKey(rows.queue, batch), job.shard, job.spot.piece);
      if ((await rows.get(member)) !== undefined) batches.push(`${rows.queue}:${batch}`);
    }
  }
  return batches.slice(0, MOST);
}

async function* pagesOf({ rows }: QueueHome, pk: string, first: string, last: string): AsyncGenerator<Item> {
  let from = first;
  for (let pages = 0; pages < MOST_PAGES; pages += 1) {
    const { items, isWhole } = await rows.page(pk, from, last, PAGE);
    yield* items;
    const end = items.at(-1)?.['sk'];
    if (isWhole || end === undefined || !('S' in end)) return;
    from = `${end.S}~`;
  }
}

function kindOf({ kindName }: QueueHome, kind: number): string {
  return kindName.get(kind) ?? `unknown kind ${kind}`;
}
