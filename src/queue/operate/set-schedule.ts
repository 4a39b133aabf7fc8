import { InvalidInput, NotFound } from '../../base/errors.ts';
import {
  checkOptions,
  custom,
  duration,
  integer,
  type OptionValues,
  oneOf,
  optional,
  suggest,
  text,
} from '../../base/options/options.ts';
import { refusal } from '../../base/options/refusal.ts';
import { validate } from '../../base/options/schema.ts';
import { isObject } from '../../base/options/shape.ts';
import { toJson } from '../../base/storable.ts';
import type { Definition } from '../definition.ts';
import { checkGroup } from '../job-input.ts';
import { jobShape } from '../job-options.ts';
import { label } from '../label.ts';
import { nextTick, type ScheduleOptions } from './schedule.ts';

const MISSED = "one of 'skip', 'last', 'all' and { all: '1d' }";

const missed = custom(
  MISSED,
  (value, place): { readonly missed: 'skip' | 'last' | 'all'; readonly missedFor?: number } => {
    if (value === 'skip' || value === 'last' || value === 'all') return { missed: value };
    if (!isObject(value) || Object.keys(value).join() !== 'all') throw refusal(place, value, MISSED);
    return {
      missed: 'all',
      missedFor: duration({ min: '1m' }).given(value['all'], { ...place, field: `${place.field}.all` }),
    };
  },
  { default: 'last' },
);

const shape = {
  cron: text({ min: 1, max: 100 }),
  timezone: text({ min: 1, max: 100, default: 'UTC' }),
  kind: text({ min: 1 }),
  payload: custom('any JSON', (value) => value, { default: null }),
  key: jobShape.key,
  group: jobShape.group,
  priority: jobShape.priority,
  missed,
  overlap: oneOf(['queue', 'skip'], { default: 'queue' }),
  jitter: optional(duration({ min: 1, max: '1d' })),
};

const nameShape = { name: label };
const setShape = { version: optional(integer({ min: 0, max: Number.MAX_SAFE_INTEGER })) };

/** A checked schedule, in the form in which it is written; times in ms. */
export interface NewSchedule {
  readonly queue: string;
  readonly name: string;
  readonly cron: string;
  readonly timezone: string;
  readonly kind: string;
  readonly payload: unknown;
  readonly key?: string | undefined;
  readonly group?: string | undefined;
  readonly priority: number;
  readonly missed: 'skip' | 'last' | 'all';
  readonly missedFor?: number | undefined;
  readonly overlap: 'queue' | 'skip';
  readonly jitter?: number | undefined;
  readonly next: number;
  /** The caller does not have the declaration: the database checks the kind, and refuses a schedule of a program's set. */
  readonly byHand?: true;
}

/** All schedules that a program declares. */
export interface NewSchedules {
  readonly queue: string;
  readonly version: number | null;
  readonly schedules: readonly NewSchedule[];
}

/** The store that schedules are written to. */
export interface ScheduleRows {
  now(): Promise<number>;
  set(schedule: NewSchedule): Promise<void>;
  setAll(set: NewSchedules): Promise<void>;
}

export interface SchedulesOptions {
  /**
   * A number that rises with each version of your program, such as the time of its build. If a set with a higher version was
   * declared, this set changes nothing. Default: the set that is declared last counts.
   */
  readonly version?: number | undefined;
}

/** @throws InvalidInput */
export function readScheduleName(call: string, name: unknown): string {
  return checkOptions(call, { name }, nameShape).name;
}

/** Checks a schedule against its queue's declaration and writes it. @throws InvalidInput, NotFound */
export async function setSchedule(
  store: ScheduleRows,
  definition: Definition,
  name: string,
  options: ScheduleOptions,
): Promise<void> {
  await store.set(await readSchedule(definition, name, options, await store.now()));
}

/** Writes a schedule of a queue whose declaration this program does not have. @throws InvalidInput, NotFound, Conflict */
export async function setScheduleByHand(
  store: ScheduleRows,
  queue: string,
  name: string,
  options: ScheduleOptions,
): Promise<void> {
  readScheduleName('setSchedule', name);
  const given = checkOptions('setSchedule', options, shape);
  await store.set({ ...toWrite(queue, name, given, await store.now()), byHand: true });
}

/** Checks all schedules of a queue and writes them as its whole set. @throws InvalidInput, NotFound */
export async function setSchedules(
  store: ScheduleRows,
  definition: Definition,
  all: Readonly<Record<string, ScheduleOptions>>,
  options: SchedulesOptions,
): Promise<void> {
  const { version } = checkOptions('schedules', options, setShape);
  if (!isObject(all)) {
    throw new InvalidInput('schedules() takes an object with all schedules of the queue: { nightly: { cron, kind } }', {
      field: 'schedules',
    });
  }
  const now = await store.now();
  const schedules: NewSchedule[] = [];
  for (const [name, one] of Object.entries(all)) schedules.push(await readSchedule(definition, name, one, now));
  await store.setAll({ queue: definition.name, version: version ?? null, schedules });
}

async function readSchedule(
  definition: Definition,
  name: string,
  options: ScheduleOptions,
  now: number,
): Promise<NewSchedule> {
  readScheduleName('schedule', name);
  const given = checkOptions('schedule', options, shape);
  const kind = definition.kinds.get(given.kind);
  if (kind === undefined) {
    const names = [...definition.kinds.keys()];
    const near = suggest(given.kind, names);
    const advice = near === undefined ? `it has ${names.join(', ')}` : `did you mean "${near}"?`;
    throw new NotFound(`queue "${definition.name}" has no kind "${given.kind}"; ${advice}`);
  }
  if (given.key === undefined && kind.needsKey) {
    throw new InvalidInput(`kind "${kind.name}" of queue "${definition.name}" needs a key`, { field: 'key' });
  }
  checkGroup(definition, kind, given);
  await validate(kind.schema, given.payload, 'payload');
  return toWrite(definition.name, name, given, now);
}

function toWrite(queue: string, name: string, given: OptionValues<typeof shape>, now: number): NewSchedule {
  const payload: unknown = JSON.parse(toJson(given.payload, 'payload', 'payload'));
  const next = nextTick(given.cron, given.timezone, now);
  if (next === undefined) {
    throw new InvalidInput(`cron "${given.cron}" has no future tick`, { field: 'cron' });
  }
  return { ...given, ...given.missed, payload, queue, name, next };
}
