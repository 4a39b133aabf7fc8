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
import type { Change, Fields } from './change.ts';
import { BANDS, bandOfPiece, CLAIM_ORDER, JOBS, pieceOf, sequenceOf } from './place.ts';

/** Jobs of one piece. */
export interface Span {
  readonly piece: number;
  readonly index: number;
  readonly n: number;
  /** The attempts that have begun and count; {@link POKE} for a job of a key, whose row says that. */
  readonly attempts: number;
  /** It is not claimed before, in milliseconds since 1970 by the service's clock; 0: at once. */
  readonly dueAt: number;
}

/** Neighbouring jobs of one piece. */
export type Stretch = Pick<Span, 'piece' | 'index' | 'n'>;

/** The span says only that the row of a key has to be looked at; it may say so twice. */
export const POKE = -1;

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
  readonly fields: Fields;
}

/** More of them would make the head large, and every write dearer: then the line waits for the first of them. */
export const MOST_MISSING = 50;

const F = {
  fence: 'f',
  last: (band: number): string => `q${band}`,
  next: (band: number): string => `s${band}`,
  claim: (token: number): string => `c:${token}`,
  missing: 'm',
  cancelled: 'x',
  paused: 'z',
  delays: 'd',
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
    fields,
  };
}

/** Takes the numbers of so many pieces. A repetition leaves numbers without a piece, which are found missing. */
export function numbersTaken(band: number, pieces: number): Change {
  return { expect: {}, set: {}, add: { [F.last(band)]: pieces } };
}

/** The last number that was taken before, in the fields that such a request returned. */
export function lastNumber(before: Fields, band: number): number {
  return Number(before[F.last(band)] ?? 0);
}

/** A piece as a claim has read it. */
export interface SeenPiece {
  readonly piece: number;
  /** 0 for an empty piece, under the number of a producer that was given up. */
  readonly n: number;
  /** Its jobs are delayed: another row says when they are due, and the line leaves them out. */
  readonly isDelayed: boolean;
}

export interface ClaimWish {
  readonly worker: number;
  /** A name of this request that is never used again. */
  readonly request: string;
  readonly limit: number;
  /** By the service's clock. */
  readonly now: number;
}

export interface LineView {
  /** The pieces of one band from its `next` on, in order, as they were read after the head. */
  readonly band: number;
  readonly line: readonly SeenPiece[];
  /** Of the missing pieces, those that are there now. */
  readonly found: readonly SeenPiece[];
}

/** The change that claims jobs, oldest first: what was given back, what was missing, the line. */
export interface ClaimDecision {
  readonly change: Change;
  /** Without spans when the change only passes over what cannot be claimed. */
  readonly claim: ShardClaim;
}

/** @returns undefined when there is nothing to write */
export function claimDecided(head: ShardHead, wish: ClaimWish, seen: LineView): ClaimDecision | undefined {
  if (head.isPaused) return undefined;
  const set: Record<string, string | number | null> = {};
  const expect: Record<string, string | number | null> = { [F.fence]: head.fields[F.fence] ?? null };
  const spans: Span[] = [];
  let room = wish.limit;
  const take = (span: Span): Span | undefined => {
    const n = Math.min(room, span.n);
    if (n > 0) spans.push({ ...span, n });
    room -= n;
    return n === span.n ? undefined : { ...span, index: span.index + n, n: span.n - n };
  };
  for (const { name, spans: returned } of head.back) {
    const isDue = ({ dueAt }: Span): boolean => dueAt <= wish.now;
    if (room <= 0 || !returned.some(isDue)) continue;
    expect[name] = head.fields[name] ?? null;
    const left = returned.flatMap((span) => (isDue(span) ? (take({ ...span, dueAt: 0 }) ?? []) : span));
    set[name] = left.length === 0 ? null : writeSpans(left);
  }
  const found = takeFound(head, seen, take, () => room);
  const line = takeLine(head, seen, take, () => room);
  const missing = [...found, ...line.missing];
  if (missing.join() !== head.missing.join()) set[F.missing] = missing.length === 0 ? null : JSON.stringify(missing);
  if (line.next !== head.next[seen.band]) set[F.next(seen.band)] = line.next;
  if (line.cancelled !== head.cancelled) {
    set[F.cancelled] = line.cancelled.length === 0 ? null : writeSpans(line.cancelled.map(plain));
  }
  if (Object.keys(set).length === 0) return undefined;
  const token = head.fence + 1;
  const claim: ShardClaim = { token, worker: wish.worker, request: wish.request, spans };
  set[F.fence] = token;
  if (spans.length > 0) set[F.claim(token)] = writeClaim(claim);
  return { change: { expect, set }, claim };
}

