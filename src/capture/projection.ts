import { Conflict, InvalidInput, SerializationFailed } from '../base/errors.ts';
import { Events } from '../base/events.ts';
import { Lazy } from '../base/lazy.ts';
import { bool, checkOptions, func, integer, signal as signalOption } from '../base/options/options.ts';
import { sleep } from '../base/time/clock.ts';
import type { PostgresEngine } from '../engine/postgres/index.ts';
import {
  type ProjectionSettings,
  type ProjectOptions,
  type RunOptions,
  readProjectOptions,
  readRunOptions,
} from './declare/options.ts';
import { rootOf, type Source } from './declare/source.ts';
import type { Installer } from './operate/installer.ts';
import { type ReconcileResult, reconcile } from './operate/reconcile.ts';
import { copyStatements } from './postgres/copy.ts';
import { takeOver } from './postgres/epoch.ts';
import type { InstalledLine } from './postgres/install/state.ts';
import { mostLockedKeys } from './postgres/lock-room.ts';
import { CaptureStore } from './postgres/store.ts';
import { type Progress, SweepStore } from './postgres/sweep.ts';
import { TargetStatements } from './postgres/target/statements.ts';
import { compareTarget, openTarget, type Target } from './postgres/target/target.ts';
import { Searcher, type SearchOptions, type SearchPage } from './search.ts';
import { CopyTable } from './work/copy.ts';
import { type Destination, OwnTable } from './work/destination.ts';
import { ProjectionWorker } from './work/projection-worker.ts';
import { type FailedEntity, Projector } from './work/projector.ts';
import type { ProjectionEvents, ProjectionRuntime } from './work/runtime.ts';
import { SpreadTable } from './work/spread.ts';
import { Sweep } from './work/sweep.ts';

export interface BackfillOptions {
  /** Entities in one transaction, which locks each of them. Default 500. Fewer on a server with little room for locks. */
  readonly batch?: number | undefined;
  /** Start from the beginning even if a back-fill is under way. Default false: that one continues. */
  readonly again?: boolean | undefined;
  readonly onProgress?: ((progress: Progress) => void) | undefined;
  readonly signal?: AbortSignal | undefined;
}

export interface ReconcileOptions {
  /** Entities compared in one transaction. Default 500. */
  readonly batch?: number | undefined;
  /** Mark entities whose row differs as changed, so that they are projected again. Default true. */
  readonly repair?: boolean | undefined;
  readonly onProgress?: ((progress: Progress) => void) | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** A back-fill gives up after more lost races in a row than this. */
const MOST_LOST_RACES = 4;

/** A table that follows the entities of a capture. */
export class Projection {
  readonly name: string;
  readonly events: Events<ProjectionEvents> = new Events();
  readonly #engine: PostgresEngine;
  readonly #installer: Installer;
  readonly #options: ProjectionSettings;
  #opened: Lazy<ProjectionRuntime> = new Lazy(async () => this.#open(await this.#find()));
  #searcher: Searcher | undefined;

