import type { Violation } from '../../plan.ts';
import { timeoutOf } from '../declaration.ts';
import type { Job, Move, Run } from '../history.ts';
import { groupBy, type Observation } from './observation.ts';

const COALESCED = ['sync', 'last'];

/** Units of a key run one at a time, in order, with rising tokens, and after the jobs that they must follow. */
export function checkKeys(seen: Observation): Violation[] {
  const byKey = groupBy(seen.history.runs, ({ key, ids }) => [key === null ? `job ${ids[0]}` : `key ${key}`]);
  return [...byKey].flatMap(([name, unsorted]) => {
    const runs = unsorted.toSorted((a, b) => a.begunAt - b.begunAt);
    const jobs = seen.keys.get(runs[0]?.key ?? '') ?? [];
    return [...checkAlone(name, runs, seen), ...checkTokens(name, runs, seen), ...checkBegins(name, runs, jobs, seen)];
  });
}

/** The end of a run's claim, by the database; undefined if the database does not know it, because the claim was rolled back. */
function overAt(run: Run, seen: Observation): number | undefined {
  const moves = movesOf(run, seen);
  return moves.length === 0 ? undefined : Math.min(...moves.map(({ committedAt }) => committedAt));
}

function movesOf(run: Run, seen: Observation): readonly Move[] {
  return seen.movesOf(run.process).filter(({ job }) => run.ids.includes(job));
}

/** While a unit runs and its claim is not over, no other unit of its key begins. */
function checkAlone(name: string, runs: readonly Run[], seen: Observation): Violation[] {
  const { clockErrorMs } = seen.history;
  return runs.flatMap((run, index) => {
    const over = overAt(run, seen);
    // If a transaction was rolled back, the moment is unknown, but its writes did not take effect.
    if (over === undefined) return [];
    const until = Math.min(run.ended?.at ?? Infinity, over - clockErrorMs);
    const other = runs.slice(index + 1).find(({ begunAt, process }) => begunAt < until && process !== run.process);
    if (other === undefined || isLate(other, seen)) return [];
    return [seen.violation('of a key one unit runs at a time', name, [...run.ids, ...other.ids])];
  });
}

/** The transaction of this run was lost before the run began. Its process cannot know that. */
function isLate(run: Run, seen: Observation): boolean {
  const over = overAt(run, seen);
  return over === undefined || over < run.begunAt;
}

function checkTokens(name: string, runs: readonly Run[], seen: Observation): Violation[] {
  // If the later of two runs was valid, the earlier one was claimed before it.
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
    // A client that claims by calls does not check its claim again before it begins.
    if (run.key === null || over === undefined || over < run.begunAt - clockErrorMs) return [];
    return [...checkOrder(name, run, jobs, seen), ...checkAfter(name, run, jobs, seen)];
  });
}

/** When a job begins, each job of its kind that was committed before its enqueue began is settled, or is in the same unit. */
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

/** Whether the job has the place of its enqueue in its key: not if it was delayed, or is new again by hand. */
function hasPlace(job: Job, seen: Observation): boolean {
  return !job.isDelayed && seen.outstanding(job).length === 1;
}

/** A kind that comes after another one begins only if no job of the other kind, committed before its claim, is open. */
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

/** Whether the job was coalesced with the run: if it fails alone, it is retried after the others of its unit. */
function isTogether(job: Job, run: Run, seen: Observation): boolean {
  if (!COALESCED.includes(run.kind)) return false;
  return run.ids.includes(job.id) || seen.movesOf(run.process).some((move) => move.job === job.id);
}

/** Reasons for a retry that the process of the attempt itself reports. */
const FAILURES: readonly string[] = ['failed', 'timed out', 'snoozed'];

/** Whether the job was settled when the run began, or had ended in the process that continues the key and settles it later. */
function isDone(job: Job, run: Run, seen: Observation): boolean {
  const moves = seen.moves(job.id);
  const at = run.begunAt + seen.history.clockErrorMs;
  const last = moves.findLast(({ committedAt }) => committedAt <= at);
  if (last !== undefined && last.to !== 'new') return true;
  return seen.runs(job.id).some((before) => {
    const isSame = before.pid === run.pid && before.token === run.token && before.begunAt < run.begunAt;
    // After a failure, a process waits until the failure is written.
    const own = seen.movesOf(before.process).find((move) => move.job === job.id);
    if (own?.to === 'new' && FAILURES.includes(own.reason)) return false;
    // A handler that timed out leaves no note of that moment.
    const isOver = (before.ended?.at ?? Infinity) <= run.begunAt;
    return isSame && (isOver || before.begunAt + timeoutOf(job.kind) <= run.begunAt);
  });
}
