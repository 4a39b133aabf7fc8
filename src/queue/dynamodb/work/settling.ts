import type { Change } from '../../../engine/dynamodb/index.ts';
import type { Definition } from '../../definition.ts';
import type { JobFailure, QueueIds, SettleAnswer, Settlement } from '../../store.ts';
import type { QueueRows } from '../database.ts';
import { counting, type EndedCounts, noneEnded } from '../heads/ended.ts';
import { backName, readHead, type ShardClaim, settledFrom } from '../heads/head.ts';
import { readKeyHead } from '../heads/key-head.ts';
import { type KeyOutcome, keySettled } from '../heads/key-settling.ts';
import { JOBS, placeOf } from '../heads/place.ts';
import { POKE, type Span } from '../heads/spans.ts';
import { type NewRecord, writeRecords } from '../records.ts';
import { headOf } from '../rows.ts';
import type { HeldClaim, HeldKey } from './held.ts';
import { Letters } from './letters.ts';
import type { AwaitedJobs } from './waits.ts';

/** The outcomes of one settlement for one claim. */
interface ClaimOutcomes {
  readonly held: HeldClaim;
  /** Ids of jobs that are complete. */
  readonly complete: Set<number>;
  readonly failed: Map<number, JobFailure>;
}

/** The part of a claim that leaves it. The claim keeps this part until the change is written, so a settlement may be repeated. */
interface Leaving {
  readonly held: HeldClaim;
  readonly gone: ReadonlySet<number>;
  readonly back: readonly Span[];
  /** Ids of the jobs without a key that leave. */
  readonly plain: readonly number[];
  /** How many of `plain` have ended. */
  readonly ended: EndedCounts;
  readonly keys: readonly HeldKey[];
}

/** A request has at most 4 KB of text, and each claim takes some 60 bytes. */
const CLAIMS_AT_ONCE = 20;

/** How often a change of the head of a key is decided again. */
const MOST_TRIES = 40;

/** Writes outcomes: first records, then the heads of keys, then the head of the shard, which lets go of the jobs. */
export class Settling {
  readonly #rows: QueueRows;
  readonly #held: Map<number, HeldClaim>;
  readonly #historyMs: number;
  readonly #letters: Letters;

  readonly #awaited: readonly AwaitedJobs[];

  constructor(rows: QueueRows, held: Map<number, HeldClaim>, definition: Definition, awaited: readonly AwaitedJobs[]) {
    this.#awaited = awaited;
    this.#rows = rows;
    this.#held = held;
    this.#historyMs = definition.historyMs;
    this.#letters = new Letters(rows, definition);
  }

  /** The registered kinds. */
  set ids(ids: QueueIds) {
    this.#letters.ids = ids;
  }

