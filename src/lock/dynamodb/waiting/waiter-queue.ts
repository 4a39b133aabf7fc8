import { now } from '../../../base/time/clock.ts';
import type { CallLimits, DynamoEngine, PartialWrite } from '../../../engine/dynamodb/index.ts';
import { type Head, passed } from '../head.ts';
import type { Heads } from '../heads.ts';
import { waiterOf } from '../items/key.ts';
import {
  buryPlace,
  leavePlace,
  type NewWaiter,
  readWaiter,
  renewPlace,
  takePlace,
  type WaiterRow,
} from '../items/waiter.ts';
import type { Staleness } from '../staleness.ts';

/** How many rows a check of the front reads. By their size, these are one read unit. */
const FRONT = 25;
const NEVER_KEPT_MS = 6000;

/** The result of watching the front of a queue. */
export interface FrontView {
  /** A waiter was passed over, so the head has changed. */
  readonly isMoved: boolean;
  /** How long until the first in line counts as dead, if it does not renew its place. */
  readonly deadInMs: number;
}

/** The rows of waiters: their order, their renewals, and passing over dead ones. */
export class WaiterQueue {
  readonly #engine: DynamoEngine;
  readonly #heads: Heads;
  readonly #staleness: Staleness;

  constructor(engine: DynamoEngine, heads: Heads, staleness: Staleness) {
    this.#engine = engine;
    this.#heads = heads;
    this.#staleness = staleness;
  }

  /** The request that takes a place. */
  taking(pk: string, ticket: number, waiter: NewWaiter): PartialWrite {
    return { key: waiterOf(pk, ticket), written: takePlace(waiter, this.#engine.now()) };
  }

  /** @returns false if another client gave the place up as dead meanwhile */
  async take(pk: string, ticket: number, waiter: NewWaiter, limits: CallLimits): Promise<boolean> {
    const { key, written } = this.taking(pk, ticket, waiter);
    return (await this.#engine.update(key, written, 'NONE', limits)).isDone;
  }

  /** @returns false if another client gave the place up as dead meanwhile */
  async renew(pk: string, ticket: number, nonce: string, limits: CallLimits): Promise<boolean> {
    const written = renewPlace(nonce, this.#engine.now());
    return (await this.#engine.update(waiterOf(pk, ticket), written, 'NONE', limits)).isDone;
  }

  /** Gives a place up. If it is the first, the next ticket gets its turn at once. */
  async leave(pk: string, ticket: number, nonce: string, limits: CallLimits): Promise<void> {
    await this.giveUp(pk, ticket, nonce, limits);
    for (;;) {
      const head = await this.#heads.readNow(pk, limits);
      if (head.next !== ticket) return;
      const change = { pk, before: head, after: passed(head, ticket + 1) };
      if (await this.#heads.write([change], limits)) break;
    }
    this.tidy(pk, [ticket]);
  }

  /** Marks a place as given up, even if it was never taken. Other clients pass it over when its turn comes. */
  async giveUp(pk: string, ticket: number, nonce: string, limits: CallLimits): Promise<void> {
    await this.#engine.update(waiterOf(pk, ticket), leavePlace(nonce, this.#engine.now()), 'NONE', limits);
  }

  /**
   * Passes over the first places, if their waiters have left, have died, or never took the place of their ticket. It costs one read
   * unit, and two writes for each dead waiter.
   * @param until  the ticket of the caller, or one more than the last ticket
   */
  async watch(
    pk: string,
    head: Head,
    until: number,
    waiterMs: number | undefined,
    limits: CallLimits,
  ): Promise<FrontView> {
    const last = Math.min(until - 1, head.next + FRONT - 1);
    const rows = await this.#rows(pk, head.next, last, limits);
    let next = head.next;
    let deadInMs = Infinity;
    for (let ticket = head.next; ticket <= last; ticket++) {
      const row = rows.get(ticket);
      const leftMs = row?.isGone ? 0 : this.#leftMs(pk, ticket, row, waiterMs ?? NEVER_KEPT_MS);
      // All of the rows are observed at once. Otherwise many dead waiters would each be watched for a lease, one after another.
      if (ticket !== next) continue;
      if (leftMs > 0) deadInMs = leftMs;
      else if (row?.isGone || (await this.#bury(pk, ticket, row, limits))) next = ticket + 1;
    }
    if (next === head.next) return { isMoved: false, deadInMs };
    const isMoved = await this.#heads.write([{ pk, before: head, after: passed(head, next) }], limits);
    if (isMoved) this.tidy(pk, range(head.next, next));
    return { isMoved: true, deadInMs };
  }

  /** The waiters in order. @param to  included */
  async waiters(pk: string, from: number, to: number, limits: CallLimits): Promise<readonly WaiterRow[]> {
    const rows = await this.#rows(pk, from, to, limits);
    return [...rows.values()].filter((row) => !row.isGone);
  }

  /**
   * Removes the rows of places that had their turn. Nothing waits for this, and DynamoDB itself would remove them in a few days.
   */
  tidy(pk: string, tickets: Iterable<number>): void {
    for (const ticket of tickets) {
      this.#staleness.forget(`${pk} ${ticket}`);
      void this.#engine.remove(waiterOf(pk, ticket), {}, { timeoutMs: 5000 }).catch(() => {});
    }
  }

  #leftMs(pk: string, ticket: number, row: WaiterRow | undefined, waiterMs: number): number {
    const state = row === undefined ? 'none' : `${row.nonce} ${row.beats}`;
    return this.#staleness.observe(`${pk} ${ticket}`, state, row?.leaseMs ?? waiterMs);
  }

  async #bury(pk: string, ticket: number, row: WaiterRow | undefined, limits: CallLimits): Promise<boolean> {
    const written = buryPlace(row, this.#engine.now());
    return (await this.#engine.update(waiterOf(pk, ticket), written, 'NONE', limits)).isDone;
  }

  async #rows(pk: string, from: number, to: number, limits: CallLimits): Promise<Map<number, WaiterRow>> {
    const found = new Map<number, WaiterRow>();
    if (from > to) return found;
    const [{ sk: first }, { sk: end }] = [waiterOf(pk, from), waiterOf(pk, to)];
    for (const item of await this.#engine.range(pk, first, end, to - from + 1, limits)) {
      const row = readWaiter(item);
      if (row !== undefined) found.set(row.ticket, row);
    }
    return found;
  }
}

/** How long until a place has to be renewed, which is when two thirds of its lease are left. */
export function renewInMs(keptAt: number, waiterMs: number): number {
  return keptAt + waiterMs / 3 - now();
}

function* range(from: number, to: number): Generator<number> {
  for (let each = from; each < to; each++) yield each;
}
