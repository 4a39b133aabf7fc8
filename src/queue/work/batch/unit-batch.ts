import type { OpenTransaction } from '../../../engine/postgres/index.ts';
import { Unit } from '../run/unit.ts';

/**
 * The argument of a handler of a kind with `batch`: an array of units, in the order of their claims. Each unit has its own
 * signal, progress, attempt and outcome. No two of them have the same key, unless a key is only a label (`perKey: Infinity`).
 */
export interface UnitBatch<P = unknown> extends ReadonlyArray<Unit<P>> {
  /** Aborted when the signals of all its units are aborted: no work is left. Its `reason` is that of the last unit. */
  readonly signal: AbortSignal;
  /**
   * Like `unit.guard(tx)` for all units, in one round trip: fails unless each of them is still this worker's, and keeps them so
   * until your transaction ends. If one of them was lost, guard each unit that you still work on by `unit.guard(tx)`.
   * @throws LeaseLost  a unit is over, or no longer this worker's: roll back
   */
  guard(tx: OpenTransaction): Promise<void>;
}

/** The handler of a kind with `batch`. */
export type BatchHandler = (units: UnitBatch) => unknown;

/** The units of one call of a batch handler. */
export class GatheredUnits extends Array<Unit> implements UnitBatch {
  /** `map` and `filter` return plain arrays. */
  static override get [Symbol.species](): ArrayConstructor {
    return Array;
  }

  #controller: AbortController | undefined;
  /** The same units as a whole; the handler may see only a part of each. */
  #whole: readonly Unit[] = [];

  /** @param seen  the units as the handler sees them */
  static gather(seen: readonly Unit[], whole: readonly Unit[]): GatheredUnits {
    const gathered = new GatheredUnits();
    for (const unit of seen) gathered.push(unit);
    gathered.#whole = whole;
    return gathered;
  }

  get signal(): AbortSignal {
    this.#controller ??= abortedWithAll(this);
    return this.#controller.signal;
  }

  guard(tx: OpenTransaction): Promise<void> {
    return Unit.guardAll(this.#whole, tx);
  }
}

function abortedWithAll(units: readonly Unit[]): AbortController {
  const controller = new AbortController();
  let left = units.length;
  for (const { signal } of units) {
    const note = (): void => {
      left -= 1;
      if (left === 0) controller.abort(signal.reason);
    };
    if (signal.aborted) note();
    else signal.addEventListener('abort', note, { once: true });
  }
  return controller;
}
