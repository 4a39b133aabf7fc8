import { openGround } from '../describe-schedules.ts';
import { describePlants } from '../plants/describe-plants.ts';
import { actorPart } from './part.ts';
import { PLANTS } from './plants.ts';

describePlants('a planted bug is found', { part: actorPart, plants: PLANTS, ground: openGround() });
