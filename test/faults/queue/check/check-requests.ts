import type { Violation } from '../../plan.ts';
import type { Request } from '../history.ts';
import type { JobBatch } from '../plan.ts';
import { groupBy, type Observation } from './observation.ts';

/** Jobs of acknowledged requests exist, jobs of rolled back requests do not. */
export function checkRequests(seen: Observation): Violation[] {
  const byNumber = groupBy(seen.history.jobs, ({ n }) => [String(n)]);
  const found: Violation[] = [];
  for (const request of seen.history.requests) {
    for (const [at, n] of request.numbers.entries()) {
      const jobs = byNumber.get(String(n)) ?? [];
      const wrong = misfit(
        request,
        at,
        jobs.map(({ id }) => id),
        seen,
      );
      if (wrong !== undefined)
        found.push(
          seen.violation(wrong, `request ${n}`, [...jobs.map(({ id }) => id), ...request.ids.slice(at, at + 1)]),
        );
    }
  }
  const known = new Set(
    seen.history.requests.flatMap(({ numbers, group }) =>
      group?.as === 'batch' ? [...numbers, ...callbacksOf(group)] : numbers,
    ),
  );
  for (const { id, n, kind } of seen.history.jobs) {
    if (kind !== 'letter' && kind !== 'own' && !known.has(n))
      found.push(seen.violation('a job was asked for', `job ${id}`, [id]));
  }
  return found;
}

function callbacksOf({ callback, completes, fails, nested }: JobBatch): number[] {
  return [callback, completes, fails, nested?.callback].filter((n) => n !== undefined);
}

function misfit(
  { outcome, how, ids, numbers, duplicates, replaces }: Request,
  at: number,
  jobs: readonly string[],
  seen: Observation,
): string | undefined {
  if (jobs.length > 1) return 'a request is one job';
  if (how === 'rolled back' || outcome === 'refused') {
    return jobs.length === 0 ? undefined : 'what was not committed is never there';
  }
  if (outcome === 'unknown') return undefined;
  const id = ids[at] ?? '';
  if (seen.isErased(id)) return undefined;
  if (replaces) return seen.job(id) === undefined ? 'what was acknowledged is there' : undefined;
  const isDuplicate = duplicates.has(numbers[at] ?? 0);
  if (isDuplicate) return seen.job(id) === undefined ? 'a duplicate is of a job that is there' : undefined;
  return jobs[0] === id ? undefined : 'what was acknowledged is there';
}
