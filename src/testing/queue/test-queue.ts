import { InvalidInput, TimedOut } from '../../base/errors.ts';
import { checkOptions, custom, duration, func, oneOf, optional, text } from '../../base/options/options.ts';
import { show } from '../../base/options/refusal.ts';
import { moment, sleep, waitedFor } from '../../base/time/clock.ts';
import { type Duration, formatDuration, parseDuration } from '../../base/time/duration.ts';
import {
  type Handlers,
  JOB_STATUSES,
  type JobRecord,
  type JobStatus,
  type Kinds,
  Queue,
  type Worker,
  type WorkOptions,
} from '../../queue/index.ts';
import { PostgresTestQueue } from './postgres.ts';

export interface TestQueueOptions<K extends Kinds> {
  /** The handlers of the worker, as for `queue.work()`. Default: no worker, and jobs stay where your code has put them. */
  readonly handlers?: Handlers<K> | undefined;
  /** The options of the worker, as for `queue.work()`. Default: `{ poll: '20ms', lease: '1m' }`. */
  readonly work?: WorkOptions | undefined;
  /** The longest wait until no job runs or is due, and for a job. Default `'20s'`. */
  readonly patience?: Duration | undefined;
}

export interface WaitForJobOptions {
  /** Only a job for which this returns true. Default: any. */
  readonly where?: ((job: JobRecord) => boolean) | undefined;
  /** How long to wait. Default: the patience of the test queue. */
  readonly timeout?: Duration | undefined;
}

const shape = {
  handlers: custom('an object', (value) => value, { default: null }),
  work: custom('an object', (value) => value, { default: null }),
  patience: duration({ min: 1, default: '20s' }),
};
const waitShape = {
  kind: text({ min: 1 }),
  status: oneOf(JOB_STATUSES),
  where: optional(func<(job: JobRecord) => boolean>()),
  timeout: optional(duration({ min: 1 })),
};

const LOOK_MS = 5;

/**
 * A queue under test: your own, on its real database, with a real worker that runs your handlers, and with a clock that you move.
 * Use it only on a database for tests: moving the clock brings every delayed job and every schedule of the queue forward.
 * @throws SchemaMismatch  the database has not been migrated @throws InvalidInput  as `queue.work()` does
 */
export async function testQueue<K extends Kinds>(
  queue: Queue<K>,
  options: TestQueueOptions<K> = {},
): Promise<TestQueue<K>> {
  const { patience } = checkOptions('testQueue', options, shape);
  if (!(queue instanceof Queue)) {
    throw new InvalidInput(
      `testQueue takes a queue on Postgres: testQueue(mail, { handlers }), but was given ${show(queue)}`,
      {
        field: 'queue',
      },
    );
  }
  await queue.register();
  const database = new PostgresTestQueue(queue.engine, queue.name);
  const since = await database.newest();
  const { handlers, work } = options;
  const worker = handlers === undefined ? undefined : queue.work(handlers, { poll: '20ms', lease: '1m', ...work });
  await worker?.started;
  return new TestQueue(queue, { database, worker, since, patience });
}

interface TestQueueParts {
  readonly database: PostgresTestQueue;
  readonly worker: Worker | undefined;
  /** The newest job when the test began. */
  readonly since: string;
  readonly patience: number;
}

/** The result of {@link testQueue}; `await using test = await testQueue(…)` stops it at the end of the block. */
export class TestQueue<K extends Kinds> implements AsyncDisposable {
  readonly #queue: Queue<K>;
  readonly #parts: TestQueueParts;
  /** The last error of the worker. */
  #trouble: unknown;

  /** @internal */
  constructor(queue: Queue<K>, parts: TestQueueParts) {
    this.#queue = queue;
    this.#parts = parts;
    parts.worker?.events.on('error', ({ error }) => {
      this.#trouble = error;
    });
  }

  /**
   * Waits until no job runs and none is due. Delayed jobs, jobs that wait for their next attempt, and the jobs behind them in
   * their keys stay.
   * @throws TimedOut  lists the jobs that are left
   */
  async settle(): Promise<void> {
    const { database, worker, patience } = this.#parts;
    const begun = moment();
    while (await database.isRestless()) {
      if (waitedFor(begun) > patience) throw await this.#unsettled();
      worker?.wake();
      await sleep(LOOK_MS);
    }
  }

