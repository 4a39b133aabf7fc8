import { openGround } from '../describe-schedules.ts';
import { describePlants } from '../plants/describe-plants.ts';
import { QUEUE_ON_DYNAMO } from './local.ts';
import { PLANTS } from './plants.ts';

const ground = openGround();

describePlants('a planted bug is found on DynamoDB', { ...QUEUE_ON_DYNAMO, plants: PLANTS, ground });
