import { describeThrown } from '../../../base/error-text.ts';
import { Cancelled, LeaseLost, NoRetry, Stopped, TimedOut } from '../../../base/errors.ts';
import { validate } from '../../../base/options/schema.ts';
import { isThenable } from '../../../base/options/shape.ts';
import { toJson } from '../../../base/storable.ts';
import { delay } from '../../../base/time/backoff.ts';
import { after } from '../../../base/time/clock.ts';
import { formatDuration } from '../../../base/time/duration.ts';
import { GRACE_MS } from '../../../base/work/deadlines.ts';
import type { Definition, Kind } from '../../definition.ts';
import type { JobFailure } from '../../store.ts';
import type { Job } from './claimed-job.ts';
import type { Unit } from './unit.ts';
import { Verdict } from './verdict.ts';

/** The outcome of one attempt at a unit. */
export interface AttemptResult {
  readonly failed: readonly JobFailure[];
  /** The jobs that are complete. */
  readonly complete: readonly Job[];
  /** The return value of the handler as JSON; undefined if it has no JSON form. */
  readonly result: string | undefined;
  /** True: nothing may be written any more, because another worker may own the unit. */
  readonly isLost: boolean;
  /** True: a job will be retried, or stops its key, so that the rest of the key has to wait for it. */
  readonly isRetried: boolean;
}

export type Handler = (unit: Unit) => unknown;

/** All units without a failure share this value. */
const NONE: readonly JobFailure[] = [];

/** The error of a job whose predecessor failed, for kinds with `afterError: 'error'`. */
export class PredecessorFailed extends NoRetry {
  constructor(job: number) {
    super(`its predecessor, job ${job}, ended in error; retry that job first, then this one`);
  }
}

/**
 * Runs one attempt at a unit, from the checks to the outcome. Calls `end` exactly once, possibly before it returns.
 * @returns a function that ends the attempt from outside with a reason; the handler's later outcome is then ignored. Undefined if
 *   this program has no handler for the kind; nothing was done then
 */
export function startAttempt(
  unit: Unit,
  definition: Definition,
  handlers: ReadonlyMap<string, Handler>,
  end: (outcome: AttemptResult) => void,
): ((why: unknown) => void) | undefined {
  const kind = definition.kinds.get(unit.kind);
  const handler = handlers.get(unit.kind);
  if (kind === undefined || handler === undefined) return undefined;
  let cancelTimer: (() => void) | undefined;
  const finish = (outcome: AttemptResult): void => {
    if (unit.isOver) return;
    unit.isOver = true;
    cancelTimer?.();
    end(outcome);
  };
  const fail = (error: unknown): void => finish(failed(unit, kind, error));
  // If the time of an attempt is over, the attempt has failed, whatever its handler returns.
  const pass = (value: unknown): void =>
    unit.abortReason instanceof TimedOut || value instanceof Verdict
      ? fail(unit.abortReason ?? value)
      : finish(succeeded(unit, kind, value));
  if (unit.brokenBy !== null) fail(new PredecessorFailed(unit.brokenBy));
  else if (unit.abortReason !== undefined) fail(unit.abortReason);
  else if (cannotBegin(unit, kind)) finish(unbegun(unit, kind));
  else {
    const timeoutMs = unit.job.own?.timeout ?? kind.timeoutMs;
    if (timeoutMs !== Infinity) cancelTimer = limit(unit, timeoutMs, fail);
    if (kind.idleMs !== Infinity) cancelTimer = both(cancelTimer, limitIdle(unit, kind.idleMs, fail));
    try {
      const value = call(unit, kind, handler);
      if (isThenable(value)) {
        Promise.resolve(value).then(pass, fail);
      } else pass(value);
    } catch (error) {
      fail(error);
    }
  }
  return fail;
}

/** Aborts the unit when its time is over, and fails it if its handler does not end soon after. */
function limit(unit: Unit, ms: number, fail: (error: unknown) => void): () => void {
  return abortAfter(unit, ms, `the attempt took longer than its ${formatDuration(ms)}`, fail);
}

