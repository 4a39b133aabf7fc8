import { most } from '../../support/long.ts';
import { describeSchedules, openGround } from '../describe-schedules.ts';
import { QUEUE_ON_DYNAMO } from './local.ts';

const ground = openGround();

describeSchedules('leave a queue on DynamoDB as it promises', {
  ...QUEUE_ON_DYNAMO,
  seeds: most([1, 2, 3, 4, 5, 6], 1),
  ground,
  operations: 10,
});