  async settle(settlement: Settlement): Promise<SettleAnswer> {
    const { outcomes, stale } = this.#outcomesOf(settlement);
    await this.#record(settlement, outcomes);
    const ended = outcomes.flatMap(endedIds);
    let hasNext = await this.#leaveLetters(outcomes, stale);
    const leaving: Leaving[] = [];
    for (const each of outcomes) {
      const { isStale, ...part } = await this.#leave(each, settlement.keys);
      if (isStale) stale.add(each.held.id);
      if (part.gone.size > 0) leaving.push(part);
      hasNext ||= part.back.some(({ dueAt }) => dueAt === 0);
    }
    for (let from = 0; from < leaving.length; from += CLAIMS_AT_ONCE) {
      const some = leaving.slice(from, from + CLAIMS_AT_ONCE);
      for (const id of await this.#letGo(settlement.shard, some)) stale.add(id);
    }
    for (const awaited of this.#awaited) hasNext = awaited.ended(ended) || hasNext;
    return { stale: [...stale], guarded: [], hasNext };
  }

  #outcomesOf({ whole, part, failed }: Settlement): { outcomes: ClaimOutcomes[]; stale: Set<number> } {
    const byClaim = new Map<number, ClaimOutcomes>();
    const stale = new Set<number>();
    const of = (id: number): ClaimOutcomes | undefined => {
      const held = this.#held.get(id);
      if (held === undefined) stale.add(id);
      else if (!byClaim.has(id)) byClaim.set(id, { held, complete: new Set(), failed: new Map() });
      return byClaim.get(id);
    };
    for (const failure of failed) of(failure.claim)?.failed.set(failure.id, failure);
    for (const { claim, ids } of part) for (const id of ids) of(claim)?.complete.add(id);
    for (const id of whole) {
      const claim = of(id);
      if (claim === undefined) continue;
      for (const job of outstanding(claim.held)) if (!claim.failed.has(job)) claim.complete.add(job);
    }
    return { outcomes: [...byClaim.values()], stale };
  }

  /** Writes the records before anything else. So a job that is over has its record, even if this process dies. */
  async #record({ results, shared }: Settlement, outcomes: readonly ClaimOutcomes[]): Promise<void> {
    const result = new Map<number, string>(results.map((each) => [each.id, each.result]));
    for (const each of shared) {
      for (const [, ...ids] of each.jobs) for (const id of ids) result.set(id, each.result);
    }
    for (const { held, complete, failed } of outcomes) {
      const entries: NewRecord[] = [
        ...[...complete].map((id) => ({
          id,
          to: 'complete' as const,
          attempt: attemptOf(held, id),
          reason: 'complete',
          error: null,
          result: result.get(id),
        })),
        ...[...failed.values()].map(({ id, to, reason, error = null }) => ({
          id,
          to,
          attempt: attemptOf(held, id),
          reason,
          error,
          result: undefined,
        })),
      ];
      held.returns += 1;
      await writeRecords(this.#rows, entries, {
        shard: held.shard,
        token: held.claim.token,
        part: String(held.returns),
        processId: held.claim.request,
        claimedAt: held.claimedAt,
        historyMs: this.#historyMs,
      });
    }
  }

  /** Ends the jobs that leave a dead letter, each in a transaction of its own. @returns whether there is a new letter */
  async #leaveLetters(outcomes: readonly ClaimOutcomes[], stale: Set<number>): Promise<boolean> {
    let isLeft = false;
    for (const { held, failed } of outcomes) {
      for (const failure of failed.values()) {
        const outcome = await this.#letters.leave(held, failure, attemptOf(held, failure.id));
        if (outcome === 'none') continue;
        failed.delete(failure.id);
        isLeft ||= outcome === 'left';
        if (outcome === 'stale') stale.add(held.id);
        if (held.claim.spans.length === 0) this.#held.delete(held.id);
      }
    }
    return isLeft;
  }

  /** The part that leaves a claim: settled jobs without a key, and the pokes of keys that are given up. */
  async #leave(
    { held, complete, failed }: ClaimOutcomes,
    givenUp: Settlement['keys'],
  ): Promise<Leaving & { readonly isStale: boolean }> {
    const back: Span[] = [];
    const now = this.#rows.engine.now();
    const plain = [...held.plain.keys()].filter((id) => complete.has(id) || failed.has(id));
    const gone = new Set(plain.map(spotOf));
    for (const id of plain) {
      const [span, failure] = [held.plain.get(id), failed.get(id)];
      if (span !== undefined && failure !== undefined) back.push(...returned(id, span, failure, now));
    }
    const keys: HeldKey[] = [];
    let isStale = false;
    for (const key of held.keys) {
      const outcomes = [...key.jobs.keys()].flatMap((id) => outcomeOf(id, complete, failed.get(id), now));
      const givesUp = givenUp.some(([name, epoch]) => name === key.key && epoch === key.epoch);
      if (outcomes.length === 0 && !givesUp) continue;
      const isHeld = key.givenUp !== undefined || (await this.#settleKey(key, outcomes, givesUp));
      // From now on these are not jobs of this claim, so a repeated settlement does not count them again.
      const ids = outcomes.map(({ id }) => id);
      if (isHeld) held.ended = bothOf(held.ended, countOf(ids, complete, failed));
      for (const id of ids) key.jobs.delete(id);
      isStale ||= !isHeld;
      if (!givesUp && isHeld) continue;
      keys.push(key);
      gone.add(key.poke.piece * JOBS + key.poke.index);
      const backUntil = key.givenUp?.backUntil;
      if (backUntil !== undefined) back.push({ ...key.poke, n: 1, attempts: POKE, dueAt: backUntil });
    }
    return { held, gone, back: joined(back), plain, ended: countOf(plain, complete, failed), keys, isStale };
  }

  /** @returns false if the key is no longer this worker's; then nothing was written */
  async #settleKey(key: HeldKey, outcomes: readonly KeyOutcome[], givesUp: boolean): Promise<boolean> {
    for (let tries = 0; tries < MOST_TRIES; tries += 1) {
      const settled = keySettled(key.head, key.epoch, outcomes, givesUp);
      if (settled === undefined) return false;
      const outcome = await this.#rows.change(headOf(key.pk), settled.change);
      const before = key.head;
      key.head = readKeyHead(outcome.fields);
      // The change was refused, but the key is given up: an earlier try was carried out, and its answer was lost.
      const isOwn = key.head.version === before.version + 1 && key.head.epoch === key.epoch;
      const isRepeated = isOwn && givesUp && key.head.holder === undefined;
      if (!outcome.isDone && !isRepeated) continue;
      if (givesUp) key.givenUp = { backUntil: settled.backUntil };
      return true;
    }
    throw new Error(`the head of key "${key.key}" changes too often`);
  }

  /** Makes one write for all claims, or one for each if a claim is no longer this worker's. @returns the claims that are not */
  async #letGo(shard: number, leaving: readonly Leaving[]): Promise<number[]> {
    const changes = leaving.map((each) => {
      each.held.returns += 1;
      const name = backName(each.held.claim.token, `.${each.held.returns}`);
      const isGone = ({ piece, index }: { piece: number; index: number }): boolean =>
        each.gone.has(piece * JOBS + index);
      const { change, left } = settledFrom(each.held.claim, isGone, { name, spans: each.back });
      return { each, change: counting(change, bothOf(each.held.ended, each.ended), this.#rows.engine.now()), left };
    });
    if (changes.length === 0) return [];
    const key = headOf(this.#rows.shard(shard));
    const outcome = await this.#rows.change(key, merged(changes.map(({ change }) => change)));
    if (outcome.isDone) {
      for (const { each, left } of changes) this.#keep(each, left);
      return [];
    }
    const stale: number[] = [];
    for (const { each, change, left } of changes) {
      const alone = await this.#rows.change(key, change);
      const now = readHead(alone.fields).claims.find(({ token }) => token === each.held.claim.token);
      const isCarriedOut = alone.isDone || (now !== undefined && JSON.stringify(now) === JSON.stringify(left));
      if (!isCarriedOut && now === undefined) stale.push(each.held.id);
      this.#keep(each, isCarriedOut ? left : now);
    }
    return stale;
  }

  #keep({ held, plain, keys }: Leaving, left: ShardClaim | undefined): void {
    held.ended = noneEnded();
    for (const id of plain) held.plain.delete(id);
    for (const key of keys) held.keys.delete(key);
    if (left === undefined) this.#held.delete(held.id);
    else held.claim = left;
  }
}

