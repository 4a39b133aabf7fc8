import { InvalidInput } from '../base/errors.ts';
import { type Check, custom, duration, integer, list, oneOf, optional, text } from '../base/options/options.ts';
import { refusal } from '../base/options/refusal.ts';
import { isObject } from '../base/options/shape.ts';
import { toJson } from '../base/storable.ts';
import { type Backoff, type BackoffOption, backoffShape } from '../base/time/backoff.ts';
import type { Duration } from '../base/time/duration.ts';

/** Options of one job, for every way to enqueue; `pawl.enqueue()` in SQL has the same names. */
export interface JobOptions {
  /** Jobs of one key run one after another, in the order of their enqueues. 1 to 1,000 bytes. */
  readonly key?: string | undefined;
  /**
   * The name of a tenant, or of a service with a limit. Over all processes, at most n jobs of one group run at a time, where n is
   * `concurrency: { perGroup }` of the queue. Jobs with the lowest priority number come first, then the oldest. 1 to 100 bytes. A
   * job with both a group and a key needs a queue with one shard, and the order of the key begins when the job is admitted. Not
   * for kinds with `coalesce`, `debounce` or `after`.
   */
  readonly group?: string | undefined;
  /** Among jobs of different keys, lower numbers run first. Default 0; -32,768 to 32,767. */
  readonly priority?: number | undefined;
  /** The job does not run before this time, by the database's clock. */
  readonly runAt?: Date | undefined;
  /** Instead of `runAt`: the time from now until the job may run, by the database's clock. */
  readonly delay?: Duration | undefined;
  /**
   * Ids of jobs and batches that have to end before this job may run; at most 10,000. They may be of any queue of this database
   * (on DynamoDB a job of another queue is named `mail:1042`), and run side by side. A parent that has ended already counts at
   * once. `unit.parents()` returns the results of the parent jobs.
   */
  readonly after?: readonly (string | { readonly batch: string })[] | undefined;
  /**
   * What happens to this job if one of its parents (`after`) ended in `error`: this job ends in `error`, too (`'error'`, the
   * default), is cancelled (`'cancel'`), or runs anyway (`'run'`). The decision is made once, when the last parent has ended.
   */
  readonly afterError?: AfterFailure | undefined;
  /** The same if a parent was cancelled, and no parent that ended in `error` decides. Default `'cancel'`. */
  readonly afterCancel?: AfterFailure | undefined;
  /** The number of attempts of this job, including the first one: 1 to 1,000. Default: its kind's. */
  readonly attempts?: number | undefined;
  /** How long one attempt at this job may take. Default: its kind's `timeout`. */
  readonly timeout?: Duration | undefined;
  /** The wait between two attempts at this job. A field that you leave out has its default of `backoff`. Default: its kind's. */
  readonly backoff?: BackoffOption | undefined;
  /**
   * If the job has not begun by this time, by the database's clock, it ends as `cancelled`, with the reason `expired`, and never
   * runs. It ends when a worker is about to begin it; otherwise within seconds, as long as a worker of the queue lives. `retry()`
   * runs it anyway.
   */
  readonly expiresAt?: Date | undefined;
  /** The kind of its dead letter, if it ends in `error`. Default: that of its kind, see {@link KindOptions.onError}. */
  readonly onError?: string | undefined;
  /** Words to find the job by, `tag:…` in a search: at most 20, of 1 to 100 bytes each. */
  readonly tags?: readonly string[] | undefined;
  /** Facts about the job for its handler and for people, in addition to its payload: an object of at most 16 KiB as JSON. */
  readonly meta?: Readonly<Record<string, unknown>> | undefined;
}

/** What happens to a job if a job that it comes after did not complete. */
export type AfterFailure = 'run' | 'error' | 'cancel';

/** The options that are stored with the job; only the options that were given are present. */
export interface OwnOptions {
  /** `at` is an ISO text. */
  readonly schedule?: { readonly name: string; readonly at: string };
  readonly attempts?: number;
  /** In milliseconds. */
  readonly timeout?: number;
  readonly backoff?: Backoff;
  /** An ISO text. */
  readonly expiresAt?: string;
  readonly onError?: string;
  readonly tags?: readonly string[];
  readonly meta?: Readonly<Record<string, unknown>>;
}

/** Years with four digits: JavaScript and Postgres write years with more digits, or with a sign, differently. */
const WHEN = 'a valid Date of the years 1 to 9999';

const when: Check<Date> = custom(WHEN, (value, place) => {
  if (!(value instanceof Date) || !isPlain(value.getUTCFullYear())) throw refusal(place, value, WHEN);
  return value;
});

/** False for NaN. */
function isPlain(year: number): boolean {
  return year >= 1 && year <= 9999;
}

/** The limit is low because each claim of the job carries it. */
const MOST_META_BYTES = 16_384;

const meta: Check<Readonly<Record<string, unknown>>> = custom('an object', (value, place) => {
  if (!isObject(value) || Array.isArray(value)) throw refusal(place, value, 'an object');
  toJson(value, place.field, place.field, MOST_META_BYTES);
  return { ...value };
});

/** Keeps each tag once. */
const tags: Check<readonly string[]> = custom('an array of at most 20 texts', (value, place) => [
  ...new Set(list(text({ min: 1, maxBytes: 100 }), { max: 20 }).given(value, place)),
]);

