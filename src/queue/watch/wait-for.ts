import { Cancelled, JobFailed, NotFound, TimedOut } from '../../base/errors.ts';
import { checkOptions, duration, signal, text } from '../../base/options/options.ts';
import { isObject } from '../../base/options/shape.ts';
import { after } from '../../base/time/clock.ts';
import { type Duration, formatDuration } from '../../base/time/duration.ts';
import type { PostgresEngine } from '../../engine/postgres/index.ts';
import type { JobRecord, JobStatus } from '../job.ts';
import { readJobId, refuseRecord } from '../job-id.ts';
import { PostgresQueueReader } from '../postgres/reader.ts';
import { PostgresQueueWaits } from '../postgres/watch/waits.ts';
import { JobWaits } from './waits.ts';

/** The job to wait for: its id, or the newest job of a key. */
export type WaitTarget = string | { readonly key: string };

export interface WaitForOptions {
  /** The longest wait. Default `'30s'`; `Infinity` waits for ever. */
  readonly timeout?: Duration | undefined;
  /** Ends the wait with the signal's reason. The job goes on. */
  readonly signal?: AbortSignal | undefined;
}

const waitShape = { timeout: duration({ min: 1, default: '30s', infinite: true }), signal };
const keyShape = { key: text({ min: 1, maxBytes: 1000 }) };

/** Checks the options of a wait. @throws InvalidInput */
export function readWaitOptions(
  what: string,
  options: WaitForOptions,
): { timeout: number; signal: AbortSignal | undefined } {
  return checkOptions(what, options, waitShape);
}

/** Waits for one job of a queue to end. See {@link Queue.waitFor}. @param isAdded  the wait was written together with the job */
export async function waitFor(
  engine: PostgresEngine,
  queue: string,
  target: WaitTarget,
  options: WaitForOptions,
  isAdded = false,
): Promise<unknown> {
  const { timeout, signal: abort } = readWaitOptions('waitFor', options);
  abort?.throwIfAborted();
  const id = await idOf(engine, queue, target);
  const ending = new AbortController();
  const end = (): void => ending.abort();
  const cancel = after(timeout, end);
  abort?.addEventListener('abort', end, { once: true });
  try {
    for (let first = true; ; first = false) {
      const ended = await JobWaits.for(engine).ended(queue, id, ending.signal, first && isAdded);
      abort?.throwIfAborted();
      if (ended === undefined) throw new TimedOut(await whyNot(engine, queue, id, timeout));
      if (ended.stopped !== undefined) throw ended.stopped;
      if (ended.told !== undefined) return ended.told.result;
      const job = await new PostgresQueueReader(engine).get({ queue, id });
      if (hasEnded(job)) return outcomeOf(job);
      // A retry by hand made the job new again between the notification and this read.
    }
  } finally {
    cancel();
    abort?.removeEventListener('abort', end);
  }
}

async function idOf(engine: PostgresEngine, queue: string, target: WaitTarget): Promise<string> {
  if (!isObject(target)) return readJobId(target);
  refuseRecord('waitFor', target);
  const { key } = checkOptions('waitFor', target, keyShape);
  const id = await new PostgresQueueWaits(engine).newest(queue, key);
  if (id === undefined)
    throw new NotFound(`queue "${queue}" has no job of key "${key}"; none was committed, or its history is over`);
  return id;
}

export function hasEnded({ status }: JobRecord): boolean {
  return status !== 'new' && status !== 'in-progress';
}

/** The result of a job that has ended. @throws Cancelled, JobFailed */
export function outcomeOf({ id, kind, queue, attempt, error, status, result }: JobRecord): unknown {
  if (status === 'complete') return result;
  const job = `job ${id} (kind "${kind}" of queue "${queue}")`;
  if (status === 'cancelled') throw new Cancelled(`${job} was cancelled${error === null ? '' : `: ${error}`}`);
  throw new JobFailed(`${job} ended in error in attempt ${attempt}: ${error}`, { id, jobError: error ?? '' });
}

async function whyNot(engine: PostgresEngine, queue: string, id: string, timeoutMs: number): Promise<string> {
  const { status } = await new PostgresQueueReader(engine).get({ queue, id });
  return notEnded(queue, id, status, timeoutMs);
}

export function notEnded(queue: string, id: string, status: JobStatus, timeoutMs: number): string {
  return `waited ${formatDuration(timeoutMs)} for job ${id} of queue "${queue}"; it is ${status}; queue.explain('${id}') says why`;
}
