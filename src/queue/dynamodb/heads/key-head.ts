/**
 * The head of a key: the row that decides which of its jobs runs next. This file has its state and its moves as pure functions.
 *
 * - `upto` is the newest job that was ever taken. Of the jobs up to `upto`, those in `left` are not over, and all others are over. Later jobs
 *   are all outstanding.
 * - Every change expects the version that was read, and raises it. So a change that arrives late changes nothing.
 * - A _poke_ is a span in the head of the shard that leads to the head of the key. Each enqueued job of the key has one. The worker that follows
 *   a poke reads all outstanding jobs. So it does not matter whose poke it was, and a poke too many does nothing.
 * - If a poke finds the key held, it sets `more`, and is over. When the holder gives the key up, it then gives its own poke back.
 * - A job of a slow producer may arrive when later jobs were taken already. Its poke is then not above `upto`. If its record does not say
 *   that the job is over, the job joins `left`.
 * - No job that is enqueued after the answer to that producer may come before its job. So a taker takes only jobs of pieces that the line has
 *   passed, and notes in `gaps` the numbers below them that were missing. Each later taker reads these numbers first.
 * - A claim that is older than the claim of the last taker takes nothing. It may have been given back and used up by another worker, and then
 *   nothing that it writes into the head of the shard counts. Its pokes go back, and come again in a younger claim.
 * - A holder keeps the guardian's poke in its claim as long as it holds the key. If its claim had lost this poke when a younger claim was made,
 *   the holder holds nothing, although its worker lives: that worker could not read the answer to its claim, and has given the claim back.
 * - The row is removed when no job of the key is left: see `key-removal.ts`.
 * - While a retry backs off, one poke answers for the key: the poke of the worker that wrote the retry, the `guardian`. It goes back until the
 *   retry is due, and every other poke is over. Otherwise each later job of the key would leave a poke that waits.
 * - Jobs of a debounced kind rest while younger jobs of their kind may come. Other jobs pass them. One poke answers for them, too: `rests` says
 *   that the guardian's poke does so. The worker that sets `rests` checks in the same transaction that its claim has this poke, so the poke
 *   exists until a worker follows it. Another poke that finds `rests` sets `more`, and is over. If `more` is set, the guardian's poke reads the
 *   jobs again before it is over itself.
 */
import type { Change, Fields } from '../../../engine/dynamodb/index.ts';
import type { ShardClaim } from './head.ts';
import { versionTaken } from './key-version.ts';
import { placeOf } from './place.ts';
import { isIn } from './spans.ts';

/** How many gaps a head notes, the newest. Few producers of one key die, or stand still, between their two requests. */
const MOST_GAPS = 16;

/** An outstanding job up to `upto`. */
export interface LeftJob {
  readonly id: number;
  /** Attempts that have begun, the present one included. */
  readonly attempt: number;
  /** The job does not run before this time, in milliseconds since 1970 by the service's clock; 0: it may run at once. */
  readonly dueAt: number;
  /** The job was enqueued for later. Until it is due, later jobs of its key do not wait for it. */
  readonly isScheduled: boolean;
  /** The job belongs to the chain that the holder has taken. */
  readonly isTaken: boolean;
}

export interface KeyHolder {
  readonly worker: number;
  /** The token of the claim that has the poke. */
  readonly token: number;
}

export interface KeyHead {
  readonly version: number;
  /** The fencing token: it rises whenever the key is taken. */
  readonly epoch: number;
  readonly upto: number;
  readonly left: readonly LeftJob[];
  readonly holder: KeyHolder | undefined;
  /** The job whose poke answers for the key; 0 before the key was first taken. */
  readonly guardian: number;
  /** A poke has found the key held or resting since the jobs were read, or the taker left jobs. */
  readonly more: boolean;
  /** The poke of the guardian exists, and answers for jobs that rest. */
  readonly rests: boolean;
  /** The token of the claim of the last taker. */
  readonly token: number;
  /** Pieces up to `upto` that were missing when later ones were taken. */
  readonly gaps: readonly number[];
  /** Jobs after `upto` that were cancelled. */
  readonly cancelled: readonly number[];
  readonly fields: Fields;
}