/** @returns the pieces that are still missing */
function takeFound(
  { missing }: ShardHead,
  { found }: LineView,
  take: (span: Span) => Span | undefined,
  room: () => number,
): number[] {
  const there = new Map(found.map((piece) => [piece.piece, piece]));
  return missing.filter((piece) => {
    const seen = there.get(piece);
    if (seen === undefined) return true;
    if (seen.n === 0 || seen.isDelayed) return false;
    // As a whole or not at all: what is missing has no index.
    if (room() < seen.n) return true;
    take(plain({ piece, index: 0, n: seen.n }));
    return false;
  });
}

function takeLine(
  head: ShardHead,
  { band, line }: LineView,
  take: (span: Span) => Span | undefined,
  room: () => number,
): { next: number; missing: number[]; cancelled: ShardHead['cancelled'] } {
  let next = head.next[band] ?? JOBS;
  let { cancelled } = head;
  const missing: number[] = [];
  for (const { piece, n, isDelayed } of line) {
    if (room() <= 0) break;
    const at = sequenceOf(piece);
    let expected = Math.floor(next / JOBS);
    if (at < expected) continue;
    for (; expected < at && head.missing.length + missing.length < MOST_MISSING; expected += 1) {
      missing.push(pieceOf(band, expected));
      next = (expected + 1) * JOBS;
    }
    if (expected < at) break;
    if (!isDelayed) {
      const mine = cancelled.filter((one) => one.piece === piece);
      const index = next % JOBS;
      const taken = takeRuns(runsOf({ piece, index, n: n - index }, mine), take);
      if (taken !== undefined) {
        next = at * JOBS + taken;
        break;
      }
      if (mine.length > 0) cancelled = cancelled.filter((one) => one.piece !== piece);
    }
    next = (at + 1) * JOBS;
  }
  return { next, missing, cancelled };
}

/** @returns the index of the first job for which there was no room */
function takeRuns(runs: readonly Stretch[], take: (span: Span) => Span | undefined): number | undefined {
  for (const run of runs) {
    const left = take(plain(run));
    if (left !== undefined) return left.index;
  }
  return undefined;
}

function plain(span: Stretch): Span {
  return { ...span, attempts: 0, dueAt: 0 };
}

/** A span without those that lie in it. */
function runsOf(span: Stretch, without: readonly Stretch[]): Stretch[] {
  const runs: { piece: number; index: number; n: number }[] = [];
  for (let index = span.index; index < span.index + span.n; index += 1) {
    if (without.some((one) => one.piece === span.piece && index >= one.index && index < one.index + one.n)) continue;
    const last = runs.at(-1);
    if (last !== undefined && last.index + last.n === index) last.n += 1;
    else runs.push({ piece: span.piece, index, n: 1 });
  }
  return runs;
}

