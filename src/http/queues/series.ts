import { InvalidInput } from '../../base/errors.ts';
import { type Fields, integer, maybe, text, time } from '../protocol/field.ts';
import { type AnyRoute, type Call, route } from '../protocol/route.ts';

const MOST_POINTS = 120;
const HOUR_MS = 3_600_000;
const MOST_MS = 31 * 24 * HOUR_MS;
/** The batches that are read for each point: more do not visibly change a percentile. */
const BATCHES = 60;
/** Edges of buckets at round clock times. */
const STEPS_MS = [
  1000,
  5000,
  10_000,
  30_000,
  60_000,
  300_000,
  600_000,
  1_800_000,
  HOUR_MS,
  2 * HOUR_MS,
  6 * HOUR_MS,
  24 * HOUR_MS,
];

/** Throughput, errors and times, for the charts. */
export function seriesRoute(path: string, params: Fields): AnyRoute {
  return route({
    method: 'GET',
    path,
    id: path === '/series' ? 'series' : 'queueSeries',
    tag: 'queues',
    summary:
      'Jobs completed, errors, and how long jobs waited and ran, over time. Read from samples, so that the cost does not grow with the number of jobs.',
    permission: 'view',
    params,
    query: {
      since: maybe(time('default: an hour before until')),
      until: maybe(time('default: now')),
      points: integer({ min: 2, max: MOST_POINTS, default: 60 }),
      ...(path === '/series' ? { queue: maybe(text({ max: 100 })) } : {}),
    },
    answers: 'Series',
    sharedMs: 1000,
    run: readSeries,
  });
}

async function readSeries({ params, query, services: { store, queues } }: Call): Promise<object> {
  const queue = (params['queue'] ?? query['queue']) as string | undefined;
  const until = ((query['until'] as Date | undefined) ?? new Date()).getTime();
  const since = (query['since'] as Date | undefined)?.getTime() ?? until - HOUR_MS;
  if (since >= until || until - since > MOST_MS) {
    throw new InvalidInput('since must lie before until, by at most 31 days', { field: 'since' });
  }
  // An unknown name is refused, and not drawn as an empty chart.
  if (queue !== undefined) await queues.reads.stats(queue);
  const wanted = (until - since) / (query['points'] as number);
  const stepMs = STEPS_MS.find((step) => step >= wanted) ?? 24 * HOUR_MS;
  const from = Math.floor(since / stepMs) * stepMs;
  return { stepMs, points: await store.queues.series(queue, from, until, stepMs, BATCHES) };
}
