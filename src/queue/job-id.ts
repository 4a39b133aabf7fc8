import { InvalidInput } from '../base/errors.ts';
import { show } from '../base/options/refusal.ts';

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
