import type { PostgresEngine } from '../../engine/postgres/index.ts';
import type { Kinds } from '../definition.ts';
import type { JobRecord, JobStatus, JobTransition } from '../job.ts';
import type { JobTarget } from '../job-id.ts';
import { type PartOptions, readPart } from '../paused-part.ts';
import { type ChangedJob, PostgresQueueReader } from '../postgres/reader.ts';
import type { AnyQueue } from '../watch/flows.ts';
import type { Explanation } from './explain.ts';
import {
  type BulkOptions,
  type BulkResult,
  type CancelOptions,
  changeAll,
  type DrainOptions,
  drain,
  type JobChange,
  type MoveOptions,
  moveAll,
  Operations,
  search,
  type TxOptions,
} from './operations.ts';
import type { SearchOptions, SearchPage } from './search.ts';
import { COUNT_LIMIT, type QueueStats } from './stats.ts';

/** A queue for those who look at its jobs and change them, by one job or by a query. */
export abstract class OperatedQueue<K extends Kinds> {
  readonly name: string;
  readonly #engine: PostgresEngine;
  readonly #reader: PostgresQueueReader;
  readonly #operations: Operations;
  readonly #json: (kind: string, payload: unknown) => Promise<string>;

  /** @internal @param json  checks a payload by the schema of its kind */
  constructor(engine: PostgresEngine, name: string, json: (kind: string, payload: unknown) => Promise<string>) {
    this.name = name;
    this.#engine = engine;
    this.#reader = new PostgresQueueReader(engine);
    this.#operations = new Operations(this.#reader, name);
    this.#json = json;
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
   * One job, by its id or by its key; with `tx` also one that was enqueued in it.
   * @throws NotFound  this queue has no such job @throws InvalidInput  the id is none
   */
  get(job: JobTarget, options: TxOptions = {}): Promise<JobRecord> {
    return this.#operations.get(job, options);
  }

  /** All transitions of a job, oldest first. @throws NotFound, InvalidInput */
  history(id: string): Promise<JobTransition[]> {
    return this.#operations.history(id);
  }

  /**
   * Why a job is in its state, and why it does not run: delayed, behind job N of its key, the queue is paused, no worker…
   * @throws NotFound, InvalidInput
   */
  explain(id: string): Promise<Explanation> {
    return this.#operations.explain(id);
  }

  /**
   * Changes a job that waits, whether it is ready, delayed, backing off or behind others of its key: its payload, its time,
   * its priority. It keeps its id, its attempts and its place in the order of its key; its history has a line for it. In a
   * key, a job that is put off and was not tried yet leaves its place until it is due. No handler gets the old payload once
   * this has committed.
   * @throws Conflict  the job has begun or ended; the message has its status
   * @throws InvalidInput  the schema of its kind refused the payload, or there is nothing to change @throws NotFound
   * @throws LockNotAvailable  an open transaction holds a job of its key for more than 2 s; nothing was changed
   */
  update(job: JobTarget, change: JobChange): Promise<ChangedJob> {
    return this.#operations.update(job, change, (kind, payload) => this.#json(kind, payload));
  }

  /**
   * Cancels a job. A new job never runs; the jobs behind it in its key continue. For a running job `unit.signal` is aborted,
   * and it ends as cancelled unless its handler completes anyway: the returned status is then `in-progress`. With
   * `tx`, its worker is told at the commit.
   * @throws Conflict  the job is complete or in error
   * @throws LockNotAvailable  an open transaction holds a job of its key for more than 2 s; nothing was changed
   */
  cancel(job: JobTarget, options: CancelOptions = {}): Promise<JobStatus> {
    return this.#operations.cancel(job, options);
  }

  /**
   * Makes a job that ended in error or was cancelled new again, with all its attempts, as if it had never run. In its key it
   * takes its old place among the jobs that have not run yet. A job that is delayed or waits for its next attempt is due
   * now, with the attempts that it has left. One that blocks its key (`keyOnError: 'block'`) runs before the later jobs of the key.
   * @throws Conflict  the job is in progress or complete
   * @throws LockNotAvailable  an open transaction holds a job of its key for more than 2 s; nothing was changed
   */
  retry(job: JobTarget, options: TxOptions = {}): Promise<JobStatus> {
    return this.#operations.retry(job, options);
  }

  /**
   * Lets a key go on past a job that blocks it (`keyOnError: 'block'`). The job stays in error. Where several jobs of one unit
   * block the key, it goes on when each of them was retried or skipped.
   * @returns the status of the job, which is `error`
   * @throws Conflict  the job blocks no key: it has not ended in error, or was retried or skipped before
   * @throws LockNotAvailable  an open transaction holds a job of its key for more than 2 s; nothing was changed
   */
  skip(job: JobTarget, options: TxOptions = {}): Promise<JobStatus> {
    return this.#operations.skip(job, options);
  }

  /**
   * Puts the job of a dead letter (see {@link KindOptions.onError}) back to work, as `retry` does, and ends the letter: one
   * that waits is cancelled in the same transaction, with the reason `redriven`.
   * @returns the job that runs again
   * @throws InvalidInput  it is no dead letter @throws Conflict  the letter, or its job, is in progress, or the job is complete
   * @throws LockNotAvailable  an open transaction holds one of the two for more than 2 s; nothing was changed
   */
  redrive(letter: JobTarget, options: TxOptions = {}): Promise<ChangedJob> {
    return this.#operations.redrive(letter, options);
  }

  /**
   * Erases a job that waits or has ended, for data that may not stay: payload, result, progress, errors, tags, history, and its
   * words in the index of searches. It is as if there had been none, except for the figures. A job that waits is cancelled
   * first. If it was unique, another one may come. A result that a unit has in common stays with its other jobs.
   * @throws Conflict  the job is in progress: cancel it, and erase it when it has ended
   * @throws NotFound  there is no such job @throws LockNotAvailable  for 2 s an open transaction has held it
   */
  erase(job: JobTarget, options: TxOptions = {}): Promise<void> {
    return this.#operations.erase(job, options);
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
