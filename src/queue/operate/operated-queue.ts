import type { PostgresEngine } from '../../engine/postgres/index.ts';
import type { Kinds } from '../definition.ts';
import type { JobTarget } from '../job-id.ts';
import { type PartOptions, readPart } from '../paused-part.ts';
import { PostgresQueueReader } from '../postgres/reader.ts';
import type { AnyQueue } from '../watch/flows.ts';
import { JobOperations } from './job-operations.ts';
import {
  type BulkOptions,
  type BulkResult,
  type CancelAllOptions,
  type CheckPayload,
  cancelAll,
  changeAll,
  type DrainOptions,
  drain,
  type MoveOptions,
  moveAll,
  search,
} from './operations.ts';
import type { SearchOptions, SearchPage } from './search.ts';
import { COUNT_LIMIT, type QueueStats } from './stats.ts';

/** A queue for operators: it reads and changes jobs, one by one or by a query. */
export abstract class OperatedQueue<K extends Kinds> extends JobOperations<JobTarget> {
  readonly name: string;
  readonly #engine: PostgresEngine;
  readonly #reader: PostgresQueueReader;

  /** @internal @param json  checks a payload by the schema of its kind */
  constructor(engine: PostgresEngine, name: string, json: CheckPayload) {
    const reader = new PostgresQueueReader(engine);
    super(reader, name, json);
    this.name = name;
    this.#engine = engine;
    this.#reader = reader;
  }

  abstract register(): Promise<void>;

  /** The engine of this queue. */
  get engine(): PostgresEngine {
    return this.#engine;
  }

  /**
   * How many jobs are in each state, how many complete per minute, how many workers live. Counts stop at 10,000 ("10,000 or
   * more"), so that the cost does not grow with the queue.
   */
  async stats(): Promise<QueueStats> {
    await this.register();
    return this.#reader.stats(this.name, COUNT_LIMIT);
  }

  /**
   * Stops the claims of all workers in all processes until `resume()`, also across restarts. Claimed jobs are finished. A job
   * that is enqueued after this call has returned does not start.
   *
   * With a kind, a key or a tag, it pauses only the jobs that match all of the named fields. A worker that finds such a job sets
   * it aside: the job is delayed until that part is resumed, uncharged. It keeps its place in the order of its key, so the later
   * jobs of the key wait, too. A queue has at most 100 paused parts.
   * @throws InvalidInput  no field is named, or a field is no text @throws NotFound  no such kind @throws Conflict  100 parts are
   *   paused
   */
  async pause(part?: PartOptions<keyof K & string>): Promise<void> {
    await this.register();
    if (part === undefined) await this.#reader.pause(this.name);
    else await this.#reader.pausePart(this.name, readPart('pause', part));
  }

  /**
   * Ends a pause; workers claim jobs at once. Does nothing if the queue is not paused. To resume a part, pass the fields that
   * paused it. The pause of the whole queue is a separate one: `resume()` without fields ends only that pause.
   * @throws InvalidInput
   */
  async resume(part?: PartOptions<keyof K & string>): Promise<void> {
    await this.register();
    if (part === undefined) await this.#reader.resume(this.name);
    else await this.#reader.resumePart(this.name, readPart('resume', part));
  }

  /**
   * Erases all jobs that a query of `search` finds, except those in progress. It works in pieces of a hundred jobs, each in a
   * transaction of its own. If this process dies, the finished pieces stay, and a second call goes on.
   * @throws InvalidInput  the query is malformed @throws NotFound  no such kind
   */
  async purge(query: string, options: BulkOptions = {}): Promise<BulkResult> {
    await this.register();
    return changeAll(this.#reader, this.name, { what: 'erase' }, query, options);
  }

  /**
   * Retries all jobs that a query of `search` finds, such as `'status:error since:2h'`. In pieces, as `purge`.
   * @throws InvalidInput  the query is malformed @throws NotFound  no such kind
   */
  async retryAll(query: string, options: BulkOptions = {}): Promise<BulkResult> {
    await this.register();
    return changeAll(this.#reader, this.name, { what: 'retry' }, query, options);
  }

  /**
   * Cancels all jobs that a query of `search` finds, in pieces, as `purge`. The signal of a job in progress is aborted, as by
   * `cancel`. Jobs that have ended otherwise stay as they are.
   * @throws InvalidInput  the query is malformed @throws NotFound  no such kind
   */
  async cancelAll(query: string, options: CancelAllOptions = {}): Promise<BulkResult> {
    await this.register();
    return cancelAll(this.#reader, this.name, query, options);
  }

  /**
   * Moves all jobs that a query of `search` finds to another queue, if they wait, ended in error or were cancelled. In pieces, as
   * `purge`. Each job keeps its id, key, payload, time, priority, options and history. In the other queue it is new, and has all
   * its attempts again. These jobs stay: jobs in progress, complete jobs, jobs that come after others that have not ended, and
   * jobs that the other queue's kind does not accept.
   * @param to  a queue of the same database, or its name
   * @throws InvalidInput  the query is malformed, or `to` is this queue @throws NotFound  no such queue or kind
   */
  async move(query: string, to: AnyQueue | string, options: MoveOptions = {}): Promise<BulkResult> {
    await this.register();
    return moveAll(this.#reader, this.name, query, { ...options, to: typeof to === 'string' ? to : to.name });
  }

  /**
   * Finds jobs, newest first: by words and `"phrases"` of their payloads and errors, `key:`, `tag:`, `kind:`, `status:`, `since:`
   * and `until:`. A word is a whole run of letters and digits; case does not matter. The work for one page is bounded, however
   * many jobs there are: see {@link SearchPage}. A search finds a job as soon as it is committed.
   * @throws InvalidInput  the query, an option or the cursor is malformed @throws NotFound  no such kind
   */
  async search(query: string, options: SearchOptions = {}): Promise<SearchPage> {
    await this.register();
    return search(this.#reader, this.name, query, options);
  }

  /**
   * Resolves when no job of this queue is ready, parked or in progress, in any process. For tests and for shutting down.
   * @throws TimedOut  with the counts of the remaining jobs
   */
  async drain(options: DrainOptions = {}): Promise<void> {
    await this.register();
    await drain(this.#reader, this.name, options);
  }
}
