import { InvalidInput } from '../../../base/errors.ts';
import { isThenable } from '../../../base/options/shape.ts';
import type { Unit } from '../run/unit.ts';
import { type BatchHandler, GatheredUnits } from './unit-batch.ts';

interface Member {
  /** The unit as the handler sees it: see `coalesce: 'latest'`. */
  readonly seen: Unit;
  readonly unit: Unit;
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * One call of a batch handler. Each of its units has an attempt of its own, with its checks, its timeout and its outcome. For
 * that attempt, `join` is the handler. When each attempt has called `join`, or has ended before, the batch handler is called with
 * the remaining units. Its return value is divided among them.
 */
export class BatchRun {
  readonly units: readonly Unit[];
  readonly #kind: string;
  readonly #handler: BatchHandler;
  #members: Member[] = [];
  /** The units whose attempt has called `join`. */
  readonly #joined = new Set<Unit>();
  /** The number of attempts that have neither called `join` nor ended. */
  #expected: number;
  /** The number of attempts that have not ended. */
  #left: number;

  constructor(kind: string, units: readonly Unit[], handler: BatchHandler) {
    this.#kind = kind;
    this.units = units;
    this.#handler = handler;
    this.#expected = units.length;
    this.#left = units.length;
  }

  /** The handler of one of its units. @param seen  the unit that is passed to the handler */
  join(unit: Unit, seen: Unit): Promise<unknown> {
    return new Promise((resolve, reject) => {
      this.#members.push({ unit, seen, resolve, reject });
      this.#joined.add(unit);
      this.#arrive();
    });
  }

  /** Called when the attempt of a unit has ended. @returns whether it was the last one */
  end(unit: Unit): boolean {
    this.#left -= 1;
    if (!this.#joined.has(unit)) this.#arrive();
    return this.#left === 0;
  }

  #arrive(): void {
    this.#expected -= 1;
    if (this.#expected > 0) return;
    // While a payload took long to check, other units may have ended, or were told to end.
    for (const { unit, reject } of this.#members) if (unit.abortReason !== undefined) reject(unit.abortReason);
    this.#members = this.#members.filter(({ unit }) => !unit.isOver && unit.abortReason === undefined);
    if (this.#members.length > 0) this.#call();
  }

  #call(): void {
    try {
      const value = this.#handler(
        GatheredUnits.gather(
          this.#members.map(({ seen }) => seen),
          this.#members.map(({ unit }) => unit),
        ),
      );
      if (isThenable(value)) Promise.resolve(value).then(this.#share, this.#fail);
      else this.#share(value);
    } catch (error) {
      this.#fail(error);
    }
  }

  readonly #fail = (error: unknown): void => {
    for (const { reject } of this.#members) reject(error);
  };

  readonly #share = (value: unknown): void => {
    if (value === undefined) {
      for (const { resolve } of this.#members) resolve(undefined);
    } else if (Array.isArray(value) && value.length === this.#members.length) {
      for (const [nth, { resolve, reject }] of this.#members.entries()) {
        const outcome: unknown = value[nth];
        if (outcome instanceof Error) reject(outcome);
        else resolve(outcome);
      }
    } else this.#fail(this.#refusal(value));
  };

  #refusal(value: unknown): InvalidInput {
    const given = Array.isArray(value) ? `an array of ${value.length}` : `a value of type ${typeof value}`;
    return new InvalidInput(
      `the batch handler of kind "${this.#kind}" returned ${given} for ${this.#members.length} units; return nothing, or an array with ` +
        'one result or Error for each unit, in their order',
      { field: 'outcomes' },
    );
  }
}
