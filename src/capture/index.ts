import { type Duration, parseDuration } from '../base/time/duration.ts';
import { type PostgresEngine, requireEngine } from '../engine/postgres/index.ts';
import type { CapturedChange } from './change.ts';
import type { CaptureOptions, Difference } from './declare/definition.ts';
import type { ProjectOptions, RunOptions } from './declare/options.ts';
import { Follower, type FollowOptions } from './follower.ts';
import { type HistoryOptions, searchHistory } from './history.ts';
import { type CapturePlan, Installer } from './operate/installer.ts';
import { maintainLogPartitions } from './postgres/log-partitions.ts';
import { Projection } from './projection.ts';
import { CaptureWorker } from './worker.ts';

export type { Duration } from '../base/time/duration.ts';
export type { CapturedChange } from './change.ts';
export type {
  CaptureOptions,
  ColumnVia,
  Difference,
  HistoryOption,
  LinkVia,
  QueryVia,
  Via,
} from './declare/definition.ts';
export type { Build, DistributeOptions, ProjectedRow, ProjectOptions, RunOptions } from './declare/options.ts';
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
export type { ReconcileResult } from './operate/reconcile.ts';
export type { Culprit, LineStatus } from './postgres/admin.ts';
export type { Progress } from './postgres/sweep.ts';
export { type BackfillOptions, Projection, type ReconcileOptions } from './projection.ts';
export type { SearchMatch, SearchOptions, SearchPage } from './search.ts';
export { ProjectionWorker } from './work/projection-worker.ts';
export type { FailedEntity } from './work/projector.ts';
export type { ProjectionEvents } from './work/runtime.ts';
export { CaptureWorker } from './worker.ts';

/**
 * Declares what an entity is made of: a table with one row per entity, and the tables whose rows are parts of it. Sends
 * nothing to the database.
 * @throws InvalidInput on a declaration that contradicts itself
 */
export function createCapture(engine: PostgresEngine, options: CaptureOptions): Capture {
  requireEngine('createCapture', engine);
  return new Capture(engine, options);
}

/**
 * Captures the changes of an entity's tables by triggers, whatever program or statement makes them. The triggers write a
 * change to the log in its own transaction: it is in the log when that commits, and not when it rolls back.
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

  /** The projections that were declared so far. */
  get projections(): readonly Projection[] {
    return this.#projections;
  }

  /** The followers that were declared so far. */
  get followers(): readonly Follower[] {
    return this.#followers;
  }

  /**
   * Lists the differences from the declaration, with the SQL that `apply()` would run. Changes nothing.
   * @throws InvalidInput  a table, column, query or privilege is missing
   */
  plan(): Promise<CapturePlan> {
    return this.#installer.plan();
  }

  /**
   * Installs the triggers, and the tables of the projections declared so far, in one transaction. It does not touch objects that
   * match the declaration. If installed triggers may have missed changes, the projections go through all entities once more.
   * Writers of these tables wait for a moment. If one of them keeps its transaction open for more than 10 s, nothing is changed.
   * @returns the repaired differences
   * @throws InvalidInput  a table, column, query or privilege is missing; nothing was changed
   * @throws LockNotAvailable  a table was in use for too long; nothing was changed
   */
  async apply(): Promise<readonly Difference[]> {
    return this.#installer.apply();
  }

  /**
   * Proves from the catalogs that no change is missed: every trigger is as it was made, on every partition, and always enabled;
   * its function is unchanged and has its owner and its settings; no partition was added or removed.
   * @returns the differences
   */
  verify(): Promise<readonly Difference[]> {
    return this.#installer.verify();
  }

  /**
   * Removes the triggers, their functions and the log of this capture, and what other databases have stored about its copies.
   * Tables that projections wrote stay. If another database cannot be reached, a warning names what stays there.
   */
  detach(): Promise<void> {
    return this.#installer.detach();
  }

  /**
   * Finds changes in the tables that have a history, newest first.
   * @throws InvalidInput, NotFound
   */
  async history(options: HistoryOptions = {}): Promise<readonly CapturedChange[]> {
    return searchHistory(this.#engine, await this.#installer.requireCapture(), options);
  }

  /**
   * Drops the months of the log that ended longer ago than `keep`, except months that a follower has not received in full or
   * that another capture keeps for longer. Workers do this by themselves for the declared `keep`; this call does it once,
   * now.
   * @param keep  default: as declared
   * @returns the partitions that were dropped, and `capture_change_rest` if changes of months without a partition were deleted
   */
  async prune({ keep }: { readonly keep?: Duration } = {}): Promise<readonly string[]> {
    const { capture, definition } = await this.#installer.requireCapture();
    const keepMs = keep === undefined ? definition.keepMs : parseDuration(keep, { field: 'keep' });
    return maintainLogPartitions(this.#engine, { capture, keepMs });
  }

  /**
   * Declares a consumer that receives every change once, in order. Call `apply()` after it: the consumer receives the changes
   * that are made from then on.
   * @throws InvalidInput
   */
  follow(options: FollowOptions): Follower {
    const follower = new Follower(this.#engine, this.#installer, options);
    this.#followers.push(follower);
    return follower;
  }

  /**
   * Declares a table that follows the entities: `build` makes its rows. Call `apply()` after it, then `backfill()` once, and
   * `run()` in as many processes as you like.
   * @throws InvalidInput
   */
  project(options: ProjectOptions): Projection {
    const projection = new Projection(this.#engine, this.#installer, options);
    this.#projections.push(projection);
    return projection;
  }

  /**
   * Starts a worker in this process for each projection, with these options, and for each follower that was declared so far. The
   * signal stops all of them.
   * @throws InvalidInput
   */
  run(options: RunOptions = {}): CaptureWorker {
    const workers = this.#projections.map((projection) => projection.run(options));
    const { signal } = options;
    return new CaptureWorker([...workers, ...this.#followers.map((follower) => follower.run({ signal }))]);
  }
}
