import { InvalidInput } from '../base/errors.ts';
import { show } from '../base/options/refusal.ts';

const MOST = 2n ** 63n - 1n;

/**
 * A job's id as the database takes it: a decimal string.
 * @throws InvalidInput for anything else
 */
export function readJobId(value: unknown): string {
  if (typeof value === 'string' && /^[1-9]\d{0,18}$/.test(value) && BigInt(value) <= MOST) return value;
  throw new InvalidInput(`${show(value)} is no job id; an id is what enqueue() answers, a string such as '42'`, {
    field: 'id',
  });
}
