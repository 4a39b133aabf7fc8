import type { Gatherer } from '../batch/gatherer.ts';
import type { Holdings } from './holdings.ts';
import type { RunningUnits } from './running-units.ts';

/** More units are never claimed ahead. */
export const PREFETCH_MAX = 2000;

interface RoomParts {
  readonly concurrency: number;
  readonly holdings: Holdings;
  readonly running: RunningUnits;
  readonly gatherer: Gatherer | undefined;
  /** Claimed units that have not begun. */
  readonly loop: { readonly waitingCount: number };
}

/** How many jobs a worker may claim. */
export class Room {
  /** How many units of paused parts the last claim has brought: with so many more the next one comes past them. */
  setAside: number = 0;
  readonly #parts: RoomParts;

  constructor(parts: RoomParts) {
    this.#parts = parts;
  }

  /**
   * Only as many as there are free slots while more than half of the prefetched units are left. A chain of a key takes one slot,
   * however long it is, so free slots that no held unit can fill always count as room.
   */
  of(prefetch: number): number {
    const { concurrency, holdings, running, gatherer, loop } = this.#parts;
    if (this.setAside > 0) return Math.min(PREFETCH_MAX, concurrency + 2 * this.setAside);
    const free = Math.max(0, concurrency - running.slotsTaken - loop.waitingCount);
    if (gatherer !== undefined) return this.#toGather(gatherer, free, prefetch);
    if (holdings.count > concurrency + prefetch / 2) return free;
    return Math.max(free, concurrency + prefetch - holdings.count);
  }

  /** What is gathered takes no slot yet, and what a batch handler works on takes one: there is room for what is still to come. */
  #toGather({ room, count }: Gatherer, free: number, prefetch: number): number {
    const { concurrency, holdings, running } = this.#parts;
    const toCome = free > 0 ? room : 0;
    return toCome + Math.max(free, concurrency + prefetch - (holdings.count - running.sharing - count));
  }

  /** How many slots are free of running units. */
  get slots(): number {
    return Math.max(0, this.#parts.concurrency - this.#parts.running.slotsTaken);
  }
}
