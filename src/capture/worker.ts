import { notStarted } from '../base/work/start-up.ts';

/** The worker of one consumer in this process. */
interface Worker {
  readonly started: Promise<void>;
  readonly problem: string | undefined;
  wake(): void;
  stop(): Promise<void>;
}

/** All consumers of a capture, in one process. */
export class CaptureWorker implements AsyncDisposable {
  /** Settles when each worker has found that the capture is installed; rejects when one of them does. */
  readonly started: Promise<void>;
  readonly #workers: readonly Worker[];
  #hasStarted = false;

  /** @internal */
  constructor(workers: readonly Worker[]) {
    this.#workers = workers;
    this.started = Promise.all(workers.map(({ started }) => started)).then(() => {
      this.#hasStarted = true;
    });
    this.started.catch(() => {});
  }

  /**
   * Why one of its consumers is stopped now; undefined while all go on. This is the result of the last poll of each consumer.
   */
  get problem(): string | undefined {
    const found = this.#workers.map((worker) => worker.problem).find((one) => one !== undefined);
    return found ?? (this.#hasStarted ? undefined : notStarted(undefined));
  }

  /** Polls for changes now. */
  wake(): void {
    for (const worker of this.#workers) worker.wake();
  }

  /** Ends after the work that is under way. Safe to call twice. */
  async stop(): Promise<void> {
    await Promise.all(this.#workers.map((worker) => worker.stop()));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }
}
