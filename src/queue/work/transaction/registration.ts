import type { PostgresQueueStore } from '../../postgres/store.ts';
import type { WorkerSettings } from '../worker-parts.ts';
import { addWorker } from '../worker-row.ts';

/** The row of a worker in the database. It is written again after the worker was declared dead. */
export class Registration {
  readonly #store: PostgresQueueStore;
  readonly #queue: number;
  readonly #settings: WorkerSettings;
  #id: number | undefined;
  #registering: Promise<number> | undefined;

  constructor(store: PostgresQueueStore, queue: number, settings: WorkerSettings) {
    this.#store = store;
    this.#queue = queue;
    this.#settings = settings;
  }

  /** The id of the worker; undefined until it is registered. */
  get id(): number | undefined {
    return this.#id;
  }

  /** Registers the worker; calls at the same time share one registration. @returns its id */
  register(): Promise<number> {
    this.#registering ??= this.#registerNow().finally(() => {
      this.#registering = undefined;
    });
    return this.#registering;
  }

  forget(): number | undefined {
    const id = this.#id;
    this.#id = undefined;
    return id;
  }

  async #registerNow(): Promise<number> {
    this.#id = await addWorker(this.#store, this.#queue, this.#settings);
    return this.#id;
  }
}
