/**
 * Changes a waiting job by hand. One transaction writes the row of the job and the head that says where it waits. So the head refuses a claim that
 * has read the row before. The claim then reads the row again, and no handler gets the old version.
 */
import { Conflict, InvalidInput, NotSupported } from '../../../base/errors.ts';
import { checkOptions } from '../../../base/options/options.ts';
import {
  both,
  Expression,
  fieldsOf,
  num,
  type PartialCondition,
  type PartialWrite,
  written,
} from '../../../engine/dynamodb/index.ts';
import { checkOwnLetter } from '../../declare/dead-letter.ts';
import type { Definition, Kind } from '../../definition.ts';
import { type OwnOptions, ownOptions, refuseTwoTimes } from '../../job-options.ts';
import { changeShape } from '../../operate/job-operations.ts';
import type { JobChange } from '../../operate/operations.ts';
import type { QueueRows } from '../database.ts';
import { AFTER_OTHERS } from '../enqueue/after.ts';
import { expiresAt, expiries } from '../enqueue/expiry.ts';
import { findUnique, placeOfUnique } from '../enqueue/unique.ts';
import { changedInHead, withdrawn } from '../heads/by-hand.ts';
import { added, backName, expiryTold } from '../heads/head.ts';
import { answersForKey, keyChanged } from '../heads/key-changes.ts';
import { bandOf, placeOf } from '../heads/place.ts';
import { POKE } from '../heads/spans.ts';
import { delayOf, headOf, keyOf, MOST_PIECE, pieceOf, rowChanged } from '../rows.ts';
import { cancelledIn, unchanged, withCancelled } from '../work/delays.ts';
import { type FoundJob, findJob } from './standing.ts';

const MOST_TRIES = 40;

/** A change of a waiting job. Undefined fields stay as they are. */
export interface WaitingChange {
  /** JSON. */
  readonly payload: string | undefined;
  /** In milliseconds since 1970 by the service's clock. */
  readonly runAt: number | undefined;
  readonly priority: number | undefined;
  readonly own: OwnOptions | undefined;
}

/** Checks the options of a change. @param json  checks a payload, and makes it JSON @throws InvalidInput  for example, there is nothing to change */
export async function readChange(
  rows: QueueRows,
  change: Omit<JobChange, 'tx'>,
  json: (payload: unknown) => Promise<string>,
): Promise<WaitingChange> {
  const given = checkOptions('update', change, changeShape);
  const { tx, payload, runAt, delay, priority } = given;
  if (tx !== undefined) throw new InvalidInput('on DynamoDB update takes no tx', { field: 'tx' });
  refuseTwoTimes({ runAt, delay });
  const own = ownOptions(given);
  const at = runAt?.getTime() ?? (delay === undefined ? undefined : Math.ceil(rows.engine.now() + delay));
  if (payload === undefined && at === undefined && priority === undefined && own === undefined) {
    throw new InvalidInput('update was given nothing to change: payload, runAt, delay, priority, attempts …', {
      field: 'payload',
    });
  }
  // JSON drops options that were not given, so these stay as they are.
  const set = own === undefined ? undefined : JSON.parse(JSON.stringify(own));
  return { payload: payload === undefined ? undefined : await json(payload), runAt: at, priority, own: set };
}

/** A change of the time only. */
export function newTime(runAt: number): WaitingChange {
  return { payload: undefined, runAt, priority: undefined, own: undefined };
}

type Writes = (PartialWrite | PartialCondition)[];

/**
 * Changes a waiting job. @returns the job as it was before
 * @throws Conflict  the job has begun or ended @throws NotSupported  a priority of another band @throws InvalidInput, NotFound
 */
