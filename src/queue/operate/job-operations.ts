import { type Check, checkOptions, custom, duration, integer, optional, text } from '../../base/options/options.ts';
import { toJson } from '../../base/storable.ts';
import { openTransaction } from '../../engine/postgres/index.ts';
import type { JobRecord, JobStatus, JobTransition } from '../job.ts';
import { type AnyJobTarget, type JobTarget, type NamedJob, readJobId, readJobTarget } from '../job-id.ts';
import { jobShape, type OwnShape, ownOptions, ownShape } from '../job-options.ts';
import type { ChangedJob, PostgresQueueReader } from '../postgres/reader.ts';
import { type Explanation, explainFacts } from './explain/explain.ts';
import type { CancelOptions, CheckPayload, FinishOptions, JobChange, TxOptions } from './operations.ts';

type ChangeShape = OwnShape & {
  readonly tx: typeof openTransaction;
  readonly payload: Check<unknown>;
  readonly runAt: Check<Date | undefined>;
  readonly delay: Check<number | undefined>;
  readonly priority: Check<number | undefined>;
};

const txShape = { tx: openTransaction };
const cancelShape = { ...txShape, reason: optional(text({ max: 1000 })) };
const finishShape = { ...txShape, result: optional(custom('a value', (value) => value)) };
/** The options of `update`. */
export const changeShape: ChangeShape = {
  ...txShape,
  ...ownShape,
  payload: optional(custom('a value', (value) => value)),
  runAt: jobShape.runAt,
  delay: optional(duration()),
  priority: optional(integer({ min: -32_768, max: 32_767 })),
};

/** Operations on single jobs: of one queue, or of all queues of a database. */
export abstract class JobOperations<Target extends JobTarget | AnyJobTarget> {
  readonly #jobs: PostgresQueueReader;
  readonly #queue: string | null;
  readonly #json: CheckPayload;

  /**
   * @internal
   * @param queue  null: jobs of all queues
   * @param json  checks a payload by the schema of its kind; without it, any payload that can be stored is accepted
   */
  constructor(jobs: PostgresQueueReader, queue: string | null, json: CheckPayload = asItIs) {
    this.#jobs = jobs;
    this.#queue = queue;
    this.#json = json;
  }

  /**
   * One job, by its id or by its key. With `tx`, it also finds a job that was enqueued in that transaction.
   * @throws NotFound  this queue has no such job @throws InvalidInput  the value is no id
   */
  async get(job: Target, options: TxOptions = {}): Promise<JobRecord> {
    const { tx } = checkOptions('get', options, txShape);
    return this.#jobs.get(this.#named('get', job), tx);
  }

  /** All transitions of a job, oldest first. @throws NotFound, InvalidInput */
  async history(id: string): Promise<JobTransition[]> {
    return this.#jobs.history(this.#queue, readJobId(id));
  }

