import { LeaseLost, NotSupported } from '../../../base/errors.ts';
import type { Unit } from '../run/unit.ts';

/**
 * The guard of a unit with `hold: 'transaction'`. The claim's own transaction is the proof: writes through `unit.tx` cannot
 * be committed without it.
 * @throws NotSupported  any other transaction @throws LeaseLost  the unit is over
 */
export function guardHeld(unit: Unit, tx: unknown): void {
  if (!unit.isHeldBy(tx)) {
    throw new NotSupported(
      "with hold: 'transaction', guard() takes only unit.tx: another transaction could be committed after the claim's own was " +
        "rolled back, because nothing joins the two; write through unit.tx, or work with hold: 'lease'",
    );
  }
  if (!unit.isOver && unit.abortReason === undefined) return;
  throw new LeaseLost('the unit is over: later writes of its handler are not committed', {
    cause: unit.abortReason,
  });
}
