/** Numbers that look random and are the same for the same seed (mulberry32). */
export function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

/**
 * Draws for one concern of a seed. Each concern has a stream of its own, so that one more draw for the one leaves the
 * others as they were, and nothing that runs at the same time draws from the same stream.
 */
export class Draw {
  readonly #next: () => number;

  constructor(seed: number, concern: string) {
    let hash = seed | 0;
    for (const letter of concern) hash = Math.imul(hash ^ (letter.codePointAt(0) ?? 0), 0x01000193) + 0x9e3779b9;
    this.#next = seeded(hash);
    // Streams of neighbouring seeds are alike in their first number.
    for (let n = 0; n < 3; n += 1) this.#next();
  }

  chance(probability: number): boolean {
    return this.#next() < probability;
  }

  /** A whole number, both ends included. */
  int(from: number, to: number): number {
    return from + Math.floor(this.#next() * (to - from + 1));
  }

  pick<T>(first: T, ...others: readonly T[]): T {
    const all = [first, ...others];
    return all[this.int(0, all.length - 1)] ?? first;
  }

  /** One of the names, each as often as its weight says. */
  weighted<N extends string>(weights: Readonly<Record<N, number>>): N {
    const names = Object.keys(weights) as N[];
    let left = this.#next() * names.reduce((sum, name) => sum + weights[name], 0);
    return names.find((name) => (left -= weights[name]) < 0) ?? (names[names.length - 1] as N);
  }

  /** So many of them, in any order. */
  some<T>(all: readonly T[], n: number): T[] {
    const left = [...all];
    return Array.from({ length: Math.min(n, all.length) }, () => left.splice(this.int(0, left.length - 1), 1)).flat();
  }
}
