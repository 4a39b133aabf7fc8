import { after, type Moment, moment, waitedFor } from '../../base/time/clock.ts';
import type { LockStore } from '../store.ts';

/** The place of a waiter far behind the front of the queue. */
export interface DistantPlace {
  readonly nonce: string;
  /** How long the place is kept without a renewal. */
  readonly waiterMs: number;
  /** Called after a renewal: the place is kept for `ms` from `since`, a moment before the store was asked. */
  readonly onRenewed: (since: Moment, ms: number) => void;
  /**
   * Called when the waiter has to poll itself: its place is near the front or lost, the lock was handed to it, or its state
   * is unknown.
   */
  readonly onDoubt: () => void;
}

interface KeptPlace extends DistantPlace {
  since: Moment;
}

// Other decisions about one of the names wait for this statement: some milliseconds with so many places.
const MOST_AT_ONCE = 500;

/**
 * Renews the places of all waiters of this process that are far behind: one statement for all of them per third of a place's
 * lease.
 */
export class PlaceKeeper {
  readonly #store: LockStore;
  readonly #places = new Map<string, KeptPlace>();
  #cancel = (): void => {};
  #dueAt = Infinity;
  #isRenewing = false;

  constructor(store: LockStore) {
    this.#store = store;
  }

  /**
   * Keeps a place from now on. @param since  its last renewal @returns a function that leaves the place to its waiter again
   */
  keep(place: DistantPlace, since: Moment): () => void {
    const kept = { ...place, since };
    this.#places.set(place.nonce, kept);
    this.#arm(dueInMs(kept));
    return () => {
      if (this.#places.get(place.nonce) === kept) this.#places.delete(place.nonce);
    };
  }

  #arm(ms: number): void {
    const at = performance.now() + ms;
    if (at >= this.#dueAt) return;
    this.#cancel();
    this.#dueAt = at;
    this.#cancel = after(Math.max(ms, 0), () => void this.#heartbeat(), { unref: true });
  }

  async #heartbeat(): Promise<void> {
    this.#dueAt = Infinity;
    if (this.#isRenewing) return;
    this.#isRenewing = true;
    // Places that would be due soon are renewed with it: so all of them come to be renewed together.
    const due = [...this.#places.values()].filter((place) => dueInMs(place) <= place.waiterMs / 6);
    for (let from = 0; from < due.length; from += MOST_AT_ONCE) await this.#renew(due.slice(from, from + MOST_AT_ONCE));
    this.#isRenewing = false;
    let soonest = Infinity;
    for (const place of this.#places.values()) soonest = Math.min(soonest, dueInMs(place));
    if (soonest < Infinity) this.#arm(soonest);
  }

  async #renew(places: readonly KeptPlace[]): Promise<void> {
    const since = moment();
    // Each place has a third of its lease left then, in which its waiter can still poll.
    const timeoutMs = places.reduce((least, { waiterMs }) => Math.min(least, waiterMs / 3), Infinity);
    const kept = await this.#store.renewPlaces?.(places, { timeoutMs }).catch(() => undefined);
    for (const place of places) {
      if (this.#places.get(place.nonce) !== place) continue;
      place.since = since;
      if (kept?.has(place.nonce)) place.onRenewed(since, place.waiterMs - 1);
      else place.onDoubt();
    }
  }
}

function dueInMs({ since, waiterMs }: KeptPlace): number {
  return waiterMs / 3 - waitedFor(since);
}
