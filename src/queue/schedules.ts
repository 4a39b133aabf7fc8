import { InvalidInput, NotFound } from '../base/errors.ts';
import { checkOptions, custom, integer, oneOf, optional, suggest, text } from '../base/options.ts';
import { refusal } from '../base/refusal.ts';
import { validate } from '../base/schema.ts';
import type { Definition } from './definition.ts';
import type { PostgresQueueSchedules } from './postgres-schedule.ts';
import { nextTick, type ScheduleOptions } from './schedule.ts';

const key = custom('a string of 1 to 1000 bytes', (value, place) => {
  const name = text({ min: 1, max: 1000 }).given(value, place);
  if (Buffer.byteLength(name) > 1000) throw refusal(place, value, 'a string of 1 to 1000 bytes');
  return name;
});

const shape = {
  cron: text({ min: 1, max: 100 }),
  timezone: text({ min: 1, max: 100, default: 'UTC' }),
  kind: text({ min: 1 }),
  payload: custom('any JSON', (value) => value, { default: null }),
  key: optional(key),
  priority: integer({ min: -32_768, max: 32_767, default: 0 }),
  missed: oneOf(['skip', 'one', 'all'], { default: 'one' }),
};

const nameShape = { name: text({ min: 1, max: 100 }) };

/** Checks a schedule against its queue's declaration and writes it. @throws InvalidInput, NotFound */
export async function setSchedule(
  store: PostgresQueueSchedules,
  definition: Definition,
  name: string,
  options: ScheduleOptions,
): Promise<void> {
  checkOptions('schedule', { name }, nameShape);
  const given = checkOptions('schedule', options, shape);
  const kind = definition.kinds.get(given.kind);
  if (kind === undefined) {
    const names = [...definition.kinds.keys()];
    const near = suggest(given.kind, names);
    const advice = near === undefined ? `it has ${names.join(', ')}` : `did you mean "${near}"?`;
    throw new NotFound(`queue "${definition.name}" has no kind "${given.kind}"; ${advice}`);
  }
  if (given.key === undefined && (kind.unique || kind.coalesce !== 'none' || kind.after.length > 0)) {
    throw new InvalidInput(`kind "${kind.name}" of queue "${definition.name}" needs a key`, { field: 'key' });
  }
  await validate(kind.schema, given.payload, 'payload');
  const payload = toJsonb(given.payload);
  const next = nextTick(given.cron, given.timezone, await store.now());
  if (next === undefined) {
    throw new InvalidInput(`cron "${given.cron}" has no tick in the time to come`, { field: 'cron' });
  }
  await store.set({ ...given, payload, queue: definition.name, name, next });
}

/** @throws InvalidInput for what the database's jsonb cannot hold */
function toJsonb(value: unknown): unknown {
  let json: string | undefined;
  try {
    json = JSON.stringify(value ?? null);
  } catch (cause) {
    throw new InvalidInput(`payload cannot be written as JSON: ${String(cause)}`, { field: 'payload', cause });
  }
  if (json === undefined) {
    throw new InvalidInput(`payload cannot be written as JSON: it is a ${typeof value}`, { field: 'payload' });
  }
  if (json.includes('\\u0000')) {
    throw new InvalidInput('the payload of a schedule cannot hold U+0000', { field: 'payload' });
  }
  return JSON.parse(json);
}
