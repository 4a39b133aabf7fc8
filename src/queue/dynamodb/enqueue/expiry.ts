/**
 * Jobs that have to begin by a time. A row for each piece names them; its key has the earliest of their times. The write that takes the number of the
 * piece also counts the row in the head of the shard. So workers read these rows only if there are any, and when one is due.
 */
import { creation, digits, fieldsOf, type Item, type Key, type PartialWrite } from '../../../engine/dynamodb/index.ts';
import type { OwnOptions } from '../../job-options.ts';

/** Neighbours of a piece that have to begin by the same time, in milliseconds since 1970 by the service's clock. */
export interface Expiry {
  readonly at: number;
  readonly index: number;
  readonly n: number;
}

/** The range of these rows, of all times. */
export const EXPIRIES = { first: 'e#', last: 'e#~' } as const;

/** @param part  tells apart several rows of one piece and time */
function expiryKey(shard: string, at: number, piece: number, part: string): Key {
  return { pk: shard, sk: `e#${digits(at, 15)}#${part}#${digits(piece, 12)}` };
}

/** The new jobs that have such a time, by their place among the jobs. */
export function expiriesOf(jobs: readonly { readonly options: OwnOptions | null }[]): Expiry[] {
  const all: { at: number; index: number; n: number }[] = [];
  for (const [index, { options }] of jobs.entries()) {
    if (options?.expiresAt === undefined) continue;
    const at = Date.parse(options.expiresAt);
    const last = all.at(-1);
    if (last?.at === at && last.index + last.n === index) last.n += 1;
    else all.push({ at, index, n: 1 });
  }
  return all;
}

export function expiries(shard: string, piece: number, all: readonly Expiry[], part: string = 'p'): PartialWrite[] {
  if (all.length === 0) return [];
  const first = Math.min(...all.map(({ at }) => at));
  const fields = { y: JSON.stringify(all.map(({ at, index, n }) => [at, index, n])) };
  return [{ key: expiryKey(shard, first, piece, part), written: creation(fields) }];
}

export function expiriesIn(item: Item): Expiry[] {
  const all: unknown[] = JSON.parse(String(fieldsOf(item)['y'] ?? '[]'));
  return all.map((tuple) => {
    const [at = 0, index = 0, n = 1] = Array.isArray(tuple) ? tuple.map(Number) : [];
    return { at, index, n };
  });
}

/** The time by which the job has to begin. */
export function expiresAt(options: OwnOptions | null | undefined): number | undefined {
  const at = options?.expiresAt;
  return at === undefined ? undefined : Date.parse(at);
}
