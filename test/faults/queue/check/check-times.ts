import type { Violation } from '../../plan.ts';
import { DEBOUNCE, RETRY_AFTER_MS, SNOOZE_MS } from '../declaration.ts';
import type { Job, Move, Run } from '../history.ts';
import { groupBy, type Observation } from './observation.ts';

/** Numbers of the database's clock were moved by what is no number of its thousandths of a millisecond. */
const ROUNDING_MS = 2;
/** A client asks for what has expired before it claims: so long before, if the server is slow. */
const PULL_MS = 1000;

/** Nothing begins before the time that was asked for, nor after it has expired; what waits for rest begins when there was some. */
export function checkTimes(seen: Observation): Violation[] {
  const saved = groupBy(seen.history.jobs, ({ kind, key }) => (kind === 'saved' ? [key ?? ''] : []));
  return [
    ...seen.history.jobs.flatMap((job) => [...checkWaits(job, seen), ...checkExpiry(job, seen)]),
    ...[...saved.values()].flatMap((jobs) => checkDebounce(jobs, seen)),
  ];
}

/** How long the job was to wait after this move; undefined where its handler asked for nothing. */
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
    // A change by hand may make it due.
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
    // It had begun in time, and was lost with its worker; an attempt that is not charged is the same one again.
    if (seen.runs(id).some(({ begunAt }) => begunAt <= expiresAt + ROUNDING_MS)) return [];
    const run = seen.runsOf(move.process).find(({ ids }) => ids.includes(id));
    if (run === undefined || move.claimedAt <= expiresAt + (run.hold === 'pull' ? PULL_MS : ROUNDING_MS)) return [];
    return [seen.violation('what has expired does not begin', `job ${id}`, [id])];
  });
}

/** The jobs of a key wait for rest, and then are one unit. */
function checkDebounce(jobs: readonly Job[], seen: Observation): Violation[] {
  const runs = new Set(jobs.flatMap(({ id }) => seen.runs(id)));
  return [...runs].flatMap((run) => {
    // Those that were claimed for the first time: others wait for their next attempt.
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
  // The rest is counted from the job with the highest number, whose enqueue may have read the clock before another one's.
  const rested = jobs.some(({ id, createdAt }) => Number(id) >= newest && createdAt + DEBOUNCE.wait <= begun);
  if (rested || first + DEBOUNCE.max <= begun) return [];
  return [seen.violation('debounced jobs wait for rest', `key ${run.key}`, run.ids)];
}

/** What was there when the last job of the unit came is in the unit, unless it was claimed before. */
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
