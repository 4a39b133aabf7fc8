import { most } from '../../../support/long.ts';
import { describeSchedules, openGround } from '../../describe-schedules.ts';
import { LOCK_PARTS } from '../engines.ts';

const ground = openGround();

describeSchedules('leave locks on DynamoDB as they promise', {
  ...LOCK_PARTS.dynamodb,
  // The same seeds as on Postgres.
  seeds: most([1, 2, 3, 4, 5, 6], 3, 4, 5),
  ground,
  operations: 10,
});
