import { InvalidInput } from '../../base/errors.ts';
import { bool, type Check, checkOptions, custom, duration, oneOf, optional } from '../../base/options/options.ts';
import { refusal } from '../../base/options/refusal.ts';
import type { Duration } from '../../base/time/duration.ts';

/** Which jobs of a kind count as the same, and how long only one of them may exist. */
export interface UniqueOptions {
  /**
   * `'key'` (default): jobs of one key are the same. `'payload'`: jobs with an equal payload are the same, whatever the order of
   * its properties, and whatever their keys. Paths into the payload, such as `['user.id', 'action']`: jobs with the same values
   * at these paths; a missing value counts as null.
   */
  readonly by?: 'key' | 'payload' | readonly string[] | undefined;
  /**
   * `'outstanding'` (default): while the job waits or runs. `'waiting'`: until the job begins; one more job may wait behind a
   * running one. `'ever'`: for ever; the history keeps the job.
   */
  readonly while?: 'outstanding' | 'waiting' | 'ever' | undefined;
  /** The rule holds for this long after the enqueue of the existing job. Default: no such limit. */
  readonly per?: Duration | undefined;
  /**
   * True: a further enqueue changes the job that waits: its payload, and the time, the options and the priority (other than 0) of
   * that enqueue, as by `queue.update`. The answer has the id of the waiting job, and `duplicate: true`. Needs `while:
   * 'waiting'`, so that no payload is lost: if the job has begun, another one waits behind it. Default false: the job stays as it
   * is.
   */
  readonly replace?: boolean | undefined;
}

/** The same with all defaults, in the form of SQL. */
export interface UniqueRule {
  readonly by: 'key' | 'payload' | readonly string[];
  readonly while: 'outstanding' | 'waiting' | 'ever';
  /** An interval of Postgres. */
  readonly per?: string;
  readonly replace?: true;
}

const BY = "'key', 'payload', or 1 to 20 paths into the payload such as ['user.id']";

const by: Check<UniqueRule['by']> = custom(
  BY,
  (value, place) => {
    if (value === 'key' || value === 'payload') return value;
    if (!Array.isArray(value) || value.length === 0 || value.length > 20) throw refusal(place, value, BY);
    return value.map((path: unknown) => {
      if (typeof path !== 'string' || path === '') throw refusal(place, path, 'a path such as "user.id"');
      return path;
    });
  },
  { default: 'key' },
);

const shape = {
  by,
  while: oneOf(['outstanding', 'waiting', 'ever'], { default: 'outstanding' }),
  per: optional(duration({ min: 1 })),
  replace: bool({ default: false }),
};

/** One job of a key, for ever: the index of queue_job enforces it. */
const ONE_EVER: UniqueRule = { by: 'key', while: 'ever' };

/** The option `unique` of a kind: {@link UniqueOptions}, or `'key'` for one job of a key, ever. */
export const unique: Check<UniqueRule | undefined> = optional(
  custom("{ by, while, per, replace }, or 'key' for one job of a key, ever", (value, place) => {
    if (value === 'key') return ONE_EVER;
    return readRule(`createQueue, ${place.field}`, value);
  }),
);

/** The option `unique` of one job: {@link UniqueOptions}; true: one job of a key, ever; false: no rule. */
export const uniqueOfJob: Check<boolean | UniqueRule | undefined> = optional(
  custom('true, false, or { by, while, per, replace }', (value, place) => {
    if (typeof value === 'boolean') return value;
    return readRule(`enqueue, ${place.field}`, value);
  }),
);

function readRule(call: string, value: unknown): UniqueRule {
  const { per, replace, ...rest } = checkOptions(call, value, shape);
  if (replace && (rest.while !== 'waiting' || rest.by === 'payload')) {
    throw new InvalidInput(
      `${call}: replace needs while: 'waiting', and a by other than 'payload', but was given while: '${rest.while}', by: ${JSON.stringify(rest.by)}`,
      { field: 'unique' },
    );
  }
  return { ...rest, ...(per !== undefined && { per: `${per} milliseconds` }), ...(replace && { replace }) };
}

/** At most one job of a key in this time. */
export function throttled(ms: number): UniqueRule {
  return { by: 'key', while: 'ever', per: `${ms} milliseconds` };
}

/** Whether the rule is the same as `'key'`. */
export function isOneEver(rule: UniqueRule | undefined): boolean {
  return rule !== undefined && rule.by === 'key' && rule.while === 'ever' && rule.per === undefined;
}

/** When a debounced job runs. */
export interface DebounceOptions {
  /** A job of the kind and key runs when no further one has come for this long. */
  readonly wait: Duration;
  /** It runs at most this long after the first one. Default: ten times `wait`. */
  readonly max?: Duration | undefined;
}

export interface Debounce {
  readonly waitMs: number;
  readonly maxMs: number;
}

const debounceShape = { wait: duration({ min: 1 }), max: optional(duration({ min: 1 })) };

/** The option `debounce` of a kind: a duration, or {@link DebounceOptions}. */
export const debounce: Check<Debounce | undefined> = optional(
  custom("a duration such as '10s', or { wait, max }", (value, place) => {
    const given = typeof value === 'object' && value !== null ? value : { wait: value };
    const { wait, max } = checkOptions(`createQueue, ${place.field}`, given, debounceShape);
    if (wait === undefined) throw refusal(place, value, "a duration such as '10s', or { wait, max }");
    if (max !== undefined && max < wait) {
      throw new InvalidInput(`${place.field}.max must not be shorter than its wait`, { field: place.field });
    }
    return { waitMs: wait, maxMs: max ?? wait * 10 };
  }),
);
