import { most } from '../../support/long.ts';
import { describeSchedules, openGround } from '../describe-schedules.ts';
import { actorPart } from './part.ts';

/** The seeds of a usual run together draw every fault that the seeds of a long run draw. */
const SEEDS = most([1, 2, 3, 4, 5, 6], 1, 2, 4);

describeSchedules('leave actors as they promise', {
  part: actorPart,
  seeds: SEEDS,
  ground: openGround(),
  operations: 30,
});
