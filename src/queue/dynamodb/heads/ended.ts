/** How many jobs of a shard have ended: fields of its head, which are written by changes of the head that are made anyway. */
import type { Change, Fields } from '../../../engine/dynamodb/index.ts';

/** Jobs that have ended, by their ends. A retry by hand subtracts its job again. */
export interface EndedCounts {
  complete: number;
  error: number;
  cancelled: number;
}

const ERROR = 'e';
const CANCELLED = 'u';
/** Complete jobs by the minute. */
const MINUTE = 'r:';
const MINUTE_MS = 60_000;

export function noneEnded(): EndedCounts {
  return { complete: 0, error: 0, cancelled: 0 };
}

/** The change, which also adds these counts. */
export function counting(change: Change, { complete, error, cancelled }: EndedCounts, now: number): Change {
  const add: Record<string, number> = { ...change.add };
  if (complete !== 0) add[`${MINUTE}${minuteOf(now)}`] = complete;
  if (error !== 0) add[ERROR] = error;
  if (cancelled !== 0) add[CANCELLED] = cancelled;
  return Object.keys(add).length === 0 ? change : { ...change, add };
}

/** The change of a claim, which also removes the counts of minutes that no figure needs any more. */
export function withoutOldMinutes(change: Change, fields: Fields, now: number): Change {
  const old = Object.keys(fields).filter((name) => name.startsWith(MINUTE) && minuteIn(name) < minuteOf(now) - 1);
  if (old.length === 0) return change;
  return { ...change, set: { ...change.set, ...Object.fromEntries(old.map((name) => [name, null])) } };
}

/** @returns the counts; `complete` counts the last minute only */
export function endedIn(fields: Fields, now: number): EndedCounts {
  const minute = minuteOf(now);
  const last = Number(fields[`${MINUTE}${minute - 1}`] ?? 0);
  const left = 1 - (now % MINUTE_MS) / MINUTE_MS;
  const complete = Math.round(Number(fields[`${MINUTE}${minute}`] ?? 0) + last * left);
  return { complete, error: Number(fields[ERROR] ?? 0), cancelled: Number(fields[CANCELLED] ?? 0) };
}

function minuteOf(now: number): number {
  return Math.floor(now / MINUTE_MS);
}

function minuteIn(name: string): number {
  return Number(name.slice(MINUTE.length));
}
