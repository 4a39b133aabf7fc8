import type { Violation } from '../../plan.ts';
import type { QueueHistory } from '../history.ts';
import { checkEffects } from './check-effects.ts';
import { checkGroups } from './check-groups.ts';
import { checkHands } from './check-hands.ts';
import { checkKeys } from './check-keys.ts';
import { checkMoves } from './check-moves.ts';
import { checkRequests } from './check-requests.ts';
import { checkStops } from './check-stops.ts';
import { checkRates, checkTenants } from './check-tenants.ts';
import { checkTimes } from './check-times.ts';
import { checkUnique } from './check-unique.ts';
import { Observation } from './observation.ts';

/** The events of the history that no queue which keeps its promises can leave. */
export function checkQueue(history: QueueHistory): Violation[] {
  const seen = new Observation(history);
  return [
    ...history.complaints,
    ...checkRequests(seen),
    ...checkMoves(seen),
    ...checkEffects(seen),
    ...checkKeys(seen),
    ...checkGroups(seen),
    ...checkUnique(seen),
    ...checkTenants(seen),
    ...checkRates(seen),
    ...checkTimes(seen),
    ...checkStops(seen),
    ...checkHands(seen),
  ];
}
