/**
 * The head of a key: the row that decides which of its jobs runs next. Its state and its moves as pure functions.
 *
 * - `upto` is the newest job that was ever taken. Of the jobs up to it, those in `left` are not over, and all others are; later ones
 *   are all outstanding.
 * - Every change expects the version that was read, and raises it. So a change that is carried out late changes nothing.
 * - A span in the head of the shard leads to it, a _poke_: one for each enqueued job of the key. The worker that follows a poke reads what is
 *   outstanding, so it does not matter whose poke it was, and a poke too many does nothing.
 * - A poke that finds the key held sets `more`, and is over. The holder then gives its own poke back in the end.
 * - A job whose producer was slow may arrive when later ones were taken: its poke is then below `upto`, and its job neither in `left`
 *   nor over, which its record tells. It joins `left`.
 * - So that no job which is enqueued after the answer to that producer comes before it, a taker takes jobs of pieces only that the line
 *   has passed, and notes in `gaps` the numbers below them that were missing: each later taker looks there first.
 * - A claim older than that of the last taker takes nothing: it may have been given back and used up by another worker, so nothing that it
 *   wrote into the head of the shard would count. Its pokes go back, and come again in a younger claim.
 * - A holder keeps the guardian's poke in its claim as long as it holds the key. So one whose claim had that no more when a younger one was
 *   made holds nothing, though its worker lives: that worker could not read the answer to its claim, and has given it back.
 * - The row is removed when no job of the key is left: see `key-removal.ts`.
 * - While a retry is awaited, one poke answers for the key: that of the worker which wrote the retry, `guardian`. It goes back until the
 *   retry is due; every other poke is over. Each later job of the key would else leave a poke that waits.
 * - Jobs that rest, since younger ones of their kind may come (`debounce`), are passed by others, and answered for by one poke likewise: `rests`
 *   says that the guardian's does. Who says so shows in the same transaction that its poke is in a claim; so that poke is there until somebody
 *   follows it. Another poke that finds it so sets `more`, and is over; the guardian's looks again before it is over itself.
 */
import type { Change, Fields } from '../../../engine/dynamodb/index.ts';
import type { ShardClaim } from './head.ts';
import { versionTaken } from './key-version.ts';
import { placeOf } from './place.ts';
import { isIn } from './spans.ts';

/** Producers of one key that die between two requests, or are that slow, are few: a head has room for the newest of their numbers. */
const MOST_GAPS = 16;

/** An outstanding job up to `upto`. */
export interface LeftJob {
  readonly id: number;
  /** Attempts that have begun, the present one included. */
  readonly attempt: number;
  /** It may not run before, in milliseconds since 1970 by the service's clock; 0: at once. */
  readonly dueAt: number;
  /** It was enqueued for later: until it is due, later jobs of its key do not wait for it. */
  readonly isScheduled: boolean;
  /** It belongs to the chain that the holder has taken. */
  readonly isTaken: boolean;
}

export interface KeyHolder {
  readonly worker: number;
  /** The claim of the shard that has the poke. */
  readonly token: number;
}

export interface KeyHead {
  readonly version: number;
  /** The fencing token: it rises whenever the key is taken. */
  readonly epoch: number;
  readonly upto: number;
  readonly left: readonly LeftJob[];
  readonly holder: KeyHolder | undefined;
  /** The job whose poke answers for the key; 0 before it was first taken. */
  readonly guardian: number;
  readonly more: boolean;
  /** The poke of the guardian is there, and answers for jobs that rest. */
  readonly rests: boolean;
  /** The claim of the last taker. */
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

/** What a poke finds. */
export type Taking =
  /** It takes these jobs, oldest first, with this change. */
  | { readonly kind: 'taken'; readonly change: Change; readonly jobs: readonly LeftJob[]; readonly epoch: number }
  /** Another worker has the key, or a retry holds it up: after this change the poke is over. Without one, it is over already. */
  | { readonly kind: 'held'; readonly change: Change | undefined }
  /** Its jobs rest. With this change, which counts only while the claim has the poke, it is the one that answers for them, and goes back until then. */
  | { readonly kind: 'rests'; readonly change: Change; readonly backUntil: number }
  /** There is nothing to do. The poke goes back until then; undefined: it is over. */
  | { readonly kind: 'nothing'; readonly backUntil: number | undefined };

export interface TakeWish extends KeyHolder {
  /** The job whose poke it follows. */
  readonly poke: number;
  /** The record of that job says that it is over. Read it after the row of the key. */
  readonly isPokeOver: boolean;
  /** The jobs of the key after `upto`, in pieces that the line had passed at the claim; oldest first, as they were read after its row. */
  readonly later: readonly number[];
  /** Pieces that were missing at the claim. */
  readonly missing: readonly number[];
  /** What was found in the gaps, read after the jobs. A piece that is not named here may still come. */
  readonly filled: readonly FilledGap[];
  /** Untried jobs whose kind waits for younger ones, each with the time until which it does. */
  readonly resting: ReadonlyMap<number, number>;
  readonly limit: number;
  /** There are more such jobs, which were not read. */
  readonly isMore: boolean;
  readonly now: number;
  /** All claims that the head of the shard had when this one was made. */
  readonly claims: readonly Pick<ShardClaim, 'token' | 'spans'>[];
  /** Whether the holder has no row any more. */
  readonly isLost: (worker: number) => boolean;
  /** Whether a job up to `upto` has a row, read after that of the key: one without was removed, since its history is over. */
  readonly hasRow: (job: number) => boolean;
}

/** A number that was missing once, and is not any more. */
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
    // The pokes of jobs for which there was no room, or which rest, may all be over; so may one be that found the key held since the jobs were read.
    more: head.more || wish.isMore || jobs.length >= wish.limit || restUntil < Infinity,
    rests: false,
    token,
    gaps: gapsUpTo(head, wish, upto),
    cancelled: head.cancelled.filter((id) => id > upto),
  };
  return { kind: 'taken', change: writtenOn(head, taken, versionTaken(head.version, token)), jobs, epoch };
}