function endedIds({ complete, failed }: ClaimOutcomes): number[] {
  const ends = [...failed.values()].filter(({ to }) => to === 'error' || to === 'cancelled');
  return [...complete, ...ends.map(({ id }) => id)];
}

function countOf(
  ids: readonly number[],
  complete: ReadonlySet<number>,
  failed: ReadonlyMap<number, JobFailure>,
): EndedCounts {
  const ended = noneEnded();
  for (const id of ids) {
    const to = complete.has(id) ? 'complete' : failed.get(id)?.to;
    if (to === 'complete' || to === 'error' || to === 'cancelled') ended[to] += 1;
  }
  return ended;
}

function bothOf(a: EndedCounts, b: EndedCounts): EndedCounts {
  return { complete: a.complete + b.complete, error: a.error + b.error, cancelled: a.cancelled + b.cancelled };
}

function outstanding({ plain, keys }: HeldClaim): number[] {
  return [...plain.keys(), ...[...keys].flatMap(({ jobs }) => [...jobs.keys()])];
}

function attemptOf({ plain, keys }: HeldClaim, id: number): number {
  const span = plain.get(id);
  if (span !== undefined) return span.attempts + 1;
  for (const { jobs } of keys) {
    const attempt = jobs.get(id);
    if (attempt !== undefined) return attempt;
  }
  return 1;
}

function spotOf(id: number): number {
  const { piece, index } = placeOf(id);
  return piece * JOBS + index;
}

/** The span by which a job without a key goes back; empty if it has ended. */
function returned(id: number, span: Span, { to, wait = 0 }: JobFailure, now: number): Span[] {
  if (to === 'error' || to === 'cancelled') return [];
  const { piece, index } = placeOf(id);
  const attempts = to === 'retry' ? span.attempts + 1 : span.attempts;
  return [{ piece, index, n: 1, attempts, dueAt: wait > 0 ? Math.ceil(now + wait) : 0 }];
}

function outcomeOf(
  id: number,
  complete: ReadonlySet<number>,
  failure: JobFailure | undefined,
  now: number,
): KeyOutcome[] {
  if (complete.has(id)) return [{ id, to: 'over', dueAt: 0 }];
  if (failure === undefined) return [];
  const { to, wait = 0 } = failure;
  if (to === 'error' || to === 'cancelled') return [{ id, to: 'over', dueAt: 0 }];
  return [{ id, to: to === 'retry' ? 'retry' : 'back', dueAt: wait > 0 ? Math.ceil(now + wait) : 0 }];
}

/** Joins neighbours that go back in the same way into one span. Their delays are the same: see `chance` in attempt.ts. */
function joined(spans: readonly Span[]): Span[] {
  const sorted = spans.toSorted((a, b) => a.piece - b.piece || a.index - b.index);
  const all: Span[] = [];
  for (const span of sorted) {
    const last = all.at(-1);
    const follows =
      last !== undefined &&
      last.piece === span.piece &&
      last.index + last.n === span.index &&
      last.attempts === span.attempts &&
      Math.abs(last.dueAt - span.dueAt) <= 1;
    if (follows) all[all.length - 1] = { ...last, n: last.n + span.n, dueAt: Math.max(last.dueAt, span.dueAt) };
    else all.push(span);
  }
  return all;
}

function summed(changes: readonly Change[]): Record<string, number> {
  const sums: Record<string, number> = {};
  for (const { add = {} } of changes) for (const [name, by] of Object.entries(add)) sums[name] = (sums[name] ?? 0) + by;
  return sums;
}

function merged(changes: readonly Change[]): Change {
  return {
    expect: Object.assign({}, ...changes.map(({ expect }) => expect)),
    set: Object.assign({}, ...changes.map(({ set }) => set)),
    add: summed(changes),
  };
}
