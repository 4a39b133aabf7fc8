import { randomUUID } from 'node:crypto';
import { Stopped } from '../../base/errors.ts';
import type { Logger } from '../../base/logger.ts';
import { type Loop, startLoop } from '../../base/loop.ts';
import type { AnyQueueAdmin } from '../../queue/index.ts';
import type { BulkRecord, BulkRequest, BulkResult, BulkStore, BulkWhat, TakenBulk } from '../store/bulk.ts';
import { BulkRun } from './run.ts';

/** After this time without a sign of life, another process takes over the actions of a process. */
const LEASE_MS = 20_000;
/** How often an idle process searches for actions that another process left: rarely, and more often if there are open ones. */
const LOOK_MS = { idle: 15_000, open: 5000 } as const;
const AT_ONCE = 3;
/** The most open actions in the whole database: a caller that starts more has made a mistake. */
const OPEN = 20;
const KEPT_MS = 30 * 24 * 3_600_000;

export interface BulkParts {
  readonly store: BulkStore;
  readonly admin: AnyQueueAdmin;
  readonly logger: Logger;
  /** Called after a change, because the server must then read again what it shows. */
  readonly onChange: () => void;
}

/**
 * Actions on all jobs that a search finds. The database keeps them, with the outcome for each job. Any process that serves HTTP
 * works on them: the process that got the request if it lives, otherwise another one, from the last saved position.
 */
export class BulkActions {
  readonly #parts: BulkParts;
  readonly #isReadOnly: boolean;
  readonly #running = new Set<Promise<void>>();
  readonly #ending = new AbortController();
  #loop: Loop | undefined;

  constructor(parts: BulkParts, isReadOnly: boolean) {
    this.#parts = parts;
    this.#isReadOnly = isReadOnly;
  }

  /** From now on this process takes up open actions. The first request calls this: before it, no statement is sent. */
  watch(): void {
    if (this.#loop !== undefined || this.#isReadOnly || this.#ending.signal.aborted) return;
    const { logger } = this.#parts;
    this.#loop = startLoop({
      name: 'http.bulk',
      unref: true,
      run: () => this.#turn(),
      onError: (error) => logger.warn({ err: error }, 'http: open bulk actions could not be read'),
      backoff: { kind: 'exponential', min: 1000, max: 60_000, factor: 2, jitter: 0.5 },
    });
  }

  /** @throws Conflict  too many are open @throws InvalidInput, NotFound  from the search */
  async start(request: BulkRequest, who: string): Promise<BulkRecord> {
    const { admin, store } = this.#parts;
    // A malformed search is refused now, and not in the background.
    await admin.search(request.query, { queue: request.queue, limit: 1 });
    return this.#started(await store.start(request, who, OPEN));
  }

  /** As `start()`, for jobs that the request names. @throws Conflict  too many are open */
  async startOn(jobs: readonly string[], what: BulkWhat, who: string): Promise<BulkRecord> {
    return this.#started(await this.#parts.store.startOn(jobs, what, who, OPEN));
  }

  #started(record: BulkRecord): BulkRecord {
    const { store, logger } = this.#parts;
    this.#loop?.wake();
    store.prune(KEPT_MS).catch((error: unknown) => {
      logger.warn({ err: error }, 'http: old bulk actions could not be removed');
    });
    return record;
  }

  list(before: string, limit: number): Promise<BulkRecord[]> {
    return this.#parts.store.list(before, limit);
  }

  /** A caller waits for the action: if no process holds it, this one takes it up now. @throws NotFound */
  async get(id: string): Promise<BulkRecord> {
    const record = await this.#parts.store.get(id);
    if (record.status === 'waiting') this.#loop?.wake();
    return record;
  }

  async results(id: string, after: number, outcome: string | undefined, limit: number): Promise<BulkResult[]> {
    await this.#parts.store.get(id);
    return this.#parts.store.results(id, after, outcome, limit);
  }

  /** The changes that are under way end, and no other change begins. @throws NotFound @throws Conflict  it has ended */
  stop(id: string): Promise<BulkRecord> {
    return this.#parts.store.stop(id);
  }

  /** Ends the work of this process; another process continues it. Never rejects. */
  async stopAll(): Promise<void> {
    this.#ending.abort();
    await this.#loop?.stop();
    await Promise.all(this.#running);
  }

  async #turn(): Promise<number | 'again'> {
    if (this.#running.size >= AT_ONCE) return Infinity; // the end of an action wakes the loop
    const holder = randomUUID(); // a new name each time: a run that has lost its lease must not count as this run
    const answer = await this.#parts.store.take(holder, LEASE_MS).catch(unlessStopped);
    if (answer === undefined) return Infinity;
    if (answer.taken === null) return answer.open > this.#running.size ? LOOK_MS.open : LOOK_MS.idle;
    this.#begin(answer.taken, holder);
    return 'again';
  }

  #begin(taken: TakenBulk, holder: string): void {
    const lease = { holder, ms: LEASE_MS, signal: this.#ending.signal };
    const run: Promise<void> = new BulkRun(this.#parts, taken, lease).run().finally(() => {
      this.#running.delete(run);
      this.#parts.onChange();
      this.#loop?.wake();
    });
    this.#running.add(run);
  }
}

/** If the engine was stopped first, no work is left. */
function unlessStopped(error: unknown): undefined {
  if (error instanceof Stopped) return undefined;
  throw error;
}
