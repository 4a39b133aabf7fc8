import { randomUUID } from 'node:crypto';
import { ConnectionFailed } from '../../../base/errors.ts';
import type { Item, Liveness } from '../../../engine/dynamodb/index.ts';
import type { Debounce } from '../../declare/unique.ts';
import type { Definition } from '../../definition.ts';
import type { ClaimAnswer, ClaimedKey, ClaimedRun, ClaimRequest } from '../../store.ts';
import { isAnyBatchOpen } from '../batch/head.ts';
import type { BatchWatch } from '../batch/watch.ts';
import type { QueueRows } from '../database.ts';
import { isAnyWaiting } from '../enqueue/after.ts';
import { claimDecided, type LineView, MOST_NAMED, namedBy, type SeenPiece } from '../heads/claim.ts';
import { noneEnded, withoutOldMinutes } from '../heads/ended.ts';
import {
  backName,
  bandsWithWork,
  readHead,
  rescued,
  type ShardClaim,
  type ShardHead,
  settledFrom,
} from '../heads/head.ts';
import { JOBS, pieceOf as numberOf } from '../heads/place.ts';
import { type Span } from '../heads/spans.ts';
import { emptyPiece, headOf, type JobRow, pieceOf, readJobRow } from '../rows.ts';
import { claimedKey, labelledOf, pokesOf, runsOf, withPoke } from './claimed.ts';
import { Delays } from './delays.ts';
import { Expiries } from './expiries.ts';
import { claimId, type HeldClaim } from './held.ts';
import { KeyTaker } from './key-taking.ts';
import type { Waits } from './waits.ts';

/** How often a claim is decided again after the claims of other workers. Then this poll leaves the shard to them. */
const MOST_TRIES = 8;
/** How many rows of a line one poll reads. A worker that wants more polls again. */
const MOST_PIECES = 100;
/** If the piece of a number has not come for this time, its producer has died, since no request is under way for longer. */
const GIVEN_UP_MS = 60_000;
/** How often an idle worker polls a shard where jobs wait for others. */
const WAITING_MS = 1000;
const EMPTY: ClaimAnswer = { runs: [], keys: [], seen: 0 };

/** The options of the kinds of a queue that matter for claims of keys. */
export interface ClaimKinds {
  /** Kinds whose outstanding jobs of a key are one unit. */
  readonly coalescing: ReadonlySet<number>;
  /** Kinds whose jobs wait until no younger job of their key has come for a time. */
  readonly debounced: ReadonlyMap<number, Debounce>;
}

/** The checks of jobs and batches that wait for the ends of other jobs. */
export interface Watches {
  readonly waits: Waits;
  readonly batches: BatchWatch;
}

/** Claims jobs of shards, with one read and one write, however many jobs. */
export class Claimer {
  readonly #rows: QueueRows;
  readonly #liveness: Liveness;
  readonly #keys: KeyTaker;
  readonly #delays: Delays;
  readonly #expiries: Expiries;
  readonly #waits: Waits;
  readonly #batches: BatchWatch;
  readonly #held: Map<number, HeldClaim>;
  /** By shard: the head after the last write of this process, if that left work to claim. */
  readonly #known = new Map<number, ShardHead>();

  constructor(
    rows: QueueRows,
    definition: Definition,
    liveness: Liveness,
    held: Map<number, HeldClaim>,
    { waits, batches }: Watches,
  ) {
    this.#rows = rows;
    this.#waits = waits;
    this.#batches = batches;
    this.#liveness = liveness;
    this.#held = held;
    this.#keys = new KeyTaker(rows, liveness);
    this.#delays = new Delays(rows);
    this.#expiries = new Expiries(rows, definition);
  }

  async claim(request: ClaimRequest, kinds: ClaimKinds): Promise<ClaimAnswer> {
    const { shard, worker, limit } = request;
    const rows = new Map<number, JobRow>();
    const held = await this.#claimSpans(shard, worker, limit, rows);
    if ('answer' in held) return held.answer;
    try {
      return await this.#answer(held.held, request, kinds, rows);
    } catch (error) {
      // The jobs are claimed, and the worker has not received them. The worker's next recall gives such claims back.
      const words = `claim ${held.held.id} could not be read; it is given back`;
      throw new ConnectionFailed(words, { cause: error, outcome: 'unknown' });
    }
  }

