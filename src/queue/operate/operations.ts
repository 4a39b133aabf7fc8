import { LockNotAvailable, NotFound, TimedOut } from '../../base/errors.ts';
import { bool, checkOptions, custom, duration, integer, optional, signal, text } from '../../base/options/options.ts';
import { moment, sleep, waitedFor } from '../../base/time/clock.ts';
import type { Duration } from '../../base/time/duration.ts';
import { formatDuration } from '../../base/time/duration.ts';
import type { JobRecord, JobStatus, JobTransition } from '../job.ts';
import { readJobId, readWorkerId } from '../job-id.ts';
import type { PostgresQueueReader, ReleasedWorker, RemainingWork } from '../postgres/reader.ts';
import { type Explanation, explainFacts } from './explain.ts';
import { parseQuery, readCursor, type SearchOptions, type SearchPage, writeCursor } from './search.ts';
import { COUNT_LIMIT, type QueueStats } from './stats.ts';

export interface CancelOptions {
  /** Stored as the error of the job, and passed to a running handler. At most 1,000 characters. */
  readonly reason?: string | undefined;
}

export interface DrainOptions {
  /** The longest wait. Default `'30s'`. */
  readonly timeout?: Duration | undefined;
  /** Wait for delayed jobs, too. Default false. */
  readonly delayed?: boolean | undefined;
  readonly signal?: AbortSignal | undefined;
}

const cancelShape = { reason: optional(text({ max: 1000 })) };
const drainShape = { timeout: duration({ default: '30s', infinite: true }), delayed: bool({ default: false }), signal };
const searchShape = {
  limit: integer({ min: 1, max: 1000, default: 50 }),
  after: optional(custom('a cursor', (value) => readCursor(value))),
  budget: duration({ min: 1, max: '1m', default: 120 }),
};

/** How long to repeat while another transaction holds the job: a claim takes milliseconds, an open one may take long. */
const PATIENCE_MS = 5000;
const POLL_MS = { min: 5, max: 100 } as const;

/** Operations by hand on the jobs of a queue; with `queue` null, on the jobs of every queue. */
export class Operations {
  readonly #reader: PostgresQueueReader;
  readonly #queue: string | null;

  constructor(reader: PostgresQueueReader, queue: string | null) {
    this.#reader = reader;
    this.#queue = queue;
  }

  async get(id: string): Promise<JobRecord> {
    const job = await this.#reader.get(this.#queue, readJobId(id));
    if (job === undefined) throw new NotFound(`there is no job ${id}`);
    return job;
  }

  async history(id: string): Promise<JobTransition[]> {
    return this.#reader.history(this.#queue, readJobId(id));
  }

  async explain(id: string): Promise<Explanation> {
    const job = readJobId(id);
    return explainFacts(job, await this.#reader.explain(this.#queue, job));
  }

  async cancel(id: string, options: CancelOptions): Promise<JobStatus> {
    const { reason } = checkOptions('cancel', options, cancelShape);
    const job = readJobId(id);
    return notBusy(job, () => this.#reader.cancel(this.#queue, job, reason ?? null));
  }

  async retry(id: string): Promise<JobStatus> {
    const job = readJobId(id);
    return notBusy(job, () => this.#reader.retry(this.#queue, job));
  }
}

/** Gives back the jobs of a worker that is dead. @throws NotFound, InvalidInput, LockNotAvailable */
export async function releaseWorker(reader: PostgresQueueReader, id: string): Promise<ReleasedWorker> {
  const worker = readWorkerId(id);
  const given = await untilFree(() => reader.release(worker));
  if (given !== 'busy') return given;
  throw new LockNotAvailable(
    `worker ${worker} cannot be released now: a claim of it, or a rescue, is under way and does not end; nothing was changed; try again`,
  );
}

/** One page of a search in one queue, or with `queue` null in all. */
export async function search(
  reader: PostgresQueueReader,
  queue: string | null,
  query: string,
  options: SearchOptions,
): Promise<SearchPage> {
  const { limit, after, budget } = checkOptions(
    'search',
    { ...options, after: options.after ?? undefined },
    searchShape,
  );
  const { ids, next, behind } = await reader.search({
    ...parseQuery(query),
    queue,
    before: after ?? null,
    limit,
    budget,
  });
  const jobs = ids.length === 0 ? [] : await reader.jobs(ids);
  return { jobs, after: writeCursor(next), indexBehind: next === null || ids.length === limit ? 0 : behind };
}

/** Waits until a queue has no job left to do. @throws TimedOut */
export async function drain(reader: PostgresQueueReader, queue: string, options: DrainOptions): Promise<void> {
  const { timeout, delayed, signal: abort } = checkOptions('drain', options, drainShape);
  const start = moment();
  const isDone = (left: RemainingWork): boolean =>
    !(left.ready || left.parked || left.running || (delayed && left.delayed));
  for (let rest: number = POLL_MS.min; ; rest = Math.min(rest * 1.5, POLL_MS.max)) {
    abort?.throwIfAborted();
    if (isDone(await reader.left(queue))) return;
    if (waitedFor(start) >= timeout) {
      const stats = await reader.stats(queue, COUNT_LIMIT);
      throw new TimedOut(
        `queue "${queue}" was not drained within ${formatDuration(timeout)}; left are ${words(stats)}`,
      );
    }
    await sleep(rest, abort);
  }
}

async function notBusy<T extends string>(id: string, ask: () => Promise<T | 'busy'>): Promise<Exclude<T, 'busy'>> {
  const answer = await untilFree(ask);
  if (answer !== 'busy') return answer as Exclude<T, 'busy'>;
  throw new LockNotAvailable(
    `job ${id} cannot be changed now: an open transaction holds it or a job of its key (hold: 'transaction'); ` +
      'nothing was changed; try again when that transaction has ended',
  );
}

/** Asks until the answer is not `busy`, or the time is over. */
async function untilFree<T>(ask: () => Promise<T | 'busy'>): Promise<T | 'busy'> {
  const start = moment();
  for (;;) {
    const answer = await ask();
    if (answer !== 'busy' || waitedFor(start) > PATIENCE_MS) return answer;
    await sleep(25);
  }
}

function words(stats: QueueStats): string {
  const { ready, parked, delayed, inProgress, paused, workers } = stats;
  const count = (n: number, what: string): string => `${n === COUNT_LIMIT ? '10,000 or more' : n} ${what}`;
  const counts = [
    count(ready, 'ready'),
    count(parked, 'behind others of their key'),
    count(inProgress, 'in progress'),
    count(delayed, 'delayed'),
  ].join(', ');
  const hint = paused ? '; the queue is paused' : workers === 0 ? '; no worker is running' : '';
  return `${counts}${hint}`;
}
