import type { Violation } from '../../plan.ts';
import { timeoutOf } from '../declaration.ts';
import type { Job, Move, Run } from '../history.ts';
import { groupBy, type Observation } from './observation.ts';

const COALESCED = ['sync', 'last'];

/** Of a key one unit runs at a time, in order, with tokens that rise, and after what it comes after. */
export function checkKeys(seen: Observation): Violation[] {
  const byKey = groupBy(seen.history.runs, ({ key, ids }) => [key === null ? `job ${ids[0]}` : `key ${key}`]);
  return [...byKey].flatMap(([name, unsorted]) => {
    const runs = unsorted.toSorted((a, b) => a.begunAt - b.begunAt);
    const jobs = seen.keys.get(runs[0]?.key ?? '') ?? [];
    return [...checkAlone(name, runs, seen), ...checkTokens(name, runs, seen), ...checkBegins(name, runs, jobs, seen)];
  });
}

/** When a run's claim was over, as the database knows; undefined where it does not, since it was rolled back. */
function overAt(run: Run, seen: Observation): number | undefined {
  const moves = movesOf(run, seen);
  return moves.length === 0 ? undefined : Math.min(...moves.map(({ committedAt }) => committedAt));
}

function movesOf(run: Run, seen: Observation): readonly Move[] {
  return seen.movesOf(run.process).filter(({ job }) => run.ids.includes(job));
}

/** While a unit runs whose claim is not over, no other of its key begins. */
function checkAlone(name: string, runs: readonly Run[], seen: Observation): Violation[] {
  const { clockErrorMs } = seen.history;
  return runs.flatMap((run, index) => {
    const over = overAt(run, seen);
    // Of a transaction that was rolled back the moment is unknown; what it wrote did not take effect.
    if (over === undefined) return [];
    const until = Math.min(run.ended?.at ?? Infinity, over - clockErrorMs);
    const other = runs.slice(index + 1).find(({ begunAt, process }) => begunAt < until && process !== run.process);
    if (other === undefined || isLate(other, seen)) return [];
    return [seen.violation('of a key one unit runs at a time', name, [...run.ids, ...other.ids])];
  });
}

/** A run of a transaction that was lost before it began: its process cannot know. */
function isLate(run: Run, seen: Observation): boolean {
  const over = overAt(run, seen);
  return over === undefined || over < run.begunAt;
}

function checkTokens(name: string, runs: readonly Run[], seen: Observation): Violation[] {
  // Of two runs of which the later one was valid, the earlier one was claimed before it.
  return runs.flatMap((run, index) => {
    const before = runs[index - 1];
    if (before === undefined || isLate(run, seen)) return [];
    const isSame = before.pid === run.pid && run.key !== null;
    if (isSame ? before.token <= run.token : before.token < run.token) return [];
    return [seen.violation('tokens rise', name, [...before.ids, ...run.ids])];
  });
}

function checkBegins(name: string, runs: readonly Run[], jobs: readonly Job[], seen: Observation): Violation[] {
  const { clockErrorMs } = seen.history;
  return runs.flatMap((run) => {
    const over = overAt(run, seen);
    if (run.hold === 'lease' && over !== undefined && over < run.begunAt - clockErrorMs) {
      return [seen.violation('nothing begins once its claim is over', `${name}, attempt ${run.attempt}`, run.ids)];
    }
    // A client that claims by calls does not ask again before it begins.
    if (run.key === null || over === undefined || over < run.begunAt - clockErrorMs) return [];
    return [...checkOrder(name, run, jobs, seen), ...checkAfter(name, run, jobs, seen)];
  });
}

/** What was committed before a job of the same kind was asked for has been settled, or is in the same unit, when that begins. */
function checkOrder(name: string, run: Run, jobs: readonly Job[], seen: Observation): Violation[] {
  const first = seen.job(run.ids[0] ?? '');
  if (first === undefined || !hasPlace(first, seen)) return [];
  const asked = seen.askedAt(first);
  const open = jobs.find(
    (job) =>
      job.kind === first.kind &&
      hasPlace(job, seen) &&
      Number(job.id) < Number(first.id) &&
      job.committedAt < asked - seen.history.clockErrorMs &&
      !isTogether(job, run, seen) &&
      !isDone(job, run, seen),
  );
  return open === undefined ? [] : [seen.violation('jobs of a key run in order', name, [open.id, ...run.ids])];
}

/** Whether its place in its key is that of its enqueue: not of what was due later, or is new again by hand. */
function hasPlace(job: Job, seen: Observation): boolean {
  return !job.isDelayed && seen.outstanding(job).length === 1;
}

/** What is to come after another kind begins when no such job, committed before it was claimed, is open. */
function checkAfter(name: string, run: Run, jobs: readonly Job[], seen: Observation): Violation[] {
  if (run.kind !== 'update') return [];
  const claimed = movesOf(run, seen)[0]?.claimedAt;
  if (claimed === undefined || claimed === null) return [];
  const open = jobs.find(
    (job) => job.kind === 'create' && job.committedAt < claimed - seen.history.clockErrorMs && !isDone(job, run, seen),
  );
  return open === undefined
    ? []
    : [seen.violation('what comes after another kind waits for it', name, [open.id, ...run.ids])];
}

/** Coalesced with it: one that is given up by itself is tried again after the others of its unit. */
function isTogether(job: Job, run: Run, seen: Observation): boolean {
  if (!COALESCED.includes(run.kind)) return false;
  return run.ids.includes(job.id) || seen.movesOf(run.process).some((move) => move.job === job.id);
}

/** Reasons that the process of the attempt itself gives for trying again. */
const FAILURES: readonly string[] = ['failed', 'timed out', 'snoozed'];

/** Settled when the run begins, or ended by the process that goes on with the key and has yet to say so. */
function isDone(job: Job, run: Run, seen: Observation): boolean {
  const moves = seen.moves(job.id);
  const at = run.begunAt + seen.history.clockErrorMs;
  const last = moves.findLast(({ committedAt }) => committedAt <= at);
  if (last !== undefined && last.to !== 'new') return true;
  return seen.runs(job.id).some((before) => {
    const isSame = before.pid === run.pid && before.token === run.token && before.begunAt < run.begunAt;
    // After a failure, a process waits until that is written.
    const own = seen.movesOf(before.process).find((move) => move.job === job.id);
    if (own?.to === 'new' && FAILURES.includes(own.reason)) return false;
    // A handler that is given up for its time leaves no note of when.
    const isOver = (before.ended?.at ?? Infinity) <= run.begunAt;
    return isSame && (isOver || before.begunAt + timeoutOf(job.kind) <= run.begunAt);
  });
}
