import { Stopped } from '../../base/errors.ts';
import { Events } from '../../base/events.ts';
import { checkOptions, duration } from '../../base/options/options.ts';
import { within } from '../../base/time/clock.ts';
import type { Duration } from '../../base/time/duration.ts';
import { type EventLoopWatch, watchEventLoop } from '../../base/watchdog.ts';
import { currentTask } from '../../base/work/current-task.ts';
import { STOP_MS } from '../../base/work/deadlines.ts';
import { forgive } from '../../base/work/exit-code.ts';
import { logLife } from '../../base/work/log-life.ts';
import { notStarted, startWithRetries } from '../../base/work/start-up.ts';
import type { Logger } from '../../engine/postgres/index.ts';
import type { ActorDefinition } from '../definition.ts';
import type { PageChannel } from '../pages/channel.ts';
import { Delivery } from '../pages/delivery.ts';
import type { PostgresActorReader } from '../postgres/reader.ts';
import type { TurnOwner } from '../turn/turn-requests.ts';
import type { TurnStore, WorkPorts } from './ports.ts';
import type { DispatcherEvents } from './report.ts';
import type { AnyTurn } from './run/turn-result.ts';
import { ActorWorker } from './worker.ts';
import type { WorkerSettings } from './worker-parts.ts';

export interface StopOptions {
  /**
   * How long running bodies may continue. After this time their `signal` aborts, and their actors are given back without a
   * charged try. Default `'15s'`.
   */
  readonly timeout?: Duration | undefined;
}

export interface DispatcherParts {
  readonly engine: TurnStore['engine'];
  /** The parts of the worker. */
  readonly ports: (leaseMs: number) => WorkPorts;
  readonly reader: Pick<PostgresActorReader, 'takeNotices' | 'noteDelivery'>;
  readonly owner: (store: TurnStore) => TurnOwner;
  readonly register: () => Promise<ReadonlyMap<number, ActorDefinition>>;
  readonly settings: WorkerSettings;
  readonly channels: readonly PageChannel[];
  readonly onBlocked: 'exit' | undefined;
  readonly logger: Logger;
  readonly signal: AbortSignal | undefined;
}

/** Runs turns until you stop it; `await using dispatcher = actors.run()` stops it at the end of the block. */
export class Dispatcher implements AsyncDisposable {
  /**
   * Resolves when the dispatcher is registered and polls. If the database is unreachable, refuses the password or is not
   * migrated, the dispatcher keeps trying: each try emits an `error` event, and the log gets a line at growing intervals. Rejects
   * with an error that only a change of the program can remove.
   */
  readonly started: Promise<void>;
  readonly events: Events<DispatcherEvents> = new Events();
  readonly #parts: DispatcherParts;
  readonly #stop = new AbortController();
  /** The error of the last try to start. */
  #failure: unknown;
  #worker: ActorWorker | undefined;
  #delivery: Delivery | undefined;
  #watch: EventLoopWatch | undefined;
  #stopping: Promise<void> | undefined;
  /** True: it was stopped before it had started, and no caller waits for it any more. */
  #isAbandoned = false;

  /** @internal */
  constructor(parts: DispatcherParts) {
    this.#parts = parts;
    const { logger, signal, engine } = parts;
    this.started = this.#start();
    const isStopping = (): boolean => this.#stopping !== undefined;
    const begins = { concurrency: parts.settings.concurrency };
    logLife(this, { logger, what: 'actor dispatcher', several: 'dispatchers', fields: {}, begins, engine, isStopping });
    const stop = (): void => void this.stop();
    signal?.addEventListener('abort', stop, { once: true, signal: this.#stop.signal });
    if (signal?.aborted) stop();
  }

  /** The reason why it can claim nothing now; undefined while it can. As `problem` of a queue's worker. */
  get problem(): string | undefined {
    if (this.#stopping !== undefined) return 'it is stopping';
    return this.#worker === undefined ? notStarted(this.#failure) : this.#worker.problem;
  }

  /** Polls now, without waiting for a notification or for the next poll. */
  wake(): void {
    this.#worker?.wake();
  }

  /**
   * Claims nothing more, gives back actors whose turn has not begun, lets running bodies end, commits them, and leaves neither
   * timer nor connection. Safe to call twice. If a body of this dispatcher awaits it, it resolves when all other bodies have
   * ended, as for a handler of a queue.
   */
  stop(options: StopOptions = {}): Promise<void> {
    const { timeout } = checkOptions('stop', options, { timeout: duration({ default: '15s' }) });
    this.#stopping ??= this.#shutDown(timeout);
    this.#stop.abort();
    forgive(this);
    const othersEnded = this.#worker?.othersEnded(currentTask.task);
    return othersEnded === undefined ? this.#stopping : Promise.race([this.#stopping, othersEnded]);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  /** Acts as if the process were killed: running turns are neither ended nor given back. For tests of crashes. @internal */
  abandon(): void {
    this.#stopping ??= Promise.resolve();
    this.#stop.abort();
    this.#worker?.abandon();
    void this.#delivery?.stop();
    this.#watch?.stop();
  }

  async #start(): Promise<void> {
    await Promise.resolve();
    const onError = (error: unknown): void => {
      this.#failure = error;
      this.events.emit('error', { error });
    };
    await startWithRetries(() => this.#open(), { what: 'the dispatcher', signal: this.#stop.signal, onError });
  }

  async #open(): Promise<void> {
    const { reader, owner, register, settings, channels, onBlocked } = this.#parts;
    const declared = await register();
    if (this.#stopping !== undefined) throw new Stopped('the dispatcher was stopped before it had started');
    if (onBlocked === 'exit') this.#watch ??= watchEventLoop(settings.leaseMs);
    const types = this.#watch === undefined ? declared : watched(declared, this.#watch);
    const ports = this.#parts.ports(settings.leaseMs);
    const worker = new ActorWorker({ ...ports, owner: owner(ports.store), types, events: this.events, settings });
    if (channels.length > 0) {
      this.#delivery ??= new Delivery(reader, channels, (error) => this.events.emit('error', { error }));
    }
    try {
      await worker.start(() => this.#delivery?.wake());
      if (this.#isAbandoned) throw new Stopped('the dispatcher was stopped before it had started');
    } catch (error) {
      // Otherwise its running turns would go on at the same time as those of the next worker.
      await worker.stop(0);
      throw error;
    }
    this.#worker = worker;
  }

  async #shutDown(timeoutMs: number): Promise<void> {
    if (this.#worker === undefined) {
      // It waits for a start no longer than for a running worker; a worker that starts later then stops by itself.
      const settled = this.started.catch(() => {});
      this.#isAbandoned = !(await within(Math.max(timeoutMs, STOP_MS), settled));
    }
    const delivered = this.#delivery?.stop();
    await this.#worker?.stop(timeoutMs);
    await within(STOP_MS, Promise.resolve(delivered));
    this.#watch?.stop();
  }
}

/** The same types, whose bodies the watchdog records while they run. */
function watched(
  types: ReadonlyMap<number, ActorDefinition>,
  watch: EventLoopWatch,
): ReadonlyMap<number, ActorDefinition> {
  const name = ({ type, id, state }: AnyTurn): string => `${type} ${id} in "${state}"`;
  const states = (all: ActorDefinition['states']): ActorDefinition['states'] =>
    new Map([...all].map(([key, state]) => [key, { ...state, run: watch.around(name, state.run) }]));
  return new Map([...types].map(([id, definition]) => [id, { ...definition, states: states(definition.states) }]));
}
