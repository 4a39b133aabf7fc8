import { sleep } from '../../../base/time/clock.ts';
import {
  type Change,
  digits,
  Expression,
  fieldsOf,
  isApplied,
  type Liveness,
  text,
  written,
} from '../../../engine/dynamodb/index.ts';
import type { Debounce } from '../../declare/unique.ts';
import type { Origin } from '../../job-options.ts';
import type { QueueRows } from '../database.ts';
import { F, writeClaim } from '../heads/head.ts';
import { type FilledGap, type KeyHead, keyStandingOf, type LeftJob, readKeyHead, taking } from '../heads/key-head.ts';
import { JOBS, jobNumber, placeOf } from '../heads/place.ts';
import { POKE, type Span } from '../heads/spans.ts';
import { isRecorded } from '../records.ts';
import { headOf, type JobRow, keyOf, originOf, pieceOf, readJobRow } from '../rows.ts';
import type { HeldClaim, HeldKey } from './held.ts';
import { restingOf } from './resting.ts';

/** The most jobs of a coalesced unit; on Postgres it is ten times as many. */
const MOST_COALESCED = 1000;
const AT_ONCE = 8;
const MOST_TRIES = 20;
/** Rows of a key that one request reads. */
const PAGE = 200;
/** Rows of the line that are read for one unit of jobs that coalesce. */
const MOST_AHEAD = 100;
/** A job that was enqueued for later, and whose place is further ahead than that, is looked at again so soon. */
const AHEAD_MS = 250;
/** No producer tries for as long. */
const ENDED_MS = 600_000;

/** A job of a chain. */
export interface ChainJob {
  readonly id: number;
  readonly kind: number;
  readonly attempt: number;
  readonly origin: Origin;
  readonly payload: unknown;
  /** People have given it a time of its own. */
  readonly isTimed: boolean;
}

export interface KeyTaken {
  readonly key: HeldKey;
  readonly jobs: readonly ChainJob[];
}

/** What became of the pokes of a claim. */
export interface PokesFollowed {
  readonly keys: readonly KeyTaken[];
  readonly over: readonly Span[];
  /** With the time until which they go back. */
  readonly back: readonly Span[];
}

export interface KeyWish {
  readonly worker: number;
  readonly chain: number;
  readonly coalescing: ReadonlySet<number>;
  readonly debounced: ReadonlyMap<number, Debounce>;
}

type Line = Pick<HeldClaim, 'frontier' | 'missing'>;

/** Follows the pokes of a claim: takes keys, and the jobs of each that are outstanding. */
export class KeyTaker {
  readonly #rows: QueueRows;
  readonly #liveness: Liveness;

  constructor(rows: QueueRows, liveness: Liveness) {
    this.#rows = rows;
    this.#liveness = liveness;
  }

  async takeAll(claim: HeldClaim, pokes: ReadonlyMap<string, readonly Span[]>, wish: KeyWish): Promise<PokesFollowed> {
    const followed = { keys: [] as KeyTaken[], over: [] as Span[], back: [] as Span[] };
    const all = [...pokes];
    for (let from = 0; from < all.length; from += AT_ONCE) {
      await Promise.all(
        all.slice(from, from + AT_ONCE).map(([key, spans]) => this.#follow(claim, key, spans, wish, followed)),
      );
    }
    return followed;
  }

  /** Each poke is followed until one has taken the key: it is the guardian then, and the others are over. */
  async #follow(
    claim: HeldClaim,
    key: string,
    spans: readonly Span[],
    wish: KeyWish,
    followed: { readonly keys: KeyTaken[]; readonly over: Span[]; readonly back: Span[] },
  ): Promise<void> {
    let taken: KeyTaken | undefined;
    for (const poke of spans) {
      const found = await this.#take(claim, key, poke, wish, taken !== undefined);
      if (found === 'over') followed.over.push(poke);
      else if ('dueAt' in found) followed.back.push(found);
      else {
        taken = found;
        followed.keys.push(found);
      }
    }
  }

