import { Conflict, InvalidInput } from '../base/errors.ts';
import { Events } from '../base/events.ts';
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
import { type Definition, rootOf, type Source } from './declare/source.ts';
import type { Installer } from './operate/installer.ts';
import { type Drift, reconcile } from './operate/reconcile.ts';
import { copyStatements } from './postgres/copy.ts';
import { takeOver } from './postgres/epoch.ts';
import { CaptureStore } from './postgres/store.ts';
import { type Progress, SweepStore } from './postgres/sweep.ts';
import { compareTarget, openTarget, type Target, TargetStatements } from './postgres/target.ts';
import { Searcher, type SearchOptions, type SearchPage } from './search.ts';
import { CopyTable } from './work/copy.ts';
import { type Destination, OwnTable } from './work/destination.ts';
import { ProjectionWorker } from './work/projection-worker.ts';
import { type Failed, Projector } from './work/projector.ts';
import type { ProjectionEvents, ProjectionRuntime } from './work/runtime.ts';
import { Sweep } from './work/sweep.ts';

export interface BackfillOptions {
  /** Entities in one transaction. Default 500. */
  readonly batch?: number | undefined;
  /** Begin from the start even if one is under way. Default false: it goes on. */
  readonly again?: boolean | undefined;
  readonly onProgress?: ((progress: Progress) => void) | undefined;
  readonly signal?: AbortSignal | undefined;
}

export interface ReconcileOptions {
  /** Entities compared in one transaction. Default 500. */
  readonly batch?: number | undefined;
  /** Marks what differs as changed, so that it is projected again. Default true. */
  readonly repair?: boolean | undefined;
  readonly onProgress?: ((progress: Progress) => void) | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** A table that follows the entities of a capture. */
export class Projection {
  readonly name: string;
  readonly events: Events<ProjectionEvents> = new Events();
  readonly #engine: PostgresEngine;
  readonly #installer: Installer;
  readonly #options: ProjectionSettings;
  #opened: Promise<ProjectionRuntime> | undefined;
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
   * Starts a worker in this process, which keeps the table as the entities are. Any number of them share the work.
   * @throws InvalidInput
   */
  run(options: RunOptions = {}): ProjectionWorker {
    const settings = readRunOptions('run', options);
    return new ProjectionWorker(this.#engine, () => this.open(), this.events, settings);
  }

  /**
   * Writes all entities that are there, beside the changes that go on meanwhile; rows of entities that are gone leave the
   * table. Broken off, it goes on from where it was, also in a worker's hands.
   */
  async backfill(options: BackfillOptions = {}): Promise<Progress> {
    const { batch, again, onProgress, signal } = checkOptions('backfill', options, {
      ...pageShape,
      again: bool({ default: false }),
    });
    const { sweeps, sweep } = await this.open();
    await this.#engine.transaction((tx) => sweeps.start(tx, again));
    for (;;) {
      signal?.throwIfAborted();
      const page = await sweep.page(batch);
      const progress = page ?? (await sweeps.progress());
      if (progress === undefined) throw new Conflict('the back-fill is gone: the capture was detached meanwhile');
      onProgress(progress);
      if (progress.phase === 'done') return progress;
      if (page === undefined) await sleep(20); // a worker has the next page
    }
  }

  /**
   * Compares every entity with its row, page by page, and repairs what differs by marking it as changed. What is known to
   * have changed is no difference.
   */
  async reconcile(options: ReconcileOptions = {}): Promise<Drift> {
    const settings = checkOptions('reconcile', options, { ...pageShape, repair: bool({ default: true }) });
    return reconcile(this.#engine, await this.open(), settings);
  }

  /**
   * Finds rows by words, `"phrases"` and `beginnings*`, all of which have to match; `-word` leaves rows out. The best come
   * first; where very many match, the best of the first 500 in the projection's order.
   * @throws InvalidInput  no word to look for, an unknown column, a tenant that is missing
   */
  async search(query: string, options: SearchOptions = {}): Promise<SearchPage> {
    const { target } = await this.open();
    this.#searcher ??= new Searcher(this.#options.to ?? this.#engine, target, this.#options);
    return this.#searcher.search(query, options);
  }

  /**
   * Gives a copy to this database: after a dump was restored, or the database copied or upgraded, or when it was promoted by mistake
   * in place of another one. A back-fill begins, which the workers do, and rows that it never had leave the copy.
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
    const { sweeps } = await this.open();
    await this.#engine.transaction((tx) => sweeps.start(tx, true));
  }

  /** Waits until everything that was committed before this call is in the table, or has failed. A worker has to run. */
  async settled({ signal }: { readonly signal?: AbortSignal } = {}): Promise<void> {
    const { store, sweeps } = await this.open();
    // Links become keys, and whole tables a sweep: what they lead to stands behind the first mark.
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
    this.#opened ??= this.#open().catch((error: unknown) => {
      this.#opened = undefined;
      throw error;
    });
    return this.#opened;
  }

  async #find(): Promise<{ capture: number; line: number; definition: Definition }> {
    return (await this.#installer.find(this.name)) ?? this.#installer.install(this.name);
  }

  async #open(): Promise<ProjectionRuntime> {
    const found = await this.#find();
    const root = rootOf(found.definition);
    const target = await openTarget(this.#options.to ?? this.#engine, this.#options);
    const store = new CaptureStore(this.#engine, found.line, found.definition);
    const destination = this.#destination(found.line, target, root);
    const sweeps = new SweepStore(this.#engine, found.line, root, destination);
    const onFailed = (failed: Failed): void => this.events.emit('failed', failed);
    const projector = new Projector({ store, destination, onFailed });
    const sweep = new Sweep(store, sweeps, projector);
    return { line: found.line, capture: found.capture, target, destination, store, sweeps, sweep, projector };
  }

  #destination(line: number, target: Target, root: Source): Destination {
    const { build, query, to } = this.#options;
    if (to === undefined) return new OwnTable(new TargetStatements(target, root, query), target.key, build);
    const statements = copyStatements(target, root, query);
    return new CopyTable({ to, line, target: new TargetStatements(target, root), statements, key: target.key, build });
  }
}

const pageShape = {
  batch: integer({ min: 1, max: 10_000, default: 500 }),
  onProgress: func<(progress: Progress) => void>({ default: () => {} }),
  signal: signalOption,
};
