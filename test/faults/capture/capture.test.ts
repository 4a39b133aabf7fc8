import { describeSchedules, openGround } from '../describe-schedules.ts';
import { capturePart } from './part.ts';

/** With a restore, a failover and a crash, of the first 150 those that cost the least of the processor; and without any of them. */
const SEEDS = [2, 10, 12, 5, 15, 88];

describeSchedules('leave a capture as it promises', {
  part: capturePart,
  seeds: SEEDS,
  ground: openGround(),
  operations: 100,
});