  async #claimSpans(
    shard: number,
    worker: number,
    limit: number,
    rows: Map<number, JobRow>,
  ): Promise<{ readonly held: HeldClaim } | { readonly answer: ClaimAnswer }> {
    const known = this.#known.get(shard);
    this.#known.delete(shard);
    let head = known ?? (await this.#rows.head(shard));
    const wish = { worker, request: randomUUID().slice(0, 13), limit };
    for (let tries = 0; tries < MOST_TRIES; tries += 1) {
      // Rows that were read before a refused write may have been changed by hand since.
      rows.clear();
      await this.#giveBackOrphans(shard, head);
      const expired = await this.#expiries.endDue(shard, head);
      const isWatched = isAnyWaiting(head.fields) || isAnyBatchOpen(head.fields);
      // While the head has no room, nothing is moved into it.
      const isFull = namedBy(head) >= MOST_NAMED;
      const due = isFull ? { isMoved: false, nextAt: Infinity } : await this.#delays.moveDue(shard, head);
      const isReleased = isWatched && !isFull && (await this.#lookForOthers(shard, head));
      if (expired.isMoved || due.isMoved || isReleased) head = await this.#rows.head(shard);
      if (head.isPaused) return { answer: { ...EMPTY, paused: true } };
      const seen = await this.#look(shard, head, limit, rows);
      const now = this.#rows.engine.now();
      const decision = claimDecided(head, { ...wish, now }, seen);
      const nextAt = Math.min(due.nextAt, expired.nextAt, isWatched || isFull ? now + WAITING_MS : Infinity);
      if (decision === undefined) return { answer: { ...EMPTY, due: dueIn(head, nextAt, now) } };
      const change = withoutOldMinutes(decision.change, head.fields, now);
      const outcome = await this.#rows.change(headOf(this.#rows.shard(shard)), change);
      head = readHead(outcome.fields);
      const claim = outcome.isDone ? decision.claim : head.claims.find((one) => one.request === wish.request);
      if (claim === undefined) continue;
      // The change only passed over pieces that cannot be claimed. There may be more behind them.
      if (claim.spans.length === 0) continue;
      this.#remember(shard, head);
      return { held: this.#hold(shard, claim, now, head) };
    }
    return { answer: { ...EMPTY, busy: true } };
  }

  /** Checks jobs that come after others, and batches. @returns whether there may be more to claim now */
  async #lookForOthers(shard: number, { fields }: ShardHead): Promise<boolean> {
    // Batches first, since jobs may come after batches.
    const isDone = isAnyBatchOpen(fields) && (await this.#batches.look(shard));
    return (isAnyWaiting(fields) && (await this.#waits.look(shard))) || isDone;
  }

  #remember(shard: number, head: ShardHead): void {
    if (bandsWithWork(head).length > 0) this.#known.set(shard, head);
  }

  #hold(shard: number, claim: ShardClaim, claimedAt: number, head: ShardHead): HeldClaim {
    const id = claimId(shard, claim.token);
    const { next, missing, last, claims } = head;
    const line = { frontier: next[0] ?? JOBS, missing, last: last[0] ?? 0, claims };
    const held: HeldClaim = {
      id,
      shard,
      claim,
      claimedAt,
      ...line,
      returns: 0,
      plain: new Map(),
      ownLetters: new Set(),
      keys: new Set(),
      ended: noneEnded(),
    };
    this.#held.set(id, held);
    return held;
  }

  /** Gives back the claims of workers that have no row any more. Each poll does so, since such a claim may arrive late. */
  async #giveBackOrphans(shard: number, head: ShardHead): Promise<void> {
    for (const claim of head.claims) {
      if (await this.#liveness.isAlive(claim.worker)) continue;
      await this.#rows.change(headOf(this.#rows.shard(shard)), rescued(claim, true));
    }
  }

  /** Reads the line from its next job on, and the pieces that were missing before. */
  async #look(shard: number, head: ShardHead, limit: number, rows: Map<number, JobRow>): Promise<LineView> {
    const found = await this.#lookFor(shard, head.missing, rows);
    for (const band of bandsWithWork(head)) {
      const line = await this.#readLine(shard, head, band, limit, rows);
      if (line.length > 0) return { band, line, found };
    }
    return { band: 0, line: [], found };
  }

  async #readLine(
    shard: number,
    head: ShardHead,
    band: number,
    limit: number,
    rows: Map<number, JobRow>,
  ): Promise<SeenPiece[]> {
    const pk = this.#rows.shard(shard);
    const first = numberOf(band, Math.floor((head.next[band] ?? JOBS) / JOBS));
    const last = numberOf(band, head.last[band] ?? 0);
    const most = Math.min(limit + 1, MOST_PIECES);
    const items = await this.#rows.range(pk, pieceOf(pk, first).sk, pieceOf(pk, last).sk, most);
    const seen = items.map((item) => seePiece(item, rows));
    // If the numbers at the end of the line have no pieces, no later piece makes a claim pass them, so the first of them is given up here.
    if (seen.length === 0) await this.#giveUpOld(shard, first);
    return seen;
  }

  async #lookFor(shard: number, missing: readonly number[], rows: Map<number, JobRow>): Promise<SeenPiece[]> {
    const pk = this.#rows.shard(shard);
    const found = await Promise.all(
      missing.map(async (piece): Promise<SeenPiece[]> => {
        const item = await this.#rows.get(pieceOf(pk, piece));
        if (item !== undefined) return [seePiece(item, rows)];
        await this.#giveUpOld(shard, piece);
        return [];
      }),
    );
    return found.flat();
  }

  /** Writes an empty piece under a number that has been missing for a minute. The next poll passes it. */
  async #giveUpOld(shard: number, piece: number): Promise<void> {
    const pk = this.#rows.shard(shard);
    const sign = `${pk} ${piece}`;
    if (this.#liveness.unchangedFor(sign, 'missing', GIVEN_UP_MS) > 0) return;
    await this.#rows.engine.update(pieceOf(pk, piece), emptyPiece(this.#rows.engine.now()), 'NONE', this.#rows.limits);
  }

  /** Makes the answer of a claim: the jobs of its rows, and the chains of its keys. */
  async #answer(
    held: HeldClaim,
    { worker, limit, chain }: ClaimRequest,
    kinds: ClaimKinds,
    rows: Map<number, JobRow>,
  ): Promise<ClaimAnswer> {
    const { shard, claim } = held;
    const pk = this.#rows.shard(shard);
    const absent = [...new Set(claim.spans.map(({ piece }) => piece))].filter((piece) => !rows.has(piece));
    await Promise.all(
      absent.map(async (piece) => {
        const item = await this.#rows.get(pieceOf(pk, piece));
        if (item !== undefined) rows.set(piece, readJobRow(item));
      }),
    );
    const runs: ClaimedRun[] = [];
    const labelled: ClaimedKey[] = [];
    const pokes = new Map<string, Span[]>();
    const gone: Span[] = [];
    for (const span of claim.spans) {
      const row = rows.get(span.piece);
      if (row === undefined || row.n === 0) gone.push(span);
      else if (row.isLabelled) labelled.push(...labelledOf(held, span, row));
      else if (row.keys === undefined) runs.push(...runsOf(held, span, row));
      else for (const [key, poke] of pokesOf(span, row.keys)) pokes.set(key, withPoke(pokes.get(key), poke));
    }
    const taken = await this.#keys.takeAll(held, pokes, { worker, chain, ...kinds });
    await this.#settlePokes(held, [...gone, ...taken.over], taken.back);
    const keys = [...labelled, ...taken.keys.map((one) => claimedKey(held, one, kinds.coalescing))];
    const known = this.#known.get(shard);
    if (known !== undefined && bandsWithWork(known).length === 0) this.#known.delete(shard);
    const seen = runs.length + keys.length;
    return {
      runs,
      keys,
      seen: Math.max(seen, 1),
      last: { priority: 0, id: claim.token },
      processes: { [held.id]: processId(claim) },
      ...(claim.spans.some(({ attempts }) => attempts > 0) && limit > 0 && { alone: [held.id] }),
    };
  }

  /** Takes out of the claim the pokes that are over, and gives back the pokes that wait. */
  async #settlePokes(held: HeldClaim, over: readonly Span[], back: readonly Span[]): Promise<void> {
    if (over.length === 0 && back.length === 0) return;
    const gone = new Set([...over, ...back].flatMap(spotsOf));
    held.returns += 1;
    const name = backName(held.claim.token, `.${held.returns}`);
    const settled = settledFrom(held.claim, ({ piece, index }) => gone.has(piece * JOBS + index), {
      name,
      spans: back,
    });
    const outcome = await this.#rows.change(headOf(this.#rows.shard(held.shard)), settled.change);
    this.#known.delete(held.shard);
    if (!outcome.isDone) {
      const now = readHead(outcome.fields).claims.find(({ token }) => token === held.claim.token);
      if (JSON.stringify(now) !== JSON.stringify(settled.left)) {
        throw new ConnectionFailed(`claim ${held.id} was given back by another worker`, { outcome: 'unknown' });
      }
    }
    if (settled.left === undefined) this.#held.delete(held.id);
    else held.claim = settled.left;
  }
}

/** How long the next poll of the shard may wait at most. */
function dueIn({ back }: ShardHead, delayedAt: number, now: number): number {
  const times = back.flatMap(({ spans }) => spans.map(({ dueAt }) => dueAt));
  const next = Math.min(delayedAt, ...times);
  return next === Infinity ? Number.MAX_SAFE_INTEGER : Math.max(1, next - now);
}

function seePiece(item: Item, rows: Map<number, JobRow>): SeenPiece {
  const row = readJobRow(item);
  rows.set(row.piece, row);
  return { piece: row.piece, n: row.n, isDelayed: row.dueAt > 0 };
}

function spotsOf({ piece, index, n }: Span): number[] {
  return Array.from({ length: n }, (_, offset) => piece * JOBS + index + offset);
}

/** The id of a claim as a UUID. Its last twelve digits are the token of the claim. */
function processId({ request, token }: ShardClaim): string {
  return `${request}-4000-8000-${token.toString(16).padStart(12, '0').slice(-12)}`.padEnd(36, '0').slice(0, 36);
}
