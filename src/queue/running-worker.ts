import { sleep, within } from '../base/clock.ts';
import { Stopped } from '../base/errors.ts';
import type { Events } from '../base/events.ts';
import { type Watch, watchEventLoop } from '../base/watchdog.ts';
import { isTransient, type Logger } from '../engine/postgres/index.ts';
import type { Handler } from './attempt.ts';
import { patience, STOP_MS } from './patience.ts';
import type { Registered } from './store.ts';
import { TransactionWorker } from './transaction-worker.ts';
import type { Unit } from './unit.ts';
import { readStopOptions, type StopOptions } from './work-options.ts';
import { LeaseWorker, type WorkerEvents, type WorkerParts } from './worker.ts';

/** A worker, as its user holds it. Runs until stopped; `await using worker = queue.work(…)` stops it by itself. */
export class Worker implements AsyncDisposable {
  /**
   * Settles when the worker is registered and looks for work; rejects when the first try fails, for instance because the
   * schema is missing. Not awaiting it is fine: the failure is then an `error` event, or a line in the log.
   */
  readonly started: Promise<void>;
  readonly events: Events<WorkerEvents>;
  #inner: LeaseWorker | TransactionWorker | undefined;
  readonly #logger: Logger;
  readonly #watch: Watch | undefined;
  readonly #stop = new AbortController();
  #stopping: Promise<void> | undefined;
  /** It was stopped before it had started, and nobody waits for it any more. */
  #isAbandoned = false;

  /** @internal */
  constructor(
    given: Omit<WorkerParts, 'registered' | 'events'> & { readonly onBlocked: 'exit' | undefined },
    register: () => Promise<Registered>,
    events: Events<WorkerEvents>,
    logger: Logger,
    signal: AbortSignal | undefined,
  ) {
    this.events = events;
    this.#logger = logger;
    const { onBlocked, ...parts } = given;
    const queue = parts.definition.name;
    this.#watch = onBlocked === 'exit' ? watchEventLoop(parts.settings.leaseMs) : undefined;
    const handlers = this.#watch === undefined ? parts.handlers : watched(queue, parts.handlers, this.#watch);
    this.events.on('error', ({ error }) => {
      if (parts.store.engine.isStopped) this.#endWithEngine(queue);
      else this.#logger.warn({ err: error, queue }, 'queue worker: it goes on trying');
    });
    this.started = this.#start(async () => {
      const registered = await register();
      const store = parts.store.within(patience(parts.settings.leaseMs));
      const all = { ...parts, handlers, store, registered, events };
      return all.settings.hold === 'lease' ? new LeaseWorker(all) : new TransactionWorker(all);
    });
    this.started.catch((error: unknown) => {
      if (!(error instanceof Stopped)) this.events.emit('error', { error });
    });
    const stop = (): void => void this.stop();
    signal?.addEventListener('abort', stop, { once: true });
    if (signal?.aborted) stop();
  }

  /** A database that is away at the start is waited for, as it is later on. */
  async #start(make: () => Promise<LeaseWorker | TransactionWorker>): Promise<void> {
    for (let failures = 1; this.#stopping === undefined; failures += 1) {
      try {
        const inner = await make();
        if (this.#stopping !== undefined) break;
        await inner.start();
        this.#inner = inner;
        if (this.#isAbandoned) await inner.stop(0);
        return;
      } catch (error) {
        if (!isTransient(error)) throw error;
        this.events.emit('error', { error });
        await sleep(Math.min(100 * 2 ** failures, 5000), this.#stop.signal);
      }
    }
    throw new Stopped('the worker was stopped before it had started');
  }

  /** Looks for work now, without waiting for a notification or the next poll. */
  wake(): void {
    this.#inner?.wake();
  }

  /**
   * Claims nothing more, hands back what has not started (its attempt is not spent), lets running handlers finish, writes
   * their outcomes, and leaves neither timer nor connection. Safe to call twice.
   */
  stop(options: StopOptions = {}): Promise<void> {
    const timeoutMs = readStopOptions(options);
    this.#stopping ??= this.#shutDown(timeoutMs);
    this.#stop.abort();
    return this.#stopping;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  /** There is nothing it could do any more, and its timers would keep the process alive for ever. */
  #endWithEngine(queue: string): void {
    if (this.#stopping !== undefined) return;
    this.#logger.warn(
      { queue },
      'queue worker: it ends, since the engine was stopped; stop workers before their engine',
    );
    void this.stop({ timeout: 0 });
  }

  async #shutDown(timeoutMs: number): Promise<void> {
    if (this.#inner === undefined) {
      // What has not started is not waited for longer than what has; it stops by itself when it has.
      const settled = this.started.catch(() => {});
      this.#isAbandoned = !(await within(Math.max(timeoutMs, STOP_MS), settled));
    }
    await this.#inner?.stop(timeoutMs);
    this.#watch?.stop();
  }
}

/** The same handlers, noted while they run. */
function watched(queue: string, handlers: ReadonlyMap<string, Handler>, watch: Watch): ReadonlyMap<string, Handler> {
  const name = ({ kind, job }: Unit): string => `job ${job.id} of queue "${queue}", kind "${kind}"`;
  return new Map([...handlers].map(([kind, handler]) => [kind, watch.around(name, handler)]));
}