const F = {
  version: 'v',
  epoch: 'e',
  upto: 'u',
  left: 'l',
  holder: 'w',
  guardian: 'g',
  more: 'm',
  rests: 'r',
  cancelled: 'x',
  token: 't',
  gaps: 'p',
} as const;

export function readKeyHead(fields: Fields): KeyHead {
  const holder = fields[F.holder];
  const [worker = 0, token = 0] = holder === undefined ? [] : String(holder).split(' ').map(Number);
  return {
    version: Number(fields[F.version] ?? 0),
    epoch: Number(fields[F.epoch] ?? 0),
    upto: Number(fields[F.upto] ?? 0),
    left: JSON.parse(String(fields[F.left] ?? '[]')).map(toLeft),
    holder: holder === undefined ? undefined : { worker, token },
    guardian: Number(fields[F.guardian] ?? 0),
    more: fields[F.more] !== undefined,
    rests: fields[F.rests] !== undefined,
    cancelled: JSON.parse(String(fields[F.cancelled] ?? '[]')),
    token: Number(fields[F.token] ?? 0),
    gaps: JSON.parse(String(fields[F.gaps] ?? '[]')),
    fields,
  };
}

/** The outcome of a poke. */
export type Taking =
  /** The poke takes these jobs, oldest first, with this change. */
  | { readonly kind: 'taken'; readonly change: Change; readonly jobs: readonly LeftJob[]; readonly epoch: number }
  /** The poke takes nothing, and is over after this change, if there is one: another worker has the key, for example, or a retry holds it up. */
  | { readonly kind: 'held'; readonly change: Change | undefined }
  /** The jobs rest. By this change, which counts only while the claim has the poke, the poke answers for them. It goes back until that time. */
  | { readonly kind: 'rests'; readonly change: Change; readonly backUntil: number }
  /** There is nothing to do. The poke goes back until this time; undefined: it is over. */
  | { readonly kind: 'nothing'; readonly backUntil: number | undefined };

export interface TakeWish extends KeyHolder {
  /** The job of the poke. */
  readonly poke: number;
  /** The record of this job says that it is over. Read the record after the row of the key. */
  readonly isPokeOver: boolean;
  /** The jobs of the key after `upto`, in pieces that the line had passed at the claim, oldest first. Read them after the row of the key. */
  readonly later: readonly number[];
  /** Pieces that were missing at the claim. */
  readonly missing: readonly number[];
  /** The gaps whose pieces have arrived, or never will. Read them after the jobs. The piece of any other gap may still come. */
  readonly filled: readonly FilledGap[];
  /** Untried jobs that rest, each with the time until which it rests. */
  readonly resting: ReadonlyMap<number, number>;
  readonly limit: number;
  /** There are more later jobs, which were not read. */
  readonly isMore: boolean;
  readonly now: number;
  /** All claims that the head of the shard had when this claim was made. */
  readonly claims: readonly Pick<ShardClaim, 'token' | 'spans'>[];
  /** Whether the holder has no row any more. */
  readonly isLost: (worker: number) => boolean;
  /** Whether a job up to `upto` has a row, read after the row of the key. A job without a row was removed, since its history is over. */
  readonly hasRow: (job: number) => boolean;
}

/** A number that was missing, and is not missing any more. */
export interface FilledGap {
  readonly piece: number;
  /** Its jobs of this key that are not over. */
  readonly jobs: readonly number[];
}

export function taking(before: KeyHead, wish: TakeWish): Taking {
  const { worker, token, poke } = wish;
  const head = withLate(before, wish);
  const { holder } = head;
  const isMine = holder?.worker === worker && holder.token === token;
  const isLost = holder !== undefined && wish.isLost(holder.worker);
  if (holder !== undefined && !isMine && !isLost && !isGivenBack(head, holder, wish)) {
    const isTold = head.left === before.left && head.more;
    return { kind: 'held', change: isTold ? undefined : writtenOn(head, { more: true }) };
  }
  if (token < head.token) return { kind: 'nothing', backUntil: 0 };
  const { jobs, rest, retryAt, restUntil } = chosen(head, wish, isLost && !isMine);
  if (jobs.length === 0) {
    if (head.left !== before.left) return { kind: 'held', change: writtenOn(head, {}) };
    if (retryAt === undefined && (head.rests || restUntil < Infinity)) return resting(head, wish, restUntil);
    return { kind: 'nothing', backUntil: poke === head.guardian ? retryAt : undefined };
  }
  const upto = Math.max(head.upto, ...jobs.map(({ id }) => id));
  const epoch = Math.max(head.epoch + 1, token);
  const taken = {
    epoch,
    upto,
    left: [...jobs, ...rest].sort((a, b) => a.id - b.id),
    holder: { worker, token },
    guardian: poke,
    // All pokes of jobs that rest, or for which there was no room, may be over. So may a poke that found the key held since the jobs were read.
    more: head.more || wish.isMore || jobs.length >= wish.limit || restUntil < Infinity,
    rests: false,
    token,
    gaps: gapsUpTo(head, wish, upto),
    cancelled: head.cancelled.filter((id) => id > upto),
  };
  return { kind: 'taken', change: writtenOn(head, taken, versionTaken(head.version, token)), jobs, epoch };
}

