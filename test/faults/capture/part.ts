import { type Runner, runner } from '../part.ts';
import { checkCapture } from './check/check.ts';
import { planForced } from './forced.ts';
import { planCapture } from './plan.ts';
import { playCapture } from './play.ts';

/** A shop in fourteen tables: two projections, a copy in another database, a follower; DDL, crash, failover and restore. */
export const capturePart: Runner = runner({
  name: 'capture',
  plan: planCapture,
  forced: planForced,
  play: playCapture,
  check: checkCapture,
  shorten: (plan) => ({ ...plan, before: plan.before.map((works) => works.slice(0, 40)) }),
  successes: ({ rows, audit, log, journal }) => ({
    'a row is projected': rows,
    'a change is made': audit.length,
    'a change is captured': log.length,
    'a change is followed': journal.length,
  }),
  operations: ({ rows, audit, journal }) => rows * 3 + audit.length + journal.length,
});
