import { InvalidInput } from '../base/errors.ts';
import { Events } from '../base/events.ts';
import { faults } from '../base/fault.ts';
import { Lazy } from '../base/lazy.ts';
import { type Loop, startLoop } from '../base/loop.ts';
import {
  checkOptions,
  duration,
  func,
  integer,
  optional,
  signal as signalOption,
  text,
} from '../base/options/options.ts';
import { within } from '../base/time/clock.ts';
import type { Duration } from '../base/time/duration.ts';
import { startWithRetries } from '../base/work/start-up.ts';
import { BOTH, type PostgresEngine, type Transaction } from '../engine/postgres/index.ts';
import { type CapturedChange, toChange } from './change.ts';
import { answerDeadlineMs, STOP_MS } from './deadlines.ts';
import { loggedTables } from './declare/numbers.ts';
import { otherDatabase } from './declare/options.ts';
import type { Definition } from './declare/source.ts';
import type { Installer } from './operate/installer.ts';
import { ChangeStore, type Delivery } from './postgres/change.ts';
import { advancePlace, agreeOnPlace, openPlace } from './postgres/copy.ts';
import type { InstalledLine } from './postgres/install/state.ts';
import { StaleDeclaration } from './postgres/stale-declaration.ts';
import { consumerErrors } from './work/consumer-errors.ts';
import { startLogPartitions } from './work/log-partitions.ts';

/**
 * Handles changes. Its writes through `tx` are committed together with the acknowledgement. Other effects may happen again:
 * after a crash the handler is called with the same changes, which have the same ids.
 */
export type ChangeHandler = (changes: readonly CapturedChange[], tx: Transaction) => Promise<void>;

export interface FollowOptions {
  /** The name of this consumer; its position in the log is stored under this name. */
  readonly name: string;
  readonly handler: ChangeHandler;
  /**
   * Another database. The handler's `tx` is then a transaction there, and the consumer's position is stored there in the same
   * transaction, so that each change is written once there, too. It needs the migrations of Pawl. Default: the captured
   * database itself.
   */
  readonly to?: PostgresEngine | undefined;
}

export interface FollowRunOptions {
  /** The most changes in one call of the handler; it is given fewer if these have more than 32 MiB. Default 1,000. */
  readonly batch?: number | undefined;
  /** How often to poll when nothing changes. Default 200 ms. */
  readonly poll?: Duration | undefined;
  /** How long one call may take; a process that hangs for longer loses its turn to another one. Default 30 s. */
  readonly timeout?: Duration | undefined;
  /** Stops the worker when it aborts. */
  readonly signal?: AbortSignal | undefined;
}

export interface FollowerEvents {
  readonly delivered: { readonly changes: number };
  /** The handler or the database failed; the same changes are delivered again. */
  readonly error: { readonly error: unknown };
}

/** Delivers changes in one process. */
export class FollowerWorker implements AsyncDisposable {
  /**
   * Settles when the worker has found that the capture is installed. If the database is unreachable, it waits. Rejects with an
   * error that waiting cannot remove.
   */
  readonly started: Promise<void>;
  readonly #loops: readonly Loop[];
  readonly #stop = new AbortController();

