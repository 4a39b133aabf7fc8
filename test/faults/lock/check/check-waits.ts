import type { Violation } from '../../plan.ts';
import type { LockHistory, Operation } from '../history.ts';
import { violation } from './story.ts';

/** The time that a busy machine and a slow store may add to a wait of a process without faults. */
const LATE_MS = 5000;

/** Waits never end early. In a process without faults they end in time. If decisions were not recorded, sightings show the order. */
export function checkWaits(history: LockHistory): Violation[] {
  const timely = history.operations.flatMap((operation) => {
    const rule = brokenRule(history, operation);
    const [name = ''] = operation.step.names;
    return rule === undefined
      ? []
      : [violation(history, rule, operation.id, name, operation.end?.at ?? operation.askedAt)];
  });
  return [...timely, ...(history.decisions.length > 0 ? [] : checkOrder(history))];
}

function brokenRule(
  { calm, wasRestarted }: LockHistory,
  { step, member, askedAt, end }: Operation,
): string | undefined {
  if (end === undefined || end.how !== 'refused' || step.waitMs === null || step.waitMs === 0) return undefined;
  const waitedMs = end.at - askedAt;
  if (end.error === 'LockTimeout' && waitedMs < step.waitMs - 1) return 'no wait ends early';
  const isLate = waitedMs > Math.min(step.waitMs, step.abortMs ?? Infinity) + LATE_MS;
  return calm.has(member) && !wasRestarted && isLate ? 'a wait ends in time' : undefined;
}

/** A client that was seen waiting before the request of another one gets the lock first. For suspended processes this is unknown. */
function checkOrder(history: LockHistory): Violation[] {
  const alone = history.operations.filter(
    ({ step }) => step.capacity === 1 && step.names.length === 1 && step.kind === 'exclusive',
  );
  return history.sightings.flatMap(({ at, name, pid }) => {
    const seen = alone.filter((one) => one.pid === pid && one.step.names[0] === name && isWaiting(one, at));
    const [first] = seen;
    if (first === undefined || seen.length > 1 || !isServed(history, first)) return [];
    const passing = alone.find(
      (other) =>
        other.step.names[0] === name &&
        other.askedAt > at &&
        other.token !== undefined &&
        BigInt(other.token) < BigInt(first.token ?? 0),
    );
    if (passing === undefined) return [];
    const about = `"${name}": ${passing.id} passed ${first.id}, which was seen waiting before`;
    return [violation(history, 'no client passes another in the queue', about, name, at)];
  });
}

function isWaiting({ askedAt, grantedAt, end }: Operation, at: number): boolean {
  return askedAt < at && (grantedAt ?? end?.at ?? Infinity) > at;
}

/** Whether the waiter must be served in order: its process had no fault, it had a place, and it got the lock. */
function isServed({ calm }: LockHistory, { member, step, token }: Operation): boolean {
  return calm.has(member) && step.isFair && step.waitMs !== 0 && token !== undefined;
}
