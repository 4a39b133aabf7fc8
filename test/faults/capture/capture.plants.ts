import { openGround } from '../describe-schedules.ts';
import { describePlants } from '../plants/describe-plants.ts';
import { capturePart } from './part.ts';
import { PLANTS } from './plants.ts';

const NAMES = Object.keys(PLANTS);

/** These schedules take as long as those of all other parts together, so they run only in long runs. */
describePlants('a planted bug is found', {
  part: capturePart,
  plants: NAMES,
  ground: openGround(),
  long: new Set(NAMES),
});
