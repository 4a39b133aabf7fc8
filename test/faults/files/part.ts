import { type Runner, runner } from '../part.ts';
import { checkFiles } from './check/check.ts';
import { planFiles } from './plan.ts';
import { planForced, readPlant } from './plants.ts';
import { playFiles } from './play.ts';

/** Files: clients that write, read and undo, and sweepers, on a disk or a store that speaks S3. */
export const filesPart: Runner = runner({
  name: 'files',
  plan: planFiles,
  forced: (plant) => planForced(readPlant(plant)),
  play: playFiles,
  check: checkFiles,
  shorten: (plan) => ({ ...plan, clients: plan.clients.map((operations) => operations.slice(0, 18)) }),
  successes: ({ wishes, rows }) => ({
    'a version is written': wishes.filter(({ told }) => told !== undefined).length,
    'an object is kept': rows.length,
  }),
  operations: ({ wishes, rows }) => wishes.length + rows.length,
});