  async #take(
    claim: HeldClaim,
    key: string,
    poke: Span,
    { worker, chain, coalescing, debounced }: KeyWish,
    isHeldHere: boolean,
  ): Promise<KeyTaken | Span | 'over'> {
    const pk = keyOf(this.#rows.shard(claim.shard), key);
    const id = jobNumber(claim.shard, poke.piece, poke.index);
    for (let tries = 0; tries < MOST_TRIES; tries += 1) {
      const head = readKeyHead(fieldsOf(await this.#rows.get(headOf(pk))));
      const isLate = keyStandingOf(head, id) === 'over';
      if (isHeldHere && !isLate) return 'over';
      const isPokeOver = isLate && (await isRecorded(this.#rows, claim.shard, id));
      if (isHeldHere && isPokeOver) return 'over';
      const aheadOf = (of: Line): number[] => dueAhead(head, of, this.#rows.engine.now());
      const line = coalescing.size === 0 && aheadOf(claim).length === 0 ? claim : await this.#lineAhead(claim);
      const late = isLate && !isPokeOver ? [id] : [];
      const { jobs, isWhole } = await this.#outstanding(pk, claim.shard, head, late, coalescing.size > 0);
      const later = [...jobs.keys()].filter((job) => job > head.upto && isPassed(line, job)).sort((a, b) => a - b);
      const limit = [...jobs.values()].some(({ kind }) => coalescing.has(kind)) ? MOST_COALESCED : chain;
      // After the jobs: a job that is seen there was enqueued after the answer to no producer whose job is not seen here.
      const filled = await this.#fill(claim.shard, pk, head.gaps, jobs);
      const { holder } = head;
      const isLost = holder !== undefined && !(await this.#liveness.isAlive(holder.worker, 'now'));
      const now = this.#rows.engine.now();
      const resting = debounced.size === 0 ? new Map<number, number>() : this.#resting(head, later, jobs, debounced);
      for (const job of aheadOf(line)) resting.set(job, now + AHEAD_MS);
      // Held here under this claim already: for a job that comes late it is a holder like any other.
      const token = isHeldHere ? -1 : claim.claim.token;
      const found = taking(head, {
        worker,
        token,
        poke: id,
        isPokeOver,
        later,
        limit,
        now,
        filled,
        resting,
        missing: line.missing,
        isMore: !isWhole,
        isLost: () => isLost,
        claims: claim.claims,
        hasRow: (job) => jobs.has(job),
      });
      if (found.kind === 'nothing') {
        return found.backUntil === undefined ? 'over' : { ...poke, attempts: POKE, dueAt: found.backUntil };
      }
      if (found.change === undefined) return 'over';
      if (found.kind === 'rests') {
        if (await this.#rest(claim, pk, found.change)) return { ...poke, attempts: POKE, dueAt: found.backUntil };
        await sleep(Math.random() * 4 * tries);
        continue;
      }
      const outcome = await this.#rows.change(headOf(pk), found.change);
      // Refused, but carried out by an earlier try, which the version, the epoch and the holder tell.
      if (!outcome.isDone && !isApplied(outcome.fields, found.change)) await sleep(Math.random() * 4 * tries);
      else if (found.kind === 'held') return 'over';
      else {
        const held = {
          key,
          epoch: found.epoch,
          pk,
          claim,
          poke,
          head: readKeyHead(outcome.fields),
          givenUp: undefined,
        };
        return this.#hold(held, found.jobs, jobs);
      }
    }
    // The key changes all the time: it is in good hands, and this poke tries again a little later.
    return { ...poke, attempts: POKE, dueAt: this.#rows.engine.now() + 100 };
  }

  /** Together with the condition that the claim has the poke: it is there then until somebody follows it. */
  #rest({ shard, claim }: HeldClaim, pk: string, change: Change): Promise<boolean> {
    const isThere = new Expression().whenIs(F.claim(claim.token), text(writeClaim(claim))).write();
    return this.#rows.together([
      { key: headOf(pk), written: written(change) },
      { key: headOf(this.#rows.shard(shard)), checked: isThere },
    ]);
  }

  #resting(
    head: KeyHead,
    later: readonly number[],
    jobs: ReadonlyMap<number, Omit<ChainJob, 'attempt'>>,
    debounced: ReadonlyMap<number, Debounce>,
  ): Map<number, number> {
    const left = head.left.filter(({ attempt, isTaken }) => attempt === 0 && !isTaken).map(({ id }) => id);
    const others = head.left.filter(({ attempt }) => attempt > 0);
    const tried = new Set(others.flatMap(({ id }) => jobs.get(id)?.kind ?? []));
    const untried = [...left, ...later.filter((id) => !head.cancelled.includes(id))].flatMap((id) => {
      const job = jobs.get(id);
      // A person who gives it a time wants it to run then.
      if (job === undefined || job.isTimed) return [];
      const { kind, origin } = job;
      return [{ id, kind, enqueuedAt: typeof origin === 'number' ? origin : origin.enqueuedAt }];
    });
    return restingOf(untried, debounced, tried, this.#rows.engine.now());
  }

  /** A unit of jobs that coalesce has also those that the line has not come to. Read before the jobs: of what is there, they are seen. */
  async #lineAhead({ shard, frontier, missing, last }: HeldClaim): Promise<Line> {
    const pk = this.#rows.shard(shard);
    const first = Math.floor(frontier / JOBS);
    const end = Math.min(last, first + MOST_AHEAD);
    if (end < first) return { frontier, missing };
    const { items, isWhole } = await this.#rows.page(pk, pieceOf(pk, first).sk, pieceOf(pk, end).sk, MOST_AHEAD + 1);
    const there = new Set(items.map((item) => readJobRow(item).piece));
    const seen = isWhole ? end : Math.max(first - 1, ...there);
    const ahead = Array.from({ length: seen - first + 1 }, (_, at) => first + at).filter((piece) => !there.has(piece));
    return { frontier: Math.max(frontier, (seen + 1) * JOBS), missing: [...missing, ...ahead] };
  }

  /** Looks for pieces that were missing once. Adds their jobs to those that were read. */
  async #fill(
    shard: number,
    pk: string,
    gaps: readonly number[],
    jobs: Map<number, Omit<ChainJob, 'attempt'>>,
  ): Promise<FilledGap[]> {
    const found = await Promise.all(
      gaps.map(async (piece): Promise<FilledGap[]> => {
        const item = await this.#rows.get(pieceOf(pk, piece));
        if (item === undefined) return (await this.#isOfOthers(shard, piece)) ? [{ piece, jobs: [] }] : [];
        const left: number[] = [];
        for (const job of jobsOf(shard, readJobRow(item), this.#rows.engine.now())) {
          jobs.set(job.id, job);
          if (!(await isRecorded(this.#rows, shard, job.id))) left.push(job.id);
        }
        return [{ piece, jobs: left }];
      }),
    );
    return found.flat();
  }

  /** Whether a piece is there without jobs of the key, or its producer was given up for so long that it has ended. */
  async #isOfOthers(shard: number, piece: number): Promise<boolean> {
    const item = await this.#rows.get(pieceOf(this.#rows.shard(shard), piece));
    if (item === undefined) return false;
    const { n, enqueuedAt } = readJobRow(item);
    return n > 0 || this.#rows.engine.now() - enqueuedAt > ENDED_MS;
  }

  #hold(
    held: Omit<HeldKey, 'jobs'>,
    taken: readonly LeftJob[],
    jobs: ReadonlyMap<number, Omit<ChainJob, 'attempt'>>,
  ): KeyTaken {
    const key: HeldKey = { ...held, jobs: new Map(taken.map(({ id, attempt }) => [id, attempt])) };
    held.claim.keys.add(key);
    const chain = taken.map(({ id, attempt }): ChainJob => {
      const job = jobs.get(id);
      if (job === undefined) throw new Error(`job ${id} of key "${held.key}" has no row`);
      return { ...job, attempt };
    });
    return { key, jobs: chain };
  }

  /** The jobs of the key after the last that was taken, and those up to it that are left. @param late  one that may join these */
  async #outstanding(
    pk: string,
    shard: number,
    { upto, left }: KeyHead,
    late: readonly number[],
    isUnit: boolean,
  ): Promise<{ readonly jobs: Map<number, Omit<ChainJob, 'attempt'>>; readonly isWhole: boolean }> {
    const rows: JobRow[] = [];
    let isWhole = false;
    for (let from = placeOf(upto).piece; !isWhole && rows.length < (isUnit ? MOST_COALESCED : 1); ) {
      const page = await this.#rows.page(pk, pieceOf(pk, from).sk, `j#${digits(10 ** 12 - 1, 12)}`, PAGE);
      rows.push(...page.items.map(readJobRow));
      isWhole = page.isWhole;
      from = (rows.at(-1)?.piece ?? from) + 1;
    }
    const there = new Set(rows.map(({ piece }) => piece));
    const known = [...left.map(({ id }) => id), ...late];
    const others = [...new Set(known.map((id) => placeOf(id).piece))].filter((piece) => !there.has(piece));
    const more = await Promise.all(others.map((piece) => this.#rows.get(pieceOf(pk, piece))));
    for (const item of more) if (item !== undefined) rows.push(readJobRow(item));
    const now = this.#rows.engine.now();
    const isLeft = new Set(left.map(({ id }) => id));
    const jobs = new Map<number, Omit<ChainJob, 'attempt'>>();
    for (const row of rows) {
      // A job that was enqueued for later is in `left` from the beginning, and never among those after `upto`.
      for (const job of jobsOf(shard, row, now)) if (row.dueAt === 0 || isLeft.has(job.id)) jobs.set(job.id, job);
    }
    return { jobs, isWhole };
  }
}

/**
 * Jobs that were enqueued for later and are due, in places that the line has not passed: older jobs of the key may stand before them there, and
 * come first.
 */
function dueAhead({ left, upto }: KeyHead, line: Line, now: number): number[] {
  const ahead = left.filter(
    ({ id, attempt, dueAt, isScheduled, isTaken }) =>
      isScheduled && !isTaken && attempt === 0 && dueAt <= now && id > upto && !isPassed(line, id),
  );
  return ahead.map(({ id }) => id);
}

/** Whether the line had passed the job when the claim was made. */
function isPassed({ frontier }: Line, job: number): boolean {
  const { piece, index } = placeOf(job);
  return piece * JOBS + index < frontier;
}

function jobsOf(shard: number, row: JobRow, now: number): Omit<ChainJob, 'attempt'>[] {
  return row.indexes.map((index, at) => ({
    id: jobNumber(shard, row.piece, index),
    kind: row.kinds[at] ?? 0,
    origin: originOf(row, at, now),
    payload: row.payloads[at] ?? null,
    isTimed: row.times[index] !== undefined,
  }));
}
