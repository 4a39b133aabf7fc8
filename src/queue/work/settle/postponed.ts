import { sleep } from '../../../base/time/clock.ts';
import type { Unit } from '../run/unit.ts';
import type { PendingSettlement } from './settlement.ts';

/** How long an outcome is postponed, behind all others, if it cannot be written alone. */
const POSTPONE_MS = 500;

/** By shard: outcomes that could not be written, and other outcomes of their keys, because a later one may give up the key. */
export class PostponedOutcomes {
  readonly #onDue: (outcomes: ReadonlyMap<number, readonly PendingSettlement[]>) => void;
  #outcomes = new Map<number, PendingSettlement[]>();
  #waiting: Promise<void> | undefined;

  /** @param onDue  takes back all of them, to try them again */
  constructor(onDue: (outcomes: ReadonlyMap<number, readonly PendingSettlement[]>) => void) {
    this.#onDue = onDue;
  }

  get isEmpty(): boolean {
    return this.#outcomes.size === 0;
  }

  /** Resolves when they are taken back; undefined if none is postponed. */
  get waiting(): Promise<void> | undefined {
    return this.#waiting;
  }

  /** Postpones outcomes, together with the others of their keys. @returns the rest of `pending` */
  add(
    shard: number,
    pending: readonly PendingSettlement[],
    these: readonly PendingSettlement[],
  ): readonly PendingSettlement[] {
    const goesAlong = (other: PendingSettlement): boolean =>
      these.some((one) => other === one || other.unit === one.unit || isOfSameKey(other.unit, one.unit));
    for (const one of pending.filter(goesAlong)) append(this.#outcomes, shard, one);
    this.#waiting ??= sleep(POSTPONE_MS).then(() => {
      this.#waiting = undefined;
      const due = this.#outcomes;
      this.#outcomes = new Map();
      this.#onDue(due);
    });
    return pending.filter((other) => !goesAlong(other));
  }

  /** Postpones outcomes of keys with postponed ones. @returns the others */
  addBehind(shard: number, recent: readonly PendingSettlement[]): readonly PendingSettlement[] {
    const later = this.#outcomes.get(shard);
    if (later === undefined) return recent;
    const [behind, free] = partition(recent, later);
    later.push(...behind);
    return free;
  }

  clear(): void {
    this.#outcomes = new Map();
  }
}

export function append(lists: Map<number, PendingSettlement[]>, shard: number, settled: PendingSettlement): void {
  const list = lists.get(shard);
  if (list === undefined) lists.set(shard, [settled]);
  else list.push(settled);
}

/** @returns the outcomes that share a key with one of `before`, and the others */
export function partition(
  settled: readonly PendingSettlement[],
  before: readonly PendingSettlement[],
): [behind: PendingSettlement[], free: PendingSettlement[]] {
  const keys = new Set(before.map(({ unit }) => unit.key));
  keys.delete(null);
  const behind: PendingSettlement[] = [];
  const free: PendingSettlement[] = [];
  for (const one of settled) (keys.has(one.unit.key) ? behind : free).push(one);
  return [behind, free];
}

function isOfSameKey(one: Unit, other: Unit): boolean {
  return one.key !== null && one.key === other.key && one.epoch === other.epoch;
}
