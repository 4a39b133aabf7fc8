/** What runs in this process for one consumer. */
interface Worker {
  readonly started: Promise<void>;
  wake(): void;
  stop(): Promise<void>;
}

/** All consumers of a capture, in one process. */
export class CaptureWorker implements AsyncDisposable {
  /** Settles when each of them has found the capture installed; rejects when that cannot be. */
  readonly started: Promise<void>;
  readonly #workers: readonly Worker[];

  /** @internal */
  constructor(workers: readonly Worker[]) {
    this.#workers = workers;
    this.started = Promise.all(workers.map(({ started }) => started)).then(() => {});
    this.started.catch(() => {});
  }

  /** Looks for changes now. */
  wake(): void {
    for (const worker of this.#workers) worker.wake();
  }

  /** Ends after what is under way. Safe to call twice. */
  async stop(): Promise<void> {
    await Promise.all(this.#workers.map((worker) => worker.stop()));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }
}
