import { InvalidInput, NotSupported } from '../../base/errors.ts';
import { type Check, integer, list, object, optional, suggest, text } from '../../base/options/options.ts';
import type { Definition } from '../definition.ts';
import type { TakenPart } from '../store.ts';

const LEAST = -32_768;
const MOST = 32_767;

/** Priorities from `min` to `max`; a lower number runs first. */
export interface PriorityRange {
  readonly min?: number | undefined;
  readonly max?: number | undefined;
}

export const kindNames: Check<readonly string[] | undefined> = optional(list(text({ max: 100 })));

const end = optional(integer({ min: LEAST, max: MOST }));
export const priorityRange: Check<PriorityRange | undefined> = optional(object({ min: end, max: end }));

interface TakenOptions {
  readonly hold: 'lease' | 'transaction';
  readonly kinds: readonly string[] | undefined;
  readonly priority: PriorityRange | undefined;
}

/**
 * The part of the work that a worker takes; undefined for all of it.
 * @throws InvalidInput  no kind, an unknown one, an empty range @throws NotSupported  the queue keeps the order of its keys
 */
export function readTaken({ hold, kinds, priority }: TakenOptions, definition: Definition): TakenPart | undefined {
  if (kinds === undefined && priority === undefined) return undefined;
  const { min = LEAST, max = MOST } = priority ?? {};
  if (priority !== undefined && priority.min === undefined && priority.max === undefined) {
    throw new InvalidInput('priority takes min, max or both', { field: 'priority' });
  }
  if (min > max) {
    throw new InvalidInput(`priority.min is ${min}, which is more than priority.max, ${max}`, { field: 'priority' });
  }
  const option = kinds === undefined ? 'priority' : 'kinds';
  requireLooseKeys(option, hold, definition);
  return { kinds: readKinds(kinds, definition), min, max };
}

function readKinds(given: readonly string[] | undefined, { name, kinds }: Definition): readonly string[] {
  const all = [...kinds.keys()];
  if (given === undefined) return all;
  if (given.length === 0) throw new InvalidInput('kinds must name at least one kind', { field: 'kinds' });
  for (const [nth, kind] of given.entries()) {
    if (kinds.has(kind)) continue;
    const near = suggest(kind, all);
    const advice = near === undefined ? `the kinds are ${all.join(', ')}` : `did you mean "${near}"?`;
    throw new InvalidInput(`queue "${name}" has no kind "${kind}"; ${advice}`, { field: `kinds[${nth}]` });
  }
  return [...new Set(given)];
}

function requireLooseKeys(option: string, hold: 'lease' | 'transaction', { name, keyed }: Definition): void {
  if (keyed) {
    throw new NotSupported(
      `${option} of work() would let jobs of queue "${name}" overtake others of their key: a key has one order for all kinds and ` +
        'priorities; declare the queue with concurrency: { perKey: Infinity }, or give these jobs a queue of their own',
    );
  }
  if (hold === 'transaction') {
    throw new NotSupported(
      `${option} of work() needs hold: 'lease': with hold: 'transaction' each lane takes the job that comes next in the line`,
    );
  }
}