/** Whether the claim of the holder had lost the guardian's poke when a younger claim was made. */
function isGivenBack({ guardian }: KeyHead, holder: KeyHolder, { token, claims }: TakeWish): boolean {
  if (holder.token >= token) return false;
  return !claims.some((claim) => claim.token === holder.token && isIn(claim.spans, placeOf(guardian)));
}

/** The outcome if no job may run now. @param until  when the first of the jobs that rest may run; Infinity: none rests */
function resting(head: KeyHead, { poke, token }: TakeWish, until: number): Taking {
  const isGuardian = head.rests && poke === head.guardian;
  // The guardian's poke answers for these jobs. Unless `more` is set already, this change tells it to read the jobs again.
  if (head.rests && !isGuardian)
    return { kind: 'held', change: head.more ? undefined : writtenOn(head, { more: true }) };
  if (until < Infinity) {
    if (isGuardian) return { kind: 'nothing', backUntil: until };
    return {
      kind: 'rests',
      change: writtenOn(head, { guardian: poke, rests: true }, versionTaken(head.version, token)),
      backUntil: until,
    };
  }
  if (!head.more) return { kind: 'held', change: writtenOn(head, { rests: false }) };
  return { kind: 'rests', change: writtenOn(head, { more: false }), backUntil: 0 };
}

/** The head with jobs that came late, the job of the poke and jobs that were found in gaps, and without jobs that were removed. */
function withLate(head: KeyHead, { poke, isPokeOver, filled, hasRow }: TakeWish): KeyHead {
  const found = [...(isPokeOver ? [] : [poke]), ...filled.flatMap(({ jobs }) => jobs)];
  const late = [...new Set(found)].filter((id) => keyStandingOf(head, id) === 'over' && hasRow(id));
  const gaps = head.gaps.filter((piece) => !filled.some((one) => one.piece === piece));
  const there = head.left.filter(({ id }) => hasRow(id));
  if (late.length === 0 && there.length === head.left.length) return { ...head, gaps };
  const jobs = late.map((id) => ({ id, attempt: 0, dueAt: 0, isScheduled: false, isTaken: false }));
  return { ...head, gaps, left: [...there, ...jobs].sort((a, b) => a.id - b.id) };
}

/** The gaps below the newest job that is taken. A piece that has arrived is no gap: its jobs are among the later jobs, or are of other keys. */
function gapsUpTo({ gaps }: KeyHead, { missing, filled }: TakeWish, upto: number): number[] {
  const open = missing.filter((piece) => piece < placeOf(upto).piece && !filled.some((one) => one.piece === piece));
  return [...new Set([...gaps, ...open])].sort((a, b) => a - b).slice(-MOST_GAPS);
}

/**
 * The jobs that may run now, in the order of their enqueue. A due job that was enqueued for later has its place in this order, too. A retry that is
 * not due yet holds up all jobs behind it.
 */
