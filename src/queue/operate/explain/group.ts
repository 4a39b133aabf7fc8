/** Why a job of a group is not admitted: other jobs have its places, or its rate has no room. */
import { formatDuration } from '../../../base/time/duration.ts';
import { COUNT_LIMIT } from '../stats.ts';

/** The answer of pawl.queue_explain_group(). */
export interface GroupFacts {
  readonly name: string;
  /** null: any number. */
  readonly places: number | null;
  readonly taken: number;
  /** The ids of the first jobs that have a place. */
  readonly holders: readonly string[];
  readonly ahead: number;
  /** until: the time at which it has room for the job; null: now. */
  readonly rate?: { readonly limit: number; readonly perMs: number; readonly until: string | null } | null;
}

interface GroupReason {
  readonly code: 'group_full' | 'group_rate' | 'next';
  readonly text: string;
  readonly job?: string | undefined;
  readonly until?: Date | undefined;
  readonly ahead: number;
}

/** @param now  by the database's clock */
export function groupReasons(group: GroupFacts | null | undefined, now: string): GroupReason[] {
  if (group === undefined || group === null) return [];
  const { name, ahead } = group;
  const reasons = [...groupFull(group), ...groupRate(group, now)];
  if (reasons.length > 0) return reasons;
  const text = `the next poll of a worker gives it a place of group "${name}", ${count(ahead)} ahead of it`;
  return [{ code: 'next', text, ahead }];
}

function groupFull({ name, places, taken, holders, ahead }: GroupFacts): GroupReason[] {
  if (places === null || taken < places) return [];
  const others = taken > holders.length ? ' and others' : '';
  const text = `${taken} of ${places} places of group "${name}" are taken, by ${holders.length === 1 ? 'job' : 'jobs'} ${holders.join(', ')}${others}; ${count(ahead)} ahead of it`;
  return [{ code: 'group_full', text, job: holders[0], ahead }];
}

function groupRate({ name, ahead, rate }: GroupFacts, now: string): GroupReason[] {
  if (rate === undefined || rate === null || rate.until === null) return [];
  const until = new Date(rate.until);
  const wait = formatDuration(roughly(Math.max(1, until.getTime() - new Date(now).getTime())));
  const text = `the rate of group "${name}", ${rate.limit} per ${formatDuration(rate.perMs)}, has room for it at ${until.toISOString()}, in ${wait}; ${count(ahead)} ahead of it`;
  return [{ code: 'group_rate', text, until, ahead }];
}

/** A rounded duration for people. */
export function roughly(ms: number): number {
  const unit = ms > 7_200_000 ? 600_000 : ms > 600_000 ? 60_000 : ms > 1000 ? 1000 : 1;
  return Math.ceil(ms / unit) * unit;
}

/** A number of jobs, in words that stand before "ahead of it". */
export function count(jobs: number): string {
  if (jobs >= COUNT_LIMIT) return `${COUNT_LIMIT.toLocaleString('en')} jobs or more are`;
  return jobs === 1 ? '1 job is' : `${jobs} jobs are`;
}
