import type { Violation } from '../../plan.ts';
import type { Job, Request } from '../history.ts';
import { groupBy, type Observation } from './observation.ts';

/** Jobs that belong together: children and parents, batches and what they call, dead letters. */
export function checkGroups(seen: Observation): Violation[] {
  const byNumber = new Map(seen.history.jobs.map((job) => [job.n, job]));
  return [
    ...seen.history.requests.flatMap((request) => {
      const jobs = request.numbers.flatMap((n) => byNumber.get(n) ?? []);
      if (request.group?.as === 'flow') return checkFlow(jobs, seen);
      return request.group?.as === 'batch' ? checkBatch(request, request.group.callback, jobs, seen) : [];
    }),
    ...checkLetters(seen),
  ];
}

/** When the job ended first, by the clock of the database: what is done with it by hand later does not count. */
function endedAt(job: Job, seen: Observation): number {
  return seen.outstanding(job)[0]?.to ?? Infinity;
}

/** The last job of a flow begins when all others have ended, however they did. */
function checkFlow(jobs: readonly Job[], seen: Observation): Violation[] {
  const child = jobs.at(-1);
  if (child === undefined) return [];
  return seen.runs(child.id).flatMap(({ begunAt }) => {
    const open = jobs.slice(0, -1).find((parent) => endedAt(parent, seen) > begunAt + seen.history.clockErrorMs);
    return open === undefined
      ? []
      : [seen.violation('a child begins after its parents', `job ${child.id}`, [child.id, open.id])];
  });
}

/** A batch calls once: in the transaction that ends its last member, or in its seal if that comes later. */
function checkBatch(request: Request, callback: number, members: readonly Job[], seen: Observation): Violation[] {
  const called = seen.history.jobs.filter(({ n }) => n === callback);
  const wrong = (rule: string): Violation[] => [
    seen.violation(
      rule,
      `batch of ${request.numbers.join(', ')}`,
      [...members, ...called].map(({ id }) => id),
    ),
  ];
  if (called.length > 1) return wrong('a batch calls once');
  const [call] = called;
  const last = Math.max(...members.map((member) => endedAt(member, seen)));
  if (call === undefined) {
    return request.isSealed === true && last < Infinity ? wrong('a batch that is over has called') : [];
  }
  if (members.length === 0) return wrong('what was not committed is never there');
  return last <= call.committedAt ? [] : wrong('a batch calls when its last member has ended');
}

/** A job that ends in error leaves one dead letter, in the same transaction; nothing else leaves any. */
function checkLetters(seen: Observation): Violation[] {
  const letters = groupBy(seen.history.jobs, ({ letterOf }) =>
    letterOf === null || letterOf === undefined ? [] : [letterOf],
  );
  const fragile = seen.history.jobs.filter(({ kind }) => kind === 'fragile').map(({ id }) => id);
  return [...new Set([...letters.keys(), ...fragile])].flatMap((id) => {
    const left = letters.get(id) ?? [];
    const errors = seen.moves(id).filter(({ to }) => to === 'error');
    const isTogether = errors.every((move, at) => left[at]?.committedAt === move.committedAt);
    if (left.length === errors.length && isTogether) return [];
    const about = `job ${id}, ${left.length} letters`;
    return [seen.violation('a job in error leaves one dead letter', about, [id, ...left.map((letter) => letter.id)])];
  });
}
