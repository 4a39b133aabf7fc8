import { expect, test } from 'vitest';
import { most } from '../../support/long.ts';
import { describeSchedules, openGround, PATIENCE_MS } from '../describe-schedules.ts';
import { NOTHING_HAPPENED } from '../part.ts';
import { LOCK_PARTS } from './engines.ts';
import { lockPart } from './part.ts';
import { FAILURE } from './plants.ts';

const ground = openGround();
/** The seeds of a usual run have several names, `exclusive: 'alone'`, and most kinds of faults. */
const SEEDS = most([1, 2, 3, 4, 5, 6], 3, 4, 5);

describeSchedules('leave locks on Postgres as they promise', {
  ...LOCK_PARTS.postgres,
  seeds: SEEDS,
  ground,
  operations: 10,
});

test('a schedule in which every operation fails breaks a rule, though it leaves nothing wrong behind', {
  timeout: PATIENCE_MS,
}, async () => {
  const { violations } = await lockPart.run(0, ground(), { plant: FAILURE });
  const missing = violations.filter(({ rule }) => rule === NOTHING_HAPPENED).map(({ about }) => about);
  expect(missing).toEqual(['a lock is granted', 'a grant is noted']);
});