  /**
   * Lets time pass, and runs jobs as they become due, in their order: delayed jobs, next attempts, and each tick of the queue's
   * schedules. The clocks of the database and of this process stay as they are.
   * @throws TimedOut  as `settle()`
   */
  async advance(time: Duration): Promise<void> {
    const { database } = this.#parts;
    let left = parseDuration(time, { field: 'time', what: 'advance' });
    await this.settle();
    for (let wait = await database.wait(); wait !== undefined && wait <= left; wait = await database.wait()) {
      await database.shift(wait);
      left -= wait;
      await this.settle();
    }
    await database.shift(left);
    await this.settle();
  }

  /**
   * Runs all jobs to their end, as if all the time of delays and attempts had passed. Schedules, which never end, do not tick.
   * @throws TimedOut  as `settle()`; also for jobs that create others without end
   */
  async drain(): Promise<void> {
    const { database, patience } = this.#parts;
    const begun = moment();
    await this.settle();
    for (let wait = await database.waitForJob(); wait !== undefined; wait = await database.waitForJob()) {
      if (waitedFor(begun) > patience) throw await this.#unsettled();
      await database.shiftJobs(wait);
      await this.settle();
    }
  }

  /** The jobs that were enqueued since the test began, oldest first, of one kind or of all. */
  jobs(kind?: keyof K & string): Promise<JobRecord[]> {
    return this.#find(kind ?? null, null);
  }

  /**
   * Waits for a job of this kind, enqueued since the test began, that is or was in this status, and returns it in its present
   * state: the oldest, if there are several. A job that reached the status before the call counts.
   * @throws TimedOut  lists the statuses of the jobs of this kind
   */
  async waitForJob(kind: keyof K & string, status: JobStatus, options: WaitForJobOptions = {}): Promise<JobRecord> {
    const given = checkOptions('waitForJob', { ...options, kind, status }, waitShape);
    const { where = () => true, timeout = this.#parts.patience } = given;
    const begun = moment();
    for (;;) {
      const found = (await this.#find(kind, status)).find((job) => where(job));
      if (found !== undefined) return found;
      if (waitedFor(begun) > timeout) throw await this.#notFound(kind, status, timeout);
      await sleep(LOOK_MS);
    }
  }

  /** Stops the worker. The remaining jobs stay. */
  async stop(): Promise<void> {
    await this.#parts.worker?.stop();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  async #find(kind: string | null, status: JobStatus | null): Promise<JobRecord[]> {
    const { database, since } = this.#parts;
    const ids = await database.find(since, kind, status);
    return Promise.all(ids.map((id) => this.#queue.get(id)));
  }

  async #unsettled(): Promise<TimedOut> {
    const { ready, parked, inProgress, delayed, paused } = await this.#queue.stats();
    const { patience, worker } = this.#parts;
    const why = paused ? '; the queue is paused' : worker === undefined ? '; testQueue() was given no handlers' : '';
    return new TimedOut(
      `queue "${this.#queue.name}" did not become idle within ${formatDuration(patience)}: ${ready} ready, ` +
        `${parked} behind others of their key, ${inProgress} in progress, ${delayed} delayed${why}`,
      { cause: this.#trouble },
    );
  }

  async #notFound(kind: string, status: JobStatus, timeout: number): Promise<TimedOut> {
    const jobs = await this.#find(kind, null);
    const each = jobs.slice(0, 5).map(({ id, status, error }) => `job ${id} is ${status}${firstLine(error)}`);
    const more = jobs.length > each.length ? ` and ${jobs.length - each.length} more` : '';
    const there = jobs.length === 0 ? 'no job of this kind was enqueued' : `${each.join(', ')}${more}`;
    return new TimedOut(
      `no job of kind "${kind}" in queue "${this.#queue.name}" was ${status} within ${formatDuration(timeout)}; ${there}`,
      { cause: this.#trouble },
    );
  }
}

function firstLine(error: string | null): string {
  return error === null ? '' : ` (${error.split('\n', 1).join('')})`;
}
