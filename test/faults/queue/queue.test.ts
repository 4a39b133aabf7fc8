import { most } from '../../support/long.ts';
import { describeSchedules, openGround } from '../describe-schedules.ts';
import { queuePart } from './part.ts';

/** Of both holds, with and without related kinds, with a restart of the server, and with several shards. */
const SEEDS = most([2, 4, 7, 11, 12, 23], 7, 12, 23);

describeSchedules('leave a queue as it promises', {
  part: queuePart,
  seeds: SEEDS,
  ground: openGround(),
  operations: 30,
});
