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

/** A queue for those who look at its jobs and change them, by one job or by a query. */
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

  /** The engine that it was made with. */
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
   * Stops claims of all workers in all processes until `resume()`, also across restarts. Claimed jobs are finished. No job starts that is
   * enqueued after this has returned.
   *
   * With a kind, a key or a tag it does so for the jobs that have all of what is named, and the others go on. Workers set such jobs
   * aside as they meet them: they are delayed until that part is resumed, uncharged, and hold their place in the order of their key, so that
   * the jobs behind them in it wait, too. A queue has at most 100 paused parts.
   * @throws InvalidInput  nothing is named, or not as a text @throws NotFound  no such kind @throws Conflict  100 parts are paused
   */
  async pause(part?: PartOptions<keyof K & string>): Promise<void> {
    await this.register();
    if (part === undefined) await this.#reader.pause(this.name);
    else await this.#reader.pausePart(this.name, readPart('pause', part));
  }

  /**
   * Ends a pause; workers claim jobs at once. Does nothing when the queue is not paused. A part is resumed by the same words with which it
   * was paused; the pause of the whole queue is another one, and `resume()` ends only that.
   * @throws InvalidInput
   */
  async resume(part?: PartOptions<keyof K & string>): Promise<void> {
    await this.register();
    if (part === undefined) await this.#reader.resume(this.name);
    else await this.#reader.resumePart(this.name, readPart('resume', part));
  }

  /**
   * Erases all jobs that a query of `search` finds, except those in progress. In pieces of a hundred, each in a transaction of
   * its own: if this process dies, what is done is done, and a second call goes on.
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
   * Cancels all jobs that a query of `search` finds; the signal of those in progress is aborted, as by `cancel`. In pieces, as `purge`. Left
   * are jobs that have ended otherwise.
   * @throws InvalidInput  the query is malformed @throws NotFound  no such kind
   */
  async cancelAll(query: string, options: CancelAllOptions = {}): Promise<BulkResult> {
    await this.register();
    return cancelAll(this.#reader, this.name, query, options);
  }

  /**
   * Moves all jobs that a query of `search` finds to another queue: those that wait, ended in error or were cancelled. Each keeps its id,
   * key, payload, time, priority, options and history, is new there, and has all its attempts before it. In pieces, as `purge`. Left are jobs
   * in progress and complete ones, jobs that come after others that have not ended, and jobs that the kind there does not take.
   * @param to  a queue of the same database, or its name
   * @throws InvalidInput  the query is malformed, or `to` is this queue @throws NotFound  no such queue or kind
   */
  async move(query: string, to: AnyQueue | string, options: MoveOptions = {}): Promise<BulkResult> {
    await this.register();
    return moveAll(this.#reader, this.name, query, { ...options, to: typeof to === 'string' ? to : to.name });
  }

  /**
   * Finds jobs, newest first: by words and `"phrases"` of their payloads and errors, `key:`, `tag:`, `kind:`, `status:`,
   * `since:` and `until:`. A word is a whole run of letters and digits; case does not matter. The work of one page is bounded, however
   * many jobs there are: see {@link SearchPage}. Jobs can be found as soon as they are committed.
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
