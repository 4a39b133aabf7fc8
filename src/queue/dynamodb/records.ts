/** Records: the outcomes of jobs that each settlement writes, before the outcomes count. They are kept for the history. */
import { creation, fieldsOf, type Key } from '../../engine/dynamodb/index.ts';
import type { QueueRows } from './database.ts';
import { jobNumber, placeOf } from './heads/place.ts';
import { recordOf, recordsOf } from './rows.ts';

/** The outcome of one attempt of a job. */
export interface JobRecordEntry {
  readonly id: number;
  readonly to: 'complete' | 'retry' | 'release' | 'error' | 'cancelled';
  readonly attempt: number;
  readonly reason: string;
  readonly error: string | null;
  /** JSON; undefined if there is none. */
  readonly result: string | undefined;
  /** The token of the claim. Of several records of a job, the one with the greatest token counts. */
  readonly token: number;
  readonly processId: string | null;
  readonly claimedAt: number | null;
  readonly at: number;
  /** The row of this record. */
  readonly key: Key;
}

/** An entry that is not written yet. */
export type NewRecord = Omit<JobRecordEntry, 'token' | 'at' | 'processId' | 'claimedAt' | 'key'>;

export interface RecordWish {
  readonly shard: number;
  readonly token: number;
  /** Tells apart the settlements of one claim. */
  readonly part: string;
  readonly processId: string | null;
  readonly claimedAt: number | null;
  readonly historyMs: number;
}

const MOST_BYTES = 300_000;
const AT_ONCE = 8;
/** The least time for which records are kept, longer than any claim or delay of a retry: a poke that comes late needs the record of its job. */
export const LEAST_MS: number = 30 * 86_400_000;

/** Writes the records of a settlement, one row for each piece. A repetition writes the same rows. */
export async function writeRecords(
  rows: QueueRows,
  entries: readonly NewRecord[],
  { shard, token, part, processId, claimedAt, historyMs }: RecordWish,
): Promise<void> {
  const at = rows.engine.now();
  const pieces = new Map<number, (readonly unknown[])[]>();
  for (const { id, to, attempt, reason, error, result } of entries) {
    const { piece, index } = placeOf(id);
    const entry = [index, to, attempt, reason, error, ...(result === undefined ? [] : [result])];
    pieces.set(piece, [...(pieces.get(piece) ?? []), entry]);
  }
  const all = [...pieces].flatMap(([piece, list]) =>
    inParts(list).map((some, number) => ({
      key: recordOf(rows.shard(shard), piece, token, `${part}.${number}`),
      some,
    })),
  );
  for (let from = 0; from < all.length; from += AT_ONCE) {
    await Promise.all(
      all.slice(from, from + AT_ONCE).map(({ key, some }) => {
        const fields = { y: JSON.stringify(some), t: at, a: claimedAt ?? undefined, w: processId ?? undefined };
        return rows.engine.update(key, creation(fields, at + Math.max(historyMs, LEAST_MS)), 'NONE', rows.limits);
      }),
    );
  }
}

/** The time of the last record about a job of a piece; 0: there is none, or time to live has removed it. */
export async function lastRecordAt(rows: QueueRows, shard: number, piece: number): Promise<number> {
  const from = recordsOf(piece);
  const items = await rows.range(rows.shard(shard), from, `${from}~`, 1000);
  return Math.max(0, ...items.map((item) => Number(fieldsOf(item)['t'] ?? 0)));
}

/** All records of a job, oldest first. */
export async function readRecords(rows: QueueRows, id: number): Promise<JobRecordEntry[]> {
  const { shard, piece } = placeOf(id);
  return (await recordsOfPiece(rows, shard, piece)).filter((entry) => entry.id === id);
}

/** All records of the jobs of a piece, oldest first. One request. */
export async function recordsOfPiece(rows: QueueRows, shard: number, piece: number): Promise<JobRecordEntry[]> {
  const from = recordsOf(piece);
  const items = await rows.range(rows.shard(shard), from, `${from}~`, 1000);
  const found = items.flatMap((item): JobRecordEntry[] => {
    const fields = fieldsOf(item);
    const sk = item['sk'] !== undefined && 'S' in item['sk'] ? item['sk'].S : '';
    const list: unknown[][] = JSON.parse(String(fields['y'] ?? '[]'));
    return list.map(([index, to, attempt, reason, error, result]) => ({
      id: jobNumber(shard, piece, Number(index)),
      to: toOutcome(to),
      attempt: Number(attempt),
      reason: String(reason),
      error: typeof error === 'string' ? error : null,
      result: typeof result === 'string' ? result : undefined,
      token: Number(sk.slice(from.length, from.length + 12)),
      processId: fields['w'] === undefined ? null : String(fields['w']),
      claimedAt: fields['a'] === undefined ? null : Number(fields['a']),
      at: Number(fields['t'] ?? 0),
      key: { pk: rows.shard(shard), sk },
    }));
  });
  return found.sort((a, b) => a.token - b.token || a.at - b.at);
}

/** Whether a record says that the job is over. */
export async function isRecorded(rows: QueueRows, shard: number, id: number): Promise<boolean> {
  if (placeOf(id).shard !== shard) return false;
  const records = await readRecords(rows, id);
  return records.some(isOver);
}

/** Whether the record says that its job is over. */
export function isOver({ to }: JobRecordEntry): boolean {
  return to === 'complete' || to === 'error' || to === 'cancelled';
}

function toOutcome(value: unknown): JobRecordEntry['to'] {
  switch (value) {
    case 'retry':
    case 'release':
    case 'error':
    case 'cancelled':
      return value;
    default:
      return 'complete';
  }
}

function inParts(list: readonly (readonly unknown[])[]): (readonly unknown[])[][] {
  const parts: (readonly unknown[])[][] = [[]];
  let bytes = 0;
  for (const entry of list) {
    const size = Buffer.byteLength(JSON.stringify(entry));
    if (bytes + size > MOST_BYTES && bytes > 0) {
      parts.push([]);
      bytes = 0;
    }
    parts.at(-1)?.push(entry);
    bytes += size;
  }
  return parts;
}
