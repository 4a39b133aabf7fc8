import type { KindOptions, QueueOptions } from '../../../src/queue/index.ts';

/** How often each kind is tried. */
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

/** Kinds that are never drawn among the others: what has them draws them by itself. */
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

/** How long a handler may take. What it asks of a silent network has no other end. */
export function timeoutOf(kind: string): number {
  return kind === 'timed' ? 400 : 4000;
}

/** At most one job of a key in this time. */
export const THROTTLE_MS = 1000;
/** The most jobs in one call of a batch handler. */
export const BATCH_SIZE = 4;
/** How long a key must get no rest, and how long its jobs are put off at most. */
export const DEBOUNCE = { wait: 250, max: 1000 } as const;
/** How long what handlers ask for lasts. */
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
  /** Dead letters of jobs that name this kind for them, whatever their own kind says. */
  own: { timeout: timeoutOf('own') },
  /** What batches call. */
  called: { timeout: timeoutOf('called') },
};

const RELATED: Kinds = {
  sync: { coalesce: 'all', timeout: timeoutOf('sync') },
  last: { coalesce: 'latest', timeout: timeoutOf('last') },
  update: { after: ['create'], timeout: timeoutOf('update') },
  saved: { debounce: DEBOUNCE, coalesce: 'all', timeout: timeoutOf('saved') },
};

/** What the second version of the program has more, and has changed. */
const NEWER: Kinds = { newer: { timeout: timeoutOf('newer') } };
const OLDER: Kinds = { create: { timeout: timeoutOf('create') } };

/** Whose handler is called for several of them at once. */
const BATCHED: Kinds = { batched: { batch: { size: BATCH_SIZE, wait: 50 }, timeout: timeoutOf('batched') } };

/** How many jobs of a tenant run at a time, unless a plan says more. */
export const PER_TENANT = 2;

/** In some plans, how many jobs of a tenant begin in a time. */
export const RATE = { limit: 20, perMs: 1000 } as const;

/** How the queue is declared, in all processes, except for the version. */
export interface DeclarationParts {
  readonly version: number;
  readonly shards: number;
  readonly isRelated: boolean;
  /** Whether a handler is called for several jobs at once: only where all hold by leases. */
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

/** What a job tells its handler to do. */
export interface Orders {
  /** Its number, by which the job is known even where its id was never answered. */
  readonly n: number;
  /** How long the handler takes. */
  readonly ms: number;
  readonly how: Manner;
  /** In so many attempts it does what `how` says, and afterwards what it should. */
  readonly times: number;
  /** How long it stands between its write and its guard. */
  readonly lateMs: number;
  /** Raised by each change by hand; of what may replace another one, its own number. */
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
  /** Does not listen to its signal. */
  'deaf',
  /** Keeps the event loop busy. */
  'block',
  /** The same, and throws before anything else has its turn. */
  'block and throw',
  /** Kills its process. */
  'die',
  /** Returns what JSON cannot hold. */
  'circle',
  /** Throws what is no error. */
  'throw nothing',
  /** Gives up on every other job of its unit. */
  'some',
  /** Asks to be called later, uncharged. */
  'snooze',
  /** The same for its job alone, while its call ends well. */
  'snooze one',
  /** Fails, and says when it is to be tried again. */
  'retry after',
  /** Ends its job as cancelled. */
  'cancel',
  /** Ends its job in error. */
  'discard',
] as const;

export type Manner = (typeof MANNERS)[number];
