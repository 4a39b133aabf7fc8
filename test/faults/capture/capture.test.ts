import { describeSchedules, openGround } from '../describe-schedules.ts';
import { capturePart } from './part.ts';

/** With a crash, a failover and a restore; of the first 150 those that cost the least of the processor. */
const SEEDS = [2, 5, 10, 12, 15, 88];

describeSchedules('leave a capture as it promises', {
  part: capturePart,
  seeds: SEEDS,
  ground: openGround(),
  operations: 100,
});
