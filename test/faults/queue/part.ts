import { type Runner, runner } from '../part.ts';
import { checkQueue } from './check.ts';
import { planForced } from './forced.ts';
import { planQueue } from './plan.ts';
import { readPlant } from './plants.ts';
import { playQueue } from './play.ts';

/** The queue: both holds, keys, coalesced and related kinds, shards, two versions. */
export const queuePart: Runner = runner({
  name: 'queue',
  plan: planQueue,
  forced: (plant) => planForced(readPlant(plant)),
  play: playQueue,
  check: checkQueue,
  operations: ({ requests, runs, moves }) => requests.length + runs.length + moves.length,
});
