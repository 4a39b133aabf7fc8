import type { Violation } from '../../plan.ts';
import type { LockHistory } from '../history.ts';
import { checkBeliefs } from './check-beliefs.ts';
import { checkDecisions } from './check-decisions.ts';
import { checkWaits } from './check-waits.ts';

/** The events of a history that no locks which keep their promises can leave. */
export function checkLocks(history: LockHistory): Violation[] {
  return [...history.complaints, ...checkDecisions(history), ...checkBeliefs(history), ...checkWaits(history)];
}
