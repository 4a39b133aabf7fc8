import { faults } from '../fault.ts';
import { probe } from '../probe.ts';
import type { Handoff, HandoffPort, RecallResult } from './handoff.ts';

export interface ReconcilerOptions<H extends Handoff> {
  /** `queue`, in the names of probes and faults. */
  readonly name: string;
  readonly handoff: HandoffPort;
  /** For this long, a poll whose answer was lost may still claim units. */
  readonly leaseMs: number;
  readonly pollMs: number;
  /** Takes a unit that was handed over. */
  readonly accept: (handed: H) => void;
  /** Requests another poll. */
  readonly wake: () => void;
}

/**
 * Reconciles the two ways in which a worker gets work: its polls, and hand-offs by producers. Neither may take the slot of the
 * other, and no unit may stay claimed for the worker that the worker does not know.
 */
export class ClaimReconciler<H extends Handoff> {
  readonly #options: ReconcilerOptions<H>;
  /** A hand-off during a poll waits for the end of the poll, which may take the last slot. */
  #isPolling = false;
  #pending: H[] = [];
  /** True: the answer to a poll was lost, so units may be claimed that the worker does not know. */
  #needsRecall = false;
  /** Until this time such a poll may still be committed, by a slow server that the request to cancel did not reach. */
  #lostClaimUntil = -Infinity;
  /** The number of units that the last poll asked for. */
  #requested = Infinity;
  #limit = Infinity;

  constructor(options: ReconcilerOptions<H>) {
    this.#options = options;
  }

  /** Runs one poll, then takes the units that were handed over meanwhile. */
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

  /** Whether the answer to a poll was lost, and its claims have not been recalled since. */
  get needsRecall(): boolean {
    return this.#needsRecall;
  }

  /** Whether units may be claimed for this worker that it does not know. */
  get mayHoldUnknown(): boolean {
    return this.mayHaveLostClaim || this.#options.handoff.isOverdue(this.#options.pollMs / 2);
  }

  /** Whether a poll may have claimed such units, and not only a hand-off. */
  get mayHaveLostClaim(): boolean {
    return this.#needsRecall || (this.#lostClaimUntil > 0 && performance.now() > this.#lostClaimUntil);
  }

  /**
   * How many units a poll should ask for. If an answer did not come, it may have been too large to come in time, and the next one
   * would be, too. So the next poll asks for half as many, and for a tenth more after each answer that brought as many as the
   * poll asked for. An answer with fewer units does not show how long a full one takes.
   */
  limit(capacity: number): number {
    this.#requested = Math.min(capacity, Math.floor(this.#limit));
    return this.#requested;
  }

  /** @param brought  the number of units in the answer */
  noteAnswer(brought: number): void {
    if (brought >= this.#requested) this.#limit *= 1.1;
  }

  /** Units may be claimed that the worker does not know. */
  requireRecall(): void {
    this.#needsRecall = true;
  }

  /** The same, and the poll may still be under way. */
  noteLostAnswer(): void {
    this.requireRecall();
    this.#limit = Math.max(1, Math.floor(this.#requested / 2));
    this.#lostClaimUntil = performance.now() + this.#options.leaseMs;
  }

  /** Has the database give back claims that the worker does not know. */
  async recall(worker: number, ask: () => Promise<RecallResult>): Promise<void> {
    // The worker does not know the latest hand-offs yet, either.
    this.dropPending();
    this.#needsRecall = true;
    this.#needsRecall = !(await this.#options.handoff.recall(ask));
    if (this.#needsRecall) this.#options.wake();
    if (performance.now() > this.#lostClaimUntil) this.#lostClaimUntil = -Infinity;
    probe.hit(`${this.#options.name}.recalled`, { worker });
  }

  /** Forgets hand-offs that were not taken yet. */
  dropPending(): void {
    this.#pending = [];
  }
}
