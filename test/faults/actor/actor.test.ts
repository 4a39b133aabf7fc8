import { describeSchedules, openGround } from '../describe-schedules.ts';
import { actorPart } from './part.ts';

const SEEDS = [1, 2, 3, 4, 5, 6];

describeSchedules('leave actors as they promise', {
  part: actorPart,
  seeds: SEEDS,
  ground: openGround(),
  operations: 30,
});
