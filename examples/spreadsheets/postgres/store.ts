import { type PostgresEngine, postgres } from 'pawl/postgres';
import type { Unit, Worker } from 'pawl/queue';
import type { Create, Update } from '../payload.ts';
import { type SheetQueue, sheetQueue } from '../queue.ts';
import type {
  Acceptance,
  BackEndOptions,
  Move,
  ObservedStore,
  Request,
  SheetHandlers,
  Spreadsheet,
  Version,
} from '../store.ts';
import { latestRequests, movesOf, statusesOf } from './jobs.ts';
import { applyRun, beginRun, countDoubleRuns, interruptedBy } from './run-log.ts';
import { createTables, find, gather, insert, isEmpty, lock, save } from './table.ts';

/** @param max  connections */
export function openPostgres(url: string, applicationName: string, max?: number): PostgresStore {
  return new PostgresStore(postgres(url, { applicationName, max }));
}

/** On Postgres: the spreadsheets are rows next to the queue, and what belongs together is one transaction. */
export class PostgresStore implements ObservedStore {
  readonly queue: SheetQueue;
  readonly #engine: PostgresEngine;

  constructor(engine: PostgresEngine) {
    this.#engine = engine;
    this.queue = sheetQueue(engine);
  }

  async prepare(): Promise<void> {
    await this.#engine.migrate();
    await createTables(this.#engine);
  }

  async describe(): Promise<{ postgres: string }> {
    const { serverVersion } = await this.#engine.describe();
    return { postgres: serverVersion };
  }

  /** The spreadsheet's row and its job are written in one transaction: there is never one without the other. */
  create(id: string, request: Create, by: string): Promise<Acceptance> {
    return this.#engine.transaction(async (tx) => {
      const { id: job, duplicate } = await this.queue.enqueue('create', request, { key: id, tx });
      if (!duplicate) await insert(tx, id, request.columns, by);
      return { job, duplicate };
    });
  }

  update(id: string, request: Update, gatherMs: number): Promise<Acceptance> {
    return this.#engine.transaction(async (tx) => {
      const runAt = gatherMs === 0 ? undefined : await gather(tx, id, gatherMs);
      const { id: job, duplicate } = await this.queue.enqueue('update', request, { key: id, runAt, tx });
      return { job, duplicate };
    });
  }

  find(id: string): Promise<Spreadsheet | undefined> {
    return find(this.#engine, id);
  }

  requests(id: string, limit: number): Promise<Request[]> {
    return latestRequests(this.#engine, id, limit);
  }

  moves(requests: readonly Request[]): Promise<Move[]> {
    return movesOf(this.#engine, requests);
  }

  work(handlers: SheetHandlers, { concurrency }: BackEndOptions): Worker {
    const { create, update } = handlers;
    return this.queue.work({ create, update }, { hold: 'transaction', concurrency });
  }

  async begin(unit: Unit): Promise<Spreadsheet | undefined> {
    await beginRun(this.#engine, unit);
    return lock(unit.tx, unit.key ?? '');
  }

  /** In the unit's own transaction, with which the outcome of its jobs is committed. */
  async save(unit: Unit, { id }: Spreadsheet, next: Version): Promise<void> {
    await save(unit.tx, id, next);
    await applyRun(unit);
  }

  isTransient(error: unknown): boolean {
    return this.#engine.isTransient(error);
  }

  isEmpty(): Promise<boolean> {
    return isEmpty(this.#engine);
  }

  statuses(jobs: readonly string[]): Promise<ReadonlyMap<string, Request['status']>> {
    return statusesOf(this.#engine, jobs);
  }

  countDoubleRuns(): Promise<number> {
    return countDoubleRuns(this.#engine);
  }

  interruptedBy(pid: number): Promise<string[]> {
    return interruptedBy(this.#engine, pid);
  }

  async stop(): Promise<void> {
    await this.#engine.stop();
  }
}
