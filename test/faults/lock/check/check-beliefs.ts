import { type Hold, violations } from '../../../support/history/history.ts';
import type { Violation } from '../../plan.ts';
import type { HoldEnd, LockHistory, Operation } from '../history.ts';
import { violation } from './story.ts';

/** A holder whose lock was broken learns it at its next renewal: within a third of the lease, and the delay of a busy machine. */
const TELLING_MS = 3000;

/** What holders believe, what they are told, and what they wrote. */
export function checkBeliefs(history: LockHistory): Violation[] {
  return [...checkTogether(history), ...checkEnds(history), ...checkWrites(history), ...checkRuns(history)];
}

/**
 * By the clock that all processes share: whatever the database says, no two believed at once that they hold it alone. From when on
 * it may have been broken, also before it heard that it has it, a holder believes what is not so until it is told.
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

/** Which rule is broken by how a hold ended in the database, and what its owner knew then. */
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
    // Where the server itself stood still no holder could renew.
    return lostReason === 'unreachable' ? undefined : 'no healthy lease is lost';
  }
  // Broken in the moment of its release, it was either.
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

/** Of runs that may happen once in an hour there is one. */
function checkRuns({ operations }: LockHistory): Violation[] {
  const runs = operations.filter(({ end }) => end?.how === 'run').map(({ id }) => id);
  return runs.length > 1 ? [{ rule: 'one run in a period', about: runs.join(', '), story: [] }] : [];
}
