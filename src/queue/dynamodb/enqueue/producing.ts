import { InvalidInput, NotSupported } from '../../../base/errors.ts';
import {
  fieldsOf,
  type Key,
  type PartialCondition,
  type PartialWrite,
  written,
} from '../../../engine/dynamodb/index.ts';
import type { NewJobs } from '../../store.ts';
import type { QueueRows } from '../database.ts';
import { added, backName, delayTold, lastNumber, numbersTaken } from '../heads/head.ts';
import { jobsAdded } from '../heads/key-changes.ts';
import { readKeyHead } from '../heads/key-head.ts';
import { jobNumber, pieceOf as numberOf } from '../heads/place.ts';
import { POKE } from '../heads/spans.ts';
import { waiting } from '../heads/waiting.ts';
import { emptyPiece, headOf, keyOf } from '../rows.ts';
import type { WaitTerms } from './after.ts';
import { expiriesOf } from './expiry.ts';
import { type NewPiece, type PieceRows, piecesOf, rowsOf } from './pieces.ts';

/** Adds jobs to their shard. @returns their ids in order */
export async function addJobs(
  rows: QueueRows,
  batch: NewJobs,
  trace: string | undefined,
  isKeyed: boolean,
): Promise<number[]> {
  const ids: number[] = [];
  const pieces = piecesOf(batch, rows.engine.now(), isKeyed);
  for (const band of new Set(pieces.map((piece) => piece.band))) {
    const ofBand = pieces.filter((piece) => piece.band === band);
    let number = await takeNumbers(rows, batch.shard, band, ofBand);
    // Write one piece after another, so that a worker that claims meanwhile finds no earlier piece missing.
    for (const piece of ofBand) {
      const written = await writePiece(rows, batch.shard, numberOf(band, number), piece, trace);
      number += 1;
      for (const [index, job] of piece.jobs.entries()) ids[job.at] = jobNumber(batch.shard, written, index);
    }
  }
  return ids;
}

/** A part of the caller's own `TransactWriteItems`. */
export interface EnqueueItem {
  readonly Update: {
    TableName: string;
    Key: Record<string, { S: string }>;
    UpdateExpression: string;
    ConditionExpression?: string | undefined;
    ExpressionAttributeNames?: Record<string, string> | undefined;
    ExpressionAttributeValues?: Record<string, { S: string } | { N: string }> | undefined;
  };
}

/**
 * The parts that enqueue one job in the caller's own transaction. This call only takes the number of the job, for one write unit.
 * @throws NotSupported  a key together with a time, since the transaction would have to read the head of the key
 */
export async function partsOf(
  rows: QueueRows,
  batch: NewJobs,
  trace: string | undefined,
  isKeyed: boolean,
): Promise<{ readonly id: number; readonly items: readonly EnqueueItem[] }> {
  const [piece] = piecesOf(batch, rows.engine.now(), isKeyed);
  if (piece === undefined) throw new InvalidInput('enqueueItems takes one job');
  const { band, jobs } = piece;
  const isTimed = jobs.some(({ dueAt }) => dueAt > 0);
  if (isTimed && jobs.some(({ key }) => key !== undefined)) {
    throw new NotSupported('enqueueItems on DynamoDB takes no runAt together with a key; enqueue() does');
  }
  const number = numberOf(band, await takeNumbers(rows, batch.shard, band, [piece]));
  const made = rowsOf(rows, batch.shard, number, piece, trace);
  const all = [...made.keys, made.piece, ...made.delays, ...made.expiries];
  const items = all.map((write) => itemOf(rows.engine.table, write));
  return { id: jobNumber(batch.shard, number, 0), items };
}

/** A row of a queue has only texts and numbers. */
function itemOf(table: string, { key, written: given }: PartialWrite): EnqueueItem {
  const { UpdateExpression = '', ExpressionAttributeValues: values, ...rest } = given;
  const plain = Object.entries(values ?? {}).map(([name, value]): [string, { S: string } | { N: string }] => [
    name,
    'N' in value ? { N: value.N } : { S: 'S' in value ? value.S : '' },
  ]);
  const Key = { pk: { S: key.pk }, sk: { S: key.sk } };
  const Update = { TableName: table, Key, UpdateExpression, ...rest };
  return {
    Update: values === undefined ? Update : { ...Update, ExpressionAttributeValues: Object.fromEntries(plain) },
  };
}