/** The same for a handler that has not called `progress` for this long. */
function limitIdle(unit: Unit, ms: number, fail: (error: unknown) => void): () => void {
  const words = `the handler has called progress() for the last time ${formatDuration(ms)} ago`;
  let cancel = abortAfter(unit, ms, words, fail);
  unit.onProgress = () => {
    if (unit.abortReason !== undefined) return;
    cancel();
    cancel = abortAfter(unit, ms, words, fail);
  };
  return () => cancel();
}

function abortAfter(unit: Unit, ms: number, words: string, fail: (error: unknown) => void): () => void {
  let cancel = after(ms, () => {
    const error = new TimedOut(words);
    unit.abort(error);
    cancel = after(GRACE_MS, () => fail(error));
  });
  return () => cancel();
}

function both(first: (() => void) | undefined, second: () => void): () => void {
  return () => {
    first?.();
    second();
  };
}

/**
 * Validates the payloads, then calls the handler. If everything is synchronous, it returns the value itself, so that ten thousand
 * small jobs do not need ten thousand turns of the event loop.
 */
function call(unit: Unit, kind: Kind, handler: Handler): unknown {
  const seen = kind.coalesce === 'latest' ? latest(unit) : unit;
  if (kind.schema === undefined) return handler(seen);
  let late: Promise<unknown>[] | undefined;
  for (const job of seen.jobs) {
    const value: unknown = validate(kind.schema, job.payload, `payload of job ${job.number}`);
    if (value instanceof Promise) (late ??= []).push(value.then((valid) => job.accept(valid)));
    else job.accept(value);
  }
  if (late === undefined) return handler(seen);
  return Promise.all(late).then(() =>
    // Meanwhile it may have been told to end, and be another worker's by now.
    unit.abortReason === undefined ? handler(seen) : Promise.reject(unit.abortReason),
  );
}

