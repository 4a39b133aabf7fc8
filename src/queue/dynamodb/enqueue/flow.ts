/** A graph of jobs as one transaction, whose nodes come after each other: all of it or nothing. */
import { NotSupported, Throttled } from '../../../base/errors.ts';
import { type Change, type PartialWrite, written } from '../../../engine/dynamodb/index.ts';
import { kindIdOf } from '../../declare/kind-id.ts';
import type { Definition } from '../../definition.ts';
import type { FlowRow } from '../../job-input.ts';
import type { NewJobs, QueueIds } from '../../store.ts';
import { type FlowJob, type GivenNode, inLayers } from '../../watch/flow.ts';
import type { QueueRows } from '../database.ts';
import { delayTold } from '../heads/head.ts';
import { jobNumber, pieceOf as numberOf } from '../heads/place.ts';
import { headOf, pieceOf } from '../rows.ts';
import { AFTER_OTHERS, endsOf, readTerms, type WaitTerms, waiting } from './after.ts';
import { refuseOptions } from './deciding.ts';
import { type NewPiece, piecesOf, rowsOf } from './pieces.ts';
import { isFilled, keyHeads, type TimedJob, takeNumbers } from './producing.ts';

/** A transaction has at most 100 rows. */
const MOST_ROWS = 100;
const MOST_TRIES = 20;

interface FlowPiece {
  readonly node: FlowJob;
  readonly piece: NewPiece;
  readonly shard: number;
}

interface NumberedPiece extends FlowPiece {
  readonly number: number;
  readonly id: number;
}

/**
 * A write unit for each shard and band that nodes are of, and two for each row: one for a node, one more if it comes after others, two more
 * for a key, and one for each shard with such nodes.
 * @returns the id of each node, by its name @throws NotFound  there is no such job to come after @throws NotSupported
 */
export async function addFlow(
  rows: QueueRows,
  definition: Definition,
  ids: QueueIds,
  given: readonly GivenNode[],
): Promise<Readonly<Record<string, string>>> {
  const planned = inLayers(given).map((node) => plan(rows, definition, ids, node));
  const outside = new Set(planned.flatMap(({ node }) => node.jobs.map(Number)));
  await endsOf(rows, definition, [...outside]);
  for (let tries = 0; tries < MOST_TRIES; tries += 1) {
    const placed = await place(rows, planned);
    const writes = await writesOf(rows, definition, placed);
    if (writes.length > MOST_ROWS) {
      await Promise.all(placed.map((one) => isFilled(rows, keyOf(rows, one))));
      throw new NotSupported(
        `on DynamoDB a flow is one transaction of at most ${MOST_ROWS} rows, and this one of ${given.length} nodes has ${writes.length}: make several of it, or enqueue its jobs with after`,
      );
    }
    const isDone = await rows.together(writes);
    // Refused, and they are there under these numbers: an earlier try was carried out. Else no claim has to wait for the numbers.
    const filled = isDone ? [] : await Promise.all(placed.map((one) => isFilled(rows, keyOf(rows, one))));
    if (isDone || filled.includes(false)) {
      return Object.fromEntries(placed.map(({ node, id }) => [node.name, String(id)]));
    }
  }
  throw new Throttled('the keys of the flow change too often; try again');
}

/** @throws NotSupported */
function plan(rows: QueueRows, definition: Definition, ids: QueueIds, node: FlowJob): FlowPiece {
  const { row, name, batches } = node;
  if (batches.length > 0)
    throw new NotSupported(`there are no batches of jobs on DynamoDB: node "${name}" comes after one`);
  const isChild = node.after.length + node.jobs.length > 0;
  if (isChild && (row.runAt !== null || row.delay !== null)) {
    throw new NotSupported(
      `on DynamoDB a job has either a time or others to come after, not both: node "${name}" has both`,
    );
  }
  const [piece] = piecesOf(batchOf(row, ids, isChild), rows.engine.now(), definition.keyed);
  if (piece === undefined) throw new Error('a node is always one job');
  return { node, piece, shard: row.shard };
}

function batchOf(row: FlowRow, ids: QueueIds, isChild: boolean): NewJobs {
  const options = row.own === undefined ? null : JSON.stringify([row.own]);
  refuseOptions(options);
  const due = isChild ? new Date(AFTER_OTHERS) : row.runAt;
  return {
    shard: row.shard,
    n: 1,
    kinds: [kindIdOf(row.kind.name, ids)],
    priorities: [row.priority],
    payloads: `[${row.payload}]`,
    keys: row.key === null ? null : [row.key],
    runAt: due === null ? null : [due],
    delays: row.delay === null ? null : [row.delay],
    options,
  };
}

/** Numbers in the order of the nodes: of a key, the first one runs first. */
async function place(rows: QueueRows, planned: readonly FlowPiece[]): Promise<NumberedPiece[]> {
  const next = new Map<string, number>();
  for (const { shard, piece } of planned) next.set(`${shard} ${piece.band}`, 0);
  for (const name of next.keys()) {
    const [shard = 0, band = 0] = name.split(' ').map(Number);
    const many = planned.filter((one) => one.shard === shard && one.piece.band === band).length;
    next.set(name, await takeNumbers(rows, shard, band, many));
  }
  return planned.map((one) => {
    const name = `${one.shard} ${one.piece.band}`;
    const at = next.get(name) ?? 0;
    next.set(name, at + 1);
    const number = numberOf(one.piece.band, at);
    return { ...one, number, id: jobNumber(one.shard, number, 0) };
  });
}

async function writesOf(
  rows: QueueRows,
  definition: Definition,
  placed: readonly NumberedPiece[],
): Promise<PartialWrite[]> {
  const writes: PartialWrite[] = [];
  const told = new Map<number, Change>();
  const timed: TimedJob[] = [];
  for (const { node, shard, piece, number, id } of placed) {
    const terms = termsOf(node, placed);
    const made = rowsOf(rows, shard, number, piece, undefined, terms);
    writes.push(made.piece, ...made.keys, ...made.delays);
    const [job] = piece.jobs;
    if (job === undefined || made.delays.length === 0) continue;
    told.set(shard, summed(told.get(shard), terms === undefined ? delayTold() : waiting(1)));
    if (job.key !== undefined && definition.keyed) timed.push({ shard, id, key: job.key, dueAt: job.dueAt });
  }
  for (const [shard, change] of told) writes.push({ key: headOf(rows.shard(shard)), written: written(change) });
  return [...writes, ...(await keyHeads(rows, timed))];
}

function termsOf(
  { after, jobs, afterError, afterCancel }: FlowJob,
  placed: readonly NumberedPiece[],
): WaitTerms | undefined {
  const nodes = after.map((nth) => String(placed[nth]?.id));
  return readTerms({ after: [...nodes, ...jobs], afterError, afterCancel });
}

function summed(one: Change | undefined, other: Change): Change {
  const add: Record<string, number> = { ...one?.add };
  for (const [name, by] of Object.entries(other.add ?? {})) add[name] = (add[name] ?? 0) + by;
  return { expect: {}, set: {}, add };
}

function keyOf(rows: QueueRows, { shard, number }: NumberedPiece): { pk: string; sk: string } {
  return pieceOf(rows.shard(shard), number);
}
