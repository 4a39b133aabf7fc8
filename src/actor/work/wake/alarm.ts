import { after } from '../../../base/time/clock.ts';

/** One timer for the earliest of many moments. */
export class Alarm {
  readonly #ring: () => void;
  #at = Infinity;
  #cancel = (): void => {};

  constructor(ring: () => void) {
    this.#ring = ring;
  }

  /** Rings after `ms`, unless it rings earlier anyway. */
  in(ms: number): void {
    const at = performance.now() + ms;
    if (at >= this.#at) return;
    this.#cancel();
    if (ms <= 0) {
      this.#at = Infinity;
      this.#ring();
      return;
    }
    this.#at = at;
    this.#cancel = after(ms, () => {
      this.#at = Infinity;
      this.#ring();
    });
  }

  stop(): void {
    this.#cancel();
    this.#at = -Infinity;
  }
}
