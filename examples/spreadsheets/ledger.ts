import type { ObservedStore } from './store.ts';

/** What became of every job that the front end took. */
export class Ledger {
  readonly #store: Pick<ObservedStore, 'statuses'>;
  readonly #outstanding = new Set<string>();
  #enqueued = 0;
  #complete = 0;
  #error = 0;

  constructor(store: Pick<ObservedStore, 'statuses'>) {
    this.#store = store;
  }

  get enqueued(): number {
    return this.#enqueued;
  }

  get complete(): number {
    return this.#complete;
  }

  /** Ended in error, or cancelled. */
  get error(): number {
    return this.#error;
  }

  /** Taken, and not known to have ended. At the end of a run these are lost. */
  get outstanding(): number {
    return this.#outstanding.size;
  }

  add(job: string): void {
    this.#enqueued += 1;
    this.#outstanding.add(job);
  }

  /** Looks up what was outstanding. A job that the database does not know stays so. */
  async refresh(): Promise<void> {
    const statuses = await this.#store.statuses([...this.#outstanding]);
    for (const [job, status] of statuses) {
      if (status === 'new' || status === 'in-progress') continue;
      if (!this.#outstanding.delete(job)) continue;
      if (status === 'complete') this.#complete += 1;
      else this.#error += 1;
    }
  }
}
