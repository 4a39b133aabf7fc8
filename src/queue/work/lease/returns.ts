import { namePart, type StoredPart, setAsideMs } from '../../paused-part.ts';
import { ReadyBatch } from '../batch/gatherer.ts';
import type { Unit } from '../run/unit.ts';
import type { Settler } from '../settle/settler.ts';
import type { Holdings } from './holdings.ts';

interface ReturnsParts {
  readonly holdings: Holdings;
  readonly settler: Settler;
  /** Wakes idle workers of the queue in all processes. */
  readonly wake: () => Promise<void>;
  readonly onError: (error: unknown) => void;
}

/** How long a job of an unknown kind is delayed, so that a worker that knows the kind can claim it. */
const UNKNOWN_KIND_MS = 30_000;

/** Gives back units that have not begun, uncharged, with the units that come after them in their keys. */
export class Returns {
  readonly #parts: ReturnsParts;
  /** True: jobs were given back that idle workers could run now. */
  #hasReleased = false;

  constructor(parts: ReturnsParts) {
    this.#parts = parts;
  }

  get hasReleased(): boolean {
    return this.#hasReleased;
  }

  all(units: readonly (Unit | ReadyBatch)[], why: 'stopped' | 'stalled'): void {
    const reason = why === 'stopped' ? 'worker stopped' : 'claimed too far ahead';
    for (const one of units) {
      for (const unit of one instanceof ReadyBatch ? one.units : [one]) this.#chain(unit, reason, true);
    }
    if (why === 'stalled') this.#wakeOthers();
    else this.#hasReleased = true;
  }

  /** Units that were handed to a worker without a free slot, and are not counted as held. */
  declined(units: readonly Unit[]): void {
    for (const unit of units) this.#parts.settler.release(unit, 'handed to a worker without a free slot', true);
    this.#wakeOthers();
  }

  /** The units after a unit that keeps its key. */
  behind(next: Unit | undefined): void {
    this.#chain(next, 'behind a job of its key', false);
  }

  /** A unit of a paused part of the queue, until that part is resumed. */
  setAside(unit: Unit, part: StoredPart): void {
    this.#delayed(unit, `paused: ${namePart(part)}`, setAsideMs(part));
  }

  /** A unit of an unknown kind, for a newer version of the program. */
  unknownKind(unit: Unit): void {
    this.#delayed(unit, `no handler for kind "${unit.kind}"`, UNKNOWN_KIND_MS);
  }

  #delayed(unit: Unit, reason: string, delayMs: number): void {
    this.#parts.holdings.count -= 1;
    this.behind(unit.next);
    this.#parts.settler.release(unit, reason, true, delayMs);
  }

  #chain(first: Unit | undefined, reason: string, givesUp: boolean): void {
    for (let unit = first; unit !== undefined; unit = unit.next) {
      this.#parts.holdings.count -= 1;
      this.#parts.settler.release(unit, reason, givesUp && unit.next === undefined);
    }
  }

  #wakeOthers(): void {
    const { settler, wake, onError } = this.#parts;
    settler.attempted().then(wake).catch(onError);
  }
}