  /** @internal */
  constructor(loop: Loop, keeper: Loop, open: () => Promise<unknown>, signal: AbortSignal | undefined) {
    this.#loops = [loop, keeper];
    // The loop makes the same call, and reports its errors.
    const options = { what: 'the delivery of changes', signal: this.#stop.signal, onError: () => {} };
    this.started = startWithRetries(open, options).then(() => {});
    this.started.catch(() => {});
    const stop = (): void => void this.stop();
    signal?.addEventListener('abort', stop, { once: true, signal: this.#stop.signal });
    if (signal?.aborted === true) stop();
  }

  /** Why delivery is stopped now; undefined while it goes on. */
  get problem(): string | undefined {
    return this.isStopping ? 'it is stopping' : this.#loops[0]?.problem;
  }

  /** @internal */
  get isStopping(): boolean {
    return this.#stop.signal.aborted;
  }

  /** Polls for changes now. */
  wake(): void {
    this.#loops[0]?.wake();
  }

  /** Ends after the call that is under way; waits up to 5 s for it. Safe to call twice. */
  async stop(): Promise<void> {
    this.#stop.abort();
    await within(STOP_MS, Promise.all(this.#loops.map((loop) => loop.stop())));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }
}

interface FollowerRuntime {
  readonly store: ChangeStore;
  readonly capture: number;
  readonly line: number;
  readonly definition: Definition;
}

/**
 * A consumer that receives every change once. Late commits do not break the order. One process at a time receives changes.
 */
export class Follower {
  readonly name: string;
  readonly events: Events<FollowerEvents> = new Events();
  readonly #engine: PostgresEngine;
  readonly #installer: Installer;
  readonly #handler: ChangeHandler;
  readonly #to: PostgresEngine | undefined;
  #opened: Lazy<FollowerRuntime> = new Lazy(() => this.#find());

  /** @internal */
  constructor(engine: PostgresEngine, installer: Installer, options: FollowOptions) {
    const { name, handler, to } = checkOptions('follow', options, {
      name: text({ min: 1, max: 200 }),
      handler: func<ChangeHandler>(),
      to: optional(otherDatabase),
    });
    if (to === engine) {
      throw new InvalidInput('"to" is the database that is captured; leave it out', { field: 'to' });
    }
    this.name = name;
    this.#engine = engine;
    this.#installer = installer;
    this.#handler = handler;
    this.#to = to;
    const definition = to === undefined ? {} : { isElsewhere: true };
    installer.add({ name, guarantee: 'ordered', definition, elsewhere: to });
  }

  /** Starts a worker in this process. @throws InvalidInput */
  run(options: FollowRunOptions = {}): FollowerWorker {
    const { batch, poll, timeout, signal } = checkOptions('run', options, {
      batch: integer({ min: 1, max: 100_000, default: 1000 }),
      poll: duration({ min: 1, max: '1h', default: 200 }),
      timeout: duration({ min: '1s', max: '1h', default: '30s' }),
      signal: signalOption,
    });
    const loop = startLoop({
      name: 'capture.follow',
      run: async () => ((await this.next({ batch, timeoutMs: timeout })) > 0 ? 0 : poll),
      onError: (error) => onError(error),
    });
    const open = (): Promise<FollowerRuntime> => this.#opened.get();
    const worker = new FollowerWorker(loop, startLogPartitions(this.#engine, open), open, signal);
    const onError = consumerErrors({
      what: 'changes could not be delivered',
      engines: [this.#engine, this.#to],
      report: (error) => this.events.emit('error', { error }),
      isStopping: () => worker.isStopping,
      stop: () => worker.stop(),
    });
    return worker;
  }

  /**
   * Delivers one batch now. @returns how many changes
   * @throws Conflict  the log belongs to another database: see `rebase()`
   */
  async next({ batch = 1000, timeoutMs = 30_000 }: { batch?: number; timeoutMs?: number } = {}): Promise<number> {
    const runtime = await this.#opened.get();
    const delivered = await this.#deliver(runtime, batch, timeoutMs).catch(async (error: unknown) => {
      if (!(error instanceof StaleDeclaration)) throw error;
      if ((await this.#opened.get().catch(() => undefined)) === runtime) this.#opened = new Lazy(() => this.#require());
      return this.#deliver(await this.#opened.get(), batch, timeoutMs, true);
    });
    if (delivered !== undefined && delivered > 0) this.events.emit('delivered', { changes: delivered });
    return delivered ?? 0;
  }

  /** @param isAgain  the declaration was just read */
  #deliver(
    { store, definition }: FollowerRuntime,
    batch: number,
    timeoutMs: number,
    isAgain = false,
  ): Promise<number | undefined> {
    const to = this.#to;
    const numbers = new Set(loggedTables(definition).map(({ number }) => number));
    return store.next(batch, timeoutMs, async (rows, tx) => {
      // A table that was added to the declaration meanwhile.
      if (!isAgain && rows.some(({ source }) => !numbers.has(source))) throw new StaleDeclaration();
      const changes = rows.map((row) => toChange(row, definition));
      if (to === undefined) await this.#handle(this.#engine, changes, tx);
      else await this.#hand(to, await store.delivery(tx), changes, timeoutMs);
      if (to !== undefined) await store.delivered(tx);
      if (faults.armed) await faults.reach('capture.after_handler');
    });
  }

  /**
   * For a database that was restored from a dump, copied or upgraded: continues with the log as it is now, and skips nothing
   * in it. Changes that this consumer has received do not come again, except those that another consumer of the capture had
   * not received yet.
   * @returns how many changes are still to be delivered
   */
  async rebase(): Promise<number> {
    const { store, capture, line } = await this.#opened.get();
    const left = await store.rebase(capture);
    if (this.#to !== undefined) await agreeOnPlace(this.#engine, this.#to, line);
    return left;
  }

  /** The other database may have committed a batch whose acknowledgement was lost here. Its changes are not written again. */
  async #hand(
    to: PostgresEngine,
    delivery: Delivery,
    changes: readonly CapturedChange[],
    timeoutMs: number,
  ): Promise<void> {
    await to.server();
    await to.transaction(
      async (tx) => {
        const after = BigInt(await openPlace(tx, delivery, timeoutMs));
        const missing = changes.filter(({ id }) => BigInt(id) > after);
        if (missing.length > 0) await this.#handle(to, missing, tx);
        await advancePlace(tx, delivery, missing.at(-1)?.id ?? after.toString());
      },
      { isolation: 'read committed', retries: 0, deadlineMs: answerDeadlineMs(timeoutMs) },
    );
    if (faults.armed) await faults.reach('capture.after_copy');
  }

  /** The handler may write on other nodes of Citus. */
  async #handle(engine: PostgresEngine, changes: readonly CapturedChange[], tx: Transaction): Promise<void> {
    if (engine.spansNodes) await tx.query(BOTH);
    await this.#handler(changes, tx);
  }

  async #find(): Promise<FollowerRuntime> {
    return this.#open((await this.#installer.find(this.name)) ?? (await this.#installer.install(this.name)));
  }

  /** Does not install what was detached. */
  async #require(): Promise<FollowerRuntime> {
    return this.#open(await this.#installer.require(this.name));
  }

  async #open(found: InstalledLine): Promise<FollowerRuntime> {
    await this.#engine.server(); // sets `spansNodes`
    return { ...found, store: new ChangeStore(this.#engine, found.line) };
  }
}
