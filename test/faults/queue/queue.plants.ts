import { openGround } from '../describe-schedules.ts';
import { describePlants } from '../plants/describe-plants.ts';
import { queuePart } from './part.ts';
import { PLANTS } from './plants.ts';

describePlants('a planted bug is found', { part: queuePart, plants: PLANTS, ground: openGround() });
