/**
 * The head of a shard: the one row that decides which jobs are claimed. This file has the state and the moves of a head as pure functions;
 * it sends no requests.
 *
 * - An enqueue takes the next sequence number of a band from the head. Then it writes its piece, a row under that number.
 * - A claim moves `next` over the pieces that it has read, and writes their jobs into the head, as a claim under the next fence. Each claim
 *   expects the fence that it has read, and raises it. So of several claims that are decided on one state, one is carried out.
 * - A settlement removes jobs from their claim. A job below `next` is over if it is in no claim, was not given back, and is not in the row of a
 *   key. So nothing has to be written for single jobs of a claim.
 * - If the worker of a claim has no row any more, the claim goes `back`, for the next claim. A job that is to be retried also goes back, with
 *   the time from which it may be claimed.
 * - If a number has no piece when a later piece is claimed, the claim notes the number as `missing`: its producer is slow, or has died. The
 *   piece is claimed when it arrives. If it does not arrive, a worker writes an empty piece under the number, and then the producer is refused.
 *
 * Each claim, and each set of jobs that was given back, has a field of its own. So a settlement conflicts with no claim and no other settlement.
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
  /** The fence of the claim. */
  readonly token: number;
  readonly worker: number;
  /** The request that made the claim. If its answer is lost, the worker recognises its claim by this. */
  readonly request: string;
  readonly spans: readonly Span[];
}

/** Spans that were given back and wait for the next claim, under a name that is never used again. */
export interface ReturnedJobs {
  readonly name: string;
  readonly spans: readonly Span[];
}

export interface ShardHead {
  readonly fence: number;
  /** By band: the last number that was taken. */
  readonly last: readonly number[];
  /** By band: the place (number × 64 + index) of the next job to be claimed. */
  readonly next: readonly number[];
  readonly claims: readonly ShardClaim[];
  readonly back: readonly ReturnedJobs[];
  readonly missing: readonly number[];
  /** Jobs that were cancelled before they were claimed. */
  readonly cancelled: readonly Stretch[];
  readonly isPaused: boolean;
  /** Rises when a delayed job is added: workers then read the rows of delays again. */
  readonly delays: number;
  /** Rises likewise when a job that has to begin by a time is added. */
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
 * Takes the numbers of so many pieces. A repetition leaves numbers without a piece, which claims note as missing.
 * @param timed  how many of the pieces have a row by the time of a delay, and how many a row by the time of an expiry: the same write notes both
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

/** The last number that was taken before such a request, in the fields that the request returned. */
export function lastNumber(before: Fields, band: number): number {
  return Number(before[F.last(band)] ?? 0);
}

/**
 * Takes jobs out of a claim. They are over, or the row of their key says where they are. Other jobs of the claim may go back with the same change.
 * @param back  the jobs that go back, under a name that is never used again
 * @returns the change, and the claim after it; undefined if the claim has no job left
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

/** Gives back a claim whose worker has no row any more. @param isCharged  the jobs may have begun, so they are charged an attempt */
export function rescued(claim: ShardClaim, isCharged: boolean): Change {
  const name = F.claim(claim.token);
  const spans = claim.spans.map((span) => ({
    ...span,
    attempts: isCharged && span.attempts !== POKE ? span.attempts + 1 : span.attempts,
  }));
  return { expect: { [name]: writeClaim(claim) }, set: { [name]: null, [backName(claim.token)]: writeSpans(spans) } };
}

/** The name under which jobs go back. @param part  tells apart the sets of jobs that one claim gives back */
export function backName(token: number | string, part = ''): string {
  return `${BACK}${token}${part}`;
}

/** Adds jobs that wait for the next claim: delayed jobs that are due, or a job by hand. @param returned  its name is never used again */
export function added(returned: ReturnedJobs): Change {
  return { expect: { [returned.name]: null }, set: { [returned.name]: writeSpans(returned.spans) } };
}

/** Tells workers that there is another delayed job. */
export function delayTold(): Change {
  return { expect: {}, set: {}, add: { [F.delays]: 1 } };
}

/** Tells workers that there is another job that has to begin by a time. */
export function expiryTold(): Change {
  return { expect: {}, set: {}, add: { [F.expiries]: 1 } };
}

/** Where a job is, by the head. `gone`: it is over, or in the row of a key. */
export type Standing = 'line' | 'cancelled' | 'claimed' | 'back' | 'missing' | 'gone';

export function standingOf(head: ShardHead, spot: Spot): Standing {
  // A job that was delayed by hand is in `back`, and also in `cancelled`, so that the line leaves it out.
  if (head.claims.some(({ spans }) => isIn(spans, spot))) return 'claimed';
  if (head.back.some(({ spans }) => isIn(spans, spot))) return 'back';
  if (isIn(head.cancelled, spot)) return 'cancelled';
  if (head.missing.includes(spot.piece)) return 'missing';
  const next = head.next[bandOfPiece(spot.piece)] ?? JOBS;
  return sequenceOf(spot.piece) * JOBS + spot.index >= next ? 'line' : 'gone';
}

/** Whether no job is in the line, claimed or given back. */
export function isQuiet({ claims, back, last, next }: ShardHead): boolean {
  return claims.length === 0 && back.length === 0 && !hasLine(last, next);
}

function hasLine(last: readonly number[], next: readonly number[]): boolean {
  return last.some((number, band) => number >= Math.floor((next[band] ?? JOBS) / JOBS));
}

/** The bands that may have pieces to claim, in the order of claims. */
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
