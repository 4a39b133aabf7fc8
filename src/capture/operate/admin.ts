import { NotFound } from '../../base/errors.ts';
import { suggest } from '../../base/options/options.ts';
import { sleep } from '../../base/time/clock.ts';
import { id, type PostgresEngine, requireEngine } from '../../engine/postgres/index.ts';
import { type CapturedChange, toChange } from '../change.ts';
import type { Difference } from '../declare/definition.ts';
import { type Definition, rootOf, showTable } from '../declare/source.ts';
import { type HistoryOptions, searchHistory } from '../history.ts';
import {
  type Culprit,
  type LineStatus,
  readBetween,
  readCulprits,
  readSnapshot,
  readStatus,
} from '../postgres/admin.ts';
import { detach, mend } from '../postgres/install/apply.ts';
import { compare, markMissed } from '../postgres/install/plan.ts';
import { compareRowSecurity } from '../postgres/install/row-security.ts';
import { type InstalledState, readDefinitions, readState } from '../postgres/install/state.ts';
import { startSweep } from '../postgres/sweep.ts';
import type { CapturePlan } from './installer.ts';

/** A capture that is installed in the database. */
export interface CaptureRecord {
  readonly entity: string;
  readonly root: string;
  readonly tables: readonly string[];
}

/** Manages the captures of a database without the program that declared them. */
export function createCaptureAdmin(engine: PostgresEngine): CaptureAdmin {
  requireEngine('createCaptureAdmin', engine);
  return new CaptureAdmin(engine);
}

export class CaptureAdmin {
  readonly #engine: PostgresEngine;

  /** @internal */
  constructor(engine: PostgresEngine) {
    this.#engine = engine;
  }

  async list(): Promise<CaptureRecord[]> {
    const found = await readDefinitions(this.#engine);
    return found.map(({ entity, definition }) => ({
      entity,
      root: showTable(rootOf(definition)),
      tables: definition.sources.map(showTable),
    }));
  }

  /** How far each consumer is behind, of one capture or of all. @throws NotFound */
  async status(entity?: string): Promise<LineStatus[]> {
    if (entity !== undefined) await this.#find(entity);
    return readStatus(this.#engine, entity);
  }

  /** Transactions that have been open for more than this many milliseconds, the oldest first; at most five. */
  culprits(olderThanMs = 10_000): Promise<Culprit[]> {
    return readCulprits(this.#engine, olderThanMs);
  }

  /** Like `capture.verify()`, with the installed declaration. @throws NotFound */
  async verify(entity: string): Promise<readonly Difference[]> {
    const { state, definition } = await this.#find(entity);
    const found = compare(
      { id: state.capture?.id ?? 0, definition, lines: state.lines, schema: state.schema.name },
      state,
    );
    return [...found, ...(await compareRowSecurity(this.#engine, definition))];
  }

  /** Like `capture.plan()`, with the installed declaration: what has to be repaired, and by which SQL. @throws NotFound */
  async plan(entity: string): Promise<CapturePlan> {
    const { state, definition } = await this.#find(entity);
    const differences = compare(
      { id: state.capture?.id ?? 0, definition, lines: state.lines, schema: state.schema.name },
      state,
    );
    const statements = [...markMissed(state), ...differences.flatMap(({ sql }) => sql)];
    return { differences, sql: mend(definition, state.schema, differences.length === 0 ? [] : statements) };
  }

  /**
   * Starts to project all entities once, while changes go on. A worker of the projection has to run somewhere: it does the
   * work, and `status()` shows its progress. A replay that is under way continues, unless `again` is true.
   * @returns the projections for which it was started: the named one, or all
   * @throws NotFound
   */
  async replay(
    entity: string,
    { into, again = false }: { readonly into?: string | undefined; readonly again?: boolean } = {},
  ): Promise<string[]> {
    const { state, definition } = await this.#find(entity);
    const lines = state.lines.filter(({ guarantee, name }) => guarantee === 'latest' && (into ?? name) === name);
    if (lines.length === 0) {
      const what = into === undefined ? 'no projection' : `no projection "${into}"`;
      throw new NotFound(`the capture "${entity}" has ${what} that can be filled again`);
    }
    const { schema, name: table } = rootOf(definition);
    for (const { id: line } of lines)
      await this.#engine.transaction((tx) => startSweep(tx, line, id(schema, table), again));
    return lines.map(({ name }) => name);
  }

  /** @throws NotFound, InvalidInput */
  async history(entity: string, options: HistoryOptions = {}): Promise<CapturedChange[]> {
    const { state, definition } = await this.#find(entity);
    return searchHistory(this.#engine, { capture: state.capture?.id ?? 0, definition }, options);
  }

  /**
   * Yields the changes that are committed from now on, in tables with a history, until the signal aborts. @throws NotFound
   */
  async *tail(
    entity: string,
    { signal, pollMs = 250 }: { readonly signal: AbortSignal; readonly pollMs?: number },
  ): AsyncGenerator<CapturedChange> {
    const { definition } = await this.#find(entity);
    let from = await readSnapshot(this.#engine);
    while (!signal.aborted) {
      const to = await readSnapshot(this.#engine);
      for (const row of await readBetween(this.#engine, entity, from, to)) yield toChange(row, definition);
      from = to;
      await sleep(pollMs, signal);
    }
  }

  /** Removes the triggers, their functions and the log of this capture. @throws NotFound */
  async detach(entity: string): Promise<void> {
    await this.#find(entity);
    await detach(this.#engine, entity);
  }

  async #find(entity: string): Promise<{ state: InstalledState; definition: Definition }> {
    const all = await readDefinitions(this.#engine);
    const found = all.find((one) => one.entity === entity);
    if (found !== undefined)
      return { state: await readState(this.#engine, found.definition), definition: found.definition };
    const names = all.map((one) => one.entity);
    const near = suggest(entity, names);
    const advice =
      near === undefined
        ? names.length === 0
          ? 'there is none'
          : `there are ${names.join(', ')}`
        : `did you mean "${near}"?`;
    throw new NotFound(`no capture "${entity}" is installed in this database; ${advice}`);
  }
}
