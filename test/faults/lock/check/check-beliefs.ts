import { type Hold, violations } from '../../../support/history/history.ts';
import type { Violation } from '../../plan.ts';
import type { HoldEnd, LockHistory, Operation } from '../history.ts';
import { violation } from './story.ts';

/** If a lock was broken, its holder learns it at its next renewal: after a third of the lease, plus this delay of a busy machine. */
const TELLING_MS = 3000;

/** The beliefs of holders, the ends that they learn, and their writes. */
export function checkBeliefs(history: LockHistory): Violation[] {
  return [...checkTogether(history), ...checkEnds(history), ...checkWrites(history), ...checkRuns(history)];
}

/**
 * By the clock that all processes share: no two clients believed at one time that they hold a lock alone, whatever the database
 * says. If a lock was broken, even before its holder got the answer to its request, the belief of the holder does not count from
 * then on.
 */
function checkTogether({ operations, written }: LockHistory): Violation[] {
  const breaks = operations.filter(({ step }) => step.kind === 'break');
  const brokenAt = (name: string, from: number): number =>
    Math.min(
      ...breaks
        .filter(({ step, end }) => step.names[0] === name && (end?.how === 'broke' ? end.at : Infinity) > from)
        .map((each) => each.askedAt),
    );
  const holds = operations.flatMap(({ id, step, token, askedAt, grantedAt, believedUntil }): Hold[] =>
    token === undefined || grantedAt === undefined
      ? []
      : step.names.map((name) => {
          const { capacity } = step;
          const until = Math.min(believedUntil ?? grantedAt, brokenAt(name, askedAt));
          return { owner: id, name, capacity, token, asked: askedAt, from: grantedAt, until };
        }),
  );
  const writes = written.map(({ name, value, token }, seq) => ({ name, value, token, seq }));
  return violations(holds, writes).map((about) => ({
    rule: 'what holders believe and write fits together',
    about,
    story: [],
  }));
}

function checkEnds(history: LockHistory): Violation[] {
  const ends = new Map(history.ended.map((end) => [`${end.name} ${end.token}`, end]));
  return history.operations.flatMap((operation) =>
    operation.token === undefined
      ? []
      : operation.step.names.flatMap((name) => {
          const end = ends.get(`${name} ${operation.token}`);
          const broken = end === undefined ? undefined : brokenRule(history, operation, end);
          if (broken === undefined) return [];
          return [violation(history, broken, `${operation.id} on "${name}"`, name, end?.at ?? 0)];
        }),
  );
}

/** The rule that is broken by the end of a hold in the database, compared with the knowledge of its owner. */
function brokenRule(
  { clockErrorMs, calm, wasRestarted }: LockHistory,
  { step, member, believedUntil = 0, lostAt, lostReason, end }: Operation,
  { at, outcome }: HoldEnd,
): string | undefined {
  const graceMs = clockErrorMs + (outcome === 'broken' ? step.leaseMs : 0);
  if (believedUntil > at + graceMs) return 'no holder believes longer than it holds';
  if (!calm.has(member) || wasRestarted || end === undefined) return undefined;
  if (outcome === 'expired') {
    if (end.how === 'released') return 'a release that was acknowledged has happened';
    // If the server itself was suspended, no holder could renew.
    return lostReason === 'unreachable' ? undefined : 'no healthy lease is lost';
  }
  // If a lock is broken at the moment of its release, both outcomes are right.
  if (outcome !== 'broken' || end.how === 'released') return undefined;
  const toldAt = lostAt ?? (end.how === 'lost' ? end.at : Infinity);
  return toldAt > at + step.leaseMs / 3 + TELLING_MS ? 'a holder that loses its lock is told in time' : undefined;
}

function checkWrites(history: LockHistory): Violation[] {
  const { operations, written, decisions } = history;
  const found: Violation[] = [];
  const byOperation = new Map(written.map((write) => [write.op, write]));
  for (const { id, wrote, step, askedAt } of operations) {
    const [name = ''] = step.names;
    if (wrote === 'committed' && !byOperation.has(id))
      found.push(violation(history, 'what was committed is there', id, name, askedAt));
    if (wrote === 'refused' && byOperation.has(id))
      found.push(violation(history, 'what was refused is not there', id, name, askedAt));
  }
  for (const { name, token, committedAt, op } of written) {
    const next = decisions.find(
      (each) =>
        each.what === 'grant' && each.name === name && BigInt(each.token ?? 0) > BigInt(token) && each.at < committedAt,
    );
    if (next === undefined) continue;
    const about = `${op} committed to "${name}" with token ${token} after ${next.token} was granted`;
    found.push(violation(history, 'a guarded commit comes before the next grant', about, name, committedAt));
  }
  return found;
}

/** A run that may happen once in an hour happens once. */
function checkRuns({ operations }: LockHistory): Violation[] {
  const runs = operations.filter(({ end }) => end?.how === 'run').map(({ id }) => id);
  return runs.length > 1 ? [{ rule: 'one run in a period', about: runs.join(', '), story: [] }] : [];
}
