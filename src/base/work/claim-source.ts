import type { LeaseLost } from '../errors.ts';
import type { Offer, RecallResult } from '../handoff/handoff.ts';
import type { Budget } from '../time/budget.ts';

/**
 * What a poll says about the next one. `more`: there is more to claim at once. `elsewhere`: poll another shard. `contended`:
 * other transactions hold the work now. `paused`: no unit may be claimed. Or the milliseconds until a unit is due.
 */
export type NextPoll = 'more' | 'elsewhere' | 'contended' | 'paused' | number;

/** A capability, in the form for its claim loop. A unit takes one slot: a job, jobs that run together, a turn of an actor. */
export interface ClaimSource<Unit, Answer, H> {
  /** Registers the worker in the database, and forgets the claims of an earlier id. @returns its id */
  register(): Promise<number>;
  /** Whether the worker's lease has certainly not ended yet. */
  readonly hasLease: boolean;
  /** How many slots running units take. */
  readonly slotsTaken: number;
  /** True: no other unit may begin while the running ones run. */
  readonly isExclusive: boolean;
  /** How many units there is room for. @param prefetch  the number of them ahead of their slots */
  capacity(prefetch: number): number;
  /** Claims units, in one round trip. If there is nothing to claim, the offer stays in the database. */
  claim(worker: number, limit: number, offer: Offer | undefined): Promise<Answer>;
  /** How many units an answer brought. */
  countUnits(answer: Answer): number;
  /** Passes the claimed units to the loop: see `ClaimLoop.add`. */
  post(answer: Answer, limit: number): void;
  /** Claims units that cannot be claimed together with the others, after them. */
  claimApart?(worker: number): Promise<void> | undefined;
  nextPoll(answer: Answer, limit: number): NextPoll;
  /** There may be units to claim, but this worker had no room for them, or its poll failed. */
  noteUnclaimed(): void;
  /** Begins a unit; the unit may end before this returns. */
  begin(unit: Unit): void;
  /** Gives back units that have not begun. @param why  the worker stops, or they were claimed too far ahead of their slots */
  release(units: readonly Unit[], why: 'stopped' | 'stalled'): void;
  /** Takes a unit that was handed over; there is a slot for it. */
  takeHandoff(handoff: H): void;
  /** Gives back a unit that was handed over, because another unit has taken the last slot. */
  declineHandoff(handoff: H): void;
  /** Has the database give back claims that the worker does not know. */
  recall(worker: number): Promise<RecallResult>;
  /** Does the same before the worker stops, and removes its offers. */
  leave(worker: number): Promise<void>;
  /** Writes whether producers should notify this worker. */
  setWantsNotify(worker: number, wants: boolean): Promise<void>;
  /** Called when the database says that the lease is lost. */
  lost(reason: LeaseLost): void;
  /** Waits for running units. Once the time is up, it tells them to end, and abandons those that do not. */
  drain(time: Budget): Promise<void>;
  /** Writes the outcomes of units. */
  readonly settler: { flushed(): Promise<void>; drop(): void };
  /** Ends all other parts of the worker. */
  close(worker: number | undefined): Promise<void>;
  onError(error: unknown): void;
}

export interface ClaimLoopOptions {
  /** `queue`, in the names of loops, probes and faults. */
  readonly name: string;
  readonly concurrency: number;
  readonly leaseMs: number;
  readonly pollMs: number;
  /** Units claimed ahead of their slots: a number, or as many as the last 50 ms would have run; and the upper bound of these. */
  readonly prefetch: number | 'auto';
  readonly prefetchMax: number;
  /** See {@link AdaptivePrefetch}. */
  readonly aheadMs?: number | undefined;
}
