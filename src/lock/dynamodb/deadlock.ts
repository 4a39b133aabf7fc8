import type { DeadlockStep } from '../../base/errors.ts';
import { type CallLimits, type DynamoEngine, Expression } from '../../engine/dynamodb/index.ts';
import type { GrantRef } from '../store.ts';
import type { Grants } from './grants.ts';
import type { WaitsFor } from './head.ts';
import type { Heads } from './heads.ts';
import { slotOf, waitsForEntry, whileHeld } from './items/holder.ts';
import { headOf, lockKey, shortNonce, waiterOf } from './items/key.ts';
import { readWaiter } from './items/waiter.ts';
import type { LocalWaiter } from './waiting/local-waiters.ts';
import type { WaiterQueue } from './waiting/waiter-queue.ts';

/** A place in a queue, and the path of the search to it. */
interface WaitSpot {
  readonly pk: string;
  readonly ticket: number;
  readonly path: readonly DeadlockStep[];
  /** Nonces on the path whose own search has not ended. */
  readonly searching: readonly string[];
}

const MOST_SPOTS = 1000;
const MOST_AHEAD = 100;

/**
 * Finds out whether a nested request would wait in a circle. The head of a held lock names the locks for which its holder waits. A
 * request writes these names before it searches. So at least the last of the requests that close a circle finds the circle.
 *
 * If a request finds a circle in which all other requests have ended their search without a result, it gives way. If several
 * requests still search, the request with the greatest nonce gives way, and the others search again. A request whose search has
 * found nothing never gives way.
 */
export class DeadlockDetector {
  readonly #engine: DynamoEngine;
  readonly #heads: Heads;
  readonly #queue: WaiterQueue;
  readonly #grants: Grants;

  constructor(engine: DynamoEngine, heads: Heads, queue: WaiterQueue, grants: Grants) {
    this.#engine = engine;
    this.#grants = grants;
    this.#heads = heads;
    this.#queue = queue;
  }

  /** Searches once, unless an earlier search found nothing. @returns the circle, if this request has to give way */
  async detect(
    waiter: LocalWaiter,
    kept: readonly GrantRef[],
    limits: CallLimits,
  ): Promise<readonly DeadlockStep[] | undefined> {
    if (waiter.deadlockSearch === 'settled') return undefined;
    if (waiter.deadlockSearch === 'unmarked') {
      await this.#mark(waiter, kept, false, limits);
      waiter.deadlockSearch = 'pending';
    }
    const mine = new Set(kept.flatMap(({ nonce }) => (nonce === undefined ? [] : [shortNonce(nonce)])));
    const found = await this.#search(waiter, mine, limits);
    if (found === undefined) {
      await this.#mark(waiter, kept, true, limits);
      waiter.deadlockSearch = 'settled';
      return undefined;
    }
    return found.searching.every((other) => waiter.nonce > other) ? found.path : undefined;
  }

  /** Whether the waiter still waits. */
  async isCurrent({ nonce, places: [first] }: WaitsFor, limits: CallLimits): Promise<boolean> {
    if (first === undefined) return false;
    const item = await this.#engine.get(waiterOf(first.pk, first.ticket), limits);
    const row = item === undefined ? undefined : readWaiter(item);
    return row?.nonce === nonce && !row.isGone;
  }

  async #mark(waiter: LocalWaiter, kept: readonly GrantRef[], isSettled: boolean, limits: CallLimits): Promise<void> {
    const places = [...waiter.tickets].map(([pk, ticket]) => ({ pk, ticket }));
    const marking = kept.flatMap(({ space = '', names = [], capacity = 1, nonce }) =>
      names.map((name) => {
        const who = { nonce: shortNonce(nonce ?? ''), capacity };
        if (nonce !== undefined) this.#grants.noteWaiting(nonce);
        const entry = waitsForEntry({ nonce: waiter.nonce, places, isSettled }, who.nonce);
        const written = whileHeld(new Expression().set(slotOf(who).waitsFor, entry), who).write();
        return this.#engine.update(headOf(lockKey(space, name)), written, 'NONE', limits);
      }),
    );
    // Marks of locks that are no longer held need no update.
    await Promise.all(marking);
  }

  async #search(waiter: LocalWaiter, mine: ReadonlySet<string>, limits: CallLimits): Promise<WaitSpot | undefined> {
    const spots: WaitSpot[] = [...waiter.tickets].map(([pk, ticket]) => ({ pk, ticket, path: [], searching: [] }));
    const seen = new Set<string>();
    for (const spot of spots) {
      const key = `${spot.pk} ${spot.ticket}`;
      if (seen.has(key)) continue;
      seen.add(key);
      for (const next of await this.#blockers(spot, limits)) {
        if (next.nonce !== undefined && mine.has(next.nonce)) return next.spot;
        if (next.spots.length > 0 && spots.length < MOST_SPOTS) spots.push(...next.spots);
      }
    }
    return undefined;
  }

  /** The requests before a place: holders, with the places where they wait, and waiters for sets, with their places in other queues. */
  async #blockers({ pk, ticket, path, searching }: WaitSpot, limits: CallLimits): Promise<Blocker[]> {
    const head = await this.#heads.read(pk, limits);
    if (head.next > ticket) return [];
    const found: Blocker[] = [];
    const name = nameOf(pk);
    for (const { nonce, token, host, pid, waitsFor } of head.holders) {
      const on = { pk, ticket, path: [...path, { name, token, host, pid }], searching };
      const isWaiting = waitsFor !== undefined && (await this.isCurrent(waitsFor, limits));
      const still = isWaiting && !waitsFor.isSettled ? [...searching, waitsFor.nonce] : searching;
      const places = isWaiting ? waitsFor.places : [];
      found.push({ nonce, spot: on, spots: places.map((each) => ({ ...each, path: on.path, searching: still })) });
    }
    const to = Math.min(ticket - 1, head.next + MOST_AHEAD);
    for (const { others, host, pid } of await this.#queue.waiters(pk, head.next, to, limits)) {
      const on = [...path, { name, token: undefined, host, pid }];
      const spots = others.map((each) => ({ ...each, path: on, searching }));
      found.push({ nonce: undefined, spot: { pk, ticket, path: on, searching }, spots });
    }
    return found;
  }
}

interface Blocker {
  /** The nonce of its grant; undefined: it is a waiter. */
  readonly nonce: string | undefined;
  readonly spot: WaitSpot;
  readonly spots: readonly WaitSpot[];
}

/** The key begins with the length of the namespace. */
function nameOf(pk: string): string {
  const [, length = '0'] = pk.split(':', 2);
  return pk.slice(`lock:${length}:`.length + Number(length) + 1);
}