  /** @internal */
  constructor(engine: PostgresEngine, installer: Installer, options: ProjectOptions) {
    this.#engine = engine;
    this.#installer = installer;
    this.#options = readProjectOptions(options);
    this.name = this.#options.name;
    const { build: _build, query: _query, name, to, ...definition } = this.#options;
    if (to === engine) {
      throw new InvalidInput('"to" is the database that is captured; leave it out', { field: 'to' });
    }
    installer.add({
      name,
      guarantee: 'latest',
      definition: to === undefined ? definition : { ...definition, isElsewhere: true },
      elsewhere: to,
      compare: (db, capture) => compareTarget(db, capture, this.#options),
    });
  }

  /**
   * Starts a worker in this process that keeps the table up to date. Any number of workers share the work.
   * @throws InvalidInput
   */
  run(options: RunOptions = {}): ProjectionWorker {
    const settings = readRunOptions('run', options);
    return new ProjectionWorker(this.#engine, this.#options.to, this, this.events, settings);
  }

  /**
   * Writes all existing entities, while changes go on, and removes the rows of entities that do not exist any more. After an
   * interruption the next call, or a worker, continues where it stopped.
   */
  async backfill(options: BackfillOptions = {}): Promise<Progress> {
    const { batch, again, onProgress, signal } = checkOptions('backfill', options, {
      ...pageShape,
      again: bool({ default: false }),
    });
    const { sweeps, sweep, mostKeys } = await this.#openCurrent();
    const size = Math.min(batch, mostKeys);
    await this.#engine.transaction((tx) => sweeps.start(tx, again));
    for (let lostRaces = 0; ; ) {
      signal?.throwIfAborted();
      // A page is one transaction. If it loses a race, such as a deadlock with a TRUNCATE, it leaves nothing, and is written
      // again.
      const page = await sweep.page(size).catch((error: unknown) => {
        lostRaces += 1;
        if (!(error instanceof SerializationFailed) || lostRaces > MOST_LOST_RACES) throw error;
        return undefined;
      });
      if (page !== undefined) lostRaces = 0;
      const progress = page ?? (await sweeps.progress());
      if (progress === undefined) throw new Conflict('the back-fill ended early: the capture was detached meanwhile');
      onProgress(progress);
      if (progress.phase === 'done') return progress;
      if (page === undefined) await sleep(20); // a worker has the next page, or the winner of the race still runs
    }
  }

  /**
   * Compares every entity with its row, page by page, and marks entities whose row differs as changed, so that they are
   * projected again. Entities whose change is still to be projected do not count as different.
   */
  async reconcile(options: ReconcileOptions = {}): Promise<ReconcileResult> {
    const settings = checkOptions('reconcile', options, { ...pageShape, repair: bool({ default: true }) });
    const runtime = await this.#openCurrent();
    return reconcile(this.#engine, runtime, { ...settings, batch: Math.min(settings.batch, runtime.mostKeys) });
  }

  /**
   * Finds rows by words, `"phrases"` and `beginnings*`, all of which have to match; `-word` excludes rows. Of more than 32 terms
   * the last ones are ignored. The best matches come first. If very many rows match, these are the best of the first 500 in the projection's order.
   * @throws InvalidInput  no word to search for, an unknown column, a missing tenant
   */
  async search(query: string, options: SearchOptions = {}): Promise<SearchPage> {
    const { target } = await this.open();
    this.#searcher ??= new Searcher(this.#options.to ?? this.#engine, target, this.#options);
    return this.#searcher.search(query, options);
  }

  /**
   * Makes this database the owner of its copy: after a dump was restored, or the database was copied or upgraded, or promoted
   * by mistake in place of another one. Starts a back-fill, which the workers do; it removes rows of the copy that this
   * database does not have.
   * @throws InvalidInput  the table is not in another database
   */
  async rebase(): Promise<void> {
    const { to } = this.#options;
    if (to === undefined) {
      throw new InvalidInput('only a copy in another database can be rebased; run backfill({ again: true })', {
        field: 'to',
      });
    }
    const found = await this.#find();
    await takeOver(this.#engine, to, found.line);
    const { sweeps } = await this.#openCurrent();
    await this.#engine.transaction((tx) => sweeps.start(tx, true));
  }

  /** Waits until every change that was committed before this call is in the table, or has failed. A worker has to run. */
  async settled({ signal }: { readonly signal?: AbortSignal } = {}): Promise<void> {
    const { store, sweeps } = await this.#openCurrent();
    // A link that is followed adds keys to the log behind the first mark, and a changed table starts a sweep: hence a second
    // round.
    for (let round = 0; round < 2; round += 1) {
      const mark = await store.newest();
      while (!(await store.isPast(mark)) || (await sweeps.isOpen())) {
        signal?.throwIfAborted();
        await sleep(10);
      }
    }
  }

  /** @internal */
  open(): Promise<ProjectionRuntime> {
    return this.#opened.get();
  }

  /**
   * Called when the capture was applied with another declaration, or detached, since `old` was opened. What was detached is not
   * installed by this.
   * @internal
   */
  async reopen(old: ProjectionRuntime): Promise<void> {
    if ((await this.#opened.get().catch(() => undefined)) !== old) return;
    this.#opened = new Lazy(async () => this.#open(await this.#installer.require(this.name)));
  }

  async #openCurrent(): Promise<ProjectionRuntime> {
    const runtime = await this.open();
    if (await runtime.store.isCurrent()) return runtime;
    await this.reopen(runtime);
    return this.open();
  }

  async #find(): Promise<InstalledLine> {
    return (await this.#installer.find(this.name)) ?? this.#installer.install(this.name);
  }

  async #open(found: InstalledLine): Promise<ProjectionRuntime> {
    const root = rootOf(found.definition);
    const target = await openTarget(this.#options.to ?? this.#engine, this.#options);
    const store = new CaptureStore(this.#engine, found);
    const destination = this.#destination(found.line, target, root);
    const sweeps = new SweepStore(this.#engine, found.line, root, destination);
    const onFailed = (failed: FailedEntity): void => this.events.emit('failed', failed);
    const projector = new Projector({ store, destination, onFailed });
    const sweep = new Sweep(store, sweeps, projector);
    const mostKeys = await mostLockedKeys(this.#engine);
    return { line: found.line, capture: found.capture, target, destination, store, sweeps, sweep, projector, mostKeys };
  }

  #destination(line: number, target: Target, root: Source): Destination {
    const { build, query, to } = this.#options;
    const { key, isDistributed } = target;
    if (to === undefined && !isDistributed) return new OwnTable(new TargetStatements(target, root, query), key, build);
    const parts = {
      target: new TargetStatements(target, root),
      statements: copyStatements(target, root, query),
      key,
      build,
    };
    return to === undefined ? new SpreadTable(parts) : new CopyTable({ to, line, isDistributed, ...parts });
  }
}

const pageShape = {
  batch: integer({ min: 1, max: 10_000, default: 500 }),
  onProgress: func<(progress: Progress) => void>({ default: () => {} }),
  signal: signalOption,
};
