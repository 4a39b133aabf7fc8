/**
 * The head of a shard: the one row that decides which jobs are claimed. This file has its state and its moves as pure functions;
 * nothing here speaks to a database.
 *
 * - An enqueue takes the next sequence number of a band from the head, and then writes its piece: a row under that number.
 * - A claim moves `next` over pieces that it has read, and notes them as a claim under the next fence. Every claim expects the
 *   fence that it has read, and raises it: of several claims that were decided on one state, one is carried out.
 * - Settling a claim removes its jobs from it. A job below `next` that is in no claim, not given back and not in the row of a key
 *   is over: nothing has to be written for the jobs of a claim one by one.
 * - A claim whose worker has no row any more goes `back`, for the next claim. So does a job that is to be retried, with the time from
 *   which it may be claimed.
 * - A number whose piece is not there when a later one is claimed is noted as `missing`: its producer is slow, or died. The
 *   piece is claimed when it arrives; or else somebody writes an empty one under its number, and the producer is refused.
 *
 * Claims and what was given back have a field each, so that a settlement meets no claim, and no other settlement.
 */
import type { Change, Fields } from '../../../engine/dynamodb/index.ts';
import { BANDS, bandOfPiece, CLAIM_ORDER, JOBS, sequenceOf } from './place.ts';
import {
  isIn,
  POKE,
  readSpans,
  type Span,
  type Spot,
  type Stretch,
  spansWithout,
  toTuple,
  writeSpans,
} from './spans.ts';

export interface ShardClaim {
  /** The fence under which it was made. */
  readonly token: number;
  readonly worker: number;
  /** The request that made it: by it a worker knows its claim again when an answer was lost. */
  readonly request: string;
  readonly spans: readonly Span[];
}

/** Spans that wait for the next claim, under a name that is never used again. */
export interface ReturnedJobs {
  readonly name: string;
  readonly spans: readonly Span[];
}

export interface ShardHead {
  readonly fence: number;
  /** By band: the last number that was taken, and the place (number × 64 + index) of the next job to be claimed. */
  readonly last: readonly number[];
  readonly next: readonly number[];
  readonly claims: readonly ShardClaim[];
  readonly back: readonly ReturnedJobs[];
  readonly missing: readonly number[];
  /** Jobs that were cancelled before they were claimed. */
  readonly cancelled: readonly Stretch[];
  readonly isPaused: boolean;
  /** Rises when a job was delayed: who waits for delayed jobs looks again. */
  readonly delays: number;
  /** The same for jobs that have to begin by a time. */
  readonly expiries: number;
  readonly fields: Fields;
}

export const F = {
  fence: 'f',
  last: (band: number): string => `q${band}`,
  next: (band: number): string => `s${band}`,
  claim: (token: number): string => `c:${token}`,
  missing: 'm',
  cancelled: 'x',
  paused: 'z',
  delays: 'd',
  expiries: 'y',
} as const;
const CLAIM = 'c:';
const BACK = 'b:';

export function readHead(fields: Fields): ShardHead {
  const bands = Array.from({ length: BANDS }, (_, band) => band);
  const claims: ShardClaim[] = [];
  const back: ReturnedJobs[] = [];
  for (const [name, value] of Object.entries(fields)) {
    if (name.startsWith(CLAIM)) claims.push(readClaim(Number(name.slice(CLAIM.length)), String(value)));
    else if (name.startsWith(BACK)) back.push({ name, spans: readSpans(JSON.parse(String(value))) });
  }
  return {
    fence: Number(fields[F.fence] ?? 0),
    last: bands.map((band) => Number(fields[F.last(band)] ?? 0)),
    next: bands.map((band) => Number(fields[F.next(band)] ?? JOBS)),
    claims: claims.sort((a, b) => a.token - b.token),
    back: back.sort((a, b) => Number(a.spans[0]?.piece) - Number(b.spans[0]?.piece)),
    missing: JSON.parse(String(fields[F.missing] ?? '[]')),
    cancelled: readSpans(JSON.parse(String(fields[F.cancelled] ?? '[]'))),
    isPaused: fields[F.paused] !== undefined,
    delays: Number(fields[F.delays] ?? 0),
    expiries: Number(fields[F.expiries] ?? 0),
    fields,
  };
}

/**
 * Takes the numbers of so many pieces. A repetition leaves numbers without a piece, which are found missing.
 * @param timed  how many of them have a row that is sorted by the time of a delay, and by that of an expiry: the same write says so
 */
