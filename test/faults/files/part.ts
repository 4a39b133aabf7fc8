import { type Runner, runner } from '../part.ts';
import { checkFiles } from './check.ts';
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
  operations: ({ wishes, rows }) => wishes.length + rows.length,
});
