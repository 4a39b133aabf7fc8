import { Conflict, InvalidInput, NotSupported } from '../../../base/errors.ts';
import { checkOptions, optional, text } from '../../../base/options/options.ts';
import { isObject } from '../../../base/options/shape.ts';
import type { Definition } from '../../definition.ts';
import type { Producer } from '../../enqueue.ts';
import type { JobRecord, JobStatus, JobTransition } from '../../job.ts';
import { type JobTarget, readJobId } from '../../job-id.ts';
import type { Explanation } from '../../operate/explain/explain.ts';
import { type CancelOptions, type DrainOptions, drain, type JobChange } from '../../operate/operations.ts';
import type { QueueStats } from '../../operate/stats.ts';
import type { ChangedJob } from '../../postgres/reader.ts';
import type { QueueIds } from '../../store.ts';
import type { WaitForOptions } from '../../watch/wait-for.ts';
import type { QueueRows } from '../database.ts';
import { refusePart } from '../limits.ts';
import { waitForEnd } from '../waiting.ts';
import type { DynamoQueueChanges } from './changes.ts';
import type { DynamoQueueCounts } from './counts.ts';
import type { DynamoQueueReader } from './reader.ts';
import { idOf } from './target.ts';

const cancelShape = { reason: optional(text({ max: 1000 })) };

/** The parts that the calls need. */
export interface OperatedParts {
  readonly rows: QueueRows;
  readonly definition: Definition;
  readonly reader: DynamoQueueReader;
  readonly counts: DynamoQueueCounts;
  readonly changes: DynamoQueueChanges;
  /** Checks payloads. */
  readonly producer: Producer;
}

/** The calls of a queue on DynamoDB that read its jobs and change them. */
export abstract class OperatedDynamoQueue {
  readonly name: string;

  /** @internal */
  constructor(name: string) {
    this.name = name;
  }

  /** @internal */
  protected abstract registered(): Promise<QueueIds>;

  /** @internal */
  protected abstract get parts(): OperatedParts;

  /** How many jobs are ready, delayed and in progress, and how many workers live. It reads the whole line, so it is meant for people. */
  async stats(): Promise<QueueStats> {
    await this.registered();
    return this.parts.counts.stats();
  }

  /** Stops the claims of all workers in all processes until `resume()`. Workers finish the jobs that they have claimed. One write for each shard. */
  async pause(part?: undefined): Promise<void> {
    refusePart(part);
    await this.registered();
    await this.parts.changes.setPause(true);
  }

  /** Ends a pause. Workers of other processes claim jobs at their next poll. */
  async resume(part?: undefined): Promise<void> {
    refusePart(part);
    await this.registered();
    await this.parts.changes.setPause(false);
  }

  /**
   * One job, by its id or by its key, as on Postgres.
   * @throws NotFound  this queue has no such job @throws InvalidInput  this is no id
   * @throws NotSupported  a key, in a queue whose keys have no order
   */
  async get(job: JobTarget): Promise<JobRecord> {
    const ids = await this.registered();
    return this.parts.reader.get(await this.#idOf(ids, 'get', job), ids.kindName);
  }

  /**
   * Waits for a job to end. It polls, at one read unit each time, first after 20 ms and finally once a second.
   * @returns its result @throws JobFailed  it ended in error @throws Cancelled, TimedOut, NotFound, InvalidInput
   */
  async waitFor(id: string, options: WaitForOptions = {}): Promise<unknown> {
    const { kindName } = await this.registered();
    return waitForEnd(this.parts.reader, this.parts.rows, readJobId(id), kindName, options);
  }

  /** All transitions of a job, oldest first. @throws NotFound, InvalidInput */
  history(id: string): Promise<JobTransition[]> {
    return this.parts.reader.history(readJobId(id));
  }

  /** Why a job is in its state, and why it does not run. @throws NotFound, InvalidInput */
  async explain(id: string): Promise<Explanation> {
    const { kindName } = await this.registered();
    return this.parts.reader.explain(readJobId(id), kindName);
  }

  /**
   * Cancels a job. A new job then never runs. The worker of a running job learns of the wish at its next heartbeat, within a third of its lease;
   * a worker of this process learns of it at once. The returned status is then `in-progress`.
   * @throws Conflict  the job is complete or in error
   */
  async cancel(job: JobTarget, options: CancelOptions = {}): Promise<JobStatus> {
    const { reason } = checkOptions('cancel', options, cancelShape);
    return this.parts.changes.cancel(await this.#idOf(await this.registered(), 'cancel', job), reason ?? null);
  }

  /**
   * Changes a job that waits: its payload, its time, its options. The job keeps its id, its attempts and its place in the order of its key. Once
   * this call has returned, no handler gets the old payload. A priority must stay in its band.
   * @throws Conflict  the job has begun or ended @throws NotSupported  a priority of another band
   * @throws InvalidInput  the schema of its kind refused the payload, its row has no room for it, or there is nothing to change
   */
  async update(job: JobTarget, change: Omit<JobChange, 'tx'>): Promise<ChangedJob> {
    const ids = await this.registered();
    return this.parts.changes.update(await this.#idOf(ids, 'update', job), change, this.parts.producer, ids.kindName);
  }

  /**
   * Makes a job that ended in error or was cancelled new again, with all its attempts. Makes a job that is delayed or backs off due now.
   * @throws Conflict  the job is in progress or complete; or its kind is unique, and another job has its place
   */
  async retry(job: JobTarget): Promise<JobStatus> {
    const ids = await this.registered();
    return this.parts.changes.retry(await this.#idOf(ids, 'retry', job), ids.kindName);
  }

  /**
   * Makes the job of a dead letter (see `onError` of its kind) new again, like `retry`. Then it cancels the letter, if that waits. These are two
   * writes in this order: if the process dies between them, the letter remains, but no job is lost.
   * @returns the job that runs again
   * @throws InvalidInput  this is no dead letter @throws Conflict  the letter is in progress, or its job is in progress or complete
   */
  async redrive(letter: string): Promise<{ readonly id: string; readonly status: JobStatus }> {
    const { payload, status } = await this.get(letter);
    const job = isObject(payload) ? payload['job'] : undefined;
    const isLetter = isObject(payload) && payload['queue'] === this.name && 'isPayloadOmitted' in payload;
    if (!isLetter || typeof job !== 'string')
      throw new InvalidInput(`job ${letter} is no dead letter`, { field: 'id' });
    if (status === 'in-progress') {
      throw new Conflict(
        `dead letter ${letter} is in progress: its handler decides about job ${job}; retry that one by its id`,
      );
    }
    const answer = { id: job, status: await this.retry(job) };
    if (status === 'new') await this.cancel(letter, { reason: 'redriven' }).catch(unlessOver);
    return answer;
  }

  /** Not supported, since DynamoDB has no index of words. @throws NotSupported */
  search(): Promise<never> {
    return Promise.reject(
      new NotSupported('DynamoDB has no index of words: keep the ids of jobs, or search a copy of your own data'),
    );
  }

  /** Resolves when no job of this queue is ready, parked or in progress, in any process. @throws TimedOut */
  async drain(options: DrainOptions = {}): Promise<void> {
    await this.registered();
    await drain(this.parts.counts, this.name, options);
  }

  #idOf(ids: QueueIds, call: string, job: JobTarget): Promise<string> {
    return idOf(this.parts.rows, this.parts.definition, ids, call, job);
  }
}

/** For `catch`: a conflict means that the letter has ended meanwhile. */
function unlessOver(error: unknown): void {
  if (!(error instanceof Conflict)) throw error;
}
