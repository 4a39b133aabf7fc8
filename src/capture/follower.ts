import type { Duration } from '../base/duration.ts';
import { Events } from '../base/events.ts';
import { faults } from '../base/fault.ts';
import { type Loop, startLoop } from '../base/loop.ts';
import { checkOptions, duration, func, integer, text } from '../base/options.ts';
import type { PostgresEngine, Transaction } from '../engine/postgres/index.ts';
import { type Change, toChange } from './change.ts';
import type { Installer } from './installer.ts';
import { ChangeStore } from './postgres-change.ts';
import type { Definition } from './source.ts';

/**
 * What is done with changes. What is written through `tx` is committed together with their acknowledgement; what is done
 * elsewhere may be asked for again, with the same ids.
 */
export type ChangeHandler = (changes: readonly Change[], tx: Transaction) => Promise<void>;

export interface FollowOptions {
  /** The name of this consumer, under which its place is kept. */
  readonly name: string;
  readonly handler: ChangeHandler;
}

export interface FollowRunOptions {
  /** Changes in one call of the handler. Default 1,000. */
  readonly batch?: number | undefined;
  /** How often to look when nothing changes. Default 200 ms. */
  readonly poll?: Duration | undefined;
  /** How long one call may take; a process that hangs loses its place then. Default 30 s. */
  readonly timeout?: Duration | undefined;
}

export interface FollowerEvents {
  readonly delivered: { readonly changes: number };
  /** The handler or the database failed; the same changes come again. */
  readonly error: { readonly error: unknown };
}

/** Every change once, in an order that late commits do not upset. One process at a time is given changes. */
export class Follower {
  readonly name: string;
  readonly events: Events<FollowerEvents> = new Events();
  readonly #engine: PostgresEngine;
  readonly #installer: Installer;
  readonly #handler: ChangeHandler;
  #opened: Promise<{ store: ChangeStore; capture: number; definition: Definition }> | undefined;

  /** @internal */
  constructor(engine: PostgresEngine, installer: Installer, options: FollowOptions) {
    const { name, handler } = checkOptions('follow', options, {
      name: text({ min: 1, max: 200 }),
      handler: func<ChangeHandler>(),
    });
    this.name = name;
    this.#engine = engine;
    this.#installer = installer;
    this.#handler = handler;
    installer.add({ name, guarantee: 'ordered', definition: {} });
  }

  /** Starts a worker in this process. */
  run(options: FollowRunOptions = {}): Loop {
    const { batch, poll, timeout } = checkOptions('run', options, {
      batch: integer({ min: 1, max: 100_000, default: 1000 }),
      poll: duration({ min: 1, max: '1h', default: 200 }),
      timeout: duration({ min: '1s', max: '1h', default: '30s' }),
    });
    return startLoop({
      name: 'capture.follow',
      run: async () => ((await this.next({ batch, timeoutMs: timeout })) > 0 ? 0 : poll),
      onError: (error, failures) => {
        this.#engine.options.logger.warn({ err: error, failures }, 'changes could not be delivered; they come again');
        this.events.emit('error', { error });
      },
    });
  }

  /**
   * Delivers one batch now. @returns how many changes
   * @throws Conflict  the log comes from a cluster that is ahead of this one: see `rebase()`
   */
  async next({ batch = 1000, timeoutMs = 30_000 }: { batch?: number; timeoutMs?: number } = {}): Promise<number> {
    const { store, definition } = await this.#open();
    const delivered = await store.next(batch, timeoutMs, async (rows, tx) => {
      await this.#handler(
        rows.map((row) => toChange(row, definition)),
        tx,
      );
      if (faults.armed) await faults.reach('capture.after_handler');
    });
    if (delivered !== undefined && delivered > 0) this.events.emit('delivered', { changes: delivered });
    return delivered ?? 0;
  }

  /**
   * After a restore from a dump into another cluster: takes what is in the log as it is. What this consumer had had is not given
   * again; if others of the capture had had less, that is.
   * @returns how many changes are still to come
   */
  async rebase(): Promise<number> {
    const { store, capture } = await this.#open();
    return store.rebase(capture);
  }

  #open(): Promise<{ store: ChangeStore; capture: number; definition: Definition }> {
    this.#opened ??= this.#find().catch((error: unknown) => {
      this.#opened = undefined;
      throw error;
    });
    return this.#opened;
  }

  async #find(): Promise<{ store: ChangeStore; capture: number; definition: Definition }> {
    const found = (await this.#installer.find(this.name)) ?? (await this.#installer.install(this.name));
    return { store: new ChangeStore(this.#engine, found.line), capture: found.capture, definition: found.definition };
  }
}
