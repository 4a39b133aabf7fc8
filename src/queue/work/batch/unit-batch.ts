import type { OpenTransaction } from '../../../engine/postgres/index.ts';
import { Unit } from '../run/unit.ts';

/**
 * The argument of a handler of a kind with `batch`: an array of units, in the order of their claims. Each has its own signal,
 * progress, attempt and outcome. No two of them have the same key, unless a key is only a label (`perKey: Infinity`).
 */
export interface UnitBatch<P = unknown> extends ReadonlyArray<Unit<P>> {
  /** Aborted when the signals of all its units are: nothing is left to work for. Its `reason` is that of the last one. */
  readonly signal: AbortSignal;
  /**
   * `unit.guard(tx)` of all units, in one round trip: fails unless each of them is still this worker's, and keeps them so until your
   * transaction ends. When one of them was lost, guard those that you still work on by `unit.guard(tx)`.
   * @throws LeaseLost  a unit is over, or no longer this worker's: roll back
   */
  guard(tx: OpenTransaction): Promise<void>;
}

/** The handler of a kind with `batch`. */
export type BatchHandler = (units: UnitBatch) => unknown;

/** The units of one call of a batch handler. */
export class GatheredUnits extends Array<Unit> implements UnitBatch {
  /** What `map` and `filter` make of it is a plain array. */
  static override get [Symbol.species](): ArrayConstructor {
    return Array;
  }

  #controller: AbortController | undefined;
  /** The same, where a handler is shown less of them. */
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
