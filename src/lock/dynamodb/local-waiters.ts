import { now } from '../../base/time/clock.ts';
import { type Head, hasRoom, isSameState } from './head.ts';
import { shortNonce } from './items/key.ts';

/** A claim of this process that waits. */
export interface LocalWaiter {
  /** Of the claim, as it came, and as it stands in the rows. */
  readonly requestNonce: string;
  readonly nonce: string;
  readonly capacity: number;
  readonly waiterMs: number;
  /** By the key of the lock. */
  readonly tickets: ReadonlyMap<string, number>;
  /** By the monotonic clock; undefined until its rows are there. */
  renewedAt: number | undefined;
  /** When to look at those before it, by the key of the lock. */
  readonly watchAt: Map<string, number>;
  /** A state of the head in which it is its turn, told by another request of this process. */
  hint: { readonly head: Head; readonly at: number } | undefined;
  deadlockSearch: 'unmarked' | 'pending' | 'settled';
}

const FRESH_MS = 100;

/** The waiting claims of this process. */
export class LocalWaiters {
  readonly #byRequest = new Map<string, LocalWaiter>();
  readonly #byTicket = new Map<string, LocalWaiter>();
  /** How many places a claim has lost. */
  readonly #lost = new Map<string, number>();
  readonly #wake: (requestNonce: string) => void;

  /** @param wake  is told the claim whose turn it is */
  constructor(wake: (requestNonce: string) => void) {
    this.#wake = wake;
  }

  get(requestNonce: string): LocalWaiter | undefined {
    return this.#byRequest.get(requestNonce);
  }

  /** How many wait. */
  get size(): number {
    return this.#byRequest.size;
  }

  add(waiter: LocalWaiter): void {
    this.#byRequest.set(waiter.requestNonce, waiter);
    for (const [pk, ticket] of waiter.tickets) this.#byTicket.set(`${pk} ${ticket}`, waiter);
  }

  /**
   * As whom a claim takes a ticket: another one each time. A ticket whose answer was lost is known by it; one that was given
   * up must not be.
   */
  takerOf(requestNonce: string): string {
    const lost = this.#lost.get(requestNonce);
    return lost === undefined ? shortNonce(requestNonce) : `${shortNonce(requestNonce)}.${lost}`;
  }

  /** The place is no more, and the claim will need another one. */
  lose(requestNonce: string): void {
    const lost = (this.#lost.get(requestNonce) ?? 0) + 1;
    this.remove(requestNonce);
    this.#lost.set(requestNonce, lost);
  }

  /** The claim waits no longer. */
  remove(requestNonce: string): void {
    this.#lost.delete(requestNonce);
    const waiter = this.#byRequest.get(requestNonce);
    this.#byRequest.delete(requestNonce);
    for (const [pk, ticket] of waiter?.tickets ?? []) this.#byTicket.delete(`${pk} ${ticket}`);
  }

  /** A head came by: if it is the turn of one of ours, it need not find out by looking. */
  observe(pk: string, head: Head): void {
    if (head.next > head.last) return;
    const waiter = this.#byTicket.get(`${pk} ${head.next}`);
    if (waiter === undefined || !hasRoom(head, waiter.capacity, NOBODY)) return;
    // Its own look tells it as well.
    if (waiter.hint !== undefined && isSameState(waiter.hint.head, head)) return;
    waiter.hint = { head, at: now() };
    this.#wake(waiter.requestNonce);
  }
}

/** @returns a head that need not be read again, once */
export function takeHint(waiter: LocalWaiter | undefined): Head | undefined {
  const hint = waiter?.hint;
  if (waiter === undefined || hint === undefined || waiter.tickets.size > 1) return undefined;
  return now() - hint.at < FRESH_MS ? hint.head : undefined;
}

const NOBODY: ReadonlySet<string> = new Set();
