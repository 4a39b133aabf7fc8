import type { Gatherer } from '../batch/gatherer.ts';
import type { Holdings } from './holdings.ts';
import type { RunningUnits } from './running-units.ts';

/** The most units to claim ahead. */
export const PREFETCH_MAX = 2000;

interface RoomParts {
  readonly concurrency: number;
  readonly holdings: Holdings;
  readonly running: RunningUnits;
  readonly gatherer: Gatherer | undefined;
  /** Claimed units that have not begun. */
  readonly waiting: { readonly waitingCount: number };
}

/** How many jobs a worker may claim. */
export class Room {
  /**
   * The number of units of paused parts in the last claim. If there were some, the next claim asks for more, to reach the jobs
   * behind them.
   */
  setAside: number = 0;
  readonly #parts: RoomParts;

  constructor(parts: RoomParts) {
    this.#parts = parts;
  }

  /**
   * While more than half of the prefetched units are left, there is room only for as many units as there are free slots. A chain
   * of a key takes one slot, however long it is. So free slots that no held unit can fill always count as room.
   */
  of(prefetch: number): number {
    const { concurrency, holdings, running, gatherer, waiting } = this.#parts;
    if (this.setAside > 0) return Math.min(PREFETCH_MAX, concurrency + 2 * this.setAside);
    const free = Math.max(0, concurrency - running.slotsTaken - waiting.waitingCount);
    if (gatherer !== undefined) return this.#toGather(gatherer, free, prefetch);
    if (holdings.count > concurrency + prefetch / 2) return free;
    return Math.max(free, concurrency + prefetch - holdings.count);
  }

  /**
   * Gathered units take no slot yet, and the units of a batch handler take one slot: there is room for the units that a batch
   * still needs.
   */
  #toGather({ room, count }: Gatherer, free: number, prefetch: number): number {
    const { concurrency, holdings, running } = this.#parts;
    const toCome = free > 0 ? room : 0;
    return toCome + Math.max(free, concurrency + prefetch - (holdings.count - running.sharing - count));
  }

  /** The number of slots without a running unit. */
  get slots(): number {
    return Math.max(0, this.#parts.concurrency - this.#parts.running.slotsTaken);
  }
}
