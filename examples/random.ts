/** Numbers that look random and are the same for the same seed (mulberry32, public domain). */
export class Random {
  #state: number;

  constructor(seed: number = Math.floor(Math.random() * 2 ** 31)) {
    this.#state = seed >>> 0;
  }

  /** From 0 up to 1, which is never reached. */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let t = this.#state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  }

  /** A whole number from `min` to `max`, both included. */
  whole(min: number, max: number): number {
    return min + Math.floor(this.next() * (max - min + 1));
  }

  /** One of them; undefined when there is none. */
  pick<T>(from: readonly T[]): T | undefined {
    return from[this.whole(0, from.length - 1)];
  }
}
