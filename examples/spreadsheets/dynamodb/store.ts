import { DynamoDBClient } from '@aws-sdk/client-dynamodb';
import { type DynamoEngine, dynamodb } from 'pawl/dynamodb';
import { NotFound } from 'pawl/errors';
import {
  type AnyQueueAdmin,
  createQueueAdmin,
  type JobRecord,
  type SearchPage,
  type Unit,
  type Worker,
} from 'pawl/queue';
import type { Create, Update } from '../payload.ts';
import { type TableSheetQueue, tableSheetQueue } from '../queue.ts';
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
import { RunLog } from './run-log.ts';
import { SheetTable } from './table.ts';

/** Jobs that are looked up at the same time. */
const AT_ONCE = 8;

/**
 * On DynamoDB, with the region and the credentials of the environment.
 * @param table  that of Pawl. It belongs to Pawl alone, so the spreadsheets have another one.
 */
export function openDynamo(table: string): DynamoStore {
  const client = new DynamoDBClient({});
  return new DynamoStore(client, dynamodb(client, { table }), new SheetTable(client, `${table}-spreadsheets`));
}

/**
 * On DynamoDB: what belongs together is one `TransactWriteItems`. A unit is held by a lease, and a job may come again after its version was
 * saved: the row of the spreadsheet names the jobs of its version.
 */
export class DynamoStore implements ObservedStore {
  readonly queue: TableSheetQueue;
  readonly #client: DynamoDBClient;
  readonly #engine: DynamoEngine;
  readonly #table: SheetTable;
  readonly #runs: RunLog;
  readonly #admin: AnyQueueAdmin;

  constructor(client: DynamoDBClient, engine: DynamoEngine, table: SheetTable) {
    this.#client = client;
    this.#engine = engine;
    this.#table = table;
    this.#runs = new RunLog(table);
    this.#admin = createQueueAdmin(engine);
    this.queue = tableSheetQueue(engine);
  }

  async prepare(): Promise<void> {
    await Promise.all([this.#engine.migrate(), this.#table.create()]);
    await this.queue.register();
  }

  async describe(): Promise<{ dynamodb: string }> {
    await this.#engine.isMigrated();
    return { dynamodb: this.#engine.table };
  }

  /** The spreadsheet's row and its job are one transaction. Of two requests for one name, one is carried out. */
  async create(id: string, request: Create, by: string): Promise<Acceptance> {
    for (;;) {
      const first = await this.#table.creatorOf(id);
      if (first !== undefined) return { job: first, duplicate: true };
      const { id: job, items } = await this.queue.enqueueItems('create', request, { key: id });
      const isDone = await this.#table.write([this.#table.added(id, request.columns, by, job), ...items]);
      if (isDone) return { job, duplicate: false };
    }
  }

  /** A crash between the two requests leaves a time, and no job: the next update that comes before it is written then. */
  async update(id: string, request: Update, gatherMs: number): Promise<Acceptance> {
    const runAt = gatherMs === 0 ? undefined : await this.#table.gather(id, gatherMs);
    const { id: job, duplicate } = await this.queue.enqueue('update', request, { key: id, runAt });
    return { job, duplicate };
  }

  find(id: string): Promise<Spreadsheet | undefined> {
    return this.#table.find(id);
  }

  /** A page that takes long is cut short, and says where the next one begins. */
  async requests(id: string, limit: number): Promise<Request[]> {
    const { name } = this.queue;
    const found: Request[] = [];
    for (let after: string | null = null; ; ) {
      const page: SearchPage = await this.#admin.search(`key:"${id}"`, {
        queue: name,
        limit: limit - found.length,
        after,
      });
      found.push(...page.jobs.map((job) => ({ ...requestOf(job), id: job.id.slice(name.length + 1) })));
      if (page.after === null || found.length >= limit) return found;
      ({ after } = page);
    }
  }

  async moves(requests: readonly Request[]): Promise<Move[]> {
    const histories = await Promise.all(
      requests.map(async ({ id: job }) => {
        const history = await this.queue.history(job);
        return history.map(({ at, from, to, attempt, processId, reason, error }) => {
          return { job, at, from, to, attempt, processId, reason, error };
        });
      }),
    );
    return histories.flat().sort((a, b) => b.at.getTime() - a.at.getTime() || Number(b.job) - Number(a.job));
  }

  work({ create, update }: SheetHandlers, { concurrency, leaseMs }: BackEndOptions): Worker {
    return this.queue.work({ create, update }, { concurrency, lease: leaseMs, poll: '500ms' });
  }

  async begin(unit: Unit): Promise<Spreadsheet | undefined> {
    await this.#runs.begin(unit);
    return this.#table.find(unit.key ?? '');
  }

  /** One transaction, on condition that the unit is still this back end's. */
  async save(unit: Unit, sheet: Spreadsheet, next: Version): Promise<void> {
    const jobs = next.jobs.filter((job) => !sheet.jobs.includes(job));
    const isSaved = await this.#table.write([
      ...unit.guardItems(),
      this.#table.changed(sheet, next),
      this.#runs.applied(unit, jobs),
    ]);
    if (!isSaved) throw new Error(`"${sheet.id}" is another back end's: this one was declared dead`);
  }

  isTransient(error: unknown): boolean {
    return this.#engine.isTransient(error);
  }

  async isEmpty(): Promise<boolean> {
    for await (const _ of this.#table.all('sheet')) return false;
    return true;
  }

  async statuses(jobs: readonly string[]): Promise<ReadonlyMap<string, Request['status']>> {
    const known = new Map<string, Request['status']>();
    for (let at = 0; at < jobs.length; at += AT_ONCE) {
      await Promise.all(
        jobs.slice(at, at + AT_ONCE).map(async (id) => {
          const job = await this.queue.get(id).catch(unlessMissing);
          if (job !== undefined) known.set(id, job.status);
        }),
      );
    }
    return known;
  }

  countDoubleRuns(): Promise<number> {
    return this.#runs.countDoubles();
  }

  interruptedBy(pid: number): Promise<string[]> {
    return this.#runs.interruptedBy(pid);
  }

  async stop(): Promise<void> {
    this.#client.destroy();
  }
}

function requestOf({ id, kind, status, attempt, enqueuedAt, settledAt, error }: JobRecord): Request {
  return { id, kind, status, attempt, enqueuedAt, settledAt, error };
}

function unlessMissing(error: unknown): undefined {
  if (!(error instanceof NotFound)) throw error;
}
