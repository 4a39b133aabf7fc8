/** Which jobs a claim takes: jobs that were given back, missing pieces that have arrived, and the line. See head.ts for the whole. */
import type { Change } from '../../../engine/dynamodb/index.ts';
import { F, type ShardClaim, type ShardHead, writeClaim } from './head.ts';
import { JOBS, pieceOf, sequenceOf } from './place.ts';
import { plain, runsOf, type Span, type Stretch, writeSpans } from './spans.ts';

/** How many missing numbers a head notes. More would make the head large and each write expensive, so then the line waits until fewer are missing. */
export const MOST_MISSING = 50;

/**
 * How many jobs a head names before its line waits: the jobs of its claims, each of which may come back for a retry of its own, and the jobs
 * that were given back. An entry has up to 40 bytes, and a row 400 KB. The rest of the row is for delayed jobs, which are moved here when due.
 */
export const MOST_NAMED = 9000;
/** A head names jobs that were given back in runs. They may be claimed until their jobs, named one by one, exceed MOST_NAMED by this. */
const SPARE = 500;

/** How many names a head holds, except those of its line. Each claim has one name of its own, and so has each set of jobs given back at one time. */
export function namedBy({ claims, back }: Pick<ShardHead, 'claims' | 'back'>): number {
  const claimed = claims.reduce((sum, { spans }) => spans.reduce((jobs, { n }) => jobs + n, sum + 1), 0);
  return back.reduce((sum, { spans }) => sum + spans.length + 1, claimed);
}

/** A piece as a claim has read it. */
export interface SeenPiece {
  readonly piece: number;
  /** 0 in an empty piece, which fills the number of a producer that was given up. */
  readonly n: number;
  /** The jobs are delayed. Another row says when they are due, and the line leaves them out. */
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

/** The change that claims jobs: first those that were given back, then missing pieces that have arrived, then the line, each oldest first. */
export interface ClaimDecision {
  readonly change: Change;
  /** Without spans if the change only passes over pieces that cannot be claimed. */
  readonly claim: ShardClaim;
}

/** @returns undefined if there is nothing to write */
export function claimDecided(head: ShardHead, wish: ClaimWish, seen: LineView): ClaimDecision | undefined {
  if (head.isPaused) return undefined;
  const set: Record<string, string | number | null> = {};
  const expect: Record<string, string | number | null> = { [F.fence]: head.fields[F.fence] ?? null };
  const spans: Span[] = [];
  let room = wish.limit;
  let named = namedBy(head);
  const takeUpTo = (most: number, span: Span): Span | undefined => {
    const n = Math.min(room, most, span.n);
    if (n > 0) spans.push({ ...span, n });
    room -= n;
    named += n;
    return n === span.n ? undefined : { ...span, index: span.index + n, n: span.n - n };
  };
  const roomForLine = (): number => Math.min(room, Math.max(0, MOST_NAMED - named));
  const take = (span: Span): Span | undefined => takeUpTo(roomForLine(), span);
  // At least one job, since otherwise the head would never become smaller.
  const takeBack = (span: Span): Span | undefined => {
    const left = takeUpTo(Math.max(1, MOST_NAMED + SPARE - named), span);
    if (left === undefined) named -= 1;
    return left;
  };
  for (const { name, spans: returned } of head.back) {
    const isDue = ({ dueAt }: Span): boolean => dueAt <= wish.now;
    if (room <= 0 || !returned.some(isDue)) continue;
    expect[name] = head.fields[name] ?? null;
    const left = returned.flatMap((span) => (isDue(span) ? (takeBack({ ...span, dueAt: 0 }) ?? []) : span));
    set[name] = left.length === 0 ? null : writeSpans(left);
  }
  const found = takeFound(head, seen, take, roomForLine);
  const line = takeLine(head, seen, take, roomForLine);
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
    // The piece is claimed as a whole or not at all, since a missing number has no index of a next job.
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

/** @returns the index of the first job for which there was no room; undefined if there was room for all */
function takeRuns(runs: readonly Stretch[], take: (span: Span) => Span | undefined): number | undefined {
  for (const run of runs) {
    const left = take(plain(run));
    if (left !== undefined) return left.index;
  }
  return undefined;
}
