/**
 * Brings back jobs that have ended, by hand, in one transaction. If there are two calls at once, one succeeds. If a request is carried out twice, the
 * job comes back once. The removal of old jobs sees the change by the count in the row of the job.
 */
import { Conflict } from '../../../base/errors.ts';
import {
  Expression,
  type Item,
  num,
  type PartialCondition,
  type PartialWrite,
  written,
} from '../../../engine/dynamodb/index.ts';
import { isOneEver } from '../../declare/unique.ts';
import type { Definition, Kind } from '../../definition.ts';
import type { QueueRows } from '../database.ts';
import { AFTER_OTHERS } from '../enqueue/after.ts';
import { findUnique, placeOfUnique } from '../enqueue/unique.ts';
import { backInHead } from '../heads/by-hand.ts';
import { counting, noneEnded } from '../heads/ended.ts';
import { added, backName } from '../heads/head.ts';
import { jobAdded } from '../heads/key-changes.ts';
import { POKE } from '../heads/spans.ts';
import { changedByHand, delayOf, headOf, keyOf, pieceOf, rowChanged } from '../rows.ts';
import { cancelledIn, unchanged, withCancelled } from '../work/delays.ts';
import { type FoundJob, findJob } from './standing.ts';

const MOST_TRIES = 20;

/**
 * Brings a job back. @returns the job as it was before; undefined if the job is new already
 * @throws Conflict  the job is in progress or complete; or it is unique, and another job has its place
 */
export async function retryByHand(
  rows: QueueRows,
  definition: Definition,
  id: string,
  kindName: ReadonlyMap<number, string>,
): Promise<FoundJob | undefined> {
  for (let tries = 0; tries < MOST_TRIES; tries += 1) {
    const job = await findJob(rows, definition, id);
    if (job.status === 'new') return undefined;
    if (job.status !== 'error' && job.status !== 'cancelled') {
      throw new Conflict(
        `job ${id} is ${job.status}; only a job that waits, ended in error or was cancelled can be retried`,
      );
    }
    const writes = await comingBack(rows, job, job.status);
    if (writes === undefined) continue;
    const kind = definition.kinds.get(kindName.get(job.kind) ?? '');
    const unique = kind === undefined ? [] : await placeAgain(rows, definition, kind, job);
    if (await rows.together([...writes, ...unique])) return job;
  }
  throw new Conflict(`job ${id} changes all the time; try again`);
}

/** The writes that bring a job back. @returns undefined if something has changed since the job was found */
async function comingBack(
  rows: QueueRows,
  job: FoundJob,
  status: 'error' | 'cancelled',
): Promise<(PartialWrite | PartialCondition)[] | undefined> {
  const last = job.records.at(-1);
  if (last === undefined) return undefined;
  const mark = `h${job.spot.index}`;
  const at = Math.floor(rows.engine.now());
  const once = new Expression().set(mark, num(at)).whenAbsent(mark).when('attribute_exists(pk)').write();
  const writes = await placesOf(rows, job, at);
  if (writes === undefined) return undefined;
  const { change, others } = writes;
  const counted = counting(change, { ...noneEnded(), [status]: -1 }, at);
  const head = { key: headOf(rows.shard(job.shard)), written: written(counted) };
  return [head, { key: last.key, written: once }, ...others];
}

/** The writes that name the job in the row of its unique value again. @throws Conflict  another job is named there */
async function placeAgain(rows: QueueRows, definition: Definition, kind: Kind, job: FoundJob): Promise<PartialWrite[]> {
  const { unique, name } = kind;
  if (unique === undefined || isOneEver(unique)) return [];
  const place = placeOfUnique(rows.queue, name, unique, { key: job.label, payload: job.payload });
  const { there, mark } = await findUnique(rows, definition, place);
  if (there === undefined || there.id === job.id) return [mark(job.id)];
  const state = there.status === 'in-progress' ? 'in progress' : there.status;
  throw new Conflict(
    `job ${job.id} cannot be new again: its kind "${name}" is unique, and job ${there.id} already exists; that job is ${state}`,
  );
}

interface Places {
  /** The change of the head of the shard. */
  readonly change: Parameters<typeof written>[0];
  readonly others: readonly (PartialWrite | PartialCondition)[];
}

/** Where the job comes back to: the line, its delay, the head of its shard, or the head of its key. Its `expiresAt` does not count any more. */
async function placesOf(rows: QueueRows, job: FoundJob, at: number): Promise<Places | undefined> {
  const { shard, spot, key, dueAt, runAt } = job;
  const place = delayOf(rows.shard(shard), dueAt, spot.piece);
  const waits = dueAt === AFTER_OTHERS ? await rows.get(place) : undefined;
  // As long as the job waits for others, its time does not count.
  const isMoved = runAt !== dueAt && waits === undefined;
  const isExpiring = job.own?.expiresAt !== undefined;
  const name = backName(`h${job.id}.${job.records.length}`);
  if (key !== undefined) return placesOfKey(rows, job, { key, name, waits, at });
  const delay = dueAt === 0 || isMoved ? undefined : (waits ?? (await rows.get(place)));
  const cancelled = delay === undefined ? [] : cancelledIn(delay);
  if (delay !== undefined && cancelled.includes(spot.index)) {
    // The job is delayed again, until the time for which it was enqueued.
    const left = cancelled.filter((index) => index !== spot.index);
    const others = [
      { key: place, written: withCancelled(delay, left) },
      ...(isExpiring ? [touchedRow(rows, job)] : []),
    ];
    return { change: { expect: {}, set: {} }, others };
  }
  const due = isMoved && runAt > at ? runAt : 0;
  const back = backInHead(job.head, spot, name, due);
  return back && { change: back.change, others: back.isInLine && !isExpiring ? [] : [touchedRow(rows, job)] };
}

function placesOfKey(
  rows: QueueRows,
  job: FoundJob,
  {
    key,
    name,
    waits,
    at,
  }: { readonly key: string; readonly name: string; readonly waits: Item | undefined; at: number },
): Places | undefined {
  const { shard, spot, id, dueAt, runAt } = job;
  const pk = rows.shard(shard);
  // A later time for which the job was enqueued still counts.
  const time = waits !== undefined ? AFTER_OTHERS : runAt > at && runAt < AFTER_OTHERS ? runAt : 0;
  const due = { dueAt: time, isScheduled: time > 0 };
  const change = job.keyHead === undefined ? undefined : jobAdded(job.keyHead, { id, attempt: 0, ...due });
  if (change === undefined) return undefined;
  const poke = { ...spot, n: 1, attempts: POKE, dueAt: time };
  const touched = { key: pieceOf(pk, spot.piece), written: changedByHand() };
  const others: Places['others'] = [
    { key: headOf(keyOf(pk, key)), written: written(change) },
    touched,
    touchedRow(rows, job),
  ];
  if (waits === undefined) return { change: added({ name, spans: [poke] }), others };
  // The job goes on waiting for others, on condition that the row of its wait exists.
  const still = { key: delayOf(pk, dueAt, spot.piece), checked: unchanged(waits).write() };
  return { change: { expect: {}, set: {} }, others: [...others, still] };
}

/** The write of the row with the payload. It counts the change, and removes `expiresAt`. */
function touchedRow(rows: QueueRows, { shard, spot, key, body, at, own }: FoundJob): PartialWrite {
  const pk = rows.shard(shard);
  const row = pieceOf(key === undefined ? pk : keyOf(pk, key), spot.piece);
  if (own?.expiresAt === undefined) return { key: row, written: changedByHand() };
  return { key: row, written: rowChanged(body, { at, options: { expiresAt: undefined } }).written };
}
