import type { Violation } from '../../plan.ts';
import type { Job, Request } from '../history.ts';
import { childrenOf, type Flow, type JobBatch } from '../plan.ts';
import { FINAL, groupBy, type Observation } from './observation.ts';

/** Jobs that belong together: children and parents, batches and their callbacks, dead letters. */
export function checkGroups(seen: Observation): Violation[] {
  const byNumber = new Map(seen.history.jobs.map((job) => [job.n, job]));
  return [
    ...seen.history.requests.flatMap((request) => {
      const all = request.numbers.map((n) => byNumber.get(n));
      const jobs = all.flatMap((job) => job ?? []);
      const { group } = request;
      if (group?.as === 'flow') return checkFlow(group, all, seen);
      return group?.as === 'batch' ? checkBatches(request, group, jobs, seen) : [];
    }),
    ...checkLetters(seen),
  ];
}

/** The first end of a job, by the clock of the database. Later changes by hand do not count. */
function endedAt(job: Job, seen: Observation): number {
  return seen.outstanding(job)[0]?.to ?? Infinity;
}

/** A child begins when all its parents have ended, and their outcomes decide whether it runs. */
function checkFlow(group: Flow, jobs: readonly (Job | undefined)[], seen: Observation): Violation[] {
  return childrenOf(group, jobs).flatMap(({ child, parents }) => {
    const known = parents.flatMap((parent) => parent ?? []);
    if (child === undefined || known.length < parents.length) return [];
    return [...checkTurn(child, known, seen), ...checkFate(group, child, known, seen)];
  });
}

function checkTurn(child: Job, parents: readonly Job[], seen: Observation): Violation[] {
  return seen.runs(child.id).flatMap(({ begunAt }) => {
    const open = parents.find((parent) => endedAt(parent, seen) > begunAt + seen.history.clockErrorMs);
    return open === undefined
      ? []
      : [seen.violation('a child begins after its parents', `job ${child.id}`, [child.id, open.id])];
  });
}

/** The status at the first end of a job; undefined if it has not ended. */
function endOf({ id }: Job, seen: Observation): string | undefined {
  return seen.moves(id).find(({ to }) => FINAL.includes(to))?.to;
}

function checkFate(
  { afterError = 'run', afterCancel = 'run' }: Flow,
  child: Job,
  parents: readonly Job[],
  seen: Observation,
): Violation[] {
  const ends = parents.map((parent) => endOf(parent, seen));
  if (ends.includes(undefined)) return [];
  const byError = ends.includes('error') ? afterError : 'run';
  const fate = byError === 'run' && ends.includes('cancelled') ? afterCancel : byError;
  const [first] = seen.moves(child.id);
  const came = first?.reason === 'parents' ? (first.to === 'error' ? 'error' : 'cancel') : 'run';
  // A person may cancel the child before its parents have ended.
  const isByHand = first?.from === 'new' && first.to === 'cancelled' && first.reason === 'cancel';
  if (came === fate || isByHand || first === undefined) return [];
  const ids = [...parents, child].map(({ id }) => id);
  return [seen.violation(`a child shares the fate of its parents: ${fate}`, `job ${child.id}`, ids)];
}

/** A batch, and the batch inside it, for which it waits. */
function checkBatches(request: Request, group: JobBatch, members: readonly Job[], seen: Observation): Violation[] {
  const { callback, completes, fails, nested } = group;
  const isInner = new Set(nested === undefined ? [] : request.numbers.slice(-nested.n));
  const inner = members.filter(({ n }) => isInner.has(n));
  const isGood = members.every((member) => endOf(member, seen) === 'complete');
  return [
    ...checkBatch(request, callback, members, seen),
    ...checkSide(completes, isGood, callback, members, seen),
    ...checkSide(fails, !isGood, callback, members, seen),
    ...(nested === undefined ? [] : checkBatch(request, nested.callback, inner, seen)),
  ];
}

/** A callback for one outcome is enqueued in the same transaction as the callback for both. */
function checkSide(
  n: number | undefined,
  isMeant: boolean,
  callback: number,
  members: readonly Job[],
  seen: Observation,
): Violation[] {
  const done = seen.history.jobs.find((job) => job.n === callback);
  const calls = seen.history.jobs.filter((job) => job.n === n);
  if (n === undefined || done === undefined || members.length === 0) return [];
  const isRight = isMeant ? calls.length === 1 && calls[0]?.committedAt === done.committedAt : calls.length === 0;
  if (isRight) return [];
  const ids = [...members, done, ...calls].map(({ id }) => id);
  return [seen.violation('a batch calls what its members have come to', `batch that calls ${callback}`, ids)];
}

/** A batch enqueues its callback once: in the transaction that ends its last member, or in the seal if the seal is later. */
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

/** The kind of the dead letters of a job; undefined if the job leaves none. */
function letterKindOf({ kind, onError }: Job): string | undefined {
  return onError ?? (kind === 'fragile' ? 'letter' : undefined);
}

/** A job that ends in error leaves one dead letter, in the same transaction, of the kind that it names. No other end leaves one. */
function checkLetters(seen: Observation): Violation[] {
  const letters = groupBy(seen.history.jobs, ({ letterOf }) =>
    letterOf === null || letterOf === undefined ? [] : [letterOf],
  );
  const leaving = seen.history.jobs.filter((job) => letterKindOf(job) !== undefined).map(({ id }) => id);
  return [...new Set([...letters.keys(), ...leaving])].flatMap((id) => {
    // Its moves were erased with it, but its letter stays.
    if (seen.isErased(id)) return [];
    const left = letters.get(id) ?? [];
    const errors = seen.moves(id).filter(({ to }) => to === 'error');
    const isTogether = errors.every((move, at) => left[at]?.committedAt === move.committedAt);
    const job = seen.job(id);
    const isMeant = job !== undefined && left.every(({ kind }) => kind === letterKindOf(job));
    if (left.length === errors.length && isTogether && (isMeant || left.length === 0)) return [];
    const about = `job ${id}, letters: ${left.map(({ kind }) => kind).join(', ')}`;
    return [seen.violation('a job in error leaves one dead letter', about, [id, ...left.map((letter) => letter.id)])];
  });
}
