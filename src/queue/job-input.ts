import { InvalidInput, NotFound } from '../base/errors.ts';
import { checkOptions, suggest } from '../base/options/options.ts';
import { show } from '../base/options/refusal.ts';
import { validate } from '../base/options/schema.ts';
import { toJson } from '../base/storable.ts';
import { checkOwnLetter } from './declare/dead-letter.ts';
import type { Definition, Kind } from './definition.ts';
import { type JobOptions, jobShape, ownOptions, refuseTwoTimes } from './job-options.ts';

/** One job of `enqueueMany`. */
export interface JobInput extends JobOptions {
  readonly kind: string;
  readonly payload?: unknown;
}

/** A checked job, before it is written. */
export interface Row {
  readonly at: number;
  readonly kind: Kind;
  readonly key: string | null;
  readonly group: string | null;
  readonly priority: number;
  readonly runAt: Date | null;
  readonly delay: number | null;
  readonly own: object | undefined;
  readonly payload: string;
}

/** A job of a flow. */
export interface FlowRow extends Row {
  readonly queue: string;
  readonly shard: number;
  /** The number of shards by which the shard was computed. */
  readonly declared: number;
}

interface RowOptions extends Pick<Row, 'priority' | 'runAt' | 'delay' | 'own'> {
  readonly key: string | undefined;
  readonly group: string | undefined;
  readonly onError: string | undefined;
}

const PLAIN: RowOptions = {
  key: undefined,
  group: undefined,
  onError: undefined,
  priority: 0,
  runAt: null,
  delay: null,
  own: undefined,
};

/** Checks one job, without writing it. @param field  the job among several: `jobs[3]` @throws InvalidInput, NotFound */
export function readJob(
  definition: Definition,
  job: JobInput | undefined,
  at: number,
  field: string = `jobs[${at}]`,
): Row | Promise<Row> {
  if (typeof job !== 'object' || job === null) {
    throw new InvalidInput(`${field} must be an object such as { kind, payload }`, { field });
  }
  const { kind: kindName, payload, ...options } = job;
  const { key: name, group, onError, priority, runAt, delay, own } = readOptions(options, field);
  const kind = kindOf(definition, kindName, field);
  requireKey(definition, kind, name, field);
  checkGroup(definition, kind, { group, key: name }, field);
  checkOwnLetter(definition, { onError, key: name }, field);
  refuseTime(kind, runAt ?? delay, field);
  const place = `${field}.payload`;
  const row = (): Row => ({
    at,
    kind,
    key: name ?? null,
    group: group ?? null,
    priority,
    runAt,
    delay: delay ?? kind.debounce?.waitMs ?? null,
    own,
    payload: toJson(payload, place, place, kind.maxBytes),
  });
  if (kind.schema === undefined) return row();
  const valid: unknown = validate(kind.schema, payload, place);
  return valid instanceof Promise ? valid.then(row) : row();
}

/** @param of  the job among several: `jobs[3]` */
export function kindOf(definition: Definition, name: string, of: string | undefined): Kind {
  const kind = definition.kinds.get(name);
  if (kind !== undefined) return kind;
  const names = [...definition.kinds.keys()];
  if (typeof name !== 'string') {
    const call =
      of === undefined ? `enqueue takes (kind, payload, options): enqueue('${names[0]}', …)` : `${of}.kind is a text`;
    throw new InvalidInput(`${call}, but was given ${show(name)} for the kind`, {
      field: of === undefined ? 'kind' : `${of}.kind`,
    });
  }
  const near = suggest(name, names);
  const advice = near === undefined ? `it has ${names.join(', ')}` : `did you mean "${near}"?`;
  throw new NotFound(`${of === undefined ? '' : `${of}: `}queue "${definition.name}" has no kind "${name}"; ${advice}`);
}

