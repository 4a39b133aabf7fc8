import { after } from '../../../base/time/clock.ts';
import type { Definition } from '../../definition.ts';
import type { Unit } from '../run/unit.ts';

/** Units of one kind for one call of its batch handler; together they take one slot. */
export class ReadyBatch {
  readonly kind: string;
  readonly units: readonly Unit[];

  constructor(kind: string, units: readonly Unit[]) {
    this.kind = kind;
    this.units = units;
  }
}

interface Pile {
  readonly size: number;
  readonly waitMs: number;
  units: Unit[];
  cancelTimer: (() => void) | undefined;
}

/**
 * Gathers units of kinds with a batch handler. A batch is ready when it has as many units as its handler takes, or when its first
 * unit has waited its time. Units come here when a slot is free. So under load a batch consists of the units that came meanwhile,
 * and waits for no more.
 */
export class Gatherer {
  readonly #piles: ReadonlyMap<string, Pile>;
  readonly #onReady: (gathered: ReadyBatch) => void;
  /** True: all kinds that the worker takes have a batch handler. */
  readonly #isAll: boolean;

  /**
   * @param handled  the kinds that the worker takes and that have a batch handler
   * @returns undefined if no kind has a batch handler
   */
  static for(
    { kinds }: Pick<Definition, 'kinds'>,
    handled: ReadonlyMap<string, unknown>,
    isAll: boolean,
    onReady: (gathered: ReadyBatch) => void,
  ): Gatherer | undefined {
    const piles = new Map<string, Pile>();
    for (const { name, batch } of kinds.values()) {
      if (batch !== undefined && handled.has(name)) piles.set(name, { ...batch, units: [], cancelTimer: undefined });
    }
    return piles.size === 0 ? undefined : new Gatherer(piles, isAll, onReady);
  }

  private constructor(piles: ReadonlyMap<string, Pile>, isAll: boolean, onReady: (gathered: ReadyBatch) => void) {
    this.#piles = piles;
    this.#isAll = isAll;
    this.#onReady = onReady;
  }

  /** @returns false if the kind has no batch handler: the unit begins on its own */
  add(unit: Unit): boolean {
    const pile = this.#piles.get(unit.kind);
    if (pile === undefined) return false;
    pile.units.push(unit);
    // A job in its last attempt does not wait: if this process died meanwhile, the job would have no attempt left.
    if (pile.units.length >= pile.size) this.#end(unit.kind, pile);
    else if (pile.units.length === 1 || unit.job.claim.isAlone) {
      pile.cancelTimer?.();
      pile.cancelTimer = after(unit.job.claim.isAlone ? 0 : pile.waitMs, () => this.#end(unit.kind, pile));
    }
    return true;
  }

  /**
   * How many more units the batches need until each has as many as its handler takes. If other kinds have plain handlers, only
   * batches count that have a unit: otherwise too many jobs would be claimed.
   */
  get room(): number {
    let room = 0;
    for (const { size, units } of this.#piles.values())
      if (this.#isAll || units.length > 0) room += size - units.length;
    return room;
  }

  /** How many units wait here. */
  get count(): number {
    let count = 0;
    for (const { units } of this.#piles.values()) count += units.length;
    return count;
  }

  get units(): readonly Unit[] {
    return [...this.#piles.values()].flatMap(({ units }) => units);
  }

  /** No further units will come, so the gathered ones need not wait. */
  hurry(): void {
    for (const [kind, pile] of this.#piles) if (pile.units.length > 0) this.#end(kind, pile);
  }

  /** Takes all units out. */
  clear(): readonly Unit[] {
    return [...this.#piles.values()].flatMap(takeAll);
  }

  #end(kind: string, pile: Pile): void {
    this.#onReady(new ReadyBatch(kind, takeAll(pile)));
  }
}

function takeAll(pile: Pile): Unit[] {
  const { units } = pile;
  pile.cancelTimer?.();
  pile.cancelTimer = undefined;
  pile.units = [];
  return units;
}
