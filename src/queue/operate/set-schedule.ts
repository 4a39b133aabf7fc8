import { InvalidInput, NotFound } from '../../base/errors.ts';
import { checkOptions, custom, oneOf, suggest, text } from '../../base/options/options.ts';
import { validate } from '../../base/options/schema.ts';
import { toJson } from '../../base/storable.ts';
import type { Definition } from '../definition.ts';
import { jobShape } from '../job-options.ts';
import { label } from '../label.ts';
import type { PostgresQueueSchedules } from '../postgres/schedules.ts';
import { nextTick, type ScheduleOptions } from './schedule.ts';

const shape = {
  cron: text({ min: 1, max: 100 }),
  timezone: text({ min: 1, max: 100, default: 'UTC' }),
  kind: text({ min: 1 }),
  payload: custom('any JSON', (value) => value, { default: null }),
  key: jobShape.key,
  priority: jobShape.priority,
  missed: oneOf(['skip', 'one', 'all'], { default: 'one' }),
};

const nameShape = { name: label };

/** @throws InvalidInput */
export function readScheduleName(call: string, name: unknown): string {
  return checkOptions(call, { name }, nameShape).name;
}

/** Checks a schedule against its queue's declaration and writes it. @throws InvalidInput, NotFound */
export async function setSchedule(
  store: PostgresQueueSchedules,
  definition: Definition,
  name: string,
  options: ScheduleOptions,
): Promise<void> {
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
  await validate(kind.schema, given.payload, 'payload');
  const payload: unknown = JSON.parse(toJson(given.payload, 'payload', 'payload'));
  const next = nextTick(given.cron, given.timezone, await store.now());
  if (next === undefined) {
    throw new InvalidInput(`cron "${given.cron}" has no tick in the time to come`, { field: 'cron' });
  }
  await store.set({ ...given, payload, queue: definition.name, name, next });
}