/** Whether its claim had let go of the poke when a younger one was made. */
function isGivenBack({ guardian }: KeyHead, holder: KeyHolder, { token, claims }: TakeWish): boolean {
  if (holder.token >= token) return false;
  return !claims.some((claim) => claim.token === holder.token && isIn(claim.spans, placeOf(guardian)));
}

/** Nothing may run now. @param until  when the first of the jobs that rest may; Infinity: there are none */
function resting(head: KeyHead, { poke, token }: TakeWish, until: number): Taking {
  const isGuardian = head.rests && poke === head.guardian;
  // Those of another poke are answered for: it looks again, if it has not been told already.
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

/** With the jobs that came late, that of the poke and those that were found in gaps; and without those that were removed. */
function withLate(head: KeyHead, { poke, isPokeOver, filled, hasRow }: TakeWish): KeyHead {
  const found = [...(isPokeOver ? [] : [poke]), ...filled.flatMap(({ jobs }) => jobs)];
  const late = [...new Set(found)].filter((id) => keyStandingOf(head, id) === 'over' && hasRow(id));
  const gaps = head.gaps.filter((piece) => !filled.some((one) => one.piece === piece));
  const there = head.left.filter(({ id }) => hasRow(id));
  if (late.length === 0 && there.length === head.left.length) return { ...head, gaps };
  const jobs = late.map((id) => ({ id, attempt: 0, dueAt: 0, isScheduled: false, isTaken: false }));
  return { ...head, gaps, left: [...there, ...jobs].sort((a, b) => a.id - b.id) };
}

/** The gaps below the newest job that is taken. What was missing and is there now is among the later jobs, or of other keys. */
function gapsUpTo({ gaps }: KeyHead, { missing, filled }: TakeWish, upto: number): number[] {
  const open = missing.filter((piece) => piece < placeOf(upto).piece && !filled.some((one) => one.piece === piece));
  return [...new Set([...gaps, ...open])].sort((a, b) => a - b).slice(-MOST_GAPS);
}

/**
 * The jobs that may run now, in the order of their enqueue: one that was enqueued for later and is due has its place there, too. A retry that is
 * not due yet holds up all that are behind it.
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
      // Later ones are outstanding anyway.
      if (!isLater) rest.push({ ...job, isTaken: false });
      continue;
    }
    // The answer to its own request was lost: nothing has begun. Of a chain that was lost with its worker, only the first job can have.
    const isCharged = !job.isTaken || (wasLost && isFirstTaken);
    if (job.isTaken) isFirstTaken = false;
    jobs.push({ ...job, attempt: isCharged ? job.attempt + 1 : job.attempt, dueAt: 0, isTaken: true });
  }
  const upto = Math.max(0, ...jobs.map(({ id }) => id));
  // Those before the newest that is taken are left; the others are outstanding anyway.
  return { jobs, rest: [...rest, ...passed.filter(({ id }) => id < upto)], retryAt, restUntil };
}

/** The jobs that are left, and the later ones that were not tried, cancelled or put off. */
function inOrder(head: KeyHead, later: readonly number[]): { readonly job: LeftJob; readonly isLater: boolean }[] {
  const known = new Set([...head.cancelled, ...head.left.map(({ id }) => id)]);
  const untried = later.filter((id) => id > head.upto && !known.has(id));
  const all = [
    ...head.left.map((job) => ({ job, isLater: false })),
    ...untried.map((id) => ({ job: { id, attempt: 0, dueAt: 0, isScheduled: false, isTaken: false }, isLater: true })),
  ];
  return all.sort((a, b) => a.job.id - b.job.id);
}

/** Where the row sees a job of the key. */
export type KeyStanding = 'later' | 'cancelled' | 'left' | 'held' | 'over';

export function keyStandingOf(head: KeyHead, id: number): KeyStanding {
  if (head.cancelled.includes(id)) return 'cancelled';
  const job = head.left.find((one) => one.id === id);
  if (job === undefined) return id > head.upto ? 'later' : 'over';
  return job.isTaken && head.holder !== undefined ? 'held' : 'left';
}

type Written = Omit<KeyHead, 'version' | 'fields'>;

/** A change of what is named, on the version that was read. @param version  that of the head after it */
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
