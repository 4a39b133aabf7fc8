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

/** How often a claim is decided again after another worker's: then this poll leaves the shard to them. */
const MOST_TRIES = 8;
/** Rows that one poll reads of a line: a worker that wants more polls again. */
const MOST_PIECES = 100;
/** A number whose piece has not come for this long is that of a producer that died: no request is under way for longer. */
const GIVEN_UP_MS = 60_000;
/** Where jobs wait for others, an idle worker looks that often. */
const WAITING_MS = 1000;
const EMPTY: ClaimAnswer = { runs: [], keys: [], seen: 0 };

/** What the kinds of a queue say about claims of keys. */
export interface ClaimKinds {
  /** Kinds whose outstanding jobs of a key are one unit. */
  readonly coalescing: ReadonlySet<number>;
  /** Kinds that wait until no younger job of their key comes. */
  readonly debounced: ReadonlyMap<number, Debounce>;
}

/** What lets jobs go that wait for the ends of others. */
export interface Watches {
  readonly waits: Waits;
  readonly batches: BatchWatch;
}

/** Claims jobs of shards: one read and one write, however many jobs. */
export class Claimer {
  readonly #rows: QueueRows;
  readonly #liveness: Liveness;
  readonly #keys: KeyTaker;
  readonly #delays: Delays;
  readonly #expiries: Expiries;
  readonly #waits: Waits;
  readonly #batches: BatchWatch;
  readonly #held: Map<number, HeldClaim>;
  /** Heads as the last write of this process has left them, while that left something to claim. */
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
      // It is claimed, and the worker has not received it: such claims are given back.
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
      // What was read before a refused write may have been changed by hand since.
      rows.clear();
      await this.#giveBackOrphans(shard, head);
      const expired = await this.#expiries.endDue(shard, head);
      const isWatched = isAnyWaiting(head.fields) || isAnyBatchOpen(head.fields);
      // What is moved into the head stays where it is while that has no room.
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
      // It only passed over what cannot be claimed: there may be more behind it.
      if (claim.spans.length === 0) continue;
      this.#remember(shard, head);
      return { held: this.#hold(shard, claim, now, head) };
    }
    return { answer: { ...EMPTY, busy: true } };
  }

  /** Jobs that come after others, and batches. @returns whether there may be more to claim now */
  async #lookForOthers(shard: number, { fields }: ShardHead): Promise<boolean> {
    // Batches first: jobs come after these, too.
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

  /** Claims of workers that have no row any more: each poll gives them back, however late they came. */
  async #giveBackOrphans(shard: number, head: ShardHead): Promise<void> {
    for (const claim of head.claims) {
      if (await this.#liveness.isAlive(claim.worker)) continue;
      await this.#rows.change(headOf(this.#rows.shard(shard)), rescued(claim, true));
    }
  }

  /** Reads the line from its next job on, and what was missing before. */
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
    // Nothing is claimable behind a number that is missing at the end: only a later piece shows that it is passed over.
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

  /** Writes an empty piece under a number that has been missing for long: the next poll passes it. */
  async #giveUpOld(shard: number, piece: number): Promise<void> {
    const pk = this.#rows.shard(shard);
    const sign = `${pk} ${piece}`;
    if (this.#liveness.unchangedFor(sign, 'missing', GIVEN_UP_MS) > 0) return;
    await this.#rows.engine.update(pieceOf(pk, piece), emptyPiece(this.#rows.engine.now()), 'NONE', this.#rows.limits);
  }

  /** The jobs of a claim: their rows, and the chains of their keys. */
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

  /** Takes out of the claim what its keys do not need, and gives back what waits for a retry. */
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

/** What the next poll of the shard has to wait for at most. */
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

/** The claim as a UUID: its last twelve digits are those of a job. */
function processId({ request, token }: ShardClaim): string {
  return `${request}-4000-8000-${token.toString(16).padStart(12, '0').slice(-12)}`.padEnd(36, '0').slice(0, 36);
}
