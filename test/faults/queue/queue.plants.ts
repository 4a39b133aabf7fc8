import { openGround } from '../describe-schedules.ts';
import { describePlants } from '../plants/describe-plants.ts';
import { queuePart } from './part.ts';
import { PLANTS } from './plants.ts';

/** It shows where two places of a tenant run more than 20 jobs a second: a slow machine that plays other plants as well runs fewer. */
const LONG_PLANTS: ReadonlySet<string> = new Set(['a rate has room for all']);

describePlants('a planted bug is found', {
  part: queuePart,
  plants: PLANTS,
  ground: openGround(),
  long: LONG_PLANTS,
});
