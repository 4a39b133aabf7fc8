import { choice, integer, maybe, text, time } from '../protocol/field.ts';
import { type AnyRoute, route } from '../protocol/route.ts';
import { errorOf } from '../redaction/hidden.ts';
import type { Services } from '../services.ts';
import type { ChartRow, ErrorRow } from '../store/charts.ts';

const MINUTE_MS = 60_000;
/** How far back, and in which steps: round clock times, and about sixty points. */
const RANGES = {
  '1h': { stepMs: MINUTE_MS, steps: 60 },
  '24h': { stepMs: 30 * MINUTE_MS, steps: 48 },
  '7d': { stepMs: 180 * MINUTE_MS, steps: 56 },
} as const;
/** The most queues in one picture: people cannot tell more lines apart. */
const QUEUES = 10;
const LINES = 50;
/** The most jobs in error that are read for the groups, which takes about 50 ms. */
const ERRORS = 10_000;

/** Statistics over time: by queue and kind, and jobs in error, in groups. */
export const chartRoutes: readonly AnyRoute[] = [
  route({
    method: 'GET',
    path: '/charts',
    id: 'charts',
    tag: 'queues',
    summary:
      'Throughput, errors and how long jobs waited and ran, by queue and kind, over an hour, a day or a week; the busiest first. Read from samples of what the queues keep. Without a queue of the ten busiest; truncated says how many queues and lines are left out.',
    permission: 'view',
    query: {
      range: choice(['1h', '24h', '7d'], 'how far back', '1h'),
      queue: maybe(text({ max: 100 })),
      kind: maybe(text({ max: 100 })),
    },
    answers: 'Charts',
    sharedMs: 5000,
    run: ({ query, services }) => readCharts(services, query),
  }),
  route({
    method: 'GET',
    path: '/errors',
    id: 'listErrors',
    tag: 'jobs',
    summary:
      'Jobs that stand in error now, in groups: of one queue and kind, with errors that are alike except for numbers, ids and quoted texts. The largest first. Of more than 10,000 the newest are read, and isAll is false.',
    permission: 'view',
    query: {
      queue: maybe(text({ max: 100 })),
      kind: maybe(text({ max: 100 })),
      since: maybe(time('ended in error since then')),
      limit: integer({ min: 1, max: 200, default: 50 }),
    },
    answers: 'ErrorGroups',
    sharedMs: 1000,
    run: async ({ query: { limit, ...of }, services: { store, queues } }) => {
      // An unknown name is refused: an answer without errors would look like a good sign.
      if (of.queue !== undefined) await queues.reads.stats(of.queue);
      const rows = await store.charts.errors(of, ERRORS, limit);
      return { items: rows.map(groupOf), counted: rows[0]?.read ?? 0, isAll: rows[0]?.whole ?? true };
    },
  }),
];

async function readCharts(
  { store, queues }: Services,
  { range, queue, kind }: { range: keyof typeof RANGES; queue: string | undefined; kind: string | undefined },
): Promise<object> {
  if (queue !== undefined) await queues.reads.stats(queue);
  const { stepMs, steps } = RANGES[range];
  const until = Date.now();
  const since = (Math.floor(until / stepMs) + 1 - steps) * stepMs;
  const rows = await store.charts.charts(queue, since, until, stepMs, QUEUES);
  const fitting = rows.filter((row) => kind === undefined || row.kind === kind);
  return {
    since,
    until,
    stepMs,
    truncated: (rows[0]?.others ?? 0) + Math.max(0, fitting.length - LINES),
    items: fitting.slice(0, LINES).map(lineOf),
  };
}

function lineOf({ others: _others, times, ...line }: ChartRow): object {
  const [runP50Ms = null, runP95Ms = null, runP99Ms = null, waitP50Ms = null, waitP95Ms = null, waitP99Ms = null] =
    times ?? [];
  return { ...line, runP50Ms, runP95Ms, runP99Ms, waitP50Ms, waitP95Ms, waitP99Ms };
}

function groupOf({ shape, error, read: _read, whole: _whole, ...group }: ErrorRow): object {
  return { ...group, error: errorOf(shape, group), example: errorOf(error, group) };
}
