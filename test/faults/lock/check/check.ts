import type { Violation } from '../../plan.ts';
import type { LockHistory } from '../history.ts';
import { checkBeliefs } from './check-beliefs.ts';
import { checkDecisions } from './check-decisions.ts';
import { checkWaits } from './check-waits.ts';

/** What in a history cannot have come from locks that keep their promises. */
export function checkLocks(history: LockHistory): Violation[] {
  return [...history.complaints, ...checkDecisions(history), ...checkBeliefs(history), ...checkWaits(history)];
}