  /**
   * Why a job is in its state, and why it does not run: it is delayed, it is behind job N of its key, the queue is paused, no
   * worker…
   * @throws NotFound, InvalidInput
   */
  async explain(id: string): Promise<Explanation> {
    const job = readJobId(id);
    return explainFacts(job, await this.#jobs.explain(this.#queue, job));
  }

  /**
   * Changes a job that waits, whether it is ready, delayed, in backoff or behind others of its key: its payload, its time, its
   * priority. The job keeps its id, its attempts and its place in the order of its key; its history gets a line for the change.
   * If a job of a key is put off and was not tried yet, it leaves its place until it is due. Once the change has committed, no
   * handler gets the old payload.
   * @throws Conflict  the job has begun or ended; the message has its status
   * @throws InvalidInput  the schema of its kind refused the payload, or there is nothing to change @throws NotFound
   * @throws LockNotAvailable  an open transaction holds a job of its key for more than 2 s; nothing was changed
   */
  async update(job: Target, change: JobChange): Promise<ChangedJob> {
    const given = checkOptions('update', change, changeShape);
    const { tx, payload, runAt, delay, priority } = given;
    let named = this.#named('update', job);
    let json: string | undefined;
    if (payload !== undefined) {
      // A job changes its kind only when it moves to another queue. The id names it below, and in its old queue no longer.
      const { id, kind } = await this.#jobs.get(named, tx);
      json = await this.#json(kind, payload);
      named = { ...named, id, key: undefined, kind: undefined };
    }
    const rest = {
      ...ownOptions(given),
      ...(json !== undefined && { payload: JSON.parse(json) as unknown }),
      runAt: runAt?.toISOString(),
      delay: delay === undefined ? undefined : `${delay} milliseconds`,
      priority,
    };
    return this.#jobs.change('update', named, rest, tx);
  }

  /**
   * Cancels a job. A new job never runs; the jobs behind it in its key continue. For a running job `unit.signal` is aborted, and
   * the job ends as cancelled unless its handler completes anyway: the returned status is then `in-progress`. With `tx`, its
   * worker is notified at the commit.
   * @throws Conflict  the job is complete or in error
   * @throws LockNotAvailable  an open transaction holds a job of its key for more than 2 s; nothing was changed
   */
  async cancel(job: Target, options: CancelOptions = {}): Promise<JobStatus> {
    const { reason, tx } = checkOptions('cancel', options, cancelShape);
    return (await this.#jobs.change('cancel', this.#named('cancel', job), { reason }, tx)).status;
  }

  /**
   * If the job ended in error or was cancelled, makes it new again, with all its attempts, as if it had never run. In its key it
   * takes its old place among the jobs that have not run yet. If the job is delayed or waits for its next attempt, it is due now,
   * with its remaining attempts. A job that blocks its key (`keyOnError: 'block'`) runs before the later jobs of the key.
   * @throws Conflict  the job is in progress or complete
   * @throws LockNotAvailable  an open transaction holds a job of its key for more than 2 s; nothing was changed
   */
  async retry(job: Target, options: TxOptions = {}): Promise<JobStatus> {
    return (await this.#change('retry', job, options)).status;
  }

  /**
   * Completes a job that waits, ended in error or was cancelled, without running it, because a person has done its work by
   * hand. If the job waited, jobs that come after it may run. If it blocked a key, the key goes on. The consequences of an
   * earlier end stay. Its history has the reason `complete by hand`, and no worker emits an event for it.
   * @throws Conflict  the job is in progress or complete @throws InvalidInput  the result cannot be stored
   * @throws LockNotAvailable  an open transaction holds a job of its key for more than 2 s; nothing was changed
   */
  async finish(job: Target, options: FinishOptions = {}): Promise<JobStatus> {
    const { result, tx } = checkOptions('finish', options, finishShape);
    const json = result === undefined ? undefined : (JSON.parse(toJson(result, 'result', 'result')) as unknown);
    return (await this.#jobs.change('finish', this.#named('finish', job), { result: json }, tx)).status;
  }

  /**
   * Lets a key go on past a job that blocks it (`keyOnError: 'block'`). The job stays in error. If several jobs of one unit block
   * the key, it goes on when each of them was retried or skipped.
   * @returns the status of the job, which is `error`
   * @throws Conflict  the job blocks no key: it has not ended in error, or was retried or skipped before
   * @throws LockNotAvailable  an open transaction holds a job of its key for more than 2 s; nothing was changed
   */
  async skip(job: Target, options: TxOptions = {}): Promise<JobStatus> {
    return (await this.#change('skip', job, options)).status;
  }

  /**
   * Retries the failed job of a dead letter (see {@link KindOptions.onError}), as `retry` does, and ends the letter: if the
   * letter waits, the same transaction cancels it, with the reason `redriven`.
   * @returns the job that runs again
   * @throws InvalidInput  the job is no dead letter @throws Conflict  the letter, or its job, is in progress, or the job is
   *   complete
   * @throws LockNotAvailable  an open transaction holds one of the two for more than 2 s; nothing was changed
   */
  async redrive(letter: Target, options: TxOptions = {}): Promise<ChangedJob> {
    const { id, status } = await this.#change('redrive', letter, options);
    return { id, status };
  }

  /**
   * Erases a job that waits or has ended, for data that must be removed: payload, result, progress, errors, tags, history, and
   * its words in the search index. Afterwards only statistics show that the job existed. A job that waits is cancelled first. If
   * the job was unique, a new one may be enqueued. A result that several jobs of a unit share stays with the other jobs.
   * @throws Conflict  the job is in progress: cancel it, and erase it when it has ended
   * @throws NotFound  there is no such job @throws LockNotAvailable  an open transaction has held it for 2 s
   */
  async erase(job: Target, options: TxOptions = {}): Promise<void> {
    await this.#change('erase', job, options);
  }

  async #change(call: 'retry' | 'skip' | 'redrive' | 'erase', job: Target, options: TxOptions): Promise<ChangedJob> {
    const { tx } = checkOptions(call, options, txShape);
    return this.#jobs.change(call, this.#named(call, job), {}, tx);
  }

  #named(call: string, job: Target): NamedJob {
    return readJobTarget(call, this.#queue, job);
  }
}

function asItIs(_kind: string, payload: unknown): Promise<string> {
  return Promise.resolve(toJson(payload, 'payload', 'payload'));
}
