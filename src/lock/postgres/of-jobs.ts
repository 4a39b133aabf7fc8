import type { PostgresEngine } from '../../engine/postgres/index.ts';
import { OF_JOBS } from './statements.ts';

/** A lock that the handler of a job holds, waits for, or held. */
export interface JobLock {
  readonly namespace: string;
  readonly name: string;
  readonly state: 'held' | 'waiting' | 'ended';
  readonly mode: 'exclusive' | 'shared' | 'permit';
  /** The number of permits of a semaphore. */
  readonly permits: number | null;
  /** Null while the handler waits for it. */
  readonly token: string | null;
  readonly host: string;
  readonly pid: number;
  /** The beginning of the hold or of the wait. */
  readonly since: Date;
  readonly endedAt: Date | null;
  readonly outcome: 'released' | 'broken' | 'expired' | null;
}

type Row = Omit<JobLock, 'endedAt'> & { readonly ended_at: Date | null };

/**
 * The locks of these jobs, in all namespaces, newest first: up to 100 of each state. Past ones are listed as long as the
 * history keeps them.
 */
export async function locksOfJobs(engine: PostgresEngine, jobs: readonly string[]): Promise<readonly JobLock[]> {
  const rows = await engine.query<Row>(OF_JOBS, [jobs]);
  return rows.map(({ ended_at: endedAt, ...lock }) => ({ ...lock, endedAt }));
}