export type OwnShape = {
  readonly attempts: Check<number | undefined>;
  readonly timeout: Check<number | undefined>;
  readonly backoff: Check<Backoff | undefined>;
  readonly expiresAt: Check<Date | undefined>;
  readonly onError: Check<string | undefined>;
  readonly tags: Check<readonly string[] | undefined>;
  readonly meta: Check<Readonly<Record<string, unknown>> | undefined>;
};

/** The options that are stored with the job, in queue_job.options, and their checks. */
export const ownShape: OwnShape = {
  attempts: optional(integer({ min: 1, max: 1000 })),
  timeout: optional(duration({ min: 1 })),
  backoff: optional(backoffShape()),
  expiresAt: optional(when),
  onError: optional(text({ min: 1, maxBytes: 100 })),
  tags: optional(tags),
  meta: optional(meta),
};

type AfterShape = {
  readonly after: Check<readonly (string | { readonly batch: string })[] | undefined>;
  readonly afterError: Check<AfterFailure | undefined>;
  readonly afterCancel: Check<AfterFailure | undefined>;
};

const afterFailure: Check<AfterFailure | undefined> = optional(oneOf(['run', 'error', 'cancel']));

const A_PARENT = "the id of a job, a string such as '42', or a batch";
/** Checks a parent. On DynamoDB a job of another queue is named by its queue and its id. */
const NAMED = /^.+:[1-9]\d{0,15}$/s;
const parent = custom(A_PARENT, (value, place): string | { readonly batch: string } => {
  if (isId(value) || (typeof value === 'string' && NAMED.test(value))) return value;
  if (isObject(value) && isId(value['batch'])) return { batch: value['batch'] };
  throw refusal(place, value, A_PARENT);
});

function isId(value: unknown): value is string {
  return typeof value === 'string' && /^[1-9]\d{0,18}$/.test(value) && BigInt(value) < 2n ** 63n;
}

/** The options by which a job comes after others. */
const afterShape: AfterShape = {
  after: optional(list(parent, { max: 10_000 })),
  afterError: afterFailure,
  afterCancel: afterFailure,
};

/** The options of a node of a flow, which names what it comes after in its own way. */
export const afterPolicy: Pick<AfterShape, 'afterError' | 'afterCancel'> = {
  afterError: afterFailure,
  afterCancel: afterFailure,
};

type JobShape = OwnShape &
  AfterShape & {
    readonly key: Check<string | undefined>;
    readonly group: Check<string | undefined>;
    readonly priority: Check<number>;
    readonly runAt: Check<Date | undefined>;
    readonly delay: Check<number | undefined>;
  };

/** Checks of the options of a job that every way of enqueueing has. */
export const jobShape: JobShape = {
  key: optional(text({ min: 1, maxBytes: 1000 })),
  group: optional(text({ min: 1, maxBytes: 100 })),
  priority: integer({ min: -32_768, max: 32_767, default: 0 }),
  runAt: optional(when),
  delay: optional(duration()),
  ...afterShape,
  ...ownShape,
};

/** The group comes along with these; the database keeps it in a column. */
const OWN = ['group', ...Object.keys(ownShape)] as (keyof OwnShape | 'group')[];

type OwnChecked = { readonly [N in keyof OwnShape | 'group']?: unknown };

/** What a job keeps for itself, of checked options; undefined for nearly all jobs, which were given nothing of it. */
export function ownOptions(given: OwnChecked): object | undefined {
  for (const name of OWN) {
    if (given[name] !== undefined) return Object.fromEntries(OWN.map((own) => [own, given[own]]));
  }
  return undefined;
}

interface CheckedOptions extends OwnChecked {
  readonly key?: string | undefined;
  readonly priority: number;
  readonly runAt?: Date | undefined;
  readonly delay?: number | undefined;
  readonly after?: JobOptions['after'];
  readonly afterError?: AfterFailure | undefined;
  readonly afterCancel?: AfterFailure | undefined;
}

/** Checked options as fields of a request to pawl.enqueue(). */
export function requestOptions(given: CheckedOptions): object {
  const { key, priority, runAt, delay, after, afterError, afterCancel } = given;
  const wait = delay === undefined ? undefined : `${delay} milliseconds`;
  const where = { key, priority, runAt: runAt?.toISOString(), delay: wait };
  return { ...ownOptions(given), ...where, after, afterError, afterCancel };
}

/** @throws InvalidInput when the options contradict each other */
export function refuseTwoTimes({ runAt, delay }: Partial<CheckedOptions>, of?: string): void {
  if (runAt === undefined || delay === undefined) return;
  const field = of === undefined ? 'delay' : `${of}.delay`;
  throw new InvalidInput(`${of === undefined ? '' : `${of}: `}both runAt and delay are given; give one of them`, {
    field,
  });
}

/** The time of an enqueue, in milliseconds since 1970; for a job with options of its own, or of a group, also these: see pawl.queue_origin(). */
export type Origin = number | SpecialOrigin;

export interface SpecialOrigin {
  readonly enqueuedAt: number;
  readonly options?: OwnOptions;
  readonly group?: string;
  /** Of a run of jobs of groups: one for each. */
  readonly groups?: readonly string[];
  /** Milliseconds until its `expiresAt`, at the time of the claim; less than 0 when it has passed. */
  readonly expiresIn?: number;
}
