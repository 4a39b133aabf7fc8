import type { Violation } from '../../plan.ts';
import { PER_TENANT } from '../declaration.ts';
import type { Run } from '../history.ts';
import { groupBy, type Observation } from './observation.ts';

/** Of a tenant no more jobs run at a time than the queue says. */
export function checkTenants(seen: Observation): Violation[] {
  const byTenant = groupBy(seen.history.runs, ({ ids }) => {
    const tenant = seen.job(ids[0] ?? '')?.tenant;
    return tenant === null || tenant === undefined ? [] : [tenant];
  });
  return [...byTenant].flatMap(([tenant, runs]) => {
    const spans = runs.flatMap((run) => spanOf(run, seen));
    for (const { from } of spans) {
      const together = spans.filter((other) => other.from <= from && from < other.until);
      if (together.length <= PER_TENANT) continue;
      const ids = together.flatMap(({ run }) => run.ids);
      return [seen.violation(`of a tenant ${PER_TENANT} run at a time`, `tenant ${tenant}`, ids)];
    }
    return [];
  });
}

/**
 * From when until when it certainly ran: its claim ends with the transaction that says so. A transaction that was rolled back leaves no such
 * moment, and a handler that began when its claim was over does not count.
 */
function spanOf(run: Run, seen: Observation): { run: Run; from: number; until: number }[] {
  const moves = seen.movesOf(run.process).filter(({ job }) => run.ids.includes(job));
  if (moves.length === 0) return [];
  const over = Math.min(...moves.map(({ committedAt }) => committedAt)) - seen.history.clockErrorMs;
  const until = Math.min(run.ended?.at ?? Infinity, over);
  return run.begunAt < until ? [{ run, from: run.begunAt, until }] : [];
}
