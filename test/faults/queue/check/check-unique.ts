import type { Violation } from '../../plan.ts';
import { THROTTLE_MS } from '../declaration.ts';
import type { Job, Request, Run } from '../history.ts';
import { groupBy, type Observation, type Span } from './observation.ts';

/** A second job of a unique kind is added only when the first one no longer counts. */
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

/** The next job is enqueued, or becomes new again by hand, only when the previous one has ended. */
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

/** If a job waits from before another enqueue begins until that enqueue commits, the other job is a duplicate. */
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
    // The clock is read in microseconds, and moved by an offset that is no whole number of them.
    const isEarly = before !== undefined && job.createdAt - before.createdAt < THROTTLE_MS - 0.01;
    return isEarly ? [wrong('a throttled key has one job in its time', [before, job], seen)] : [];
  });
}

/** If an enqueue replaces the payload of a waiting job, no older payload runs later, and a rolled back payload never runs. */
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
