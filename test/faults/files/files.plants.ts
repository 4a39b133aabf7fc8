import { openGround } from '../describe-schedules.ts';
import { describePlants } from '../plants/describe-plants.ts';
import { filesPart } from './part.ts';
import { LONG_PLANTS, PLANTS } from './plants.ts';

describePlants('a planted bug is found', {
  part: filesPart,
  plants: PLANTS,
  ground: openGround(),
  long: LONG_PLANTS,
});
