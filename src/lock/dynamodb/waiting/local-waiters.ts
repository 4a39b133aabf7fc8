import { now } from '../../../base/time/clock.ts';
import { type Head, hasRoom, isSameState } from '../head.ts';
import { shortNonce } from '../items/key.ts';

/** A claim of this process that waits. */
export interface LocalWaiter {
  /** The nonce of the claim; `nonce` is its short form in the rows. */
  readonly requestNonce: string;
  readonly nonce: string;
  readonly capacity: number;
  readonly waiterMs: number;
  /** The tickets of the claim, by the key of the lock. */
  readonly tickets: ReadonlyMap<string, number>;
  /** The last renewal by the monotonic clock; undefined until its rows are written. */
  renewedAt: number | undefined;
  /** When to check the waiters before it, by the key of the lock. */
  readonly watchAt: Map<string, number>;
  /** A state of the head in which it is its turn, which another request of this process has read. */
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

  /** @param wake  called with the claim whose turn it is */
  constructor(wake: (requestNonce: string) => void) {
    this.#wake = wake;
  }

  get(requestNonce: string): LocalWaiter | undefined {
    return this.#byRequest.get(requestNonce);
  }

  /** The number of waiters. */
  get size(): number {
    return this.#byRequest.size;
  }

  add(waiter: LocalWaiter): void {
    this.#byRequest.set(waiter.requestNonce, waiter);
    for (const [pk, ticket] of waiter.tickets) this.#byTicket.set(`${pk} ${ticket}`, waiter);
  }

  /**
   * The id with which a claim takes a ticket; it is new for each place. By this id the claim recognises a ticket whose answer was
   * lost, and does not confuse it with a ticket that it has given up.
   */
  takerOf(requestNonce: string): string {
    const lost = this.#lost.get(requestNonce);
    return lost === undefined ? shortNonce(requestNonce) : `${shortNonce(requestNonce)}.${lost}`;
  }

  /** Notes that the place is lost, so that the claim needs another one. */
  lose(requestNonce: string): void {
    const lost = (this.#lost.get(requestNonce) ?? 0) + 1;
    this.remove(requestNonce);
    this.#lost.set(requestNonce, lost);
  }

  /** Removes a claim that waits no longer. */
  remove(requestNonce: string): void {
    this.#lost.delete(requestNonce);
    const waiter = this.#byRequest.get(requestNonce);
    this.#byRequest.delete(requestNonce);
    for (const [pk, ticket] of waiter?.tickets ?? []) this.#byTicket.delete(`${pk} ${ticket}`);
  }

  /** Called with a head that was read. If it is the turn of a waiter of this process, wakes it, so that it need not poll. */
  observe(pk: string, head: Head): void {
    if (head.next > head.last) return;
    const waiter = this.#byTicket.get(`${pk} ${head.next}`);
    if (waiter === undefined || !hasRoom(head, waiter.capacity, NOBODY)) return;
    // The waiter was woken with this state already.
    if (waiter.hint !== undefined && isSameState(waiter.hint.head, head)) return;
    waiter.hint = { head, at: now() };
    this.#wake(waiter.requestNonce);
  }
}

/** @returns a head that was read so lately that it need not be read again; undefined if there is none */
export function takeHint(waiter: LocalWaiter | undefined): Head | undefined {
  const hint = waiter?.hint;
  if (waiter === undefined || hint === undefined || waiter.tickets.size > 1) return undefined;
  return now() - hint.at < FRESH_MS ? hint.head : undefined;
}

const NOBODY: ReadonlySet<string> = new Set();
