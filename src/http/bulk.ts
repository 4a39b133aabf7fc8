import { randomBytes } from 'node:crypto';
import { Conflict, NotFound, PawlError } from '../base/errors.ts';
import type { JobRecord, QueueAdmin } from '../queue/index.ts';

export interface BulkRequest {
  readonly action: 'retry' | 'cancel';
  readonly queue: string | undefined;
  readonly query: string;
  readonly reason: string | undefined;
  readonly limit: number;
}

/** What became of one job. */
export interface BulkResult {
  readonly job: string;
  readonly outcome: 'done' | 'refused';
  /** Its status now, or why it was refused. */
  readonly detail: string;
}

export interface BulkRecord extends BulkRequest {
  readonly id: string;
  readonly who: string;
  readonly status: 'running' | 'done' | 'stopped' | 'failed';
  readonly startedAt: Date;
  readonly endedAt: Date | null;
  readonly found: number;
  readonly done: number;
  readonly refused: number;
  readonly error: string | null;
}

/** Finished ones are kept for whoever wants to look again. */
const KEPT = 50;
const RUNNING = 3;
const AT_ONCE = 8;
const PAGE = 200;

/**
 * Actions on all jobs that a search finds, in the background of this process. Each job is an action of its own: one that refuses
 * does not keep the others from it, and what was done stays done when the process ends. The jobs are collected first, so
 * that those that change do not move the pages under it.
 */
export class BulkActions {
  readonly #admin: QueueAdmin;
  readonly #all = new Map<string, Bulk>();

  constructor(admin: QueueAdmin) {
    this.#admin = admin;
  }

  /** @throws Conflict  three are running already @throws InvalidInput, NotFound  from the search */
  async start(request: BulkRequest, who: string, ended: (bulk: BulkRecord) => void): Promise<BulkRecord> {
    const running = [...this.#all.values()].filter(({ record }) => record.status === 'running').length;
    if (running >= RUNNING)
      throw new Conflict(`${running} bulk actions are running already; wait for one of them, or stop it`);
    // What cannot be understood is refused now, not in the background.
    const first = await this.#admin.search(request.query, { queue: request.queue, limit: 1 });
    const bulk = new Bulk(this.#admin, request, who);
    this.#all.set(bulk.record.id, bulk);
    while (this.#all.size > KEPT) this.#forgetOne();
    void bulk.run(first.jobs.length > 0 || first.after !== null).then(() => ended(bulk.record));
    return bulk.record;
  }

  list(): BulkRecord[] {
    return [...this.#all.values()].map(({ record }) => record).reverse();
  }

  /** @throws NotFound */
  get(id: string): { readonly record: BulkRecord; readonly results: readonly BulkResult[] } {
    return this.#find(id);
  }

  /** What is under way is finished, and nothing more begun. @throws NotFound */
  stop(id: string): BulkRecord {
    const bulk = this.#find(id);
    bulk.stop();
    return bulk.record;
  }

  stopAll(): void {
    for (const bulk of this.#all.values()) bulk.stop();
  }

  #find(id: string): Bulk {
    const bulk = this.#all.get(id);
    if (bulk === undefined) throw new NotFound(`there is no bulk action "${id}" in this process; they end with it`);
    return bulk;
  }

  #forgetOne(): void {
    const over = [...this.#all.values()].find(({ record }) => record.status !== 'running');
    this.#all.delete(over?.record.id ?? this.#all.keys().next().value ?? '');
  }
}

class Bulk {
  readonly results: BulkResult[] = [];
  readonly #admin: QueueAdmin;
  #record: BulkRecord;
  #isStopped = false;

  constructor(admin: QueueAdmin, request: BulkRequest, who: string) {
    this.#admin = admin;
    const id = randomBytes(9).toString('base64url');
    const counts = { found: 0, done: 0, refused: 0 };
    this.#record = {
      ...request,
      id,
      who,
      status: 'running',
      startedAt: new Date(),
      endedAt: null,
      ...counts,
      error: null,
    };
  }

  get record(): BulkRecord {
    return this.#record;
  }

  stop(): void {
    this.#isStopped = true;
  }

  async run(hasAny: boolean): Promise<void> {
    try {
      const ids = hasAny ? await this.#collect() : [];
      const queue = ids.values();
      await Promise.all(Array.from({ length: AT_ONCE }, () => this.#work(queue)));
      this.#end(this.#isStopped ? 'stopped' : 'done', null);
    } catch (error) {
      this.#end('failed', error instanceof PawlError ? error.message : 'something went wrong on the server');
    }
  }

  async #collect(): Promise<string[]> {
    const { query, queue, limit } = this.#record;
    const ids: string[] = [];
    let after: string | null = null;
    do {
      const page: { readonly jobs: readonly JobRecord[]; readonly after: string | null } = await this.#admin.search(
        query,
        {
          queue,
          limit: PAGE,
          after,
        },
      );
      ids.push(...page.jobs.map(({ id }) => id));
      after = page.after;
      this.#record = { ...this.#record, found: Math.min(ids.length, limit) };
    } while (after !== null && ids.length < limit && !this.#isStopped);
    return ids.slice(0, limit);
  }

  async #work(ids: Iterator<string>): Promise<void> {
    for (let next = ids.next(); !next.done && !this.#isStopped; next = ids.next()) {
      const result = await this.#change(next.value);
      this.results.push(result);
      const { done, refused } = this.#record;
      this.#record =
        result.outcome === 'done' ? { ...this.#record, done: done + 1 } : { ...this.#record, refused: refused + 1 };
    }
  }

  async #change(job: string): Promise<BulkResult> {
    const { action, reason } = this.#record;
    try {
      const status = await (action === 'retry'
        ? this.#admin.retry(job)
        : this.#admin.cancel(job, reason === undefined ? {} : { reason }));
      return { job, outcome: 'done', detail: status };
    } catch (error) {
      if (!(error instanceof PawlError)) throw error;
      return { job, outcome: 'refused', detail: error.message };
    }
  }

  #end(status: 'done' | 'stopped' | 'failed', error: string | null): void {
    this.#record = { ...this.#record, status, endedAt: new Date(), error };
  }
}
