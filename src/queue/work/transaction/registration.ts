import { hostname } from 'node:os';
import { faults } from '../../../base/fault.ts';
import type { PostgresQueueStore } from '../../postgres/store.ts';
import type { WorkerSettings } from '../lease-worker.ts';

/** The row that says a worker is there. It is written anew when the worker was taken for dead. */
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

  /** Undefined until it is there. */
  get id(): number | undefined {
    return this.#id;
  }

  /** @returns its id */
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
    const { concurrency, leaseMs, hold } = this.#settings;
    this.#id = await this.#store.addWorker({
      queue: this.#queue,
      host: hostname(),
      pid: process.pid,
      concurrency,
      leaseMs,
      hold,
    });
    if (faults.armed) await faults.reach('queue.after_register');
    return this.#id;
  }
}
