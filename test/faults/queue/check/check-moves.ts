import type { Violation } from '../../plan.ts';
import { ATTEMPTS } from '../declaration.ts';
import type { Job, Move } from '../history.ts';
import { FINAL, groupBy, type Observation } from './observation.ts';

/** Whether a move spends the attempt that it ends. `perhaps`: only the number of the next attempt shows it. */
type Charge = 'yes' | 'no' | 'perhaps';

/** Every declared move, by its target and its reason. */
const MOVES: Readonly<Record<string, Charge>> = {
  'complete: complete': 'yes',
  'new: failed': 'yes',
  'new: timed out': 'yes',
  'new: worker lost': 'perhaps',
  'new: transaction lost': 'yes',
  'new: claim lost': 'no',
  'new: lost with another': 'no',
  'new: worker stopped': 'no',
  'new: behind a job of its key': 'no',
  'new: claimed too far ahead': 'no',
  'new: handed to a worker without a free slot': 'no',
  'new: another job of its unit was cancelled': 'no',
  'new: another job of its unit was lost with its worker, or has expired': 'no',
  'new: snoozed': 'no',
  'new: released by its client': 'no',
  'new: paused': 'no',
  'new: no handler': 'no',
  'error: attempts exhausted': 'yes',
  'error: no retry': 'yes',
  'error: worker lost': 'yes',
  'error: transaction lost': 'yes',
  'error: result refused': 'yes',
  'error: discarded': 'yes',
  // A client that claims by calls does not know the limit of attempts.
  'error: failed': 'yes',
  'cancelled: cancel': 'yes',
  'cancelled: cancelled by its handler': 'yes',
  'cancelled: expired': 'yes',
};

/** After so many losses in a row a job ends in error, whatever attempts it has left; with a key, at its next claim. */
export const LOST_FOR_GOOD = 5;
const LOSSES: readonly string[] = ['worker lost', 'lost with another'];

/** Reasons of an end after which no attempt is left. */
const SPENT: readonly string[] = ['attempts exhausted', 'failed'];

/** Each job goes one way, by declared moves, and each attempt is counted once. */
export function checkMoves(seen: Observation): Violation[] {
  return [...seen.history.jobs.flatMap((job) => checkJob(job, seen)), ...checkLosses(seen)];
}

function checkJob(job: Job, seen: Observation): Violation[] {
  const moves = seen.moves(job.id);
  const found = new Set<string>();
  let status = 'new';
  let least = 0;
  let most = 0;
  let losses = 0;
  for (const move of moves) {
    // A claim leaves no row of its own.
    const from = move.from === 'in-progress' ? 'new' : move.from;
    if (from !== status) found.add('a job goes one way');
    status = move.to;
    const charge = move.from === 'in-progress' ? MOVES[`${move.to}: ${nameOf(move)}`] : chargeAtRest(move);
    if (charge === undefined) {
      found.add(`a move is declared (${move.from} to ${move.to}: ${move.reason})`);
      continue;
    }
    // If a job is new again by hand, its attempts are counted from 0.
    if (FINAL.includes(move.from) && move.to === 'new') [least, most] = [0, 0];
    if (move.from !== 'in-progress') continue;
    const isGivenUp = losses >= LOST_FOR_GOOD && move.to === 'error' && move.reason === 'worker lost';
    if (move.attempt < least + 1 || (move.attempt > most + 1 && !isGivenUp)) found.add('an attempt is counted once');
    losses = LOSSES.includes(move.reason) ? losses + 1 : 0;
    least = charge === 'yes' ? move.attempt : move.attempt - 1;
    most = charge === 'no' ? move.attempt - 1 : move.attempt;
  }
  const limit = ATTEMPTS[job.kind];
  if (moves.some(({ to, reason, attempt }) => to === 'error' && SPENT.includes(reason) && attempt < limit))
    found.add('no attempt is withheld');
  if (seen.runs(job.id).some((run) => run.ids.length === 1 && run.attempt > limit))
    found.add('no attempt is granted beyond the limit');
  if (FINAL.includes(job.status) ? job.status !== status : FINAL.includes(status))
    found.add('a job is where its last move put it');
  return [...found].map((rule) => seen.violation(rule, `job ${job.id}`, [job.id]));
}

/** The reason without the names in it: of a kind that a worker does not know, and of a paused part. */
function nameOf({ reason }: Move): string {
  return reason.replace(/ for kind .*|(?<=^paused): .*/, '');
}

/** Moves of jobs that do not run. */
const AT_REST: readonly string[] = [
  'new to cancelled: cancel',
  'new to cancelled: expired',
  'new to new: update',
  'new to new: retry by hand',
  'error to new: retry by hand',
  'cancelled to new: retry by hand',
  'error to error: skip by hand',
  'new to complete: complete by hand',
  'error to complete: complete by hand',
  'cancelled to complete: complete by hand',
  'new to error: parents',
  'new to cancelled: parents',
];

function chargeAtRest({ from, to, reason }: Move): Charge | undefined {
  return AT_REST.includes(`${from} to ${to}: ${reason}`) ? 'no' : undefined;
}

/** A worker that is lost while it runs a job has spent the attempt. Of the jobs of a key in one claim, at least one is charged. */
function checkLosses(seen: Observation): Violation[] {
  const lost = seen.history.moves.filter(({ reason, process }) => reason === 'worker lost' && process !== null);
  const together = groupBy(lost, (move) => [`${move.xid} ${seen.job(move.job)?.key ?? `job ${move.job}`}`]);
  return [...together.values()].flatMap((moves) => {
    const begun = moves.filter(({ job, process }) => seen.runsOf(process ?? '').some(({ ids }) => ids.includes(job)));
    if (begun.length === 0 || begun.some((move) => isCharged(move, seen))) return [];
    const jobs = moves.map(({ job }) => job);
    return [seen.violation('a run that was lost with its worker is charged', `job ${begun[0]?.job}`, jobs)];
  });
}

function isCharged(move: Move, seen: Observation): boolean {
  if (move.to !== 'new') return true;
  const moves = seen.moves(move.job);
  const later = moves.slice(moves.indexOf(move) + 1);
  const next = later.find(({ from, to }) => from === 'in-progress' || FINAL.includes(to));
  // If a change by hand ended the job meanwhile, nothing shows the charge any more.
  return next === undefined || next.from !== 'in-progress' || next.attempt > move.attempt;
}
