import type { Events } from '../../base/events.ts';
import { type Loop, startLoop } from '../../base/loop.ts';
import { within } from '../../base/time/clock.ts';
import { startWithRetries } from '../../base/work/start-up.ts';
import type { PostgresEngine } from '../../engine/postgres/index.ts';
import { answerDeadlineMs, STOP_MS } from '../deadlines.ts';
import type { RunSettings } from '../declare/options.ts';
import { StaleDeclaration } from '../postgres/stale-declaration.ts';
import { consumerErrors } from './consumer-errors.ts';
import { startLogPartitions } from './log-partitions.ts';
import type { ProjectionEvents, ProjectionRuntime } from './runtime.ts';

/** After work, the next poll comes at once. After that, each rest is twice the one before, up to `poll`. */
const FIRST_REST_MS = 5;
/** A pass lasts no longer than this. A change that is committed late with a lower id waits for the next pass. */
const PASS_MS = 100;

/** A projection that a worker keeps up to date. */
interface OpenProjection {
  open(): Promise<ProjectionRuntime>;
  /** Called when the capture was applied with another declaration, or detached, since `old` was opened. */
  reopen(old: ProjectionRuntime): Promise<void>;
}

/** The loops of one process that keep a projection up to date. */
export class ProjectionWorker implements AsyncDisposable {
  /**
   * Settles when the worker has found that the capture is installed, and polls. If the database is unreachable, it waits.
   * Rejects with an error that waiting cannot remove.
   */
  readonly started: Promise<void>;
  readonly #loops: readonly Loop[];
  readonly #keeper: Loop;
  readonly #projection: OpenProjection;
  readonly #events: Events<ProjectionEvents>;
  readonly #settings: RunSettings;
  readonly #stop = new AbortController();

  /** @param to  the other database that has the table @internal */
  constructor(
    engine: PostgresEngine,
    to: PostgresEngine | undefined,
    projection: OpenProjection,
    events: Events<ProjectionEvents>,
    settings: RunSettings,
  ) {
    this.#projection = projection;
    const open = (): Promise<ProjectionRuntime> => projection.open();
    this.#events = events;
    this.#settings = settings;
    // The loops make the same call, and report its errors.
    const options = { what: 'the projection', signal: this.#stop.signal, onError: () => {} };
    this.started = startWithRetries(open, options).then(() => {});
    this.started.catch(() => {});
    const onError = consumerErrors({
      what: 'a projection failed',
      engines: [engine, to],
      report: (error) => this.#events.emit('error', { error }),
      isStopping: () => this.#stop.signal.aborted,
      stop: () => this.stop(),
    });
    this.#loops = Array.from({ length: settings.concurrency }, (_, index) => {
      const pass: Pass = { after: '0', since: 0, done: 0, restMs: FIRST_REST_MS };
      return startLoop({
        name: 'capture.project',
        run: (signal) => this.#turn(pass, signal, index),
        onError,
      });
    });
    this.#keeper = startLogPartitions(engine, open);
    const stop = (): void => void this.stop();
    settings.signal?.addEventListener('abort', stop, { once: true, signal: this.#stop.signal });
    if (settings.signal?.aborted === true) stop();
  }

  /** Why the worker is stopped now; undefined while it goes on. */
  get problem(): string | undefined {
    if (this.#stop.signal.aborted) return 'it is stopping';
    return this.#loops.map((loop) => loop.problem).find((one) => one !== undefined);
  }

  /** Polls for changes now. */
  wake(): void {
    for (const loop of this.#loops) loop.wake();
  }

  /** Ends after the batches that are under way; waits up to 5 s for them. Safe to call twice. */
  async stop(): Promise<void> {
    this.#stop.abort();
    await within(STOP_MS, Promise.all([...this.#loops, this.#keeper].map((loop) => loop.stop())));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  /** One turn: links, a batch, one entity that had failed, one page of a back-fill. @returns how long to rest */
  async #turn(pass: Pass, signal: AbortSignal, index: number): Promise<number> {
    const runtime = await this.#projection.open();
    const { store, sweeps, sweep, projector } = runtime;
    if (signal.aborted) return 0;
    const settings = this.#within(runtime.mostKeys);
    const deadlineMs = answerDeadlineMs(settings.timeoutMs);
    const there = await store.look(deadlineMs);
    if (!there.isCurrent) {
      await this.#projection.reopen(runtime);
      return 0;
    }
    // If links cannot be followed, the entities that changed themselves are projected anyway.
    let failure: { readonly error: unknown } | undefined;
    const follow = (): Promise<boolean> =>
      store
        .follow((tx) => sweeps.start(tx, true), deadlineMs)
        .catch((error: unknown) => {
          // The next turn finds that, too, and opens the projection anew.
          if (error instanceof StaleDeclaration) return true;
          failure = { error };
          return false;
        });
    let isBusy = there.links && (await follow());
    if (there.keys || isBusy) isBusy = (await this.#batch(pass, projector, settings)) || isBusy;
    if (index === 0 && there.retries) isBusy = (await projector.retry(settings)) || isBusy;
    if (index === 0 && there.sweep) isBusy = (await sweep.page(settings.batch, deadlineMs)) !== undefined || isBusy;
    if (failure !== undefined) throw failure.error;
    pass.restMs = isBusy ? FIRST_REST_MS : Math.min(pass.restMs * 2, settings.pollMs);
    return isBusy ? 0 : pass.restMs;
  }

  /** The settings with batches that together lock no more than so many keys. */
  #within(mostKeys: number): RunSettings {
    const share = Math.max(1, Math.floor(mostKeys / this.#settings.concurrency));
    return { ...this.#settings, batch: Math.min(this.#settings.batch, share) };
  }

  /** @returns whether to continue at once. After a whole pass that found only keys of other workers, it rests. */
  async #batch(pass: Pass, projector: ProjectionRuntime['projector'], settings: RunSettings): Promise<boolean> {
    if (pass.after === '0') pass.since = performance.now();
    const batch = await projector.batch(pass.after, settings);
    if (batch.done > 0) this.#events.emit('projected', { keys: batch.done, lagMs: batch.lagMs });
    pass.done += batch.done;
    if (!batch.isEnd && performance.now() - pass.since < PASS_MS) {
      pass.after = batch.last;
      return true;
    }
    const found = pass.done > 0;
    pass.after = '0';
    pass.done = 0;
    return found;
  }
}

interface Pass {
  after: string;
  since: number;
  done: number;
  restMs: number;
}
