import { type Duration, parseDuration } from '../base/time/duration.ts';
import { type PostgresEngine, requireEngine } from '../engine/postgres/index.ts';
import type { Change } from './change.ts';
import type { CaptureOptions, Difference } from './declare/definition.ts';
import type { ProjectOptions, RunOptions } from './declare/options.ts';
import { Follower, type FollowOptions } from './follower.ts';
import { type HistoryOptions, searchHistory } from './history.ts';
import { type CapturePlan, Installer } from './operate/installer.ts';
import { maintainLogPartitions } from './postgres/log-partitions.ts';
import { Projection } from './projection.ts';
import { CaptureWorker } from './worker.ts';

export type { Duration } from '../base/time/duration.ts';
export type { Change } from './change.ts';
export type {
  CaptureOptions,
  ColumnVia,
  Difference,
  HistoryOption,
  LinkVia,
  QueryVia,
  Via,
} from './declare/definition.ts';
export type { Build, ProjectedRow, ProjectOptions, RunOptions } from './declare/options.ts';
export { Sql, sql } from './declare/sql-text.ts';
export {
  type ChangeHandler,
  Follower,
  type FollowerEvents,
  FollowerWorker,
  type FollowOptions,
  type FollowRunOptions,
} from './follower.ts';
export type { HistoryOptions } from './history.ts';
export { CaptureAdmin, type CaptureRecord, createCaptureAdmin } from './operate/admin.ts';
export type { CapturePlan } from './operate/installer.ts';
export type { Drift } from './operate/reconcile.ts';
export type { Culprit, LineStatus } from './postgres/admin.ts';
export type { Progress } from './postgres/sweep.ts';
export { type BackfillOptions, Projection, type ReconcileOptions } from './projection.ts';
export type { SearchMatch, SearchOptions, SearchPage } from './search.ts';
export { ProjectionWorker } from './work/projection-worker.ts';
export type { Failed } from './work/projector.ts';
export type { ProjectionEvents } from './work/runtime.ts';
export { CaptureWorker } from './worker.ts';

/**
 * Declares what an entity is made of: a table with one row for each, and the tables whose rows are parts of it. Nothing is sent
 * until it is used.
 * @throws InvalidInput on a declaration that contradicts itself
 */
export function createCapture(engine: PostgresEngine, options: CaptureOptions): Capture {
  requireEngine('createCapture', engine);
  return new Capture(engine, options);
}

/**
 * Captures the changes of an entity's tables by triggers, whoever makes them and however. A committed change is noted, in
 * the same transaction; one that is rolled back is not.
 */
export class Capture {
  readonly entity: string;
  readonly #engine: PostgresEngine;
  readonly #installer: Installer;
  readonly #projections: Projection[] = [];
  readonly #followers: Follower[] = [];

  /** @internal */
  constructor(engine: PostgresEngine, options: CaptureOptions) {
    this.#engine = engine;
    this.#installer = new Installer(engine, options);
    this.entity = options.entity;
  }

  /** Those declared so far. */
  get projections(): readonly Projection[] {
    return this.#projections;
  }

  /** Those declared so far. */
  get followers(): readonly Follower[] {
    return this.#followers;
  }

  /**
   * Says what is not as it was declared, and gives the SQL that `apply()` would run. Changes nothing.
   * @throws InvalidInput  a table, column, query or privilege is missing
   */
  plan(): Promise<CapturePlan> {
    return this.#installer.plan();
  }

  /**
   * Installs the triggers, and the tables of the projections declared so far, in one transaction; what is right already is left
   * alone. Where triggers that had been installed had a hole, projections go through all entities once more. Writers of these tables wait for a moment; if one is at it for more than 10 s, nothing is done.
   * @returns what was mended
   * @throws InvalidInput  a table, column, query or privilege is missing; nothing was done
   * @throws LockNotAvailable  a table was in use for too long; nothing was done
   */
  async apply(): Promise<readonly Difference[]> {
    return this.#installer.apply();
  }

  /**
   * Proves from the catalogs that no change can go unnoticed: every trigger as it was made, on every partition, always enabled, its
   * function unchanged, owned and pinned; no partition that came or went since. @returns what is not so
   */
  verify(): Promise<readonly Difference[]> {
    return this.#installer.verify();
  }

  /** Takes out the triggers, their functions and everything noted. Tables that projections wrote stay. */
  detach(): Promise<void> {
    return this.#installer.detach();
  }

  /**
   * Who changed what, newest first, in the tables that have a history.
   * @throws InvalidInput, NotFound
   */
  async history(options: HistoryOptions = {}): Promise<readonly Change[]> {
    return searchHistory(this.#engine, await this.#installer.requireCapture(), options);
  }

  /**
   * Drops the months of the log that ended longer ago than `keep`, except where a follower has not had everything of them, or
   * another capture keeps its own for longer. Workers do it by themselves for what was declared; this is for now and once.
   * @param keep  default: as declared
   * @returns the partitions that were dropped
   */
  async prune({ keep }: { readonly keep?: Duration } = {}): Promise<readonly string[]> {
    const { capture, definition } = await this.#installer.requireCapture();
    const keepMs = keep === undefined ? definition.keepMs : parseDuration(keep, { field: 'keep' });
    return maintainLogPartitions(this.#engine, { capture, keepMs });
  }

  /**
   * Declares a consumer that is given every change once, in order. Call `apply()` after it; changes before that are not given.
   * @throws InvalidInput
   */
  follow(options: FollowOptions): Follower {
    const follower = new Follower(this.#engine, this.#installer, options);
    this.#followers.push(follower);
    return follower;
  }

  /**
   * Declares a table that follows the entities: `build` says what a row is. Call `apply()` after it, then `backfill()`
   * once, and `run()` in as many processes as you like.
   * @throws InvalidInput
   */
  project(options: ProjectOptions): Projection {
    const projection = new Projection(this.#engine, this.#installer, options);
    this.#projections.push(projection);
    return projection;
  }

  /**
   * Starts everything that was declared so far in this process: each projection, with these options, and each follower.
   * @throws InvalidInput
   */
  run(options: RunOptions = {}): CaptureWorker {
    const workers = this.#projections.map((projection) => projection.run(options));
    return new CaptureWorker([...workers, ...this.#followers.map((follower) => follower.run())]);
  }
}
