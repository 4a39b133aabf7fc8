import { faults } from '../fault.ts';
import { probe } from '../probe.ts';
import type { HandedOver, Offers, Recalled } from './direct-handoff.ts';

export interface LooksOptions<Handed extends HandedOver> {
  /** `queue`, in the names of probes and faults. */
  readonly name: string;
  readonly offers: Offers<Handed>;
  /** For so long a look whose answer was lost may still claim something. */
  readonly leaseMs: number;
  readonly pollMs: number;
  /** Takes what was handed over. */
  readonly accept: (handed: Handed) => void;
  /** Asks for another look. */
  readonly wake: () => void;
}

/**
 * What a worker claims by looking, beside what it is handed: the one must not take the slot of the other, and of neither may
 * anything be claimed for the worker that it never hears of.
 */
export class Looks<Handed extends HandedOver> {
  readonly #options: LooksOptions<Handed>;
  /** What is handed over during a look waits for its end, since it may take the last slot. */
  #isLooking = false;
  #handed: Handed[] = [];
  /** A look's answer was lost: something may be claimed that the worker does not know of. */
  #isUnsure = false;
  /** Until when such a look may still be committed: a server that was slow, and did not hear that it was cancelled. */
  #unsureUntil = -Infinity;
  /** How much the last look asked for. */
  #asked = Infinity;
  #most = Infinity;

  constructor(options: LooksOptions<Handed>) {
    this.#options = options;
  }

  /** One look, and what was handed over meanwhile. */
  async run(look: () => Promise<number>): Promise<number> {
    this.#isLooking = true;
    try {
      return await look();
    } finally {
      this.#isLooking = false;
      for (const handed of this.#handed.splice(0)) this.#options.accept(handed);
    }
  }

  /** Something was handed over. */
  hear(handed: Handed): void {
    if (faults.armed) void faults.reach(`${this.#options.name}.after_handover`).then(() => this.#take(handed));
    else this.#take(handed);
  }

  #take(handed: Handed): void {
    if (this.#isLooking) this.#handed.push(handed);
    else this.#options.accept(handed);
  }

  /** Whether what was claimed by a look whose answer was lost has not been recalled since. */
  get isUnsure(): boolean {
    return this.#isUnsure;
  }

  /** Whether something may be claimed for this worker that it does not know of. */
  get isInDoubt(): boolean {
    return this.hasLostAnswer || this.#options.offers.isOverdue(this.#options.pollMs / 2);
  }

  /** Whether it may have been claimed by a look, and not only by a hand-over. */
  get hasLostAnswer(): boolean {
    return this.#isUnsure || (this.#unsureUntil > 0 && performance.now() > this.#unsureUntil);
  }

  /**
   * How much a look should ask for. An answer that did not come may have been too large to come in time, and would be so again:
   * half as much is asked for then, and a tenth more after each that brought as much as was asked for. One that found little
   * says nothing about what a full one takes.
   */
  limit(room: number): number {
    this.#asked = Math.min(room, Math.floor(this.#most));
    return this.#asked;
  }

  /** @param brought  how much there was in it */
  noteAnswer(brought: number): void {
    if (brought >= this.#asked) this.#most *= 1.1;
  }

  /** Something may be claimed that the worker does not know of. */
  doubt(): void {
    this.#isUnsure = true;
  }

  /** The same, and such a look may still be under way. */
  noteLostAnswer(): void {
    this.doubt();
    this.#most = Math.max(1, Math.floor(this.#asked / 2));
    this.#unsureUntil = performance.now() + this.#options.leaseMs;
  }

  /** Has the database give back what the worker does not know of. */
  async recall(worker: number, ask: () => Promise<Recalled>): Promise<void> {
    // What was handed over just now is not known of, either.
    this.forget();
    this.#isUnsure = true;
    this.#isUnsure = !(await this.#options.offers.recall(ask));
    if (this.#isUnsure) this.#options.wake();
    if (performance.now() > this.#unsureUntil) this.#unsureUntil = -Infinity;
    probe.hit(`${this.#options.name}.recalled`, { worker });
  }

  /** What was handed over and not yet taken is nobody's. */
  forget(): void {
    this.#handed = [];
  }
}
