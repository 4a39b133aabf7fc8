import { after } from '../../../base/time/clock.ts';
import type { Definition } from '../../definition.ts';
import type { Unit } from '../run/unit.ts';

/** Units of one kind whose batch handler is called once for all of them; together they take one slot. */
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
 * Gathers units of kinds with a batch handler until there are as many as it takes, or until the first of them has waited its time.
 * Units come here when a slot is free, so that under load a batch is what has come meanwhile, and waits for nothing more.
 */
export class Gatherer {
  readonly #piles: ReadonlyMap<string, Pile>;
  readonly #onReady: (gathered: ReadyBatch) => void;
  /** All kinds that the worker takes have a batch handler. */
  readonly #isAll: boolean;

  /** @param handled  the kinds that the worker takes and that have a batch handler @returns undefined when no kind has a batch handler */
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

  /** @returns false when the kind has no batch handler: the unit begins by itself */
  add(unit: Unit): boolean {
    const pile = this.#piles.get(unit.kind);
    if (pile === undefined) return false;
    pile.units.push(unit);
    // A job in its last attempt is not kept waiting: if this process died meanwhile, it would have no attempt left.
    if (pile.units.length >= pile.size) this.#end(unit.kind, pile);
    else if (pile.units.length === 1 || unit.job.claim.isAlone) {
      pile.cancelTimer?.();
      pile.cancelTimer = after(unit.job.claim.isAlone ? 0 : pile.waitMs, () => this.#end(unit.kind, pile));
    }
    return true;
  }

  /**
   * How many units are still to come until a batch has as many as its handler takes. Where other kinds have plain handlers, only
   * those count of which a unit is here: else as many jobs would be claimed for nothing.
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

  /** Nothing more will come: what is here need not wait. */
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
