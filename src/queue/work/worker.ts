import { Stopped } from '../../base/errors.ts';
import type { Events } from '../../base/events.ts';
import type { Loop } from '../../base/loop.ts';
import { sleep, within } from '../../base/time/clock.ts';
import { type EventLoopWatch, watchEventLoop } from '../../base/watchdog.ts';
import { currentTask } from '../../base/work/current-task.ts';
import { answerDeadline, STOP_MS } from '../../base/work/deadlines.ts';
import { forgive } from '../../base/work/exit-code.ts';
import { logLife } from '../../base/work/log-life.ts';
import { notStarted, startWithRetries } from '../../base/work/start-up.ts';
import type { Logger } from '../../engine/postgres/index.ts';
import type { QueueStats } from '../operate/stats.ts';
import { PostgresQueueStore } from '../postgres/store.ts';
import type { QueueIds } from '../store.ts';
import { type BacklogLimits, type BacklogWatch, watchBacklog } from './backlog.ts';
import type { UnitBatch } from './batch/unit-batch.ts';
import { LeaseWorker } from './lease-worker.ts';
import { newTally, type OnceResult } from './once/tally.ts';
import { type OnceOptions, readOnceOptions, readStopOptions, type StopOptions } from './options.ts';
import type { WorkerEvents } from './report.ts';
import type { Unit } from './run/unit.ts';
import { TransactionWorker } from './transaction/worker.ts';
import type { WorkerParts } from './worker-parts.ts';

/** How a worker learns whether its queue has too much to do. */
interface Warning {
  readonly limits: BacklogLimits;
  readonly stats: () => Promise<QueueStats>;
}

/** A worker. It runs until you stop it; `await using worker = queue.work(…)` stops it at the end of the block. */
export class Worker implements AsyncDisposable {
  /**
   * Resolves when the worker is registered and polls. If the database is unreachable, refuses the password or is not migrated,
   * the worker keeps trying: each try emits an `error` event, and the log gets a line at growing intervals. Rejects with an error
   * that only a change of the program can remove. You need not await it: the failure is then an `error` event and a line in the
   * log, and a process without other work ends with exit code 1.
   */
  readonly started: Promise<void>;
  readonly events: Events<WorkerEvents>;
  #inner: LeaseWorker | TransactionWorker | undefined;
  readonly #watch: EventLoopWatch | undefined;
  readonly #stop = new AbortController();
  readonly #tally = newTally();
  #backlog: Loop | undefined;
  /** The error of the last try to start. */
  #failure: unknown;
  #stopping: Promise<void> | undefined;
  /** True: the worker was stopped before it had started, and no caller waits for it any more. */
  #isAbandoned = false;

