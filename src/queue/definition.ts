import { InvalidInput } from '../base/errors.ts';
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
  suggest,
  text,
} from '../base/options/options.ts';
import { refusal } from '../base/options/refusal.ts';
import { type InferInput, type InferOutput, type StandardSchemaV1, schemaOption } from '../base/options/schema.ts';
import { MOST_BYTES, MOST_BYTES_EVER } from '../base/storable.ts';
import { BACKOFF, type Backoff, type BackoffOption, backoffShape } from '../base/time/backoff.ts';
import { type Duration, formatDuration } from '../base/time/duration.ts';
import { label } from './label.ts';
import {
  type Debounce,
  type DebounceOptions,
  debounce,
  throttled,
  type UniqueOptions,
  type UniqueRule,
  unique,
} from './unique.ts';

/** Options of one kind of jobs. */
export interface KindOptions {
  /**
   * Any Standard Schema (zod, valibot, arktype…). The payload is checked at enqueue and again when the job runs, so that a
   * job from an older version of the program, or from SQL, never reaches the handler in a shape that it does not expect.
   * Default: no check.
   */
  readonly payload?: StandardSchemaV1 | undefined;
  /**
   * There is at most one of these jobs: enqueueing another one gives the id and the status of the one that is there, and
   * `duplicate: true`. `'key'` is short for `{ by: 'key', while: 'ever' }`. Two enqueues at once are decided by the order of
   * their commits: the second waits for the first transaction to end.
   */
  readonly unique?: 'key' | UniqueOptions | undefined;
  /** At most one job of a key in so long; others are answered like duplicates. It needs a key. */
  readonly throttle?: Duration | undefined;
  /**
   * A job of this kind waits until so long no further one of its key has come, and at the latest for `max` (default: ten times
   * as long). Then they are one unit: the handler gets the newest payload, or all of them with `coalesce: 'all'`. Each
   * enqueue only adds a job, so producers do not wait for each other. It needs a key, and sets `runAt`.
   */
  readonly debounce?: Duration | DebounceOptions | undefined;
  /**
   * `'all'`: all outstanding jobs of this kind and key are one unit (at most 10,000), each with its own row, outcome and
   * history. `'latest'`: the same, and the handler gets only the newest job. Default `'none'`: each job is a unit.
   */
  readonly coalesce?: 'none' | 'latest' | 'all' | undefined;
  /** Predecessor kinds: a job of this kind waits until no job of these kinds with the same key is unsettled. */
  readonly after?: readonly string[] | undefined;
  /**
   * What happens to a job whose predecessor (`after`) ended in `error`: it runs all the same (`'run'`, the default), or ends
   * in `error`, too.
   */
  readonly afterError?: 'run' | 'error' | undefined;
  /** The number of attempts of a job of this kind. Default: the queue's `retry.attempts`. */
  readonly attempts?: number | undefined;
  /** The wait between two attempts at a job of this kind. Default: the queue's `retry.backoff`. */
  readonly backoff?: BackoffOption | undefined;
  /**
   * The kind of the dead letters: a job of this kind that ends in `error`, by whatever, leaves a job of that kind of the same
   * queue with a {@link DeadLetter} as its payload, in the transaction that ends it: exactly one for each such end. It has
   * the same key, if there is one.
   */
  readonly onError?: string | undefined;
  /**
   * `'required'`: a job of this kind without a key is refused, so that no program forgets it. Default: only kinds with `unique`,
   * `coalesce` or `after` need one.
   */
  readonly key?: 'required' | undefined;
  /**
   * How long one attempt may take. After that `unit.signal` is aborted and the attempt has failed, whatever its handler
   * returns. It is settled when the handler has ended, at most 5 s later. Default: no limit.
   */
  readonly timeout?: Duration | undefined;
  /**
   * How long a handler may go on without calling `unit.progress()`. After that its attempt has failed, as after `timeout`.
   * Default: no limit.
   */
  readonly idle?: Duration | undefined;
  /** The largest payload and result of a job of this kind, as JSON in UTF-8. Default 4 MiB; at most 32 MiB. */
  readonly maxBytes?: number | undefined;
  /**
   * The handler of this kind gets an array of up to `size` units, see `UnitBatch`, and takes one slot for all of them. Each has an
   * outcome of its own. Only for workers with `hold: 'lease'`. Default: the handler gets one unit.
   */
  readonly batch?: BatchOptions | undefined;
}

/** How many units a batch handler gets. */
export interface BatchOptions {
  /** At most so many, 1 to 10,000. */
  readonly size: number;
  /**
   * How long the first of them waits for others, when a slot is free and there are fewer than `size`; up to a minute. They count as in
   * progress meanwhile. Default `'50ms'`.
   */
  readonly wait?: Duration | undefined;
}

