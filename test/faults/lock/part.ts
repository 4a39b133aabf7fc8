import { type Runner, runner } from '../part.ts';
import { checkLocks } from './check.ts';
import { planForced } from './forced.ts';
import type { LockHistory } from './history.ts';
import { planLocks } from './plan.ts';
import { playOnDynamo, playOnPostgres } from './play.ts';

const operations = ({ operations: seen, decisions, written }: LockHistory): number =>
  seen.length + decisions.length + written.length;

/** Locks on Postgres: alone, shared, semaphores, sets, runs once in a period. */
export const lockPart: Runner = runner({
  name: 'lock',
  plan: planLocks('postgres'),
  forced: (plant) => planForced('postgres', plant),
  play: playOnPostgres,
  check: checkLocks,
  operations,
});

/** The same on DynamoDB. @param endpoint  of a DynamoDB Local; without, one is started */
export function lockOnDynamo(endpoint?: () => Promise<string>): Runner {
  return runner({
    name: 'lock-dynamodb',
    plan: planLocks('dynamodb'),
    forced: (plant) => planForced('dynamodb', plant),
    play: playOnDynamo(endpoint),
    check: checkLocks,
    operations,
  });
}