export function requireKey(definition: Definition, kind: Kind, name: string | undefined, of?: string): void {
  if (name !== undefined || !kind.needsKey) return;
  throw new InvalidInput(
    `${of === undefined ? '' : `${of}: `}kind "${kind.name}" of queue "${definition.name}" needs a key: enqueue(kind, payload, { key })`,
    {
      field: of === undefined ? 'key' : `${of}.key`,
    },
  );
}

/** The same rules as pawl.queue_check_group() in SQL. @throws InvalidInput */
export function checkGroup(
  { name, perGroup, rate, keyed, shards }: Definition,
  kind: Kind,
  { group, key }: { readonly group: string | undefined; readonly key: string | undefined },
  of?: string,
): void {
  if (group === undefined) return;
  const why =
    perGroup === undefined && rate === undefined
      ? `queue "${name}" has no limit for groups; declare concurrency: { perGroup: 2 }, or leave group out`
      : kind.coalesce !== 'none' || kind.after.length > 0
        ? `the jobs of kind "${kind.name}" become one unit, or come after others, of their key, so they cannot wait for places of a group`
        : key !== undefined && kind.blocksKey
          ? `queue "${name}" has keyOnError: 'block', which keeps the order of a key; a job of a group waits outside that order: leave key or group out`
          : key !== undefined && keyed && shards > 1
            ? `a job with a key and a group needs a queue with one shard, and "${name}" has ${shards}: the key and the group could name different shards`
            : key !== undefined && keyed && rate !== undefined
              ? `queue "${name}" has a rate for groups, which counts a run when its job is claimed, and jobs of a key are claimed before their turn: leave key or group out, or declare concurrency: { perKey: Infinity }`
              : undefined;
  if (why === undefined) return;
  throw new InvalidInput(`${of === undefined ? '' : `${of}: `}${why}`, {
    field: of === undefined ? 'group' : `${of}.group`,
  });
}

export function refuseTime({ name, debounce }: Kind, time: Date | number | null | undefined, of?: string): void {
  if (debounce === undefined || time === null || time === undefined) return;
  throw new InvalidInput(
    `${of === undefined ? '' : `${of}: `}kind "${name}" has debounce, which sets the time of a job; leave runAt and delay out`,
    { field: of === undefined ? 'runAt' : `${of}.runAt` },
  );
}

/** A job that may be a duplicate cannot be a member: the existing job may have ended, or be a member of another batch. */
export function refuseUnique(row: Row, field: string, where: string): void {
  if (!isDecided(row)) return;
  throw new InvalidInput(
    `kind "${row.kind.name}" is unique or throttled, so ${field} may be no job of its own, which ${where} does not support; enqueue it first, and name its id in after`,
    { field },
  );
}

/** Whether the database decides if such a job exists already. */
export function isDecided({ kind }: Row): boolean {
  return kind.unique !== undefined;
}

/** @throws InvalidInput */
function readOptions(options: JobOptions, field: string): RowOptions {
  const names = Object.keys(options);
  if (names.length === 0) return PLAIN;
  const stranger = names.find((name) => !Object.hasOwn(jobShape, name));
  if (stranger !== undefined) {
    const known = ['kind', 'payload', ...Object.keys(jobShape)].join(', ');
    throw new InvalidInput(`unknown field "${stranger}" in ${field}; there are ${known}`, { field });
  }
  const what = `enqueueMany, ${field}`;
  // Most jobs with options have only these. Reading the whole table of options takes 2 us.
  if (names.length === 1 && options.key !== undefined) {
    return { ...PLAIN, key: jobShape.key.given(options.key, { field: 'key', what }) };
  }
  const given = checkOptions(what, options, jobShape);
  if (given.after !== undefined) {
    throw new InvalidInput(
      `${field} comes after other jobs, which enqueueMany does not support; use flow() or enqueue()`,
      { field },
    );
  }
  refuseTwoTimes(given, field);
  const { key, group, onError, priority, runAt = null, delay = null } = given;
  return { key, group, onError, priority, runAt, delay, own: ownOptions(given) };
}
