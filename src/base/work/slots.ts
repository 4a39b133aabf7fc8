import type { ClaimSource } from './claim-source.ts';
import { AdaptivePrefetch, type PrefetchOptions } from './prefetch.ts';

export interface SlotsOptions extends Pick<PrefetchOptions, 'count' | 'max' | 'aheadMs'> {
  readonly concurrency: number;
  /** Nothing begins any more: what comes is given back. */
  readonly isStopping: () => boolean;
  /** Called whenever units may have begun, or slots may have become free. */
  readonly onPumped: () => void;
}

/** What is asked of a capability about the units of its worker. */
export type SlotRunner<Unit> = Pick<
  ClaimSource<Unit, never, never>,
  'slotsTaken' | 'isExclusive' | 'hasLease' | 'begin' | 'release'
>;

/** The slots of a worker, and the claimed units that wait for one: `add` lets a unit wait, `pump` begins it, `ended` frees its slot. */
export class Slots<Unit> {
  readonly #runner: SlotRunner<Unit>;
  readonly #options: SlotsOptions;
  readonly #prefetch: AdaptivePrefetch;
  #waiting: Unit[] = [];
  /** Before all that wait. */
  #following: Unit[] = [];
  #isPumping = false;

  constructor(runner: SlotRunner<Unit>, options: SlotsOptions) {
    this.#runner = runner;
    this.#options = options;
    this.#prefetch = new AdaptivePrefetch({
      ...options,
      waiting: () => this.#waiting.length,
      onStalled: (kept) => runner.release(this.#waiting.splice(kept), 'stalled'),
    });
  }

  /** Units that wait for a slot. */
  get waiting(): readonly Unit[] {
    return this.#waiting;
  }

  /** Units that come before all that wait. */
  get following(): readonly Unit[] {
    return this.#following;
  }

  /** Whether a unit would begin at once. */
  get isFree(): boolean {
    const taken = this.#runner.slotsTaken + this.#following.length + this.#waiting.length;
    return taken < this.#options.concurrency && !this.#runner.isExclusive;
  }

  /** How many units to claim ahead of their slots. */
  get prefetch(): number {
    return this.#prefetch.count;
  }

  /** Too much was claimed ahead. */
  resetPrefetch(): void {
    this.#prefetch.reset();
  }

  add(units: readonly Unit[], first?: readonly Unit[]): void {
    this.#waiting = first === undefined ? this.#waiting.concat(units) : [...first, ...this.#waiting, ...units];
    if (this.#options.isStopping()) this.releaseUnstarted();
    else this.pump();
  }

  addNext(unit: Unit): void {
    this.#following.push(unit);
    this.pump();
  }

  /** Begins what there are slots for. A loop and not a recursion: units may end while they begin. */
  pump(): void {
    if (this.#isPumping) return;
    this.#isPumping = true;
    const runner = this.#runner;
    const { concurrency, isStopping } = this.#options;
    let next = 0;
    while (
      runner.slotsTaken < concurrency &&
      (this.#following.length > 0 || next < this.#waiting.length) &&
      !isStopping() &&
      // What was claimed before this process stood still is somebody else's by now; its renewal is about to say so.
      runner.hasLease
    ) {
      const unit = this.#following.pop() ?? this.#waiting[next++];
      if (unit === undefined) continue;
      this.#prefetch.recordStart();
      runner.begin(unit);
    }
    this.#waiting.splice(0, next);
    this.#isPumping = false;
    this.#prefetch.watch();
    this.#options.onPumped();
  }

  ended(next?: Unit): void {
    this.#prefetch.recordEnd(1);
    if (next !== undefined) this.#following.push(next);
    this.pump();
  }

  /** Gives back what has not begun. */
  releaseUnstarted(): void {
    const units = [...this.#following.splice(0), ...this.#waiting.splice(0)];
    if (units.length > 0) this.#runner.release(units, 'stopped');
  }

  /** The lease is gone, and with it all that was claimed. */
  clear(): void {
    this.#waiting = [];
    this.#following = [];
  }
}
