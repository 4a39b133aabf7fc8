import { type Runner, runner } from '../part.ts';
import { checkQueue } from './check/check.ts';
import { planForced } from './forced.ts';
import { planQueue } from './plan.ts';
import { readPlant } from './plants.ts';
import { playQueue } from './play.ts';

/**
 * The queue: both holds, keys, coalesced and related kinds, shards, two versions, flows, batches, unique and debounced jobs, groups, dead letters,
 * requests of handlers, changes and pauses by hand, and clients that claim by calls.
 */
export const queuePart: Runner = runner({
  name: 'queue',
  plan: planQueue,
  forced: (plant) => planForced(readPlant(plant)),
  play: playQueue,
  check: checkQueue,
  shorten: (plan) => ({ ...plan, producers: plan.producers.map((operations) => operations.slice(0, 20)) }),
  successes: ({ jobs, runs, moves }) => ({
    'a job is enqueued': jobs.length,
    'a handler ends': runs.filter(({ ended }) => ended !== undefined).length,
    'an attempt is settled': moves.filter(({ process }) => process !== null).length,
  }),
  operations: ({ requests, runs, moves }) => requests.length + runs.length + moves.length,
});
