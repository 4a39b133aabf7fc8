import type { Violation } from '../../plan.ts';
import type { FilesHistory } from '../history.ts';
import { checkReads } from './check-reads.ts';
import { checkStore } from './check-store.ts';
import { checkVersions } from './check-versions.ts';
import { Observation } from './observation.ts';

/** The events of the history that no files which keep their promises can leave. */
export function checkFiles(history: FilesHistory): Violation[] {
  const seen = new Observation(history);
  return [...history.complaints, ...checkVersions(seen), ...checkStore(seen), ...checkReads(seen)];
}
