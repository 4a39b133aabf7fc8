/** Pieces: which jobs of an enqueue become one row, and the rows of each piece. */
import { randomUUID } from 'node:crypto';
import { creation, type PartialWrite } from '../../../engine/dynamodb/index.ts';
import type { OwnOptions } from '../../job-options.ts';
import type { NewJobs } from '../../store.ts';
import type { QueueRows } from '../database.ts';
import { bandOf } from '../heads/place.ts';
import { delayOf, type JobRow, jobFields, keyOf, MOST_JOBS, MOST_PIECE, pieceOf } from '../rows.ts';
import { type WaitTerms, waitFields } from './after.ts';
import { expiries, expiriesOf } from './expiry.ts';

/** One job of an enqueue. */
export interface NewJob {
  /** The place of the job among the jobs of the call. */
  readonly at: number;
  readonly kind: number;
  readonly priority: number;
  readonly payload: unknown;
  /** The key by which the job is ordered. */
  readonly key: string | undefined;
  /** The key that people see. */
  readonly label: string | undefined;
  readonly dueAt: number;
  readonly options: OwnOptions | null;
  readonly bytes: number;
}

/** Jobs that become one row. */
export interface NewPiece {
  readonly band: number;
  readonly jobs: readonly NewJob[];
}

/** The most jobs of a piece with a key and a time: their transaction also changes the head of each key, and it has at most 100 rows. */
const MOST_TIMED = 16;

/** Jobs with a key are in pieces of their own, which may be written again under the same number. So are jobs of another band or time. */
export function piecesOf(batch: NewJobs, now: number, isKeyed: boolean): NewPiece[] {
  const pieces: NewPiece[] = [];
  const open = new Map<string, { band: number; jobs: NewJob[]; bytes: number }>();
  for (const job of jobsOf(batch, now, isKeyed)) {
    // The order of a key is the order of numbers, and only numbers of one band have an order.
    const band = job.key === undefined ? bandOf(job.priority) : 0;
    const name = `${band} ${job.dueAt} ${job.key !== undefined}`;
    const most = job.key !== undefined && job.dueAt > 0 ? MOST_TIMED : MOST_JOBS;
    let piece = open.get(name);
    if (piece === undefined || piece.jobs.length >= most || piece.bytes + job.bytes > MOST_PIECE) {
      piece = { band, jobs: [], bytes: 0 };
      open.set(name, piece);
      pieces.push(piece);
    }
    piece.jobs.push(job);
    piece.bytes += job.bytes;
  }
  return pieces;
}

function jobsOf(
  { n, kinds, priorities, payloads, keys, runAt, delays, options }: NewJobs,
  now: number,
  isKeyed: boolean,
): NewJob[] {
  const all: unknown[] = JSON.parse(payloads);
  const own: (OwnOptions | null)[] = options === null ? [] : JSON.parse(options);
  return Array.from({ length: n }, (_, at) => {
    const delay = delays?.[at] ?? null;
    const dueAt = runAt?.[at]?.getTime() ?? (delay === null ? 0 : Math.ceil(now + delay));
    const payload = all[at] ?? null;
    return {
      at,
      kind: (kinds.length === 1 ? kinds[0] : kinds[at]) ?? 0,
      priority: (priorities.length === 1 ? priorities[0] : priorities[at]) ?? 0,
      payload,
      key: isKeyed ? (keys?.[at] ?? undefined) : undefined,
      label: keys?.[at] ?? undefined,
      dueAt: dueAt <= now ? 0 : dueAt,
      options: own[at] ?? null,
      bytes: Buffer.byteLength(JSON.stringify(payload)) + 64,
    };
  });
}

/** The rows of a piece. */
export interface PieceRows {
  readonly piece: PartialWrite;
  /** The rows of keys. They have the payloads, which the piece then does not have. */
  readonly keys: readonly PartialWrite[];
  readonly delays: readonly PartialWrite[];
  /** The row of jobs of the piece that have to begin by a time. It may be written before the piece. */
  readonly expiries: readonly PartialWrite[];
}

export function rowsOf(
  rows: QueueRows,
  shard: number,
  number: number,
  piece: NewPiece,
  trace: string | undefined,
  terms?: WaitTerms,
): PieceRows {
  const { jobs } = piece;
  const pk = rows.shard(shard);
  const dueAt = jobs[0]?.dueAt ?? 0;
  const isKeyed = jobs[0]?.key !== undefined;
  const shared = { nonce: randomUUID().slice(0, 13), enqueuedAt: rows.engine.now(), dueAt, trace };
  const fields = (
    some: readonly { job: NewJob; index: number }[],
    of: Partial<JobRow>,
  ): Record<string, string | number | undefined> =>
    jobFields({
      ...shared,
      indexes: some.map(({ index }) => index),
      kinds: some.map(({ job }) => job.kind),
      priorities: some.map(({ job }) => job.priority),
      payloads: some.map(({ job }) => job.payload),
      options: some.some(({ job }) => job.options !== null) ? some.map(({ job }) => job.options) : undefined,
      keys: undefined,
      isLabelled: false,
      parents: undefined,
      times: terms === undefined || terms.runAt === 0 ? {} : { 0: terms.runAt },
      ...of,
    });
  const numbered = jobs.map((job, index) => ({ job, index }));
  const names = isKeyed ? jobs.map(({ key }) => key ?? '') : undefined;
  const labels = jobs.some(({ label }) => label !== undefined) ? jobs.map(({ label }) => label ?? '') : undefined;
  const labelled = { keys: labels, isLabelled: labels !== undefined };
  const own = isKeyed ? { payloads: [], keys: names ?? [], options: undefined } : labelled;
  const ofPiece = fields(numbered, { ...own, parents: terms?.parents });
  const delay = terms === undefined ? { n: jobs.length } : waitFields(terms);
  return {
    piece: { key: pieceOf(pk, number), written: creation(ofPiece) },
    keys: [...new Set(names)].map((name) => ({
      key: pieceOf(keyOf(pk, name), number),
      written: creation(
        fields(
          numbered.filter(({ job }) => job.key === name),
          {},
        ),
      ),
    })),
    delays: dueAt === 0 ? [] : [{ key: delayOf(pk, dueAt, number), written: creation(delay) }],
    expiries: expiries(pk, number, expiriesOf(jobs)),
  };
}
