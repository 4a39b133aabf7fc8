import type { Violation } from '../../plan.ts';
import { DEBOUNCE, RETRY_AFTER_MS, SNOOZE_MS } from '../declaration.ts';
import type { Job, Move, Run } from '../history.ts';
import { groupBy, type Observation } from './observation.ts';

/** Times of the database were moved by an offset that is no whole number of microseconds. */
const ROUNDING_MS = 2;
/** A client checks for expired jobs before it claims. On a slow server, this time can pass in between. */
const PULL_MS = 1000;

/** No job begins before its requested time or after its expiry. Debounced jobs begin after a rest. */
export function checkTimes(seen: Observation): Violation[] {
  const saved = groupBy(seen.history.jobs, ({ kind, key }) => (kind === 'saved' ? [key ?? ''] : []));
  return [
    ...seen.history.jobs.flatMap((job) => [...checkWaits(job, seen), ...checkExpiry(job, seen)]),
    ...[...saved.values()].flatMap((jobs) => checkDebounce(jobs, seen)),
  ];
}

/** The wait that the handler requested after this move; undefined if it requested none. */
function askedFor(move: Move, seen: Observation): number | undefined {
  if (move.to !== 'new' || move.process === null) return undefined;
  if (move.reason === 'snoozed') return SNOOZE_MS;
  const isAsked = seen.runsOf(move.process).some(({ ended }) => ended?.how === 'asked for retry');
  return isAsked && move.reason === 'failed' ? RETRY_AFTER_MS : undefined;
}

function checkWaits({ id }: Job, seen: Observation): Violation[] {
  const moves = seen.moves(id);
  return moves.flatMap((move, nth) => {
    const waitMs = askedFor(move, seen);
    const next = moves[nth + 1];
    // A change by hand may make the job due earlier.
    if (waitMs === undefined || next === undefined || next.from !== 'in-progress' || next.process === null) return [];
    const run = seen.runsOf(next.process).find(({ ids }) => ids.includes(id));
    if (run === undefined || run.begunAt > move.at + waitMs - seen.history.clockErrorMs) return [];
    return [seen.violation('a job waits for as long as its handler asked', `job ${id}`, [id])];
  });
}

function checkExpiry({ id, expiresAt }: Job, seen: Observation): Violation[] {
  if (expiresAt === undefined) return [];
  return seen.moves(id).flatMap((move) => {
    if (move.reason === 'expired' && move.at < expiresAt - ROUNDING_MS) {
      return [seen.violation('nothing expires before its time', `job ${id}`, [id])];
    }
    if (move.claimedAt === null || move.process === null || move.attempt > 1) return [];
    // The job had begun in time and was lost with its worker. An uncharged attempt is the same attempt again.
    if (seen.runs(id).some(({ begunAt }) => begunAt <= expiresAt + ROUNDING_MS)) return [];
    const run = seen.runsOf(move.process).find(({ ids }) => ids.includes(id));
    if (run === undefined || move.claimedAt <= expiresAt + (run.hold === 'pull' ? PULL_MS : ROUNDING_MS)) return [];
    return [seen.violation('what has expired does not begin', `job ${id}`, [id])];
  });
}

/** Debounced jobs of a key wait for a rest, and then are one unit. */
function checkDebounce(jobs: readonly Job[], seen: Observation): Violation[] {
  const runs = new Set(jobs.flatMap(({ id }) => seen.runs(id)));
  return [...runs].flatMap((run) => {
    // The jobs that were claimed for the first time; the others waited for their next attempt.
    const fresh = jobs.filter(({ id }) => run.ids.includes(id) && claimOf(id, seen)?.process === run.process);
    return fresh.length === 0 ? [] : [...checkRest(run, fresh, jobs, seen), ...checkWhole(run, fresh, jobs, seen)];
  });
}

function claimOf(id: string, seen: Observation): Move | undefined {
  return seen.moves(id).find(({ from }) => from === 'in-progress');
}

function checkRest(run: Run, fresh: readonly Job[], jobs: readonly Job[], seen: Observation): Violation[] {
  const begun = run.begunAt + seen.history.clockErrorMs;
  const newest = Math.max(...fresh.map(({ id }) => Number(id)));
  const first = Math.min(...fresh.map(({ createdAt }) => createdAt));
  // The rest begins with the job with the highest id, whose enqueue may have read the clock before another enqueue.
  const rested = jobs.some(({ id, createdAt }) => Number(id) >= newest && createdAt + DEBOUNCE.wait <= begun);
  if (rested || first + DEBOUNCE.max <= begun) return [];
  return [seen.violation('debounced jobs wait for rest', `key ${run.key}`, run.ids)];
}

/** Each job that existed when the last job of the unit arrived is in the unit, unless it was claimed before. */
function checkWhole(run: Run, fresh: readonly Job[], jobs: readonly Job[], seen: Observation): Violation[] {
  const claimedAt = claimOf(fresh[0]?.id ?? '', seen)?.claimedAt ?? null;
  if (claimedAt === null) return [];
  const last = Math.max(...fresh.map(({ createdAt }) => createdAt));
  const left = jobs.find(({ id, committedAt }) => {
    const claim = claimOf(id, seen);
    const isLater = claim === undefined ? seen.moves(id).length === 0 : (claim.claimedAt ?? -Infinity) > claimedAt;
    return isLater && committedAt < last && !run.ids.includes(id);
  });
  return left === undefined
    ? []
    : [seen.violation('debounced jobs are one unit', `key ${run.key}`, [left.id, ...run.ids])];
}