function chosen(
  head: KeyHead,
  { later, limit, now, resting }: TakeWish,
  wasLost: boolean,
): { jobs: LeftJob[]; rest: LeftJob[]; retryAt: number | undefined; restUntil: number } {
  const jobs: LeftJob[] = [];
  const rest: LeftJob[] = [];
  const passed: LeftJob[] = [];
  let retryAt: number | undefined;
  let restUntil = Infinity;
  let isClosed = false;
  let isFirstTaken = true;
  for (const { job, isLater } of inOrder(head, later)) {
    const until = job.attempt === 0 && !job.isTaken ? resting.get(job.id) : undefined;
    if (until !== undefined && !isClosed) {
      (isLater ? passed : rest).push({ ...job, dueAt: until, isScheduled: true });
      restUntil = Math.min(restUntil, until);
      continue;
    }
    const isDue = job.dueAt <= now;
    if (!isDue && !job.isScheduled && !isClosed) retryAt = job.dueAt;
    isClosed ||= jobs.length >= limit || !(isDue || job.isScheduled);
    if (isClosed || !isDue) {
      // Later jobs are outstanding anyway, so `left` need not have them.
      if (!isLater) rest.push({ ...job, isTaken: false });
      continue;
    }
    // If this worker has taken the job already, the answer was lost, and no job has begun. If a dead worker has, only its first job may have begun.
    const isCharged = !job.isTaken || (wasLost && isFirstTaken);
    if (job.isTaken) isFirstTaken = false;
    jobs.push({ ...job, attempt: isCharged ? job.attempt + 1 : job.attempt, dueAt: 0, isTaken: true });
  }
  const upto = Math.max(0, ...jobs.map(({ id }) => id));
  // Jobs before the newest taken job go into `left`. Jobs after it are outstanding anyway.
  return { jobs, rest: [...rest, ...passed.filter(({ id }) => id < upto)], retryAt, restUntil };
}

/** The jobs in `left`, and the later jobs that are neither in it nor cancelled. */
function inOrder(head: KeyHead, later: readonly number[]): { readonly job: LeftJob; readonly isLater: boolean }[] {
  const known = new Set([...head.cancelled, ...head.left.map(({ id }) => id)]);
  const untried = later.filter((id) => id > head.upto && !known.has(id));
  const all = [
    ...head.left.map((job) => ({ job, isLater: false })),
    ...untried.map((id) => ({ job: { id, attempt: 0, dueAt: 0, isScheduled: false, isTaken: false }, isLater: true })),
  ];
  return all.sort((a, b) => a.job.id - b.job.id);
}

/** Where a job of the key is, by the head. */
export type KeyStanding = 'later' | 'cancelled' | 'left' | 'held' | 'over';

export function keyStandingOf(head: KeyHead, id: number): KeyStanding {
  if (head.cancelled.includes(id)) return 'cancelled';
  const job = head.left.find((one) => one.id === id);
  if (job === undefined) return id > head.upto ? 'later' : 'over';
  return job.isTaken && head.holder !== undefined ? 'held' : 'left';
}

type Written = Omit<KeyHead, 'version' | 'fields'>;

/** A change of the given fields, which expects the version that was read. @param version  the version after the change */
export function writtenOn(head: KeyHead, what: Partial<Written>, version: number = head.version + 1): Change {
  const { epoch, upto, left, holder, guardian, more, rests, cancelled, token, gaps } = { ...head, ...what };
  const set: Record<string, string | number | null> = {
    [F.version]: version,
    [F.epoch]: epoch,
    [F.upto]: upto,
    [F.left]: left.length === 0 ? null : JSON.stringify(left.map(fromLeft)),
    [F.holder]: holder === undefined ? null : `${holder.worker} ${holder.token}`,
    [F.guardian]: guardian,
    [F.more]: more ? 1 : null,
    [F.rests]: rests ? 1 : null,
    [F.cancelled]: cancelled.length === 0 ? null : JSON.stringify(cancelled),
    [F.token]: token,
    [F.gaps]: gaps.length === 0 ? null : JSON.stringify(gaps),
  };
  return { expect: { [F.version]: head.fields[F.version] ?? null }, set };
}

function fromLeft({ id, attempt, dueAt, isScheduled, isTaken }: LeftJob): readonly number[] {
  return [id, attempt, dueAt, Number(isScheduled) + 2 * Number(isTaken)];
}

function toLeft(tuple: unknown): LeftJob {
  const [id = 0, attempt = 0, dueAt = 0, flags = 0] = Array.isArray(tuple) ? tuple.map(Number) : [];
  return { id, attempt, dueAt, isScheduled: flags % 2 === 1, isTaken: flags >= 2 };
}
