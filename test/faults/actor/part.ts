import { type Runner, runner } from '../part.ts';
import { checkActors } from './check/check.ts';
import { planForced } from './forced.ts';
import { planActors } from './plan.ts';
import { readPlant } from './plants.ts';
import { playActors } from './play.ts';

/** Actors: orders that sleep, wait for their items and hold their row; counters with raises and messages. */
export const actorPart: Runner = runner({
  name: 'actor',
  plan: planActors,
  forced: (plant) => planForced(readPlant(plant)),
  play: playActors,
  check: checkActors,
  shorten: (plan) => ({ ...plan, producers: plan.producers.map((operations) => operations.slice(0, 25)) }),
  successes: ({ instances, begun, moves }) => ({
    'an actor is created': instances.length,
    'a turn begins': begun.length,
    'a turn is committed': moves.filter(({ from }) => from !== null).length,
  }),
  operations: ({ begun, moves, asked, effects }) => begun.length + moves.length + asked.length + effects.length,
});