export async function updateWaiting(
  rows: QueueRows,
  definition: Definition,
  id: string,
  change: WaitingChange,
  kindName: ReadonlyMap<number, string>,
): Promise<FoundJob> {
  for (let tries = 0; tries < MOST_TRIES; tries += 1) {
    const job = await findJob(rows, definition, id);
    if (job.status !== 'new') {
      const state = job.status === 'in-progress' ? 'in progress' : job.status === 'error' ? 'in error' : job.status;
      throw new Conflict(`job ${id} is ${state}, so it can no longer be changed; only a waiting job can be changed`);
    }
    refuseBand(job, change.priority);
    checkOwnLetter(definition, { onError: change.own?.onError, key: job.key });
    const moved = await movedTo(rows, job, change.runAt);
    if (moved === undefined) continue;
    const kind = definition.kinds.get(kindName.get(job.kind) ?? '');
    const places = kind === undefined ? [] : await placeMoved(rows, definition, kind, job, change.payload);
    await noteExpiry(rows, job, change);
    if (await rows.together([inRow(rows, job, change), ...moved, ...places])) return job;
  }
  throw new Conflict(`job ${id} changes all the time; try again`);
}

/** Adds the row of a new `expiresAt`, before the job is changed. Such a row does no harm if it names the job too early, or without need. */
async function noteExpiry(rows: QueueRows, { shard, spot }: FoundJob, { own }: WaitingChange): Promise<void> {
  const at = expiresAt(own);
  if (at === undefined) return;
  const all = expiries(rows.shard(shard), spot.piece, [{ at, index: spot.index, n: 1 }], `u${spot.index}`);
  for (const { key, written: row } of all) await rows.engine.update(key, row, 'NONE', rows.limits);
  await rows.change(headOf(rows.shard(shard)), expiryTold());
}

/** @throws NotSupported */
function refuseBand({ priority, key }: FoundJob, wanted: number | undefined): void {
  if (wanted === undefined || key !== undefined || bandOf(wanted) === bandOf(priority)) return;
  throw new NotSupported(
    `on DynamoDB a priority is one of three bands, below 0, 0 and above 0, and that of a job is a part of its id: ${priority} cannot become ${wanted}; cancel the job, and enqueue another one`,
  );
}

/** The write of the row of the job. @throws InvalidInput  the payload has no room */
function inRow(rows: QueueRows, job: FoundJob, { payload, runAt, priority, own }: WaitingChange): PartialWrite {
  const pk = rows.shard(job.shard);
  const parsed: unknown = payload === undefined ? undefined : JSON.parse(payload);
  const { written: request, payloads } = rowChanged(job.body, {
    at: job.at,
    payload: parsed,
    runAt,
    priority,
    options: own,
  });
  if (Buffer.byteLength(payloads) > MOST_PIECE) {
    throw new InvalidInput(
      `the payload has no room: job ${job.id} is in one row of DynamoDB with ${job.body.n - 1} others, which has at most ${MOST_PIECE} bytes; cancel it, and enqueue another one`,
      { field: 'payload' },
    );
  }
  const partition = job.key === undefined ? pk : keyOf(pk, job.key);
  return { key: pieceOf(partition, job.spot.piece), written: request };
}

