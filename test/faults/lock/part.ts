import { type Runner, runner } from '../part.ts';
import { checkLocks } from './check/check.ts';
import { planForced } from './forced.ts';
import type { LockHistory } from './history.ts';
import { type LockPlan, planLocks } from './plan.ts';
import { playOnDynamo, playOnPostgres } from './play.ts';

/** Only Postgres records its decisions. */
const successes = ({ engine, operations: seen, decisions }: LockHistory): Readonly<Record<string, number>> => ({
  'a lock is granted': seen.filter(({ grantedAt }) => grantedAt !== undefined).length,
  ...(engine === 'postgres' ? { 'a grant is noted': decisions.filter(({ what }) => what === 'grant').length } : {}),
});

/** Three steps of each thread are enough to meet the faults. */
const shorten = (plan: LockPlan): LockPlan => ({
  ...plan,
  clients: plan.clients.map((threads) => threads.map((steps) => steps.slice(0, 3))),
});

const operations = ({ operations: seen, decisions, written }: LockHistory): number =>
  seen.length + decisions.length + written.length;

/** Locks on Postgres: alone, shared, semaphores, sets, runs once in a period. */
export const lockPart: Runner = runner({
  name: 'lock',
  plan: planLocks('postgres'),
  forced: (plant) => planForced('postgres', plant),
  play: playOnPostgres,
  check: checkLocks,
  shorten,
  successes,
  operations,
});

/** Locks on DynamoDB. @param endpoint  of a DynamoDB Local; default: one is started */
export function lockOnDynamo(endpoint?: () => Promise<string>): Runner {
  return runner({
    name: 'lock-dynamodb',
    plan: planLocks('dynamodb'),
    forced: (plant) => planForced('dynamodb', plant),
    play: playOnDynamo(endpoint),
    check: checkLocks,
    shorten,
    successes,
    operations,
  });
}
