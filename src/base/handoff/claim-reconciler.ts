import { faults } from '../fault.ts';
import { probe } from '../probe.ts';
import type { Handoff, HandoffPort, RecallResult } from './handoff.ts';

export interface ReconcilerOptions<H extends Handoff> {
  /** `queue`, in the names of probes and faults. */
  readonly name: string;
  readonly handoff: HandoffPort;
  /** For this long a poll whose answer was lost may still claim something. */
  readonly leaseMs: number;
  readonly pollMs: number;
  /** Takes a unit that was handed over. */
  readonly accept: (handed: H) => void;
  /** Asks for another poll. */
  readonly wake: () => void;
}

/**
 * Reconciles the two ways in which a worker gets work: its polls, and what producers hand over to it. Neither may take the slot of
 * the other, and nothing may stay claimed for the worker that it does not know.
 */
export class ClaimReconciler<H extends Handoff> {
  readonly #options: ReconcilerOptions<H>;
  /** A hand-off during a poll waits for the end of the poll, which may take the last slot. */
  #isPolling = false;
  #pending: H[] = [];
  /** The answer to a poll was lost: something may be claimed that the worker does not know. */
  #needsRecall = false;
  /** Until then such a poll may still be committed, by a slow server that the request to cancel did not reach. */
  #lostClaimUntil = -Infinity;
  /** How much the last poll asked for. */
  #requested = Infinity;
  #limit = Infinity;

  constructor(options: ReconcilerOptions<H>) {
    this.#options = options;
  }

  /** Runs one poll, then takes what was handed over meanwhile. */
  async run(poll: () => Promise<number>): Promise<number> {
    this.#isPolling = true;
    try {
      return await poll();
    } finally {
      this.#isPolling = false;
      for (const handed of this.#pending.splice(0)) this.#options.accept(handed);
    }
  }

  /** Takes a hand-off, at once or after the poll that is under way. */
  receive(handed: H): void {
    if (faults.armed) void faults.reach(`${this.#options.name}.after_handover`).then(() => this.#deliver(handed));
    else this.#deliver(handed);
  }

  #deliver(handed: H): void {
    if (this.#isPolling) this.#pending.push(handed);
    else this.#options.accept(handed);
  }

  /** Whether the answer to a poll was lost, and what it claimed has not been recalled since. */
  get needsRecall(): boolean {
    return this.#needsRecall;
  }

  /** Whether something may be claimed for this worker that it does not know. */
  get mayHoldUnknown(): boolean {
    return this.mayHaveLostClaim || this.#options.handoff.isOverdue(this.#options.pollMs / 2);
  }

  /** Whether a poll may have claimed it, and not only a hand-off. */
  get mayHaveLostClaim(): boolean {
    return this.#needsRecall || (this.#lostClaimUntil > 0 && performance.now() > this.#lostClaimUntil);
  }

  /**
   * How much a poll should ask for. An answer that did not come may have been too large to come in time, and would be so again: the
   * next poll asks for half as much, and for a tenth more after each answer that brought all that was asked for. An answer that
   * brought less says nothing about how long a full one takes.
   */
  limit(capacity: number): number {
    this.#requested = Math.min(capacity, Math.floor(this.#limit));
    return this.#requested;
  }

  /** @param brought  how much the answer brought */
  noteAnswer(brought: number): void {
    if (brought >= this.#requested) this.#limit *= 1.1;
  }

  /** Something may be claimed that the worker does not know. */
  requireRecall(): void {
    this.#needsRecall = true;
  }

  /** The same, and the poll may still be under way. */
  noteLostAnswer(): void {
    this.requireRecall();
    this.#limit = Math.max(1, Math.floor(this.#requested / 2));
    this.#lostClaimUntil = performance.now() + this.#options.leaseMs;
  }

  /** Has the database give back what the worker does not know. */
  async recall(worker: number, ask: () => Promise<RecallResult>): Promise<void> {
    // The worker does not know what was handed over just now, either.
    this.dropPending();
    this.#needsRecall = true;
    this.#needsRecall = !(await this.#options.handoff.recall(ask));
    if (this.#needsRecall) this.#options.wake();
    if (performance.now() > this.#lostClaimUntil) this.#lostClaimUntil = -Infinity;
    probe.hit(`${this.#options.name}.recalled`, { worker });
  }

  /** Forgets what was handed over and not yet taken. */
  dropPending(): void {
    this.#pending = [];
  }
}
