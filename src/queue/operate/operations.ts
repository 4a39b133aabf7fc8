import { InvalidInput, LockNotAvailable, NotFound, TimedOut } from '../../base/errors.ts';
import { faults } from '../../base/fault.ts';
import { bool, checkOptions, custom, duration, integer, optional, signal, text } from '../../base/options/options.ts';
import { moment, sleep, waitedFor } from '../../base/time/clock.ts';
import type { Duration } from '../../base/time/duration.ts';
import { formatDuration } from '../../base/time/duration.ts';
import type { OpenTransaction } from '../../engine/postgres/index.ts';
import { readWorkerId } from '../job-id.ts';
import type { JobOptions, OwnShape } from '../job-options.ts';
import type { FoundPage, ManyChange, PostgresQueueReader, ReleasedWorker, RemainingWork } from '../postgres/reader.ts';
import { parseQuery, readCursor, type SearchOptions, type SearchPage, writeCursor } from './search.ts';
import { COUNT_LIMIT, type QueueStats } from './stats.ts';

export interface TxOptions {
  /** Your own transaction, of any driver: the change counts if and only if the transaction commits. */
  readonly tx?: OpenTransaction | undefined;
}

/** The changes of `update` to a job that waits. Fields that you leave out stay as they are. */
export interface JobChange extends TxOptions, Pick<JobOptions, keyof OwnShape> {
  /** Checked by the schema of the job's kind. */
  readonly payload?: unknown;
  /** The job does not run before this time, by the database's clock; a time in the past makes it due now. */
  readonly runAt?: Date | undefined;
  /** The same, as a time from now by the database's clock. */
  readonly delay?: Duration | undefined;
  /** Among jobs of different keys, lower numbers run first. -32,768 to 32,767. */
  readonly priority?: number | undefined;
}

/** Checks a payload by the schema of its kind. @returns it as JSON */
export type CheckPayload = (kind: string, payload: unknown) => Promise<string>;

export interface BulkOptions {
  /** Ends the call after the piece that is under way. The finished pieces stay. */
  readonly signal?: AbortSignal | undefined;
}

export interface MoveOptions extends BulkOptions {
  /** The kind of all moved jobs in the other queue. Default: the kind with the same name. */
  readonly toKind?: string | undefined;
}

/** The outcome for the jobs that a query found. */
export interface BulkResult {
  readonly done: number;
  /** Jobs that were not changed: their status did not allow it, or an open transaction held them. */
  readonly left: number;
}

export interface CancelOptions extends TxOptions {
  /** Stored as the error of the job, and passed to a running handler. At most 1,000 characters. */
  readonly reason?: string | undefined;
}

export interface FinishOptions extends TxOptions {
  /** Stored as the result of the job, as if its handler had returned it. At most 4 MiB as JSON. Default: none. */
  readonly result?: unknown;
}

export interface CancelAllOptions extends BulkOptions {
  /** Stored as the error of each job, and passed to running handlers. At most 1,000 characters. */
  readonly reason?: string | undefined;
}

export interface DrainOptions {
  /** The longest wait. Default `'30s'`. */
  readonly timeout?: Duration | undefined;
  /** Wait for delayed jobs, too. Default false. */
  readonly delayed?: boolean | undefined;
  readonly signal?: AbortSignal | undefined;
}

const cancelAllShape = { reason: optional(text({ max: 1000 })), signal };
const moveShape = { to: text(), toKind: optional(text({ max: 100 })), signal };
const CALLS = { retry: 'retryAll', cancel: 'cancelAll', erase: 'purge', move: 'move' } as const;
const drainShape = { timeout: duration({ default: '30s', infinite: true }), delayed: bool({ default: false }), signal };
const searchShape = {
  limit: integer({ min: 1, max: 1000, default: 50 }),
  after: optional(custom('a cursor', (value) => readCursor(value))),
  budget: duration({ min: 1, max: '1m', default: 120 }),
};

/** A bulk call consists of short statements: other transactions wait for the keys of one statement only as long as it takes. */
const PIECE = 100;
const PIECE_MS = 120;
/** How long to repeat while another transaction holds a row. */
const PATIENCE_MS = 5000;
const POLL_MS = { min: 5, max: 100 } as const;

/** Gives back the jobs of a worker that is dead. @throws NotFound, InvalidInput, LockNotAvailable */
export async function releaseWorker(reader: PostgresQueueReader, id: string): Promise<ReleasedWorker> {
  const worker = readWorkerId(id);
  const given = await untilFree(() => reader.release(worker));
  if (given !== 'busy') return given;
  throw new LockNotAvailable(
    `worker ${worker} cannot be released now: one of its claims, or a rescue, is under way and does not end; nothing was changed; try again`,
  );
}

/** Moves all jobs that a query finds: see {@link Queue.move}. @throws NotFound  there is no such queue, or it has no such kind */
export async function moveAll(
  reader: PostgresQueueReader,
  queue: string,
  query: string,
  given: { readonly to: string } & MoveOptions,
): Promise<BulkResult> {
  const { to, toKind, signal: abort } = checkOptions('move', given, moveShape);
  if (to === queue) throw new InvalidInput(`the jobs are in queue "${to}" already; name another one`, { field: 'to' });
  const there = (await reader.list()).find(({ name }) => name === to);
  if (there === undefined)
    throw new NotFound(`there is no queue "${to}" to move jobs to; a program that has it registers it first`);
  if (toKind !== undefined && !there.kinds.includes(toKind)) {
    throw new NotFound(`queue "${to}" has no kind "${toKind}"; it has ${there.kinds.join(', ')}`);
  }
  return changeAll(reader, queue, { what: 'move', to, toKind }, query, { signal: abort });
}

/** Cancels all jobs that a query finds: see {@link Queue.cancelAll}. */
export async function cancelAll(
  reader: PostgresQueueReader,
  queue: string,
  query: string,
  options: CancelAllOptions,
): Promise<BulkResult> {
  const { reason, signal: abort } = checkOptions('cancelAll', options, cancelAllShape);
  return changeAll(reader, queue, { what: 'cancel', reason }, query, { signal: abort });
}

/** Changes all jobs that a query finds, in pieces: see {@link Queue.retryAll}. */
export async function changeAll(
  reader: PostgresQueueReader,
  queue: string | null,
  change: ManyChange,
  query: string,
  options: BulkOptions,
): Promise<BulkResult> {
  const { signal: abort } = checkOptions(CALLS[change.what], options, { signal });
  const parsed = parseQuery(query);
  const total = { done: 0, left: 0 };
  let before: string | null = null;
  do {
    abort?.throwIfAborted();
    const page: FoundPage = await reader.search({ ...parsed, queue, before, limit: PIECE, budget: PIECE_MS });
    if (page.ids.length > 0) {
      const { done, refused, busy } = await reader.changeMany(queue, change, page.ids);
      if (faults.armed) await faults.reach('queue.changed_some');
      total.done += done;
      total.left += refused + busy;
    }
    before = page.next;
  } while (before !== null);
  return total;
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
export async function drain(
  reader: Pick<PostgresQueueReader, 'left' | 'stats'>,
  queue: string,
  options: DrainOptions,
): Promise<void> {
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

/** Repeats the call until its answer is not `busy`, or the time is over. */
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
    count(parked, 'behind others of their key or group'),
    count(inProgress, 'in progress'),
    count(delayed, 'delayed'),
  ].join(', ');
  const hint = paused ? '; the queue is paused' : workers === 0 ? '; no worker is running' : '';
  return `${counts}${hint}`;
}