export function numbersTaken(
  band: number,
  pieces: number,
  timed: { readonly delays: number; readonly expiries: number } = { delays: 0, expiries: 0 },
): Change {
  const { delays, expiries } = timed;
  const told = { ...(delays > 0 && { [F.delays]: delays }), ...(expiries > 0 && { [F.expiries]: expiries }) };
  return { expect: {}, set: {}, add: { [F.last(band)]: pieces, ...told } };
}

/** The last number that was taken before, in the fields that such a request returned. */
export function lastNumber(before: Fields, band: number): number {
  return Number(before[F.last(band)] ?? 0);
}

/**
 * Takes jobs out of a claim: they are over, or the row of a key says what becomes of them. Others of it may go back at the same time.
 * @param back  what goes back, under a name that is never used again
 * @returns the change, and the claim after it; undefined when none of its jobs are left
 */
export function settledFrom(
  claim: ShardClaim,
  isGone: (spot: Spot) => boolean,
  back?: ReturnedJobs,
): { readonly change: Change; readonly left: ShardClaim | undefined } {
  const left = { ...claim, spans: spansWithout(claim.spans, isGone) };
  const isEmpty = left.spans.length === 0;
  const name = F.claim(claim.token);
  const set: Record<string, string | null> = { [name]: isEmpty ? null : writeClaim(left) };
  if (back !== undefined && back.spans.length > 0) set[back.name] = writeSpans(back.spans);
  return { change: { expect: { [name]: writeClaim(claim) }, set }, left: isEmpty ? undefined : left };
}

/** Gives back a claim whose worker has no row any more. @param isCharged  its jobs may have begun */
export function rescued(claim: ShardClaim, isCharged: boolean): Change {
  const name = F.claim(claim.token);
  const spans = claim.spans.map((span) => ({
    ...span,
    attempts: isCharged && span.attempts !== POKE ? span.attempts + 1 : span.attempts,
  }));
  return { expect: { [name]: writeClaim(claim) }, set: { [name]: null, [backName(claim.token)]: writeSpans(spans) } };
}

/** The name under which something goes back. @param part  tells apart what one claim gives back piece by piece */
export function backName(token: number | string, part = ''): string {
  return `${BACK}${token}${part}`;
}

/** Adds jobs to what waits for the next claim: delayed ones that are due, or one by hand. @param returned  its name is never used again */
export function added(returned: ReturnedJobs): Change {
  return { expect: { [returned.name]: null }, set: { [returned.name]: writeSpans(returned.spans) } };
}

/** Tells those who wait for delayed jobs that there is another one. */
export function delayTold(): Change {
  return { expect: {}, set: {}, add: { [F.delays]: 1 } };
}

/** Tells those who look for jobs that have to begin by a time that there is another one. */
export function expiryTold(): Change {
  return { expect: {}, set: {}, add: { [F.expiries]: 1 } };
}

/** Where the head sees a job. `gone`: it is over, or in the row of a key. */
export type Standing = 'line' | 'cancelled' | 'claimed' | 'back' | 'missing' | 'gone';

export function standingOf(head: ShardHead, spot: Spot): Standing {
  // One that was put off by hand is left out of the line like a cancelled one, and was given back.
  if (head.claims.some(({ spans }) => isIn(spans, spot))) return 'claimed';
  if (head.back.some(({ spans }) => isIn(spans, spot))) return 'back';
  if (isIn(head.cancelled, spot)) return 'cancelled';
  if (head.missing.includes(spot.piece)) return 'missing';
  const next = head.next[bandOfPiece(spot.piece)] ?? JOBS;
  return sequenceOf(spot.piece) * JOBS + spot.index >= next ? 'line' : 'gone';
}

/** Whether nothing waits in the line, and nothing is claimed or given back. */
export function isQuiet({ claims, back, last, next }: ShardHead): boolean {
  return claims.length === 0 && back.length === 0 && !hasLine(last, next);
}

function hasLine(last: readonly number[], next: readonly number[]): boolean {
  return last.some((number, band) => number >= Math.floor((next[band] ?? JOBS) / JOBS));
}

/** The bands in which pieces may be claimed, in the order of claims. */
export function bandsWithWork({ last, next }: ShardHead): number[] {
  return CLAIM_ORDER.filter((band) => (last[band] ?? 0) >= Math.floor((next[band] ?? JOBS) / JOBS));
}

export function writeClaim({ worker, request, spans }: ShardClaim): string {
  return JSON.stringify([worker, request, ...spans.map(toTuple)]);
}

function readClaim(token: number, text: string): ShardClaim {
  const [worker, request, ...spans]: [number, string, ...unknown[]] = JSON.parse(text);
  return { token, worker, request, spans: readSpans(spans) };
}