/**
 * Adds one job together with other writes, or nothing.
 * @param terms  the parents of the job: the head of its shard then counts the job in the same transaction
 * @returns its id; undefined if the condition of another write did not hold, or the head of its key has changed meanwhile
 */
export async function addWith(
  rows: QueueRows,
  batch: NewJobs,
  trace: string | undefined,
  isKeyed: boolean,
  others: (id: number) => readonly (PartialWrite | PartialCondition)[],
  terms?: WaitTerms,
): Promise<number | undefined> {
  const [piece] = piecesOf(batch, rows.engine.now(), isKeyed);
  if (piece === undefined) throw new InvalidInput('there is no job to add');
  return addPiece(rows, { shard: batch.shard, piece, trace, terms }, others);
}

/** Jobs of one row that are added as a whole. */
export interface AddedPiece {
  readonly shard: number;
  readonly piece: NewPiece;
  readonly trace: string | undefined;
  readonly terms?: WaitTerms | undefined;
}

/** Adds the jobs of a piece together with other writes, or nothing. @returns the id of the first job, or undefined, like `addWith` */
export async function addPiece(
  rows: QueueRows,
  { shard, piece, trace, terms }: AddedPiece,
  others: (id: number) => readonly (PartialWrite | PartialCondition)[],
): Promise<number | undefined> {
  const number = numberOf(piece.band, await takeNumbers(rows, shard, piece.band, [piece]));
  const id = jobNumber(shard, number, 0);
  const made = rowsOf(rows, shard, number, piece, trace, terms);
  const told = terms === undefined ? [] : [{ key: headOf(rows.shard(shard)), written: written(waiting(1)) }];
  const heads = made.delays.length === 0 ? [] : await keyHeads(rows, timedOf(shard, number, piece));
  const isDone = await rows.together([...others(id), ...allOf(made), ...heads, ...told]);
  // If it is refused and the piece exists under this number, an earlier try was carried out. Otherwise the number is filled: no claim waits for it.
  if (!isDone && (await isFilled(rows, made.piece.key))) return undefined;
  if (made.delays.length > 0 && terms === undefined) await rows.change(headOf(rows.shard(shard)), delayTold());
  return id;
}

/** Fills a number that its producer does not use. @returns false if jobs exist under the number */
export async function isFilled(rows: QueueRows, key: Key): Promise<boolean> {
  const { isDone, item } = await rows.engine.update(key, emptyPiece(rows.engine.now()), 'NONE', rows.limits);
  return isDone || fieldsOf(item)['n'] === 0;
}

/** All rows of a piece. */
export function allOf({ piece, keys, delays, expiries }: PieceRows): PartialWrite[] {
  return [piece, ...keys, ...delays, ...expiries];
}

/** Takes a number for each piece. @returns the first of the numbers */
export async function takeNumbers(
  rows: QueueRows,
  shard: number,
  band: number,
  pieces: readonly NewPiece[],
): Promise<number> {
  const key = headOf(rows.shard(shard));
  const expiring = pieces.filter(({ jobs }) => expiriesOf(jobs).length > 0).length;
  const delayed = pieces.filter(({ jobs }) => jobs.some(({ dueAt }) => dueAt > 0)).length;
  const taken = written(numbersTaken(band, pieces.length, { delays: delayed, expiries: expiring }));
  const { item } = await rows.engine.update(key, taken, 'UPDATED_OLD', rows.limits);
  return lastNumber(fieldsOf(item), band) + 1;
}