  /** @internal */
  constructor(
    given: Omit<WorkerParts, 'registered' | 'events' | 'tally'> & {
      readonly onBlocked: 'exit' | undefined;
      readonly warning: Warning | undefined;
    },
    register: () => Promise<QueueIds>,
    events: Events<WorkerEvents>,
    logger: Logger,
    signal: AbortSignal | undefined,
  ) {
    this.events = events;
    const { onBlocked, warning, ...parts } = given;
    const queue = parts.definition.name;
    this.#watch = onBlocked === 'exit' ? watchEventLoop(parts.settings.leaseMs) : undefined;
    const handlers = this.#watch === undefined ? parts : watched(queue, parts, this.#watch);
    this.started = this.#start(async () => {
      const registered = await register();
      const store = parts.store.within(answerDeadline(parts.settings.leaseMs));
      const all = { ...parts, ...handlers, store, registered, events, tally: this.#tally };
      if (all.settings.hold === 'lease' || !(store instanceof PostgresQueueStore)) return new LeaseWorker(all);
      return new TransactionWorker({ ...all, store });
    });
    if (warning !== undefined) this.#watchBacklog({ ...warning, queue, events, logger });
    const { engine } = parts.store;
    const isStopping = (): boolean => this.#stopping !== undefined;
    const { concurrency, hold } = parts.settings;
    const begins = { concurrency, hold };
    logLife(this, { logger, what: 'queue worker', several: 'workers', fields: { queue }, begins, engine, isStopping });
    const stop = (): void => void this.stop();
    signal?.addEventListener('abort', stop, { once: true, signal: this.#stop.signal });
    if (signal?.aborted) stop();
  }

  #watchBacklog(watch: BacklogWatch): void {
    const begin = (): void => {
      if (this.#stopping === undefined) this.#backlog = watchBacklog(watch);
    };
    this.started.then(begin, () => {});
  }

  async #start(make: () => Promise<LeaseWorker | TransactionWorker>): Promise<void> {
    const start = async (): Promise<LeaseWorker | TransactionWorker> => {
      const inner = await make();
      if (this.#stopping !== undefined) throw new Stopped('the worker was stopped before it had started');
      try {
        await inner.start();
        return inner;
      } catch (error) {
        // Without this, its jobs would run at the same time as those of the next inner worker.
        await inner.stop(0);
        throw error;
      }
    };
    const onError = (error: unknown): void => {
      this.#failure = error;
      this.events.emit('error', { error });
    };
    this.#inner = await startWithRetries(start, { what: 'the worker', signal: this.#stop.signal, onError });
    if (this.#isAbandoned) await this.#inner.stop(0);
  }

  /**
   * The reason why the worker can claim nothing now; undefined while it can. Sends nothing: the worker knows it from its last
   * poll, from its last heartbeat (one each third of the lease), and from its lease. For health checks.
   */
  get problem(): string | undefined {
    if (this.#stopping !== undefined) return 'it is stopping';
    return this.#inner === undefined ? notStarted(this.#failure) : this.#inner.problem;
  }

  /** Polls now, without waiting for a notification or for the next poll. */
  wake(): void {
    this.#inner?.wake();
  }

  /**
   * Runs the jobs that are ready now, and the jobs that become ready meanwhile, such as the next jobs of their keys; then stops.
   * For programs that cron or a request starts. Does not wait for delayed jobs, for jobs in backoff, or for jobs that other
   * workers run.
   * @returns the outcomes of all handlers that this worker has called
   */
  async once(options: OnceOptions = {}): Promise<OnceResult> {
    const timeoutMs = readOnceOptions(options);
    const nothingLeft = this.started.then(() => this.#inner?.whenQuiet());
    await Promise.race([nothingLeft, sleep(timeoutMs, this.#stop.signal)]);
    await this.stop();
    return { ...this.#tally };
  }

  /**
   * Claims nothing more, gives back jobs that have not started (without spending an attempt), lets running handlers finish,
   * writes their outcomes, and leaves neither timer nor connection. Safe to call twice. If a handler of this worker awaits
   * `stop()`, the promise resolves after all other handlers have ended, and the handler's own outcome is written after it
   * returns. That works before the first `await` of the handler, and in processes that make locks on Postgres. Elsewhere call
   * `stop()` without `await`; otherwise the handler waits for itself.
   */
  stop(options: StopOptions = {}): Promise<void> {
    const timeoutMs = readStopOptions(options);
    this.#stopping ??= this.#shutDown(timeoutMs);
    this.#stop.abort();
    forgive(this);
    const othersEnded = this.#inner?.othersEnded(currentTask.task);
    return othersEnded === undefined ? this.#stopping : Promise.race([this.#stopping, othersEnded]);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  async #shutDown(timeoutMs: number): Promise<void> {
    if (this.#inner === undefined) {
      // It waits for a start no longer than for a running worker; a worker that starts later then stops by itself.
      const settled = this.started.catch(() => {});
      this.#isAbandoned = !(await within(Math.max(timeoutMs, STOP_MS), settled));
    }
    // Not awaited: its statement may get no answer, and it writes nothing.
    void this.#backlog?.stop();
    await this.#inner?.stop(timeoutMs);
    this.#watch?.stop();
  }
}

/** The same handlers, which the watchdog records while they run. */
function watched(
  queue: string,
  { handlers, batchHandlers }: Pick<WorkerParts, 'handlers' | 'batchHandlers'>,
  watch: EventLoopWatch,
): Pick<WorkerParts, 'handlers' | 'batchHandlers'> {
  const name = ({ kind, job }: Unit): string => `job ${job.id} of queue "${queue}", kind "${kind}"`;
  const nameAll = (units: UnitBatch): string =>
    `jobs ${units.map(({ job }) => job.id).join(', ')} of queue "${queue}", kind "${units[0]?.kind}"`;
  return {
    handlers: new Map([...handlers].map(([kind, handler]) => [kind, watch.around(name, handler)])),
    batchHandlers: new Map([...batchHandlers].map(([kind, handler]) => [kind, watch.around(nameAll, handler)])),
  };
}
