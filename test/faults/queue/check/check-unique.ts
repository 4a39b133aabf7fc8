import type { Violation } from '../../plan.ts';
import { THROTTLE_MS } from '../declaration.ts';
import type { Job, Request, Run } from '../history.ts';
import { groupBy, type Observation, type Span } from './observation.ts';

/** Of jobs of which there is one, another one comes when that does not count any more. */
export function checkUnique(seen: Observation): Violation[] {
  const of = (kind: string): Job[][] => [
    ...groupBy(seen.history.jobs, (job) => (job.kind === kind ? [job.key ?? ''] : [])).values(),
  ];
  return [
    ...of('create').flatMap((jobs) => (jobs.length > 1 ? [wrong('a unique job is there once', jobs, seen)] : [])),
    ...of('only').flatMap((jobs) => checkOutstanding(jobs, seen)),
    ...[...of('waiting'), ...of('replaced')].flatMap((jobs) => checkWaiting(jobs, seen)),
    ...of('throttled').flatMap((jobs) => checkThrottled(jobs, seen)),
    ...checkReplaced(seen),
  ];
}

function wrong(rule: string, jobs: readonly Job[], seen: Observation): Violation {
  const ids = jobs.map(({ id }) => id);
  return seen.violation(rule, `key ${jobs[0]?.key}`, ids);
}

/** The next one is enqueued, or is new again by hand, when the one before it has ended. */
function checkOutstanding(jobs: readonly Job[], seen: Observation): Violation[] {
  const spans = jobs.map((job) => ({ job, outstanding: seen.outstanding(job) }));
  return spans.flatMap(({ job, outstanding }) => {
    const other = spans.find(
      (one) => one.job !== job && outstanding.some(({ from }) => one.outstanding.some((span) => contains(span, from))),
    );
    return other === undefined ? [] : [wrong('one job is outstanding', [other.job, job], seen)];
  });
}

function contains({ from, to }: Span, at: number): boolean {
  return from < at && at < to;
}

/** While one waits, from before another enqueue is asked for until that is committed, this other one is a duplicate. */
function checkWaiting(jobs: readonly Job[], seen: Observation): Violation[] {
  const { clockErrorMs } = seen.history;
  return jobs.flatMap((job) => {
    const from = seen.askedAt(job) - clockErrorMs;
    const to = job.committedAt + clockErrorMs;
    const first = jobs.find(
      (other) =>
        other !== job && other.committedAt < from && seen.busy(other).every((span) => span.to < from || span.from > to),
    );
    return first === undefined ? [] : [wrong('one job waits', [first, job], seen)];
  });
}

function checkThrottled(jobs: readonly Job[], seen: Observation): Violation[] {
  const inOrder = jobs.toSorted((a, b) => a.createdAt - b.createdAt);
  return inOrder.flatMap((job, at) => {
    const before = inOrder[at - 1];
    // The clock is read to a thousandth of a millisecond, and moved by what is no number of them.
    const isEarly = before !== undefined && job.createdAt - before.createdAt < THROTTLE_MS - 0.01;
    return isEarly ? [wrong('a throttled key has one job in its time', [before, job], seen)] : [];
  });
}

/** Where an enqueue gives a job that waits its payload, no older one is run afterwards, and what was rolled back never is. */
function checkReplaced(seen: Observation): Violation[] {
  const requests = seen.history.requests.filter(({ replaces }) => replaces);
  const byNumber = new Map(requests.flatMap((request) => request.numbers.map((n) => [n, request])));
  return requests.flatMap((request) => [
    ...checkNewest(request, byNumber, seen),
    ...(request.how === 'rolled back' || request.outcome === 'refused' ? checkRefused(request, seen) : []),
  ]);
}

function checkNewest(request: Request, byNumber: ReadonlyMap<number, Request>, seen: Observation): Violation[] {
  const { clockErrorMs } = seen.history;
  const { answeredAt = Infinity, askedAt } = request;
  return request.ids.flatMap((id) =>
    seen.runs(id).flatMap((run) => {
      const other = byNumber.get(versionOf(run, id)) ?? request;
      const isOlder = other !== request && (other.answeredAt ?? Infinity) < askedAt - clockErrorMs;
      if (!isOlder) return [];
      const move = seen.movesOf(run.process).find(({ job }) => job === id);
      const isLater = (move?.claimedAt ?? -Infinity) > answeredAt + clockErrorMs;
      if (isLater) return [ofJob('a handler gets what was enqueued last', id, seen)];
      return move?.to === 'complete' ? [ofJob('a payload that replaced another one is run', id, seen)] : [];
    }),
  );
}

function versionOf({ ids, versions }: Run, id: string): number {
  return versions[ids.indexOf(id)] ?? 0;
}

function checkRefused({ numbers }: Request, seen: Observation): Violation[] {
  const run = seen.history.runs.find(
    ({ kind, versions }) => kind === 'replaced' && versions.some((version) => numbers.includes(version)),
  );
  return run === undefined ? [] : [ofJob('a payload that was not committed is never run', run.ids[0] ?? '', seen)];
}

function ofJob(rule: string, id: string, seen: Observation): Violation {
  return seen.violation(rule, `job ${id}`, [id]);
}
