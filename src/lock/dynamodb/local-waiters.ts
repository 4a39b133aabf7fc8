import { now } from '../../base/time/clock.ts';
import { type Head, hasRoom, isSameState } from './head.ts';
import { shortNonce } from './items/key.ts';

/** A claim of this process that waits. */
export interface Place {
  /** Of the claim, as it came, and as it stands in the rows. */
  readonly claim: string;
  readonly nonce: string;
  readonly capacity: number;
  readonly waiterMs: number;
  /** By the key of the lock. */
  readonly tickets: ReadonlyMap<string, number>;
  /** By the monotonic clock; undefined until its rows are there. */
  keptAt: number | undefined;
  /** When to look at those before it, by the key of the lock. */
  readonly watchAt: Map<string, number>;
  /** A state of the head in which it is its turn, told by another request of this process. */
  hint: { readonly head: Head; readonly at: number } | undefined;
  circle: 'unmarked' | 'pending' | 'settled';
}

const FRESH_MS = 100;

/** The waiting claims of this process. */
export class Places {
  readonly #byClaim = new Map<string, Place>();
  readonly #byTicket = new Map<string, Place>();
  /** How many places a claim has lost. */
  readonly #lost = new Map<string, number>();
  readonly #call: (claim: string) => void;

  /** @param call  is told the claim whose turn it is */
  constructor(call: (claim: string) => void) {
    this.#call = call;
  }

  get(claim: string): Place | undefined {
    return this.#byClaim.get(claim);
  }

  /** How many wait. */
  get size(): number {
    return this.#byClaim.size;
  }

  add(place: Place): void {
    this.#byClaim.set(place.claim, place);
    for (const [pk, ticket] of place.tickets) this.#byTicket.set(`${pk} ${ticket}`, place);
  }

  /**
   * As whom a claim takes a ticket: another one each time. A ticket whose answer was lost is known by it; one that was given
   * up must not be.
   */
  takerOf(claim: string): string {
    const lost = this.#lost.get(claim);
    return lost === undefined ? shortNonce(claim) : `${shortNonce(claim)}.${lost}`;
  }

  /** The place is no more, and the claim will need another one. */
  lose(claim: string): void {
    const lost = (this.#lost.get(claim) ?? 0) + 1;
    this.remove(claim);
    this.#lost.set(claim, lost);
  }

  /** The claim waits no longer. */
  remove(claim: string): void {
    this.#lost.delete(claim);
    const place = this.#byClaim.get(claim);
    this.#byClaim.delete(claim);
    for (const [pk, ticket] of place?.tickets ?? []) this.#byTicket.delete(`${pk} ${ticket}`);
  }

  /** A head came by: if it is the turn of one of ours, it need not find out by looking. */
  seen(pk: string, head: Head): void {
    if (head.next > head.last) return;
    const place = this.#byTicket.get(`${pk} ${head.next}`);
    if (place === undefined || !hasRoom(head, place.capacity, NOBODY)) return;
    // Its own look tells it as well.
    if (place.hint !== undefined && isSameState(place.hint.head, head)) return;
    place.hint = { head, at: now() };
    this.#call(place.claim);
  }
}

/** @returns a head that need not be read again, once */
export function takeHint(place: Place | undefined): Head | undefined {
  const hint = place?.hint;
  if (place === undefined || hint === undefined || place.tickets.size > 1) return undefined;
  return now() - hint.at < FRESH_MS ? hint.head : undefined;
}

const NOBODY: ReadonlySet<string> = new Set();