/** @returns the number of the written piece: another one than given, if workers gave the number up before the piece arrived */
async function writePiece(
  rows: QueueRows,
  shard: number,
  number: number,
  piece: NewPiece,
  trace: string | undefined,
): Promise<number> {
  const made = rowsOf(rows, shard, number, piece, trace);
  if (made.delays.length > 0) return writeDelayed(rows, shard, number, piece, made);
  await Promise.all([...made.keys, ...made.expiries].map((each) => create(rows, each)));
  const refusedBy = await create(rows, made.piece);
  if (refusedBy === undefined) return number;
  if (made.keys.length > 0) {
    await revive(rows, shard, number, piece, made.piece);
    return number;
  }
  const { band } = piece;
  return writePiece(rows, shard, numberOf(band, await takeNumbers(rows, shard, band, [piece])), piece, trace);
}

/** Creates a row. @returns undefined if the row exists now; the nonce of another row, if that is in its place */
async function create(rows: QueueRows, { key, written: creating }: PartialWrite): Promise<string | undefined> {
  const { isDone, item } = await rows.engine.update(key, creating, 'NONE', rows.limits);
  if (isDone) return undefined;
  const there = String(fieldsOf(item)['o'] ?? '');
  const own = Object.values(creating.ExpressionAttributeValues ?? {}).some(
    (value) => 'S' in value && value.S === there,
  );
  return own ? undefined : there;
}

/** Writes a piece whose number was given up. Its jobs may have been taken by their keys already. So it keeps the number, and pokes its keys. */
async function revive(
  rows: QueueRows,
  shard: number,
  number: number,
  piece: NewPiece,
  { key, written: creating }: PartialWrite,
): Promise<void> {
  const replacing = { ...creating, ConditionExpression: 'attribute_exists(pk)' };
  await rows.engine.update(key, replacing, 'NONE', rows.limits);
  const spans = [{ piece: number, index: 0, n: piece.jobs.length, attempts: POKE, dueAt: 0 }];
  await rows.change(headOf(rows.shard(shard)), added({ name: backName(`p${number}`), spans }));
}

/** Writes the piece and its rows by time in one transaction, which also adds jobs with a key to the heads of their keys. */
async function writeDelayed(
  rows: QueueRows,
  shard: number,
  number: number,
  piece: NewPiece,
  made: PieceRows,
): Promise<number> {
  const pk = rows.shard(shard);
  for (;;) {
    const heads = await keyHeads(rows, timedOf(shard, number, piece));
    const isDone = await rows.together([...allOf(made), ...heads]);
    if (isDone) break;
    const there = fieldsOf(await rows.get(made.piece.key));
    // Either an earlier try was carried out and its answer was lost, or the head of a key has changed, or the number was given up.
    if (there['o'] !== undefined && there['n'] !== 0) break;
    if (there['n'] === 0) {
      const next = numberOf(piece.band, await takeNumbers(rows, shard, piece.band, [piece]));
      return writeDelayed(rows, shard, next, piece, rowsOf(rows, shard, next, piece, undefined));
    }
  }
  await rows.change(headOf(pk), delayTold());
  return number;
}

/** A job of a key that is enqueued for later. */
export interface TimedJob {
  readonly shard: number;
  readonly id: number;
  readonly key: string;
  readonly dueAt: number;
}

function timedOf(shard: number, number: number, { jobs }: NewPiece): TimedJob[] {
  return jobs.flatMap(({ key, dueAt }, index) =>
    key === undefined ? [] : [{ shard, key, dueAt, id: jobNumber(shard, number, index) }],
  );
}

/** The writes that add these jobs to the heads of their keys: a read and a write for each key. */
export async function keyHeads(rows: QueueRows, timed: readonly TimedJob[]): Promise<PartialWrite[]> {
  const places = new Map(timed.map(({ shard, key }) => [keyOf(rows.shard(shard), key), { shard, key }]));
  return Promise.all(
    [...places].map(async ([pk, place]): Promise<PartialWrite> => {
      const head = readKeyHead(fieldsOf(await rows.get(headOf(pk))));
      const jobs = timed
        .filter(({ shard, key }) => key === place.key && shard === place.shard)
        .map(({ id, dueAt }) => ({ id, attempt: 0, dueAt, isScheduled: true }));
      return { key: headOf(pk), written: written(jobsAdded(head, jobs)) };
    }),
  );
}
