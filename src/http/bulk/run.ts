import { InvalidInput, NotFound } from '../../base/errors.ts';
import { faults } from '../../base/fault.ts';
import type { Logger } from '../../base/logger.ts';
import { moment, sleep, waitedFor } from '../../base/time/clock.ts';
import type { AnyQueueAdmin } from '../../queue/index.ts';
import type { BulkStore, TakenBulk } from '../store/bulk.ts';

/** Jobs of one page of the search. */
const PAGE = 200;
/** Jobs between two signs of life. Their changes end well within a lease, even if the run waits for each job. */
const STEP = 40;
/** The number of connections that a run uses, so that some are left for requests. */
const LANES = 4;
/** How long to retry a job that another transaction holds. */
const PATIENCE_MS = 1000;
const BUSY_MS = 50;
/** An action that was taken up this often without progress has failed: its processes may die of it. */
const TAKES = 10;
/** The pause after a failure. */
const REST_MS = 5000;

interface RunParts {
  readonly store: BulkStore;
  readonly admin: AnyQueueAdmin;
  readonly logger: Logger;
}

interface Lease {
  readonly holder: string;
  readonly ms: number;
  /** Aborted: the action is left to another process. */
  readonly signal: AbortSignal;
}

/** Thrown to end a run: another process has the action, or this one is ending. */
class RunEnd extends Error {}

/**
 * One bulk action in this process, from its last saved position. First it collects all jobs, because changed jobs would move the
 * pages of the search. Then it changes them one by one. A job that refuses does not stop the others.
 */
export class BulkRun {
  readonly #parts: RunParts;
  readonly #bulk: TakenBulk;
  readonly #lease: Lease;

  constructor(parts: RunParts, bulk: TakenBulk, lease: Lease) {
    this.#parts = parts;
    this.#bulk = bulk;
    this.#lease = lease;
  }

  /** Never rejects. */
  async run(): Promise<void> {
    const { id, takes } = this.#bulk;
    const { store, logger } = this.#parts;
    const { holder } = this.#lease;
    try {
      if (takes > TAKES)
        return await store.end(id, holder, 'failed', `it was started ${TAKES} times in a row without progress`);
      const found = await this.#collect();
      const isThrough = found !== 'stopped' && (await this.#change(found));
      await store.end(id, holder, isThrough ? 'done' : 'stopped', null);
    } catch (error) {
      await this.#leave(error).catch((cause: unknown) => {
        // The lease ends on its own.
        logger.warn({ err: cause, bulk: id }, 'http: a bulk action could not be released; its lease ends by itself');
      });
    }
  }

  async #leave(error: unknown): Promise<void> {
    const { store, logger } = this.#parts;
    const { id } = this.#bulk;
    const { holder } = this.#lease;
    if (error instanceof RunEnd) return store.release(id, holder, 0);
    // The search can no longer run, because its queue or kind is gone.
    if (error instanceof InvalidInput || error instanceof NotFound)
      return store.end(id, holder, 'failed', error.message);
    logger.warn({ err: error, bulk: id }, 'http: a bulk action is taken up again after a failure');
    await store.release(id, holder, REST_MS);
  }

  /** @returns the number of jobs */
  async #collect(): Promise<number | 'stopped'> {
    const { admin, store } = this.#parts;
    const { id, query, queue, most } = this.#bulk;
    let { found, cursor, collected } = this.#bulk;
    while (!collected) {
      this.#check();
      const { jobs, after } = await admin.search(query, { queue: queue ?? undefined, limit: PAGE, after: cursor });
      const ids = jobs.slice(0, most - found).map((job) => job.id);
      cursor = after;
      collected = after === null || found + ids.length >= most;
      const kept = await store.collect(
        id,
        this.#lease.holder,
        { jobs: ids, cursor, isLast: collected },
        this.#lease.ms,
      );
      if (kept === undefined) throw new RunEnd();
      if (faults.armed) await faults.reach('http.bulk_collected');
      if (kept.stopping) return 'stopped';
      found = kept.found;
    }
    return found;
  }

  /** @returns whether all jobs were processed */
  async #change(found: number): Promise<boolean> {
    const { store } = this.#parts;
    for (let from = this.#bulk.settled; from < found; from += STEP) {
      this.#check();
      const until = Math.min(from + STEP, found);
      let next = from;
      const lane = async (): Promise<void> => {
        while (next < until) await this.#changeOne((next += 1));
      };
      await Promise.all(Array.from({ length: LANES }, lane));
      const kept = await store.advance(this.#bulk.id, this.#lease.holder, until, this.#lease.ms);
      if (kept === undefined) throw new RunEnd();
      if (kept.stopping) return until === found;
    }
    return true;
  }

  async #changeOne(n: number): Promise<void> {
    const { store } = this.#parts;
    const { id } = this.#bulk;
    const { holder } = this.#lease;
    const begun = moment();
    let outcome = await store.change(id, n, holder);
    while (outcome === 'busy' && waitedFor(begun) < PATIENCE_MS) {
      await sleep(BUSY_MS);
      outcome = await store.change(id, n, holder);
    }
    if (outcome === 'lost') throw new RunEnd();
    if (outcome === 'busy')
      await store.refuse(id, n, holder, 'it, or a job of its key, is held by an open transaction');
    if (faults.armed) await faults.reach('http.bulk_changed');
  }

  #check(): void {
    if (this.#lease.signal.aborted) throw new RunEnd();
  }
}
