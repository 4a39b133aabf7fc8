import type { Violation } from '../../plan.ts';
import type { Part } from '../hands/hand.ts';
import type { Change, Job, Run } from '../history.ts';
import type { Observation } from './observation.ts';

/** A change by hand has an effect from its commit on, and never on a job that has begun. */
export function checkHands(seen: Observation): Violation[] {
  return [
    ...seen.history.changes.flatMap((change) => [
      ...checkUpdate(change, seen),
      ...checkErase(change, seen),
      ...checkFinish(change, seen),
      ...checkPause(change, seen),
    ]),
    ...seen.history.jobs.flatMap((job) => checkAtWork(job, seen)),
    ...seen.history.runs.flatMap((run) => checkLease(run, seen)),
  ];
}

/** Every claim after the commit of an update gets the updated job. */
function checkUpdate({ hand, id, outcome, answeredAt }: Change, seen: Observation): Violation[] {
  if (hand.do !== 'update' || outcome === 'unknown') return [];
  return seen.runs(id).flatMap((run) => {
    const version = run.versions[run.ids.indexOf(id)] ?? 0;
    const claimedAt = seen.movesOf(run.process).find(({ job }) => job === id)?.claimedAt ?? -Infinity;
    if (outcome === 'refused' && version === hand.version) return [wrong('what was refused is not changed', id, seen)];
    const isLater = claimedAt > answeredAt + seen.history.clockErrorMs;
    return outcome === 'acknowledged' && isLater && version < hand.version
      ? [wrong('a handler gets what was changed last', id, seen)]
      : [];
  });
}

function wrong(rule: string, id: string, seen: Observation): Violation {
  return seen.violation(rule, `job ${id}`, [id]);
}

function checkErase({ hand, id, outcome, answeredAt }: Change, seen: Observation): Violation[] {
  if (hand.do !== 'erase' || outcome !== 'acknowledged') return [];
  if (seen.job(id) !== undefined) return [wrong('what was erased is gone', id, seen)];
  const late = seen
    .runs(id)
    .find(({ hold, begunAt }) => hold === 'lease' && begunAt > answeredAt + seen.history.clockErrorMs);
  return late === undefined ? [] : [wrong('what was erased does not begin', id, seen)];
}

/** A job that was completed by hand is complete, and does not begin again. */
function checkFinish({ hand, id, outcome, answeredAt }: Change, seen: Observation): Violation[] {
  if (hand.do !== 'finish' || outcome !== 'acknowledged' || seen.isErased(id)) return [];
  if (seen.job(id)?.status !== 'complete') return [wrong('what was completed by hand is complete', id, seen)];
  const late = seen
    .runs(id)
    .find(({ hold, begunAt }) => hold === 'lease' && begunAt > answeredAt + seen.history.clockErrorMs);
  return late === undefined ? [] : [wrong('what was completed by hand does not begin', id, seen)];
}

/** No job is changed between the start of an attempt and its end. */
function checkAtWork({ id }: Job, seen: Observation): Violation[] {
  const { clockErrorMs } = seen.history;
  const changed = seen.moves(id).filter(({ from, to }) => from === 'new' && to === 'new');
  return changed.flatMap(({ committedAt }) => {
    const run = seen.runs(id).find(({ begunAt, process }) => {
      const over = seen.movesOf(process).find(({ job }) => job === id)?.committedAt ?? -Infinity;
      return begunAt + clockErrorMs < committedAt && committedAt < over - clockErrorMs;
    });
    return run === undefined ? [] : [wrong('a job that has begun is not changed', id, seen)];
  });
}

/** Jobs of a part that are enqueued after its pause do not begin until the part is resumed. */
function checkPause(change: Change, seen: Observation): Violation[] {
  const { hand, outcome, answeredAt } = change;
  if (hand.do !== 'pause' || outcome !== 'acknowledged') return [];
  const { part } = hand;
  // No other process pauses and resumes this part. A resume without an answer may commit at any time.
  const resumes = seen.history.changes.filter(
    ({ hand: other, member }) =>
      member === change.member && other.do === 'resume' && JSON.stringify(other.part) === JSON.stringify(part),
  );
  if (resumes.some(({ askedAt, outcome: told }) => askedAt < answeredAt && told === 'unknown')) return [];
  const until = Math.min(Infinity, ...resumes.map(({ askedAt }) => askedAt).filter((at) => at > answeredAt));
  const later = seen.history.jobs.filter((job) => isOf(job, part) && seen.askedAt(job) > answeredAt);
  return later.flatMap(({ id }) =>
    seen.runs(id).some(({ begunAt }) => begunAt < until) ? [wrong('nothing of a paused part begins', id, seen)] : [],
  );
}

function isOf(job: Job, { kind = job.kind, key, tag }: Part): boolean {
  return (
    kind === job.kind &&
    (key === undefined || key === job.key) &&
    (tag === undefined || job.tags?.includes(tag) === true)
  );
}

/** A client keeps the jobs that it claimed by a call until its lease ends. */
function checkLease({ process, keptUntil, ids }: Run, seen: Observation): Violation[] {
  if (keptUntil === undefined) return [];
  // The client got the time in whole milliseconds.
  const early = seen.movesOf(process).find(({ reason, at }) => reason === 'worker lost' && at < keptUntil - 1);
  return early === undefined ? [] : [seen.violation('a lease lasts as long as was promised', `job ${early.job}`, ids)];
}
