import { describeSchedules, openGround } from '../describe-schedules.ts';
import { capturePart } from './part.ts';

/** A restore, a failover, a crash, and none of them: of the first 150 seeds, those that cost the least processor time. */
const SEEDS = [2, 10, 12, 5, 15, 88];

describeSchedules('leave a capture as it promises', {
  part: capturePart,
  seeds: SEEDS,
  ground: openGround(),
  operations: 100,
});
