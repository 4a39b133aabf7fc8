/** Unique jobs: enqueues that find the one job of a kind and value, or add it. See `heads/unique.ts` for the row that names the job. */
import { createHash } from 'node:crypto';
import { Conflict } from '../../../base/errors.ts';
import { isObject } from '../../../base/options/shape.ts';
import { fieldsOf, type Key, type PartialWrite, TTL, written } from '../../../engine/dynamodb/index.ts';
import type { UniqueRule } from '../../declare/unique.ts';
import type { Definition } from '../../definition.ts';
import type { JobStatus } from '../../job.ts';
import type { NewJobs } from '../../store.ts';
import { type QueueRows, unlessMissing } from '../database.ts';
import { isTheOne, jobIn, placeTaken } from '../heads/unique.ts';
import { statusOfJob } from '../operate/standing.ts';
import { uniqueOf } from '../rows.ts';
import type { WaitTerms } from './after.ts';
import { addWith } from './producing.ts';

/** A field of the row of a request that is answered once: the digest of its content. */
const DIGEST = 'd';

/** The row of a value, and how long its job counts. */
export interface UniquePlace {
  readonly key: Key;
  readonly rule: UniqueRule;
  /** Of a request that is answered once: the digest of its content. */
  readonly digest?: string;
}

/** A request that is answered once in a day. */
export interface OnceRequest {
  /** The name of the request, of any length. */
  readonly by: string;
  /** A digest of its content. */
  readonly digest: string;
}

const DAY_MS = 86_400_000;

/** The row of a request that is answered once, of whatever queue. Time to live removes it. */
export function placeOfOnce({ by, digest }: OnceRequest): UniquePlace {
  const pk = `once:${createHash('sha256').update(by).digest('base64url')}`;
  return { key: { pk, sk: 'once' }, rule: { by: 'key', while: 'ever', per: `${DAY_MS} milliseconds` }, digest };
}

export interface UniqueJob {
  readonly id: number;
  readonly status: JobStatus;
}

/** The content of a row of a unique value. */
export interface UniqueFound {
  /** The one job of the value; undefined: there is none. */
  readonly there: UniqueJob | undefined;
  /** The part of a transaction that names a job in the row. It fails if the row has changed since it was read. */
  readonly mark: (id: number) => PartialWrite;
}

/** The row of a job of a unique kind. */
export function placeOfUnique(
  queue: string,
  kind: string,
  rule: UniqueRule,
  job: { readonly key: string | undefined; readonly payload: unknown },
): UniquePlace {
  const { by } = rule;
  if (by === 'key') return { key: uniqueOf(queue, kind, 'k', job.key ?? ''), rule };
  const value = by === 'payload' ? job.payload : by.map((path) => valueAt(job.payload, path.split('.')));
  const digest = createHash('sha256')
    .update(JSON.stringify([by, inOrder(value)]))
    .digest('base64url');
  return { key: uniqueOf(queue, kind, 'd', digest), rule };
}

/** Reads the row first, then the status of its job: if the job was over and is new again, the row has another version. */
export async function findUnique(
  rows: QueueRows,
  definition: Definition,
  { key, rule, digest }: UniquePlace,
): Promise<UniqueFound> {
  const fields = fieldsOf(await rows.get(key));
  const now = Math.floor(rows.engine.now());
  const mark = (id: number): PartialWrite => {
    const own = digest === undefined ? {} : { [DIGEST]: digest, [TTL]: Math.ceil((now + 2 * DAY_MS) / 1000) };
    const change = placeTaken(fields, id, now);
    return { key, written: written({ ...change, set: { ...change.set, ...own } }) };
  };
  const job = jobIn(fields, rule, now);
  if (job === undefined) return { there: undefined, mark };
  if (digest !== undefined && fields[DIGEST] !== digest) {
    throw new Conflict('the same key was used for another request within a day; each request needs one of its own');
  }
  const status = await statusOfJob(rows, definition, job).catch(unlessMissing);
  return { there: isTheOne(rule, status) ? { id: job, status: status ?? 'complete' } : undefined, mark };
}

/** Adds a job and names it in all these places, or finds the job of the first place that has one. */
export async function addUnique(
  rows: QueueRows,
  definition: Definition,
  batch: NewJobs,
  places: readonly UniquePlace[],
  trace: string | undefined,
  terms?: WaitTerms,
): Promise<UniqueJob & { readonly isDuplicate: boolean }> {
  for (;;) {
    const found = await Promise.all(places.map((place) => findUnique(rows, definition, place)));
    const there = found.find((one) => one.there !== undefined)?.there;
    if (there !== undefined) {
      // A request that is answered once has this job as its answer from now on.
      const open = found.filter((one, at) => one.there === undefined && places[at]?.digest !== undefined);
      if (open.length > 0 && !(await rows.together(open.map(({ mark }) => mark(there.id))))) continue;
      return { ...there, isDuplicate: true };
    }
    const id = await addWith(
      rows,
      batch,
      trace,
      definition.keyed,
      (added) => found.map(({ mark }) => mark(added)),
      terms,
    );
    if (id !== undefined) return { id, status: 'new', isDuplicate: false };
  }
}

/** Removes the row of a job that is removed, unless the row names another job. */
export async function removeUnique(rows: QueueRows, { key }: UniquePlace, id: number): Promise<void> {
  const condition = { ConditionExpression: 'j = :0', ExpressionAttributeValues: { ':0': { N: String(id) } } };
  await rows.engine.remove(key, condition, rows.limits);
}

/** The value at a path. A missing value counts as null. */
function valueAt(payload: unknown, [name, ...rest]: readonly string[]): unknown {
  if (name === undefined) return payload ?? null;
  return isObject(payload) && Object.hasOwn(payload, name) ? valueAt(Reflect.get(payload, name), rest) : null;
}

/** The value with sorted properties, so that the order of properties does not matter. */
function inOrder(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(inOrder);
  if (!isObject(value)) return value;
  return Object.fromEntries(
    Object.entries(value)
      .toSorted(([one], [other]) => (one < other ? -1 : 1))
      .map(([name, each]) => [name, inOrder(each)]),
  );
}
