import type { Transaction } from '../../engine/postgres/index.ts';
import type { CaptureStore } from '../postgres/store.ts';
import type { Progress, SweepStore } from '../postgres/sweep.ts';
import { isNobodysFault, type Projector } from './projector.ts';

/**
 * Goes through all entities once, page by page in the order of their keys: first those that exist, then those that are only
 * in the target. Each page and the new position are one transaction, so any worker continues where another stopped. Changes
 * that happen meanwhile are in the log as always. A key that another worker has locked is marked dirty instead.
 */
export class Sweep {
  readonly #store: CaptureStore;
  readonly #sweeps: SweepStore;
  readonly #projector: Projector;

  constructor(store: CaptureStore, sweeps: SweepStore, projector: Projector) {
    this.#store = store;
    this.#sweeps = sweeps;
    this.#projector = projector;
  }

  /**
   * One page. @returns the progress; undefined when there is nothing to do, or while another worker has the sweep
   * @param deadlineMs  how long to wait for the answer of each statement; default: no limit
   */
  async page(size: number, deadlineMs?: number): Promise<Progress | undefined> {
    if (!(await this.#sweeps.isOpen(deadlineMs))) return undefined;
    let keys: readonly string[] = [];
    try {
      return await this.#store.transaction(async (tx) => {
        const place = await this.#sweeps.take(tx, deadlineMs);
        if (place === undefined) return undefined;
        const page = await this.#sweeps.page(tx, place, size);
        keys = page.keys;
        await this.#write(tx, page.keys);
        return this.#sweeps.move(tx, place, page);
      }, deadlineMs);
    } catch (error) {
      if (keys.length === 0 || isNobodysFault(error)) throw error;
      return this.#stepOver(size, deadlineMs);
    }
  }

  async #write(tx: Transaction, keys: readonly string[]): Promise<void> {
    const mine = await this.#store.lock(tx, keys);
    const others = new Set(keys);
    for (const key of mine) others.delete(key);
    await this.#store.mark(tx, [...others]);
    await this.#projector.write(tx, mine);
  }

  /**
   * One entity of the page cannot be projected. All entities of the page are marked dirty: the usual batches then find the one
   * that fails.
   */
  #stepOver(size: number, deadlineMs: number | undefined): Promise<Progress | undefined> {
    return this.#store.transaction(async (tx) => {
      const place = await this.#sweeps.take(tx, deadlineMs);
      if (place === undefined) return undefined;
      const page = await this.#sweeps.page(tx, place, size);
      await this.#store.mark(tx, page.keys);
      return this.#sweeps.move(tx, place, page);
    }, deadlineMs);
  }
}
