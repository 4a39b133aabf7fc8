import { most } from '../../support/long.ts';
import { describeSchedules, openGround } from '../describe-schedules.ts';
import { queuePart } from './part.ts';

// Invariants P1, P2, P3, P4, J1, J2, J4, J6, J7, J8, J9, J10, J11, J18, J20, J21.
/** These have both holds, related kinds and none, a restart of the server, and several shards. */
const SEEDS = most([2, 4, 7, 11, 12, 23], 7, 12, 23);

describeSchedules('leave a queue as it promises', {
  part: queuePart,
  seeds: SEEDS,
  ground: openGround(),
  operations: 30,
});
