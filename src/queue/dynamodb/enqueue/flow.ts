/** Adds a graph of jobs, whose nodes come after each other, in one transaction. */
import { NotSupported, Throttled } from '../../../base/errors.ts';
import { type Change, type PartialWrite, written } from '../../../engine/dynamodb/index.ts';
import { kindIdOf } from '../../declare/kind-id.ts';
import type { Definition } from '../../definition.ts';
import type { FlowRow } from '../../job-input.ts';
import type { NewJobs, QueueIds } from '../../store.ts';
import { type FlowJob, type GivenNode, inLayers, NAMED_ID } from '../../watch/flow.ts';
import type { QueueRows } from '../database.ts';
import { delayTold } from '../heads/head.ts';
import { jobNumber, pieceOf as numberOf } from '../heads/place.ts';
import { waiting } from '../heads/waiting.ts';
import { headOf, pieceOf } from '../rows.ts';
import { AFTER_OTHERS, endsOf, readTerms, type WaitTerms } from './after.ts';
import { batchRef, Homes, refOf } from './homes.ts';
import { type NewPiece, piecesOf, rowsOf } from './pieces.ts';
import { allOf, isFilled, keyHeads, type TimedJob, takeNumbers } from './producing.ts';

/** A transaction has at most 100 rows. */
const MOST_ROWS = 100;
const MOST_TRIES = 20;

/** A queue that has nodes of the flow. */
export interface FlowQueue {
  readonly rows: QueueRows;
  readonly definition: Definition;
  readonly ids: QueueIds;
}

interface FlowPiece {
  readonly node: FlowJob;
  readonly home: FlowQueue;
  readonly piece: NewPiece;
  readonly shard: number;
}

interface NumberedPiece extends FlowPiece {
  readonly number: number;
  readonly id: number;
}

/**
 * It costs a write unit for each shard and band that has nodes, and two for each row. A node takes one row, one more if it comes after others, and
 * two more if it has a key. Each shard with delayed or waiting nodes takes one row.
 * @param queues  the queues by name @param queue  the queue of the flow: ids of nodes of other queues have their queue
 * @returns the id of each node, by its name @throws NotFound  a parent does not exist @throws NotSupported
 */
export async function addFlow(
  queue: FlowQueue,
  queues: ReadonlyMap<string, FlowQueue>,
  given: readonly GivenNode[],
): Promise<Readonly<Record<string, string>>> {
  const { rows } = queue;
  const planned = inLayers(given, NAMED_ID).map((node) => plan(queues.get(node.row.queue) ?? queue, node));
  const homes = new Homes(rows, queue.definition);
  const outside = new Set(
    planned.flatMap(({ node }) => [
      ...node.jobs.map((job) => refOf(rows.queue, job)),
      ...node.batches.map((batch) => batchRef(rows.queue, { batch })),
    ]),
  );
  await endsOf(homes, [...outside]);
  for (let tries = 0; tries < MOST_TRIES; tries += 1) {
    const placed = await place(planned);
    const writes = await writesOf(queue, placed);
    if (writes.length > MOST_ROWS) {
      await Promise.all(placed.map(fillNumber));
      throw new NotSupported(
        `on DynamoDB a flow is one transaction of at most ${MOST_ROWS} rows, and this one of ${given.length} nodes has ${writes.length}: make several of it, or enqueue its jobs with after`,
      );
    }
    const isDone = await rows.together(writes);
    // If it is refused and jobs exist under these numbers, an earlier try was carried out. Otherwise the numbers are filled: no claim waits for them.
    const filled = isDone ? [] : await Promise.all(placed.map(fillNumber));
    if (isDone || filled.includes(false)) {
      return Object.fromEntries(placed.map((one) => [one.node.name, nameIn(rows.queue, one)]));
    }
  }
  throw new Throttled('the keys of the flow change too often; try again');
}

/** The id of a node for the queue of the flow. */
function nameIn(queue: string, { home, id }: NumberedPiece): string {
  return home.rows.queue === queue ? String(id) : `${home.rows.queue}:${id}`;
}

function plan(home: FlowQueue, node: FlowJob): FlowPiece {
  const { row, after, jobs, batches } = node;
  const isChild = after.length + jobs.length + batches.length > 0;
  const { rows, definition, ids } = home;
  const [piece] = piecesOf(batchOf(row, ids, isChild), rows.engine.now(), definition.keyed);
  if (piece === undefined) throw new Error('a node is always one job');
  return { node, home, piece, shard: row.shard };
}

