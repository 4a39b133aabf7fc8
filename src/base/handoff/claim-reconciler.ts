import { faults } from '../fault.ts';
import { probe } from '../probe.ts';
import type { Handoff, HandoffPort, RecallResult } from './handoff.ts';

export interface ReconcilerOptions<H extends Handoff> {
  /** `queue`, in the names of probes and faults. */
  readonly name: string;
  readonly handoff: HandoffPort;
  /** For so long a look whose answer was lost may still claim something. */
  readonly leaseMs: number;
  readonly pollMs: number;
  /** Takes what was handed over. */
  readonly accept: (handed: H) => void;
  /** Asks for another look. */
  readonly wake: () => void;
}

/**
 * What a worker claims by looking, beside what it is handed: the one must not take the slot of the other, and of neither may
 * anything be claimed for the worker that it never hears of.
 */
export class ClaimReconciler<H extends Handoff> {
  readonly #options: ReconcilerOptions<H>;
  /** What is handed over during a look waits for its end, since it may take the last slot. */
  #isPolling = false;
  #pending: H[] = [];
  /** A look's answer was lost: something may be claimed that the worker does not know of. */
  #needsRecall = false;
  /** Until when such a look may still be committed: a server that was slow, and did not hear that it was cancelled. */
  #lostClaimUntil = -Infinity;
  /** How much the last look asked for. */
  #requested = Infinity;
  #limit = Infinity;

  constructor(options: ReconcilerOptions<H>) {
    this.#options = options;
  }

  /** One look, and what was handed over meanwhile. */
  async run(look: () => Promise<number>): Promise<number> {
    this.#isPolling = true;
    try {
      return await look();
    } finally {
      this.#isPolling = false;
      for (const handed of this.#pending.splice(0)) this.#options.accept(handed);
    }
  }

  /** Something was handed over. */
  receive(handed: H): void {
    if (faults.armed) void faults.reach(`${this.#options.name}.after_handover`).then(() => this.#deliver(handed));
    else this.#deliver(handed);
  }

  #deliver(handed: H): void {
    if (this.#isPolling) this.#pending.push(handed);
    else this.#options.accept(handed);
  }

  /** Whether what was claimed by a look whose answer was lost has not been recalled since. */
  get needsRecall(): boolean {
    return this.#needsRecall;
  }

  /** Whether something may be claimed for this worker that it does not know of. */
  get mayHoldUnknown(): boolean {
    return this.mayHaveLostClaim || this.#options.handoff.isOverdue(this.#options.pollMs / 2);
  }

  /** Whether it may have been claimed by a look, and not only by a hand-over. */
  get mayHaveLostClaim(): boolean {
    return this.#needsRecall || (this.#lostClaimUntil > 0 && performance.now() > this.#lostClaimUntil);
  }

  /**
   * How much a look should ask for. An answer that did not come may have been too large to come in time, and would be so again:
   * half as much is asked for then, and a tenth more after each that brought as much as was asked for. One that found little
   * says nothing about what a full one takes.
   */
  limit(room: number): number {
    this.#requested = Math.min(room, Math.floor(this.#limit));
    return this.#requested;
  }

  /** @param brought  how much there was in it */
  noteAnswer(brought: number): void {
    if (brought >= this.#requested) this.#limit *= 1.1;
  }

  /** Something may be claimed that the worker does not know of. */
  requireRecall(): void {
    this.#needsRecall = true;
  }

  /** The same, and such a look may still be under way. */
  noteLostAnswer(): void {
    this.requireRecall();
    this.#limit = Math.max(1, Math.floor(this.#requested / 2));
    this.#lostClaimUntil = performance.now() + this.#options.leaseMs;
  }

  /** Has the database give back what the worker does not know of. */
  async recall(worker: number, ask: () => Promise<RecallResult>): Promise<void> {
    // What was handed over just now is not known of, either.
    this.dropPending();
    this.#needsRecall = true;
    this.#needsRecall = !(await this.#options.handoff.recall(ask));
    if (this.#needsRecall) this.#options.wake();
    if (performance.now() > this.#lostClaimUntil) this.#lostClaimUntil = -Infinity;
    probe.hit(`${this.#options.name}.recalled`, { worker });
  }

  /** What was handed over and not yet taken is nobody's. */
  dropPending(): void {
    this.#pending = [];
  }
}
