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
/** How many rows of the line are read ahead for one key. */
const MOST_AHEAD = 100;
/** If the place of a due job that was enqueued for later is further ahead, its key is read again after this time. */
const AHEAD_MS = 250;
/** No producer tries for this long. */
const ENDED_MS = 600_000;

/** A job of a chain. */
export interface ChainJob {
  readonly id: number;
  readonly kind: number;
  readonly attempt: number;
  readonly origin: Origin;
  readonly payload: unknown;
  /** A person has given the job a time. */
  readonly isTimed: boolean;
}

export interface KeyTaken {
  readonly key: HeldKey;
  readonly jobs: readonly ChainJob[];
}

/** The outcome of the pokes of a claim. */
export interface PokesFollowed {
  readonly keys: readonly KeyTaken[];
  readonly over: readonly Span[];
  /** The pokes that go back, with the time until which they do. */
  readonly back: readonly Span[];
}

export interface KeyWish {
  readonly worker: number;
  readonly chain: number;
  readonly coalescing: ReadonlySet<number>;
  readonly debounced: ReadonlyMap<number, Debounce>;
}

type Line = Pick<HeldClaim, 'frontier' | 'missing'>;

/** Follows the pokes of a claim: takes keys, with their outstanding jobs. */
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

  /** Follows each poke of a key until one has taken the key. This poke is then the guardian's, and the others are over. */
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
      // Read after the jobs: if a producer got its answer before one of these jobs was enqueued, its piece is found here.
      const filled = await this.#fill(claim.shard, pk, head.gaps, jobs);
      const { holder } = head;
      const isLost = holder !== undefined && !(await this.#liveness.isAlive(holder.worker, 'now'));
      const now = this.#rows.engine.now();
      const resting = debounced.size === 0 ? new Map<number, number>() : this.#resting(head, later, jobs, debounced);
      for (const job of aheadOf(line)) resting.set(job, now + AHEAD_MS);
      // If this claim holds the key already, it is a holder like any other for a job that comes late.
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
      // If the change is refused, it may have been carried out by an earlier try; the fields of the head tell.
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
    // The key changes all the time, so other workers take care of it. This poke tries again a little later.
    return { ...poke, attempts: POKE, dueAt: this.#rows.engine.now() + 100 };
  }

  /** Writes the change on condition that the claim has the poke. So the poke exists until a worker follows it. */
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
      // If a person gives a job a time, it runs at that time.
      if (job === undefined || job.isTimed) return [];
      const { kind, origin } = job;
      return [{ id, kind, enqueuedAt: typeof origin === 'number' ? origin : origin.enqueuedAt }];
    });
    return restingOf(untried, debounced, tried, this.#rows.engine.now());
  }

  /** Reads the line ahead, since a unit of jobs that coalesce includes jobs that the line has not passed. Call it before the jobs are read. */
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

  /** Reads the pieces of gaps. Adds their jobs to those that were read. */
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

  /** Whether the piece has arrived without jobs of the key, or was given up so long ago that its producer has ended. */
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

  /** Reads the jobs of the key after `upto`, and those in `left`. @param late  a job that may join `left` */
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
      // A job that was enqueued for later is in `left` from its enqueue on. It is never one of the later jobs.
      for (const job of jobsOf(shard, row, now)) if (row.dueAt === 0 || isLeft.has(job.id)) jobs.set(job.id, job);
    }
    return { jobs, isWhole };
  }
}

/**
 * Due jobs that were enqueued for later, at places that the line has not passed. Older jobs of the key may be at places before them, and these must
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
