import { most } from '../../support/long.ts';
import { describeSchedules, openGround } from '../describe-schedules.ts';
import { actorPart } from './part.ts';

/** The usual ones meet every fault that was drawn in all of them. */
const SEEDS = most([1, 2, 3, 4, 5, 6], 1, 2, 4);

describeSchedules('leave actors as they promise', {
  part: actorPart,
  seeds: SEEDS,
  ground: openGround(),
  operations: 30,
});
