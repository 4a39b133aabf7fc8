import type { Violation } from '../../plan.ts';
import { RATE } from '../declaration.ts';
import type { Job, Run } from '../history.ts';
import { groupBy, type Observation } from './observation.ts';

/** The jobs of a tenant that run at a time are not more than the queue allows. */
export function checkTenants(seen: Observation): Violation[] {
  const { perTenant } = seen.history;
  const byTenant = groupBy(seen.history.runs, ({ ids }) => {
    const tenant = seen.job(ids[0] ?? '')?.tenant;
    return tenant === null || tenant === undefined ? [] : [tenant];
  });
  return [...byTenant].flatMap(([tenant, runs]) => {
    const spans = runs.flatMap((run) => spanOf(run, seen));
    for (const { from } of spans) {
      const together = spans.filter((other) => other.from <= from && from < other.until);
      if (together.length <= perTenant) continue;
      const ids = together.flatMap(({ run }) => run.ids);
      return [seen.violation(`of a tenant ${perTenant} run at a time`, `tenant ${tenant}`, ids)];
    }
    return [];
  });
}

/** One statement reads the clock more than once, within this time. */
const READING_MS = 20;

/**
 * If tenants have a rate, any time T has at most `limit + ceil(T × limit / per)` claims of a tenant, by the clock of the database. The history lacks
 * claims of which no row was written.
 */
export function checkRates(seen: Observation): Violation[] {
  if (!seen.history.hasRate) return [];
  const byTenant = groupBy(seen.history.jobs, ({ tenant }) => (typeof tenant === 'string' ? [tenant] : []));
  return [...byTenant].flatMap(([tenant, jobs]) => {
    const claims = jobs.flatMap((job) => claimsOf(job, seen)).sort((a, b) => a.at - b.at);
    for (const [nth, first] of claims.entries()) {
      for (const [more, last] of claims.slice(nth).entries()) {
        const ms = last.at - first.at + READING_MS;
        if (more + 1 <= RATE.limit + Math.ceil((ms * RATE.limit) / RATE.perMs)) continue;
        const ids = claims.slice(nth, nth + more + 1).map(({ id }) => id);
        return [seen.violation(`of a tenant ${RATE.limit} begin in ${RATE.perMs} ms`, `tenant ${tenant}`, ids)];
      }
    }
    return [];
  });
}

function claimsOf({ id }: Job, seen: Observation): { id: string; at: number }[] {
  const times = new Set(seen.moves(id).flatMap(({ claimedAt }) => claimedAt ?? []));
  return [...times].map((at) => ({ id, at }));
}

/**
 * The time in which the run certainly was under way: its claim ends with the transaction that writes the outcome. A transaction that was rolled
 * back leaves no such moment. A handler that began after the end of its claim does not count.
 */
function spanOf(run: Run, seen: Observation): { run: Run; from: number; until: number }[] {
  const moves = seen.movesOf(run.process).filter(({ job }) => run.ids.includes(job));
  if (moves.length === 0) return [];
  const over = Math.min(...moves.map(({ committedAt }) => committedAt)) - seen.history.clockErrorMs;
  const until = Math.min(run.ended?.at ?? Infinity, over);
  return run.begunAt < until ? [{ run, from: run.begunAt, until }] : [];
}
