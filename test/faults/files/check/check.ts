import type { Violation } from '../../plan.ts';
import type { FilesHistory } from '../history.ts';
import { checkReads } from './check-reads.ts';
import { checkStore } from './check-store.ts';
import { checkVersions } from './check-versions.ts';
import { Observation } from './observation.ts';

/** What in the history cannot have come from files that keep their promises. */
export function checkFiles(history: FilesHistory): Violation[] {
  const seen = new Observation(history);
  return [...history.complaints, ...checkVersions(seen), ...checkStore(seen), ...checkReads(seen)];
}