/** The declaration of a queue. */
export interface QueueOptions<K extends Kinds = Kinds> {
  /** The kinds of jobs, by name. */
  readonly kinds: K;
  /**
   * The number of independent parts of the queue; jobs are ordered within each part. A key always has the same shard. Default
   * 1, which is strict FIFO; at most 256. It can be changed only while no job is outstanding.
   */
  readonly shards?: number | undefined;
  readonly retry?: RetryOptions | undefined;
  /** How long a settled job and its history are kept: a duration, or `'forever'`. Default `'90d'`. */
  readonly history?: Duration | undefined;
  readonly concurrency?: KeyConcurrency | undefined;
  /**
   * What becomes of the later jobs of a key when a job of it ends in `error`: they go on (`'continue'`, the default), or the key
   * stops (`'block'`): they wait until somebody calls `queue.retry(id)` or `queue.skip(id)` for the job that failed. It stops in the
   * transaction that ends the job, also when that was lost with its worker. A job that ends without an attempt does not stop its
   * key: one that was cancelled or has expired, or whose predecessors (`after` at its enqueue) failed. It needs
   * `concurrency: { perKey: 1 }`, and no kind may have `onError`, since a dead letter would wait behind the key.
   */
  readonly keyOnError?: 'continue' | 'block' | undefined;
}

export interface KeyConcurrency {
  /** 1 (default): the jobs of a key run one after another, in order. Infinity: a key is only a label for searches. */
  readonly perKey?: number | undefined;
}

export interface RetryOptions {
  /**
   * The number of attempts of a job, including the first one. Default 15: with the default `backoff` the last one begins an
   * hour and a half to three hours after the first, so that an outage of an hour that fails each attempt leaves no job in
   * error. A job that was lost with its worker five times in a row ends in error, whatever attempts it has left.
   */
  readonly attempts?: number | undefined;
  /** The wait between two attempts. Default exponential: 1 s, doubled each time, at most 1 h, half of it random. */
  readonly backoff?: BackoffOption | undefined;
}

export type Kinds = Readonly<Record<string, KindOptions>>;

/** The payload that a producer passes for a kind. */
export type PayloadIn<K extends KindOptions> = K extends { readonly payload: infer S extends StandardSchemaV1 }
  ? InferInput<S>
  : unknown;

/** The payload that a handler gets for a kind. */
export type PayloadOut<K extends KindOptions> = K extends { readonly payload: infer S extends StandardSchemaV1 }
  ? InferOutput<S>
  : unknown;

/** The payload of a dead letter: a job of the kind that `onError` names. */
export interface DeadLetter<P = unknown> {
  /** The id of the job that ended in error. */
  readonly job: string;
  readonly queue: string;
  readonly kind: string;
  readonly key: string | null;
  /** How many attempts it has had. */
  readonly attempts: number;
  readonly error: string;
  /** Its payload as it is stored, before any schema; null when it is omitted. */
  readonly payload: P | null;
  /** True: its payload is larger than 64 kB, or very many jobs ended at once. `queue.get(job)` has it. */
  readonly isPayloadOmitted: boolean;
}

/** One kind with all defaults. */
export interface Kind {
  readonly name: string;
  readonly schema: StandardSchemaV1 | undefined;
  readonly unique: UniqueRule | undefined;
  readonly debounce: Debounce | undefined;
  readonly coalesce: 'none' | 'latest' | 'all';
  readonly after: readonly string[];
  readonly afterError: 'run' | 'error';
  readonly attempts: number;
  readonly backoff: Backoff;
  readonly needsKey: boolean;
  readonly onError: string | undefined;
  readonly timeoutMs: number;
  readonly idleMs: number;
  readonly maxBytes: number;
  readonly batch: { readonly size: number; readonly waitMs: number } | undefined;
  /** A job that ends in error stops its key. */
  readonly blocksKey: boolean;
}

/** A queue's declaration, checked and with all defaults. */
export interface Definition {
  readonly name: string;
  readonly kinds: ReadonlyMap<string, Kind>;
  readonly shards: number;
  readonly attempts: number;
  readonly historyMs: number;
  readonly keyed: boolean;
  /** A job that ends in error stops its key. */
  readonly blocksKeys: boolean;
}

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

const shape = {
  kinds: record(object(kindShape)),
  shards: integer({ min: 1, max: 256, default: DEFAULTS.shards }),
  retry: object({
    attempts: integer({ min: 1, max: 1000, default: DEFAULTS.attempts }),
    backoff: backoffShape(BACKOFF),
  }),
  history,
  concurrency: object({ perKey }),
  keyOnError: oneOf(['continue', 'block'], { default: 'continue' }),
};

