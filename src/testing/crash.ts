import { faults } from '../base/fault.ts';
import { STUB_POINTS } from './stub.ts';

/**
 * The points of a turn at which a dying process leaves different states behind. The points at which bodies most often fail come
 * first.
 */
export const POINTS: readonly string[] = [
  ...STUB_POINTS,
  'actor.after_claim',
  'actor.after_handover',
  'actor.before_commit',
  'actor.between_effects',
  'actor.before_commit_sent',
  'actor.after_commit',
];

/** Crashes the process when a scenario comes to a point for the n-th time. */
export class Crash {
  readonly #point: string;
  readonly #nth: number;
  #disarm = (): void => {};
  /** True: the scenario has reached the point. */
  hasHappened = false;

  constructor(point: string, nth: number) {
    this.#point = point;
    this.#nth = nth;
  }

  get where(): string {
    return `at ${this.#point}, time ${this.#nth}`;
  }

  /** @param die  ends the process: code that waits at the point never continues */
  arm(die: () => void): void {
    const act = (): Promise<never> => {
      this.hasHappened = true;
      die();
      return new Promise(() => {});
    };
    this.#disarm = faults.arm(this.#point, act, { occurrence: this.#nth });
  }

  disarm(): void {
    this.#disarm();
  }
}