function batchOf(row: FlowRow, ids: QueueIds, isChild: boolean): NewJobs {
  const due = isChild ? new Date(AFTER_OTHERS) : row.runAt;
  return {
    shard: row.shard,
    n: 1,
    kinds: [kindIdOf(row.kind.name, ids)],
    priorities: [row.priority],
    payloads: `[${row.payload}]`,
    keys: row.key === null ? null : [row.key],
    runAt: due === null ? null : [due],
    delays: row.delay === null || row.kind.debounce !== undefined ? null : [row.delay],
    options: row.own === undefined ? null : JSON.stringify([row.own]),
  };
}

/** Takes numbers in the order of the nodes, so that the first node of a key runs first. */
async function place(planned: readonly FlowPiece[]): Promise<NumberedPiece[]> {
  const groups = new Map<string, FlowPiece[]>();
  const nameOf = ({ home, shard, piece }: FlowPiece): string => `${shard} ${piece.band} ${home.rows.queue}`;
  for (const one of planned) groups.set(nameOf(one), [...(groups.get(nameOf(one)) ?? []), one]);
  const next = new Map<string, number>();
  for (const [name, some] of groups) {
    const [first] = some;
    if (first === undefined) continue;
    const { home, shard, piece } = first;
    next.set(
      name,
      await takeNumbers(
        home.rows,
        shard,
        piece.band,
        some.map((one) => one.piece),
      ),
    );
  }
  return planned.map((one) => {
    const at = next.get(nameOf(one)) ?? 0;
    next.set(nameOf(one), at + 1);
    const number = numberOf(one.piece.band, at);
    return { ...one, number, id: jobNumber(one.shard, number, 0) };
  });
}

async function writesOf({ rows: own }: FlowQueue, placed: readonly NumberedPiece[]): Promise<PartialWrite[]> {
  const writes: PartialWrite[] = [];
  const told = new Map<string, Change>();
  const timed = new Map<QueueRows, TimedJob[]>();
  for (const one of placed) {
    const { home, shard, piece, number, id } = one;
    const { rows, definition } = home;
    const terms = termsOf(own.queue, one, placed);
    const made = rowsOf(rows, shard, number, piece, undefined, terms);
    writes.push(...allOf(made));
    const [job] = piece.jobs;
    if (job === undefined || made.delays.length === 0) continue;
    const pk = rows.shard(shard);
    told.set(pk, summed(told.get(pk), terms === undefined ? delayTold() : waiting(1)));
    if (job.key === undefined || !definition.keyed) continue;
    timed.set(rows, [...(timed.get(rows) ?? []), { shard, id, key: job.key, dueAt: job.dueAt }]);
  }
  for (const [pk, change] of told) writes.push({ key: headOf(pk), written: written(change) });
  for (const [rows, jobs] of timed) writes.push(...(await keyHeads(rows, jobs)));
  return writes;
}

/** @param queue  the queue of the flow: ids without a queue are of this one */
function termsOf(
  queue: string,
  { node, home }: NumberedPiece,
  placed: readonly NumberedPiece[],
): WaitTerms | undefined {
  const { after, jobs, batches, afterError, afterCancel, row } = node;
  const nodes = after.flatMap((nth) => {
    const parent = placed[nth];
    return parent === undefined ? [] : `${parent.home.rows.queue}:${parent.id}`;
  });
  const others = jobs.map((job) => (typeof refOf(queue, job) === 'number' ? `${queue}:${refOf(queue, job)}` : job));
  const delay = row.delay === null ? 0 : Math.ceil(home.rows.engine.now() + row.delay);
  const runAt = row.runAt?.getTime() ?? delay;
  return readTerms(
    home.rows.queue,
    {
      after: [
        ...nodes,
        ...others,
        ...batches.map((batch) => ({ batch: batch.includes(':') ? batch : `${queue}:${batch}` })),
      ],
      afterError,
      afterCancel,
    },
    runAt,
  );
}

function summed(one: Change | undefined, other: Change): Change {
  const add: Record<string, number> = { ...one?.add };
  for (const [name, by] of Object.entries(other.add ?? {})) add[name] = (add[name] ?? 0) + by;
  return { expect: {}, set: {}, add };
}

/** @returns false if the job exists under the number */
function fillNumber({ home, shard, number }: NumberedPiece): Promise<boolean> {
  return isFilled(home.rows, pieceOf(home.rows.shard(shard), number));
}
