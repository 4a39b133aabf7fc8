import { checkOptions, duration, integer } from '../../base/options/options.ts';
import { moment, waitedFor } from '../../base/time/clock.ts';
import type { Duration } from '../../base/time/duration.ts';
import type { JobRecord, JobStatus } from '../job.ts';
import type { PostgresQueueReader } from '../postgres/reader.ts';
import { parseQuery } from './search.ts';

export interface CountOptions {
  /** Counting stops at this number. Default and maximum 100,000. */
  readonly most?: number | undefined;
  /** About how long the count may take in total. Default 2 s. */
  readonly budget?: Duration | undefined;
}

/** The number of jobs that a search finds. */
export interface SearchCount {
  readonly count: number;
  /** False: there may be more jobs, because `most` was reached or the time was over. */
  readonly isAll: boolean;
  /** The newest jobs that the search finds. */
  readonly sample: readonly JobRecord[];
}

const shape = {
  most: integer({ min: 1, max: 100_000, default: 100_000 }),
  budget: duration({ min: 1, max: '1m', default: '2s' }),
};
const PAGE = 1000;
/** How long one statement may take: less than any usual statement_timeout. */
const STEP_MS = 250;
const SAMPLE = 5;

/** Counts the jobs that a query finds, page by page, without reading them; with `statuses`, only jobs with one of them. */
export async function count(
  reader: PostgresQueueReader,
  queue: string | null,
  query: string,
  statuses: readonly JobStatus[] | undefined,
  options: CountOptions,
): Promise<SearchCount> {
  const { most, budget } = checkOptions('count', options, shape);
  const parsed = parseQuery(query);
  const begun = moment();
  const ids: string[] = [];
  let isAll = true;
  for (const status of wantedOf(parsed.status, statuses)) {
    for (let before: string | null = null; ; ) {
      const left = budget - waitedFor(begun);
      const limit = Math.min(PAGE, most - ids.length);
      if (left <= 0 || limit <= 0) {
        isAll = false;
        break;
      }
      const page = await reader.search({
        ...parsed,
        ...(status === undefined ? {} : { status }),
        queue,
        before,
        limit,
        budget: Math.min(STEP_MS, left),
      });
      ids.push(...page.ids);
      before = page.next;
      if (before === null) break;
    }
  }
  const newest = ids.toSorted((a, b) => Number(BigInt(b) - BigInt(a))).slice(0, SAMPLE);
  return { count: ids.length, isAll, sample: newest.length === 0 ? [] : await reader.jobs(newest) };
}

/** Combines the status in the query with `statuses`: a search takes one status at a time. */
function wantedOf(said: string | undefined, statuses: readonly JobStatus[] | undefined): (string | undefined)[] {
  if (statuses === undefined) return [said];
  return said === undefined ? [...statuses] : statuses.filter((status) => status === said);
}