/** A job of a claim. */
export interface Spot {
  readonly piece: number;
  readonly index: number;
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

function spansWithout(spans: readonly Span[], isGone: (spot: Spot) => boolean): Span[] {
  return spans.flatMap((span) => {
    const gone: Stretch[] = [];
    for (let index = span.index; index < span.index + span.n; index += 1) {
      if (isGone({ piece: span.piece, index })) gone.push({ piece: span.piece, index, n: 1 });
    }
    return gone.length === 0 ? [span] : runsOf(span, gone).map((run) => ({ ...span, ...run }));
  });
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

/** Pauses the shard, or ends that. It raises the fence, so that no claim that was decided before is carried out after. */
export function pauseSet(head: ShardHead, pausedAt: number | undefined): Change {
  return {
    expect: { [F.fence]: head.fields[F.fence] ?? null },
    set: { [F.fence]: head.fence + 1, [F.paused]: pausedAt ?? null },
  };
}

/** When the shard was paused, in milliseconds since 1970. */
export function pausedAt({ fields }: ShardHead): number | undefined {
  const at = fields[F.paused];
  return at === undefined ? undefined : Number(at);
}

/** Takes a job out of the line before it is claimed. @returns undefined when it is not in the line any more */
export function cancelledInLine(head: ShardHead, { piece, index }: Spot): Change | undefined {
  const band = bandOfPiece(piece);
  if (sequenceOf(piece) * JOBS + index < (head.next[band] ?? JOBS)) return undefined;
  const cancelled = [...head.cancelled, { piece, index, n: 1 }];
  return {
    expect: { [F.fence]: head.fields[F.fence] ?? null },
    set: { [F.fence]: head.fence + 1, [F.cancelled]: writeSpans(joined(cancelled).map(plain)) },
  };
}

/** Takes a job out of what was given back. @returns undefined when it is not there */
export function withdrawn(head: ShardHead, { piece, index }: Spot): Change | undefined {
  const entry = head.back.find(({ spans }) => isIn(spans, { piece, index }));
  if (entry === undefined) return undefined;
  const left = spansWithout(entry.spans, (spot) => spot.piece === piece && spot.index === index);
  return {
    expect: { [entry.name]: head.fields[entry.name] ?? null },
    set: { [entry.name]: left.length === 0 ? null : writeSpans(left) },
  };
}

/** Puts a job that was cancelled before its claim back into the line. @returns undefined when the line has passed it */
export function restoredInLine(head: ShardHead, spot: Spot): Change | undefined {
  if (!isIn(head.cancelled, spot)) return undefined;
  const left = head.cancelled.flatMap((one) => runsOf(one, [{ ...spot, n: 1 }]));
  return {
    expect: { [F.fence]: head.fields[F.fence] ?? null },
    set: { [F.fence]: head.fence + 1, [F.cancelled]: left.length === 0 ? null : writeSpans(left.map(plain)) },
  };
}

function joined(spans: readonly Stretch[]): Stretch[] {
  const sorted = spans.toSorted((a, b) => a.piece - b.piece || a.index - b.index);
  const all: { piece: number; index: number; n: number }[] = [];
  for (const span of sorted) {
    const last = all.at(-1);
    if (last?.piece === span.piece && last.index + last.n === span.index) last.n += span.n;
    else all.push({ ...span });
  }
  return all;
}

/** Whether a job is in one of the spans. */
export function isIn(spans: readonly Stretch[], { piece, index }: Spot): boolean {
  return spans.some((span) => span.piece === piece && index >= span.index && index < span.index + span.n);
}

/** Where the head sees a job. `gone`: it is over, or in the row of a key. */
export type Standing = 'line' | 'cancelled' | 'claimed' | 'back' | 'missing' | 'gone';

export function standingOf(head: ShardHead, spot: Spot): Standing {
  if (isIn(head.cancelled, spot)) return 'cancelled';
  if (head.missing.includes(spot.piece)) return 'missing';
  if (head.claims.some(({ spans }) => isIn(spans, spot))) return 'claimed';
  if (head.back.some(({ spans }) => isIn(spans, spot))) return 'back';
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

function writeClaim({ worker, request, spans }: ShardClaim): string {
  return JSON.stringify([worker, request, ...spans.map(toTuple)]);
}

function readClaim(token: number, text: string): ShardClaim {
  const [worker, request, ...spans]: [number, string, ...unknown[]] = JSON.parse(text);
  return { token, worker, request, spans: readSpans(spans) };
}

function writeSpans(spans: readonly Span[]): string {
  return JSON.stringify(spans.map(toTuple));
}

function toTuple({ piece, index, n, attempts, dueAt }: Span): readonly number[] {
  if (dueAt !== 0) return [piece, index, n, attempts, dueAt];
  if (attempts !== 0) return [piece, index, n, attempts];
  return n === 1 ? [piece, index] : [piece, index, n];
}

function readSpans(tuples: readonly unknown[]): Span[] {
  return tuples.map((tuple) => {
    const [piece = 0, index = 0, n = 1, attempts = 0, dueAt = 0] = Array.isArray(tuple) ? tuple.map(Number) : [];
    return { piece, index, n, attempts, dueAt };
  });
}