/** @throws InvalidInput when the declaration contradicts itself or has a bad option */
export function define(name: string, options: QueueOptions): Definition {
  checkOptions('createQueue', { name }, { name: label });
  const given = checkOptions('createQueue', options, shape);
  const names = Object.keys(given.kinds);
  if (names.length === 0) {
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
  for (const kind of kinds.values()) {
    checkKind(kind, names, keyed);
    checkPeriod(kind, given.history);
    checkDeadLetters(kind, kinds);
    if (kind.blocksKey) checkBlocking(kind, keyed);
  }
  refuseCircle(kinds);
  return Object.freeze({
    name,
    kinds,
    shards: given.shards,
    attempts: given.retry.attempts,
    historyMs: given.history,
    keyed,
    blocksKeys: given.keyOnError === 'block',
  });
}

/** Rules of a kind that cannot both hold, in words. */
function contradictionOf(kind: KindOptions): string | undefined {
  const { unique: one, throttle, debounce: wait, coalesce } = kind;
  if (throttle !== undefined && one !== undefined)
    return 'unique and throttle; throttle is a rule of unique: leave one out';
  if (wait !== undefined && (one !== undefined || throttle !== undefined)) {
    return `debounce and ${one === undefined ? 'throttle' : 'unique'}; debounce takes every job, and the other does not: leave one out`;
  }
  if (wait !== undefined && coalesce === 'none') {
    return "debounce and coalesce: 'none'; its jobs become one unit: leave coalesce out, or make it 'all' or 'latest'";
  }
  return undefined;
}

function checkKind(kind: Kind, names: readonly string[], keyed: boolean): void {
  const field = `kinds.${kind.name}`;
  label.given(kind.name, { field, what: 'createQueue, as the name of a kind' });
  for (const other of kind.after) {
    if (names.includes(other)) continue;
    const near = suggest(other, names);
    const advice = near === undefined ? `the kinds are ${names.join(', ')}` : `did you mean "${near}"?`;
    throw new InvalidInput(`kind "${kind.name}" comes after the unknown kind "${other}"; ${advice}`, {
      field: `${field}.after`,
    });
  }
  if (!keyed && (kind.coalesce !== 'none' || kind.after.length > 0)) {
    throw new InvalidInput(
      `kind "${kind.name}" has ${kind.after.length > 0 ? 'after' : kind.debounce === undefined ? 'coalesce' : 'debounce'}, which needs concurrency: { perKey: 1 }`,
      { field },
    );
  }
}

/** What history has removed is not known any more. */
function checkPeriod(kind: Kind, historyMs: number): void {
  const per = Number.parseFloat(kind.unique?.per ?? '0');
  if (per <= historyMs) return;
  throw new InvalidInput(
    `kind "${kind.name}" is unique for ${formatDuration(per)}, and the queue's history ends after ${formatDuration(historyMs)}; make history longer, or the time shorter`,
    { field: `kinds.${kind.name}` },
  );
}

/** A dead letter must never be refused by the database, nor make dead letters without end. */
function checkDeadLetters({ name, onError, needsKey }: Kind, kinds: ReadonlyMap<string, Kind>): void {
  if (onError === undefined) return;
  const field = `kinds.${name}.onError`;
  const letter = kinds.get(onError);
  if (letter === undefined) {
    const near = suggest(onError, [...kinds.keys()]);
    const advice = near === undefined ? `the kinds are ${[...kinds.keys()].join(', ')}` : `did you mean "${near}"?`;
    throw new InvalidInput(`kind "${name}" has the unknown kind "${onError}" for its dead letters; ${advice}`, {
      field,
    });
  }
  if (letter.unique !== undefined) {
    throw new InvalidInput(
      `kind "${onError}" is unique, so a second dead letter of a key would be none; take another kind for onError of "${name}"`,
      { field },
    );
  }
  if (letter.needsKey && !needsKey) {
    throw new InvalidInput(
      `kind "${onError}" needs a key, so "${name}", whose dead letters it has, needs one, too: key: 'required'`,
      { field },
    );
  }
  const seen = [name];
  for (let next: Kind | undefined = letter; next !== undefined; next = kinds.get(next.onError ?? '')) {
    if (seen.includes(next.name)) {
      throw new InvalidInput(
        `dead letters would make dead letters for ever: ${[...seen, next.name].join(' onError ')}`,
        {
          field,
        },
      );
    }
    seen.push(next.name);
  }
}

/** A key that stops must be one that has an order, and no dead letter may wait behind it. */
function checkBlocking({ name, onError }: Kind, keyed: boolean): void {
  if (!keyed) {
    throw new InvalidInput(
      "keyOnError: 'block' needs concurrency: { perKey: 1 }, else the jobs of a key have no order",
      {
        field: 'keyOnError',
      },
    );
  }
  if (onError !== undefined) {
    throw new InvalidInput(
      `kind "${name}" has onError, and the queue keyOnError: 'block': a dead letter has the key of its job, and would wait behind it; leave one out`,
      { field: `kinds.${name}.onError` },
    );
  }
}

function refuseCircle(kinds: ReadonlyMap<string, Kind>): void {
  const done = new Set<string>();
  const walk = (name: string, path: readonly string[]): void => {
    if (path.includes(name)) {
      const circle = [...path.slice(path.indexOf(name)), name].join(' after ');
      throw new InvalidInput(`kinds wait for each other in a circle: ${circle}`, { field: `kinds.${name}.after` });
    }
    if (done.has(name)) return;
    for (const other of kinds.get(name)?.after ?? []) walk(other, [...path, name]);
    done.add(name);
  };
  for (const name of kinds.keys()) walk(name, []);
}