/** The writes of the rows that say where the job waits, with its new time. @returns undefined if the job has moved since it was found */
async function movedTo(rows: QueueRows, job: FoundJob, runAt: number | undefined): Promise<Writes | undefined> {
  const { shard, spot, id, key, keyHead } = job;
  const pk = rows.shard(shard);
  const name = backName(`u${id}.${job.body.changes}`);
  const dueAt = runAt === undefined ? undefined : runAt > rows.engine.now() ? runAt : 0;
  if (job.dueAt === AFTER_OTHERS && job.isDelayed) return movedWaiting(rows, job, dueAt);
  if (key !== undefined) {
    const change = keyHead === undefined ? undefined : keyChanged(keyHead, id, dueAt);
    if (keyHead === undefined || change === undefined) return undefined;
    const head = { key: headOf(keyOf(pk, key)), written: written(change) };
    if (dueAt === undefined) return [head];
    const poke = added({ name, spans: [{ ...spot, n: 1, attempts: POKE, dueAt }] });
    const before = answersForKey(keyHead, dueAt) ? withdrawn(job.head, placeOf(keyHead.guardian)) : undefined;
    const told = { key: headOf(pk), written: written(before === undefined ? poke : both(poke, before)) };
    const out = job.isDelayed ? await outOfDelay(rows, job) : [];
    return out && [head, told, ...out];
  }
  const standing = job.isDelayed ? ('delayed' as const) : job.standing;
  if (standing !== 'line' && standing !== 'back' && standing !== 'delayed') return undefined;
  // A job in the line is due already.
  const due = standing === 'line' && dueAt === 0 ? undefined : dueAt;
  const change = changedInHead(job.head, spot, standing, name, due);
  if (change === undefined) return undefined;
  const head = { key: headOf(pk), written: written(change) };
  if (standing !== 'delayed' || due === undefined) return [head];
  const out = await outOfDelay(rows, job);
  return out && [head, ...out];
}

/** The write that takes the job out of the row of its delay. @returns undefined if the delay is over, or does not have the job any more */
async function outOfDelay(rows: QueueRows, { shard, spot, dueAt }: FoundJob): Promise<PartialWrite[] | undefined> {
  const place = delayOf(rows.shard(shard), dueAt, spot.piece);
  const delay = await rows.get(place);
  if (delay === undefined || cancelledIn(delay).includes(spot.index)) return undefined;
  return [{ key: place, written: withCancelled(delay, [...cancelledIn(delay), spot.index]) }];
}

/** The writes for a job that waits for others. It goes on waiting. Its time is in the row of its wait. */
async function movedWaiting(rows: QueueRows, job: FoundJob, dueAt: number | undefined): Promise<Writes | undefined> {
  const { shard, spot, id, key, keyHead, head } = job;
  const pk = rows.shard(shard);
  const place = delayOf(pk, AFTER_OTHERS, spot.piece);
  const waits = await rows.get(place);
  if (waits === undefined || cancelledIn(waits).includes(spot.index)) return undefined;
  const timed = unchanged(waits);
  if (dueAt !== undefined) timed.set('r', num(dueAt));
  const row = dueAt === undefined ? { key: place, checked: timed.write() } : { key: place, written: timed.write() };
  if (key === undefined) {
    const change = changedInHead(head, spot, 'delayed', '', undefined);
    return change && [{ key: headOf(pk), written: written(change) }, row];
  }
  const change = keyHead === undefined ? undefined : keyChanged(keyHead, id, undefined);
  return change && [{ key: headOf(keyOf(pk, key)), written: written(change) }, row];
}

/** The writes for a unique kind, since another payload may be another unique value. @throws Conflict  another job has that value */
async function placeMoved(
  rows: QueueRows,
  definition: Definition,
  { name, unique }: Kind,
  job: FoundJob,
  payload: string | undefined,
): Promise<Writes> {
  if (unique === undefined || unique.by === 'key' || payload === undefined) return [];
  const before = placeOfUnique(rows.queue, name, unique, { key: job.label, payload: job.payload });
  const after = placeOfUnique(rows.queue, name, unique, { key: job.label, payload: JSON.parse(payload) });
  if (before.key.pk === after.key.pk) return [];
  const { there, mark } = await findUnique(rows, definition, after);
  if (there !== undefined && there.id !== job.id) {
    const state = there.status === 'in-progress' ? 'in progress' : there.status;
    throw new Conflict(
      `job ${job.id} cannot be given this payload: its kind "${name}" is unique, and job ${there.id} already exists; that job is ${state}`,
    );
  }
  const own = fieldsOf(await rows.get(before.key))['j'];
  if (own !== job.id) return [mark(job.id)];
  return [mark(job.id), { key: before.key, removed: new Expression().whenIs('j', num(job.id)).write() }];
}
