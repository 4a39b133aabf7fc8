import { InvalidInput } from '../base/errors.ts';
import { checkOptions, optional, text } from '../base/options/options.ts';
import { show } from '../base/options/refusal.ts';
import { isObject } from '../base/options/shape.ts';
import { jobShape } from './job-options.ts';

/**
 * Names one job: by its id; or by its key, and its kind if you like: the newest job of the key that has not ended, and when
 * all have ended, the newest of all.
 */
export type JobTarget = string | { readonly key: string; readonly kind?: string | undefined };

/** The same for a job of any queue. */
export type AnyJobTarget =
  | string
  | { readonly queue: string; readonly key: string; readonly kind?: string | undefined };

/** How the functions in SQL take it. */
export interface NamedJob {
  readonly queue?: string;
  readonly id?: string;
  readonly key?: string | undefined;
  readonly kind?: string | undefined;
}

const targetShape = { queue: optional(text({ min: 1 })), key: jobShape.key, kind: optional(text({ min: 1 })) };

/**
 * Checks what names a job.
 * @param queue  null: any queue; a key then needs the queue next to it
 * @throws InvalidInput
 */
export function readJobTarget(call: string, queue: string | null, target: unknown): NamedJob {
  if (!isObject(target)) return { id: readJobId(target), ...(queue !== null && { queue }) };
  refuseRecord(call, target);
  const { queue: of = queue, key, kind } = checkOptions(call, target, targetShape);
  if (key === undefined || of === null || (queue !== null && of !== queue)) {
    const fields = queue === null ? '{ queue, key, kind }' : '{ key, kind }';
    throw new InvalidInput(`${call} takes the id of a job, or ${fields}, but was given ${show(target)}`, {
      field: 'id',
    });
  }
  return { queue: of, key, kind };
}

/** @throws InvalidInput  it is what enqueue() or get() gave, instead of the id in it */
export function refuseRecord(call: string, target: Readonly<Record<string, unknown>>): void {
  if (!isId(target['id'])) return;
  throw new InvalidInput(`${call} takes the id alone, '${target['id']}', but was given an object with that id`, {
    field: 'id',
  });
}

const MOST = 2n ** 63n - 1n;

/**
 * Checks a job's id: a decimal string.
 * @throws InvalidInput for anything else
 */
export function readJobId(value: unknown): string {
  if (isId(value)) return value;
  throw new InvalidInput(`${show(value)} is no job id; enqueue() returns the id, a string such as '42'`, {
    field: 'id',
  });
}

/** Checks a worker's id: a decimal string. @throws InvalidInput for anything else */
export function readWorkerId(value: unknown): string {
  if (isId(value)) return value;
  throw new InvalidInput(`${show(value)} is no worker id; workers() lists them, each a string such as '42'`, {
    field: 'worker',
  });
}

function isId(value: unknown): value is string {
  return typeof value === 'string' && /^[1-9]\d{0,18}$/.test(value) && BigInt(value) <= MOST;
}
