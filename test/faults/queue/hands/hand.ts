import type { Draw } from '../../../support/random.ts';
import type { KindName } from '../declaration.ts';

/** The jobs of a kind, of a key, with a tag, or those that have all that is named. */
export interface Part {
  readonly kind?: KindName;
  readonly key?: string;
  readonly tag?: string;
}

/** What a producer does by hand. `n` is the number of a job that it has enqueued itself. */
export type Hand =
  | { readonly do: 'pause' | 'resume'; readonly part: Part }
  | { readonly do: 'update'; readonly n: number; readonly version: number; readonly delayMs: number | null }
  | { readonly do: 'retry' | 'cancel' | 'finish' | 'erase'; readonly n: number }
  /** All that have a tag, of whichever producer. */
  | { readonly do: 'cancelAll'; readonly tag: string }
  /** Claims by a call, and works on what it gets. `dies`: with it in its hands. */
  | { readonly do: 'pull'; readonly limit: number; readonly leaseMs: number; readonly dies: boolean };

/** What is done by hand in place of an enqueue. */
export interface ByHand {
  /** How long the producer waits first. */
  readonly restMs: number;
  readonly hand: Hand;
}

/** Kinds whose jobs are changed by hand: those with an order of kinds, or of which several are one unit, are left alone. */
const CHANGED: readonly KindName[] = ['plain', 'timed', 'fragile', 'only', 'waiting', 'throttled'];

/** The parts that a producer pauses, and no other process. */
export function partsOf(producer: number): readonly Part[] {
  return producer === 0
    ? [{ tag: 'p0' }, { kind: 'timed' }, { kind: 'plain', key: 'k1' }]
    : [{ tag: 'p1' }, { key: 'k2' }, { kind: 'fragile', tag: 'p1' }];
}

/** A job that was enqueued before this place of a producer's work. */
export interface EarlierJob {
  readonly n: number;
  readonly kind: KindName;
}

/** Draws changes by hand for a producer's work, by the place before which each is done. */
export class HandDraw {
  readonly #draw: Draw;
  readonly #producer: number;
  readonly #versions = new Map<number, number>();

  constructor(draw: Draw, producer: number) {
    this.#draw = draw;
    this.#producer = producer;
  }

  /** A change of one of these jobs, as a rule one of the last. @returns undefined where there is none */
  change(known: readonly EarlierJob[]): ByHand | undefined {
    const may = known.filter(({ kind }) => CHANGED.includes(kind)).slice(-6);
    const job = may[this.#draw.int(0, may.length - 1)];
    if (job === undefined) return undefined;
    const { n } = job;
    const what = this.#draw.weighted({ update: 4, retry: 3, cancel: 2, finish: 3, erase: 1 });
    return { restMs: this.#draw.pick(0, 0, 30, 300), hand: what === 'update' ? this.#update(n) : { do: what, n } };
  }

  /** A part that is paused, and goes on later. */
  pause(): readonly [ByHand, ByHand] {
    const [first = {}, ...others] = partsOf(this.#producer);
    const part = this.#draw.pick(first, ...others);
    const restMs = (): number => this.#draw.int(0, 200);
    return [
      { restMs: restMs(), hand: { do: 'pause', part } },
      { restMs: restMs(), hand: { do: 'resume', part } },
    ];
  }

  /** Of its own tagged jobs those that are there by then. */
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
