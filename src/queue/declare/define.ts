import { InvalidInput } from '../../base/errors.ts';
import {
  type Check,
  checkOptions,
  custom,
  duration,
  integer,
  list,
  object,
  oneOf,
  optional,
  record,
  text,
} from '../../base/options/options.ts';
import { refusal } from '../../base/options/refusal.ts';
import { schemaOption } from '../../base/options/schema.ts';
import { MOST_BYTES, MOST_BYTES_EVER } from '../../base/storable.ts';
import { BACKOFF, backoffShape } from '../../base/time/backoff.ts';
import type { Definition, Kind, QueueOptions } from '../definition.ts';
import { label } from '../label.ts';
import { contradictionOf, refuseContradictions } from './contradictions.ts';
import { debounce, throttled, unique } from './unique.ts';

const DEFAULTS = { shards: 1, attempts: 15, history: '90d' } as const;

const history: Check<number> = custom(
  "a duration such as '90d', or 'forever'",
  (value, place) => (value === 'forever' ? Infinity : duration({ min: '1s' }).given(value, place)),
  { default: DEFAULTS.history },
);

const perKey = custom(
  '1 or Infinity',
  (value, place) => {
    if (value !== 1 && value !== Infinity) throw refusal(place, value, '1 or Infinity');
    return value;
  },
  { default: 1 },
);

const batchShape = {
  size: integer({ min: 1, max: 10_000 }),
  wait: duration({ min: 0, max: '1m', default: '50ms' }),
};

const batch: Check<Kind['batch']> = optional(
  custom('{ size, wait }', (value, place) => {
    const { size, wait } = checkOptions(`createQueue, ${place.field}`, value, batchShape);
    if (size === undefined) throw refusal(place, value, '{ size, wait }, with a size');
    return { size, waitMs: wait };
  }),
);

const kindShape = {
  payload: schemaOption(),
  unique,
  throttle: optional(duration({ min: 1 })),
  debounce,
  coalesce: optional(oneOf(['none', 'latest', 'all'])),
  after: list(text({ min: 1 }), { default: [] }),
  afterError: oneOf(['run', 'error'], { default: 'run' }),
  attempts: optional(integer({ min: 1, max: 1000 })),
  backoff: optional(backoffShape()),
  key: optional(oneOf(['required'])),
  onError: optional(text({ min: 1 })),
  timeout: duration({ min: 1, default: Infinity, infinite: true }),
  idle: duration({ min: 1, default: Infinity, infinite: true }),
  maxBytes: integer({ min: 1000, max: MOST_BYTES_EVER, default: MOST_BYTES }),
  batch,
};

const rateLimit = object({ limit: integer({ min: 1, max: 10_000 }), per: duration({ min: '1s', max: '366d' }) });

const shape = {
  kinds: record(object(kindShape)),
  shards: integer({ min: 1, max: 256, default: DEFAULTS.shards }),
  retry: object({
    attempts: integer({ min: 1, max: 1000, default: DEFAULTS.attempts }),
    backoff: backoffShape(BACKOFF),
  }),
  history,
  concurrency: object({ perKey, perGroup: optional(integer({ min: 1, max: 10_000 })) }),
  rate: object({ perGroup: optional(rateLimit) }),
  keyOnError: oneOf(['continue', 'block'], { default: 'continue' }),
};

/** @throws InvalidInput if the declaration contradicts itself or has a bad option */
export function define(name: string, options: QueueOptions): Definition {
  checkOptions('createQueue', { name }, { name: label });
  const given = checkOptions('createQueue', options, shape);
  if (Object.keys(given.kinds).length === 0) {
    throw new InvalidInput(`queue "${name}" needs at least one kind: { kinds: { send: {} } }`, { field: 'kinds' });
  }
  const kinds = new Map<string, Kind>();
  for (const [kindName, kind] of Object.entries(given.kinds)) {
    const contradiction = contradictionOf(options.kinds[kindName] ?? {});
    if (contradiction !== undefined) {
      throw new InvalidInput(`kind "${kindName}" has ${contradiction}`, { field: `kinds.${kindName}` });
    }
    kinds.set(kindName, {
      name: kindName,
      schema: kind.payload,
      unique: kind.throttle === undefined ? kind.unique : throttled(kind.throttle),
      debounce: kind.debounce,
      coalesce: kind.coalesce ?? (kind.debounce === undefined ? 'none' : 'latest'),
      after: kind.after,
      afterError: kind.afterError,
      attempts: kind.attempts ?? given.retry.attempts,
      backoff: kind.backoff ?? given.retry.backoff,
      needsKey:
        kind.key === 'required' ||
        kind.unique?.by === 'key' ||
        kind.throttle !== undefined ||
        kind.debounce !== undefined ||
        (kind.coalesce ?? 'none') !== 'none' ||
        kind.after.length > 0,
      onError: kind.onError,
      timeoutMs: kind.timeout,
      idleMs: kind.idle,
      maxBytes: kind.maxBytes,
      batch: kind.batch,
      blocksKey: given.keyOnError === 'block',
    });
  }
  const keyed = given.concurrency.perKey === 1;
  const limit = given.rate.perGroup;
  refuseContradictions(kinds, keyed, given.history);
  return Object.freeze({
    name,
    kinds,
    shards: given.shards,
    attempts: given.retry.attempts,
    historyMs: given.history,
    keyed,
    perGroup: given.concurrency.perGroup,
    rate: limit && { limit: limit.limit, perMs: limit.per },
    blocksKeys: given.keyOnError === 'block',
  });
}
