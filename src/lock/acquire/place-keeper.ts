import { after, type Moment, moment, waitedFor } from '../../base/time/clock.ts';
import type { LockStore } from '../store.ts';

/** The place of a waiter that stands far behind. */
export interface DistantPlace {
  readonly nonce: string;
  /** How long it is kept without a renewal. */
  readonly waiterMs: number;
  /** It was kept for so long, from that moment on, which is before the store was asked. */
  readonly onRenewed: (since: Moment, ms: number) => void;
  /** Its owner has to look for itself: it came near the front, was handed the lock, lost its place, or nobody knows. */
  readonly onDoubt: () => void;
}

interface KeptPlace extends DistantPlace {
  since: Moment;
}

// Others that decide about one of the names wait for a statement of ours: some milliseconds with so many.
const MOST_AT_ONCE = 500;

/** Keeps the places of all waiters of this process that stand far behind: one statement a third of a place's time for all of them. */
export class PlaceKeeper {
  readonly #store: LockStore;
  readonly #places = new Map<string, KeptPlace>();
  #cancel = (): void => {};
  #dueAt = Infinity;
  #isRenewing = false;

  constructor(store: LockStore) {
    this.#store = store;
  }

  /** From now on. @param since  when it was kept last @returns leaves it to its owner again */
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
    // Whoever would be due soon goes along: so all come to be kept together.
    const due = [...this.#places.values()].filter((place) => dueInMs(place) <= place.waiterMs / 6);
    for (let from = 0; from < due.length; from += MOST_AT_ONCE) await this.#renew(due.slice(from, from + MOST_AT_ONCE));
    this.#isRenewing = false;
    let soonest = Infinity;
    for (const place of this.#places.values()) soonest = Math.min(soonest, dueInMs(place));
    if (soonest < Infinity) this.#arm(soonest);
  }

  async #renew(places: readonly KeptPlace[]): Promise<void> {
    const since = moment();
    // With a third of its time left, each can still look for itself.
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
