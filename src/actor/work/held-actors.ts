import type { ActorClaim, TurnCommit } from '../store.ts';
import { Isolation } from './isolation.ts';

/** The actors that a worker has claimed and not yet committed, and the one of them that runs alone. */
export class HeldActors {
  readonly isolation: Isolation = new Isolation();
  readonly #epochs = new Map<number, number>();

  /** The epochs of the actors, by id. */
  get epochs(): ReadonlyMap<number, number> {
    return this.#epochs;
  }

  /** How many further actors there is room for. @param prefetch  the number of them ahead of free slots */
  capacity(concurrency: number, prefetch: number): number {
    const held = this.#epochs.size;
    if (this.isolation.isExclusive) return 0;
    if (held > concurrency + prefetch / 2 || held >= concurrency + prefetch) return 0;
    return concurrency + prefetch - held;
  }

  add(claims: readonly ActorClaim[]): void {
    for (const { id, epoch } of claims) this.#epochs.set(id, epoch);
  }

  /**
   * Called when a turn is over. Its actor may have been claimed again, or handed over, before the answer to its commit came.
   * @returns true if it ran alone: other turns may begin now
   */
  release({ id, epoch }: Pick<TurnCommit, 'id' | 'epoch'>): boolean {
    if (this.#epochs.get(id) === epoch) this.#epochs.delete(id);
    return this.isolation.release(id, epoch);
  }

  /** The lease is lost, and with it all actors. */
  clear(): void {
    this.#epochs.clear();
    this.isolation.forget();
  }
}
