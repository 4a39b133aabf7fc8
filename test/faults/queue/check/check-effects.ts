import type { Violation } from '../../plan.ts';
import type { Effect, Job } from '../history.ts';
import type { Observation } from './observation.ts';

/** Guarded writes of a handler take effect only while the unit belongs to its worker. */
export function checkEffects(seen: Observation): Violation[] {
  return [
    ...seen.history.effects.flatMap((effect) => checkEffect(effect, seen)),
    ...seen.history.jobs.flatMap((job) => checkJob(job, seen)),
  ];
}

function checkEffect(effect: Effect, seen: Observation): Violation[] {
  const { job, process, attempt } = effect;
  const about = `job ${job}, attempt ${attempt}`;
  const [run] = seen.runsOf(process);
  const move = seen.movesOf(process).find((each) => each.job === job);
  if (seen.isErased(job)) return [];
  // Jobs that are not settled at the end are reported elsewhere.
  if (move === undefined && seen.job(job)?.status === 'in-progress') return [];
  if (move === undefined) return [seen.violation('what takes effect is of an attempt that is known', about, [job])];
  if (run?.hold === 'transaction') {
    if (move.xid !== effect.xid) return [seen.violation('effect and outcome are one transaction', about, [job])];
    // Writes of a failed handler are undone, unless other jobs of its unit are complete.
    const isKept = seen.movesOf(process).some(({ to }) => to === 'complete');
    return isKept ? [] : [seen.violation('what a failed handler wrote is undone', about, [job])];
  }
  // A statement that takes a claim away waits for the guards that hold it.
  if (effect.committedAt <= move.committedAt) return [];
  return [seen.violation('nothing takes effect once the claim is over', about, [job])];
}

/** The attempt that completed a job has run it to its end. */
function checkJob({ id, kind }: Job, seen: Observation): Violation[] {
  return seen.moves(id).flatMap((move) => {
    if (move.to !== 'complete' || move.process === null) return [];
    const about = `job ${id}, attempt ${move.attempt}`;
    const runs = seen.runsOf(move.process);
    const isRun = kind === 'last' ? runs.length > 0 : runs.some(({ ids }) => ids.includes(id));
    if (!isRun) return [seen.violation('what is complete was run', about, [id])];
    if (runs.every(({ ended }) => ended !== undefined && ended.how !== 'well')) {
      return [seen.violation('what is complete was run to its end', about, [id])];
    }
    if (kind === 'last' && !runs.some(({ ids }) => ids.includes(id))) return [];
    const effects = seen.effects(id).filter(({ process }) => process === move.process);
    return effects.length === 1
      ? []
      : [seen.violation(`what is complete has taken effect once (${effects.length})`, about, [id])];
  });
}