/** The unit for a handler of a kind with `coalesce: 'latest'`: with only its newest job. */
function latest(unit: Unit): Unit {
  if (unit.jobs.length === 1) return unit;
  const jobs = [unit.job];
  return new Proxy(unit, {
    get: (target, name) => {
      if (name === 'jobs') return jobs;
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
}

/** The number of attempts that a job has. */
function attemptsOf(job: Job, kind: Kind): number {
  return job.own?.attempts ?? kind.attempts;
}

function cannotBegin({ jobs }: Unit, kind: Kind): boolean {
  for (const job of jobs) if (job.isExpired || job.attempt > attemptsOf(job, kind)) return true;
  return false;
}

/**
 * Ends jobs before their handler begins: jobs whose last attempt was lost with its worker end in error, and expired jobs are
 * cancelled. The others of their unit run without them.
 */
function unbegun(unit: Unit, kind: Kind): AttemptResult {
  const all = unit.jobs.map((job): JobFailure => {
    const base = { claim: job.claim.id, id: job.number };
    if (job.isExpired) return { ...base, to: 'cancelled', reason: 'expired', error: expired(job) };
    return job.attempt > attemptsOf(job, kind)
      ? { ...base, to: 'error', reason: 'worker lost', error: 'the worker was lost during the last attempt' }
      : { ...base, to: 'release', reason: 'another job of its unit was lost with its worker, or has expired' };
  });
  return {
    failed: all,
    complete: [],
    result: undefined,
    isLost: false,
    isRetried: all.some(({ to }) => to === 'release') || stopsKey(unit, kind, all),
  };
}

function succeeded(unit: Unit, kind: Kind, value: unknown): AttemptResult {
  const { failed: given } = unit;
  let result: string | undefined;
  try {
    result = value === undefined ? undefined : toJson(value, 'the result', undefined, kind.maxBytes);
  } catch (error) {
    return failed(unit, kind, error);
  }
  if (given === undefined) return { failed: NONE, complete: unit.jobs, result, isLost: false, isRetried: false };
  const givenUp = [...given].map(([job, error]) => failure(job, kind, error, wordsOf(error)));
  return {
    failed: givenUp,
    complete: unit.jobs.filter((job) => !given.has(job)),
    result,
    isLost: false,
    isRetried: givenUp.some(({ to }) => to === 'retry' || to === 'release') || stopsKey(unit, kind, givenUp),
  };
}

/** Whether an error among these stops the key of the unit. */
function stopsKey(unit: Unit, kind: Kind, failures: readonly JobFailure[]): boolean {
  return kind.blocksKey && unit.key !== null && failures.some(({ to }) => to === 'error');
}

/** The outcome of an attempt whose handler threw, or that was ended from outside. */
function failed(unit: Unit, kind: Kind, error: unknown): AttemptResult {
  const why = unit.abortReason ?? error;
  if (why instanceof LeaseLost) return { failed: [], complete: [], result: undefined, isLost: true, isRetried: false };
  const thrown = why instanceof TimedOut ? why : error;
  const words = wordsOf(thrown); // once, however many jobs the unit has
  const all = unit.jobs.map((job): JobFailure => {
    const base = { claim: job.claim.id, id: job.number };
    if (why instanceof Stopped) return { ...base, to: 'release', reason: 'worker stopped' };
    if (why instanceof Cancelled) {
      const words = unit.cancelled?.get(job.number);
      return words === undefined
        ? { ...base, to: 'release', reason: 'another job of its unit was cancelled' }
        : { ...base, to: 'cancelled', reason: 'cancel', error: words };
    }
    return failure(job, kind, thrown, words);
  });
  const isRetried = all.some(({ to }) => to === 'retry' || to === 'release') || stopsKey(unit, kind, all);
  return { failed: all, complete: [], result: undefined, isLost: false, isRetried };
}

function failure(job: Job, kind: Kind, error: unknown, words: string): JobFailure {
  const base = { claim: job.claim.id, id: job.number, error: words };
  if (error instanceof Verdict && (error.to !== 'retry' || job.attempt < attemptsOf(job, kind))) {
    return { ...base, to: error.to, reason: error.reason, wait: error.waitMs };
  }
  if (error instanceof NoRetry) return { ...base, to: 'error', reason: 'no retry' };
  if (job.attempt >= attemptsOf(job, kind)) return { ...base, to: 'error', reason: 'attempts exhausted' };
  const reason = error instanceof TimedOut ? 'timed out' : 'failed';
  return { ...base, to: 'retry', reason, wait: delay(job.own?.backoff ?? kind.backoff, job.attempt, chance(job)) };
}

function wordsOf(error: unknown): string {
  return error instanceof Verdict ? error.message : describeThrown(error);
}

/** The same words as those of pawl.queue_expire(). */
function expired(job: Job): string {
  return `it had not begun by ${job.own?.expiresAt}`;
}

/** Jobs with neighbouring ids that fail in the same attempt get the same delay, so that they stay one run. */
const NEIGHBOURS = 64;
let last = { block: -1, attempt: 0, chance: 0 };

/** The jitter of a job, from 0 to 1; neighbours have the same. */
function chance({ number, attempt }: Job): number {
  const block = Math.floor(number / NEIGHBOURS);
  if (block !== last.block || attempt !== last.attempt) last = { block, attempt, chance: Math.random() };
  return last.chance;
}

/**
 * Called when a unit has ended in error. The next units of its key in this claim were claimed before. So this call marks those
 * whose kind has `afterError: 'error'`.
 */
export function breakSuccessors(unit: Unit, { failed: all }: AttemptResult, definition: Definition): void {
  const broken = all.find(({ to }) => to === 'error');
  if (broken === undefined) return;
  for (let next = unit.next; next !== undefined; next = next.next) {
    const kind = definition.kinds.get(next.kind);
    if (kind?.afterError === 'error' && kind.after.includes(unit.kind)) next.brokenBy ??= broken.id;
  }
}
