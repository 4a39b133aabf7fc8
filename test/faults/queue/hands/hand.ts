import type { Draw } from '../../../support/random.ts';
import type { KindName } from '../declaration.ts';

/** The jobs with this kind, key and tag; a field that is left out matches all. */
export interface Part {
  readonly kind?: KindName;
  readonly key?: string;
  readonly tag?: string;
}

/** A change by hand of a producer. `n` is the number of one of its own jobs. */
export type Hand =
  | { readonly do: 'pause' | 'resume'; readonly part: Part }
  | { readonly do: 'update'; readonly n: number; readonly version: number; readonly delayMs: number | null }
  | { readonly do: 'retry' | 'cancel' | 'finish' | 'erase'; readonly n: number }
  /** Cancels all jobs with a tag, of every producer. */
  | { readonly do: 'cancelAll'; readonly tag: string }
  /** Claims by a call, and works on the jobs. `dies`: the client dies before it settles them. */
  | { readonly do: 'pull'; readonly limit: number; readonly leaseMs: number; readonly dies: boolean };

/** A change by hand, in place of an enqueue. */
export interface ByHand {
  /** The pause of the producer before it. */
  readonly restMs: number;
  readonly hand: Hand;
}

/** Kinds whose jobs are changed by hand: not those that come after another kind, nor those that coalesce. */
const CHANGED: readonly KindName[] = ['plain', 'timed', 'fragile', 'only', 'waiting', 'throttled'];

/** The parts that only this producer pauses. */
export function partsOf(producer: number): readonly Part[] {
  return producer === 0
    ? [{ tag: 'p0' }, { kind: 'timed' }, { kind: 'plain', key: 'k1' }]
    : [{ tag: 'p1' }, { key: 'k2' }, { kind: 'fragile', tag: 'p1' }];
}

/** A job that the producer enqueues before this point of its work. */
export interface EarlierJob {
  readonly n: number;
  readonly kind: KindName;
}

/** Draws changes by hand for a producer, each for one point of its work. */
export class HandDraw {
  readonly #draw: Draw;
  readonly #producer: number;
  readonly #versions = new Map<number, number>();

  constructor(draw: Draw, producer: number) {
    this.#draw = draw;
    this.#producer = producer;
  }

  /** A change of one of these jobs, usually one of the last. @returns undefined if there is none */
  change(known: readonly EarlierJob[]): ByHand | undefined {
    const may = known.filter(({ kind }) => CHANGED.includes(kind)).slice(-6);
    const job = may[this.#draw.int(0, may.length - 1)];
    if (job === undefined) return undefined;
    const { n } = job;
    const what = this.#draw.weighted({ update: 4, retry: 3, cancel: 2, finish: 3, erase: 1 });
    return { restMs: this.#draw.pick(0, 0, 30, 300), hand: what === 'update' ? this.#update(n) : { do: what, n } };
  }

  /** A pause of a part, and its resume. */
  pause(): readonly [ByHand, ByHand] {
    const [first = {}, ...others] = partsOf(this.#producer);
    const part = this.#draw.pick(first, ...others);
    const restMs = (): number => this.#draw.int(0, 200);
    return [
      { restMs: restMs(), hand: { do: 'pause', part } },
      { restMs: restMs(), hand: { do: 'resume', part } },
    ];
  }

  /** Cancels its own tagged jobs that exist by then. */
  cancelAll(): ByHand {
    return { restMs: this.#draw.int(0, 200), hand: { do: 'cancelAll', tag: `p${this.#producer}` } };
  }

  pull(): ByHand {
    const hand: Hand = {
      do: 'pull',
      limit: this.#draw.int(1, 4),
      leaseMs: this.#draw.pick(1000, 1500),
      dies: this.#draw.chance(0.15),
    };
    return { restMs: this.#draw.int(0, 150), hand };
  }

  #update(n: number): Hand {
    const version = (this.#versions.get(n) ?? 0) + 1;
    this.#versions.set(n, version);
    return { do: 'update', n, version, delayMs: this.#draw.chance(0.3) ? this.#draw.int(1, 500) : null };
  }
}
