import { openGround } from '../describe-schedules.ts';
import { describePlants } from '../plants/describe-plants.ts';
import { capturePart } from './part.ts';
import { PLANTS } from './plants.ts';

const NAMES = Object.keys(PLANTS);

/** Schedules that take as long as those of all other parts together: only in long runs. */
describePlants('a planted bug is found', {
  part: capturePart,
  plants: NAMES,
  ground: openGround(),
  long: new Set(NAMES),
});
