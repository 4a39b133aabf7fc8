import { InvalidInput } from '../../base/errors.ts';
import type { JobRecord, JobStatus } from '../../queue/index.ts';
import { ofQuery } from '../jobs/query.ts';
import type { Services } from '../services.ts';
import type { BulkAction } from '../store/bulk.ts';

/** The statuses of jobs that an action can change; other jobs refuse. */
const CHANGES: Readonly<Record<BulkAction, readonly JobStatus[]>> = {
  retry: ['error', 'cancelled'],
  cancel: ['new', 'in-progress'],
  finish: ['new', 'error', 'cancelled'],
  redrive: ['new', 'complete', 'error', 'cancelled'],
  move: ['new', 'error', 'cancelled'],
  erase: ['new', 'complete', 'error', 'cancelled'],
};
const SAMPLE = 5;

/** The jobs of a bulk action: those that a search finds, or jobs by their ids. */
export interface BulkOn {
  readonly query: string | undefined;
  readonly queue: string | undefined;
  readonly jobs: readonly string[] | undefined;
}

/** @throws InvalidInput  unless exactly one of both is given */
export function requireOneWay({ query, queue, jobs }: BulkOn): void {
  if ((query === undefined) === (jobs === undefined)) {
    throw new InvalidInput('give either query, a search, or jobs, a list of ids', {
      field: jobs === undefined ? 'query' : 'jobs',
    });
  }
  if (jobs !== undefined && queue !== undefined) {
    throw new InvalidInput('queue is for a search; jobs are named by their ids alone', { field: 'queue' });
  }
}

interface Preview {
  /** Jobs that the search finds. */
  readonly found: number;
  /** Those of them that the action would change. */
  readonly fitting: number;
  readonly isAll: boolean;
  readonly sample: readonly JobRecord[];
}

/** Counts the jobs that an action would change, and returns some of them. Changes nothing. */
export async function previewBulk({ queues }: Services, action: BulkAction, on: BulkOn): Promise<Preview> {
  requireOneWay(on);
  const statuses = CHANGES[action];
  if (on.jobs !== undefined) {
    const jobs = await queues.reads.getMany([...new Set(on.jobs)]);
    const fitting = jobs.filter(({ status }) => statuses.includes(status));
    return { found: jobs.length, fitting: fitting.length, isAll: true, sample: fitting.slice(0, SAMPLE) };
  }
  const { query = '', queue } = on;
  const fitting = await ofQuery('query', queues.reads.count(query, { queue, statuses, budget: '1s' }));
  const found = await queues.reads.count(query, { queue, budget: '1s' });
  return {
    found: Math.max(found.count, fitting.count),
    fitting: fitting.count,
    isAll: found.isAll && fitting.isAll,
    sample: fitting.sample,
  };
}
