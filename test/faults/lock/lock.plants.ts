import { openGround } from '../describe-schedules.ts';
import { describePlants } from '../plants/describe-plants.ts';
import { LOCK_PARTS } from './engines.ts';
import { plantsOf } from './plants.ts';

const ground = openGround();

for (const engine of ['postgres', 'dynamodb'] as const) {
  describePlants(`a planted bug is found on ${engine}`, { ...LOCK_PARTS[engine], plants: plantsOf(engine), ground });
}
