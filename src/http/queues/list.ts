import { InvalidInput } from '../../base/errors.ts';
import { show } from '../../base/options/refusal.ts';
import type { QueueRecord } from '../../queue/index.ts';
import { readCursor, writeCursor } from '../protocol/cursor.ts';
import type { Services } from '../services.ts';
import type { LiveSnapshot } from '../store/live.ts';

/** The figures by which queues can be sorted. */
export const QUEUE_ORDERS = [
  'name',
  'ready',
  'delayed',
  'parked',
  'inProgress',
  'error',
  'completePerMinute',
  'oldestReadyMs',
  'workers',
] as const;

export interface QueueQuery {
  readonly q: string | undefined;
  readonly sort: (typeof QUEUE_ORDERS)[number];
  readonly order: 'asc' | 'desc' | undefined;
  readonly limit: number;
  readonly after: string | undefined;
}

interface QueueRow {
  readonly name: string;
  /** The figure that it is sorted by; undefined for the name alone. */
  readonly value: number;
  readonly stats: LiveSnapshot['queues'][number]['stats'];
}

/**
 * A page of the queues, from the live picture, which has all of them. So more queues cost the database nothing more.
 * A page continues after the figure and the name of the last queue, so that changed figures show no queue twice.
 */
export async function listQueues(services: Services, query: QueueQuery): Promise<object> {
  // The second read starts now, so that it does not wait for the first; `describe` finds its result.
  const [{ queues }] = await Promise.all([services.live.snapshot(), services.records([])]);
  const { q = '', sort, limit } = query;
  const direction = (query.order ?? (sort === 'name' ? 'asc' : 'desc')) === 'asc' ? 1 : -1;
  const compare = (a: ListPosition, b: ListPosition): number =>
    direction * (a.value - b.value || compareNames(a.name, b.name));
  const wanted = q.toLowerCase();
  const fitting = queues
    .filter(({ name }) => name.toLowerCase().includes(wanted))
    .map(({ name, stats }): QueueRow => ({ name, stats, value: sort === 'name' ? 0 : Number(stats[sort] ?? -1) }))
    .sort(compare);
  const last = placeOf(query.after);
  const left = last === undefined ? fitting : fitting.filter((one) => compare(one, last) > 0);
  const page = left.slice(0, limit);
  const end = page.at(-1);
  return {
    items: await describe(services, page),
    after: left.length > limit && end !== undefined ? writeCursor(String(end.value), end.name) : null,
    total: fitting.length,
  };
}

type ListPosition = Pick<QueueRow, 'name' | 'value'>;

function placeOf(after: string | undefined): ListPosition | undefined {
  const [value, name] = readCursor(after, 2) ?? [];
  if (value === undefined || name === undefined) return undefined;
  if (Number.isFinite(Number(value))) return { value: Number(value), name };
  throw new InvalidInput(`${show(after)} is no cursor of this list; pass the "after" of the page before`, {
    field: 'after',
  });
}

/** The order of the database, wherever this code runs. */
function compareNames(a: string, b: string): number {
  return a < b ? -1 : Number(a > b);
}

async function describe(services: Services, page: readonly QueueRow[]): Promise<object[]> {
  const records = await services.records(page.map(({ name }) => name));
  const recordOf = new Map<string, QueueRecord>(records.map((record) => [record.name, record]));
  return page.flatMap(({ name, stats }) => {
    const record = recordOf.get(name);
    const pausedAt = stats['pausedAt'] ?? null;
    return record === undefined ? [] : [{ ...record, pausedAt, stats: { ...stats, paused: pausedAt !== null } }];
  });
}
