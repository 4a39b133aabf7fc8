import type { KindOptions, QueueOptions } from '../../../src/queue/index.ts';

/** The attempts of each kind. */
export const ATTEMPTS = {
  plain: 6,
  timed: 6,
  sync: 6,
  last: 6,
  create: 6,
  update: 6,
  fragile: 2,
  newer: 6,
  only: 6,
  waiting: 6,
  throttled: 6,
  replaced: 6,
  saved: 6,
  letter: 6,
  own: 6,
  called: 6,
  batched: 6,
  book: 2,
} as const;

export type KindName = keyof typeof ATTEMPTS;

/** Kinds that are never drawn among the others: the parts of a plan that need them draw them. */
export const APART = {
  only: 0,
  waiting: 0,
  throttled: 0,
  replaced: 0,
  saved: 0,
  letter: 0,
  own: 0,
  called: 0,
  batched: 0,
  book: 0,
} as const;

/** The longest time of a handler. Only this limit ends a request on a silent network. */
export function timeoutOf(kind: string): number {
  return kind === 'timed' ? 400 : 4000;
}

/** At most one job of a key in this time. */
export const THROTTLE_MS = 1000;
/** The most jobs in one call of a batch handler. */
export const BATCH_SIZE = 4;
/** The rest that a key needs, and the longest delay of its jobs. */
export const DEBOUNCE = { wait: 250, max: 1000 } as const;
/** The waits that handlers request. */
export const SNOOZE_MS = 150;
export const RETRY_AFTER_MS = 300;

type Kinds = Readonly<Record<string, KindOptions>>;

const KINDS: Kinds = {
  plain: { timeout: timeoutOf('plain') },
  timed: { timeout: timeoutOf('timed') },
  create: { unique: 'key', timeout: timeoutOf('create') },
  fragile: { attempts: ATTEMPTS.fragile, timeout: timeoutOf('fragile'), onError: 'letter' },
  only: { unique: { by: 'key', while: 'outstanding' }, timeout: timeoutOf('only') },
  waiting: { unique: { by: 'key', while: 'waiting' }, timeout: timeoutOf('waiting') },
  throttled: { throttle: THROTTLE_MS, timeout: timeoutOf('throttled') },
  replaced: { unique: { by: 'key', while: 'waiting', replace: true }, timeout: timeoutOf('replaced') },
  /** Dead letters of `fragile`, which have no orders. */
  letter: { timeout: timeoutOf('letter') },
  /** Dead letters of jobs that name this kind themselves, in place of the kind that their own kind names. */
  own: { timeout: timeoutOf('own') },
  /** The callbacks of batches. */
  called: { timeout: timeoutOf('called') },
};

const RELATED: Kinds = {
  sync: { coalesce: 'all', timeout: timeoutOf('sync') },
  last: { coalesce: 'latest', timeout: timeoutOf('last') },
  update: { after: ['create'], timeout: timeoutOf('update') },
  saved: { debounce: DEBOUNCE, coalesce: 'all', timeout: timeoutOf('saved') },
};

/** The kinds that only the second version of the program has. */
const NEWER: Kinds = { newer: { timeout: timeoutOf('newer') } };
const OLDER: Kinds = { create: { timeout: timeoutOf('create') } };

/** A kind with a batch handler. */
const BATCHED: Kinds = { batched: { batch: { size: BATCH_SIZE, wait: 50 }, timeout: timeoutOf('batched') } };

/** How many jobs of a tenant run at a time, unless a plan has a higher number. */
export const PER_TENANT = 2;

/** The rate of a tenant, in some plans. */
export const RATE = { limit: 20, perMs: 1000 } as const;

/** The declaration of the queue. All processes have the same one, except for the version. */
export interface DeclarationParts {
  readonly version: number;
  readonly shards: number;
  readonly isRelated: boolean;
  /** Whether a batch handler exists: only if all workers hold by leases. */
  readonly hasBatches: boolean;
  readonly hasRate: boolean;
  /** How many jobs of a tenant run at a time. */
  readonly perTenant: number;
}

export function declaration({
  version,
  shards,
  isRelated,
  hasBatches,
  hasRate,
  perTenant,
}: DeclarationParts): QueueOptions<Kinds> {
  const kinds = {
    ...KINDS,
    ...(isRelated ? RELATED : {}),
    ...(hasBatches ? BATCHED : {}),
    ...(version === 1 ? OLDER : NEWER),
  };
  const concurrency = { perGroup: perTenant };
  const rate = hasRate ? { perGroup: { limit: RATE.limit, per: RATE.perMs } } : {};
  return { kinds, shards, concurrency, rate, retry: { attempts: ATTEMPTS.plain, backoff: { kind: 'fixed', min: 50 } } };
}

const RETRY_MS = 50;

/** Another queue, whose keys stop at an error. */
export const LEDGER: { readonly name: string; readonly options: QueueOptions<Kinds> } = {
  name: 'faults-ledger',
  options: {
    kinds: { book: { timeout: timeoutOf('book') } },
    retry: { attempts: ATTEMPTS.book, backoff: { kind: 'fixed', min: RETRY_MS } },
    keyOnError: 'block',
  },
};

/** The orders of a job to its handler. */
export interface Orders {
  /** The number that identifies the job even if the answer with its id was lost. */
  readonly n: number;
  /** How long the handler takes. */
  readonly ms: number;
  readonly how: Manner;
  /** In this many attempts the handler follows `how`; afterwards it succeeds. */
  readonly times: number;
  /** The pause between its write and its guard. */
  readonly lateMs: number;
  /** Each change by hand raises it. For a job that may replace the payload of another one, it is the number of the job. */
  readonly version?: number | undefined;
}

export const MANNERS = [
  'well',
  /** Throws before it has written anything. */
  'throw',
  /** Throws after its write was committed. */
  'throw late',
  /** Gives up for good. */
  'refuse',
  /** Ignores its signal. */
  'deaf',
  /** Keeps the event loop busy. */
  'block',
  /** Keeps the event loop busy, and throws before other code runs. */
  'block and throw',
  /** Kills its process. */
  'die',
  /** Returns a value that JSON cannot hold. */
  'circle',
  /** Throws a value that is no error. */
  'throw nothing',
  /** Gives up on every other job of its unit. */
  'some',
  /** Requests a later call, uncharged. */
  'snooze',
  /** Requests a later call for its own job, while the call succeeds. */
  'snooze one',
  /** Fails, and requests the time of the retry. */
  'retry after',
  /** Ends its job as cancelled. */
  'cancel',
  /** Ends its job in error. */
  'discard',
] as const;

export type Manner = (typeof MANNERS)[number];
