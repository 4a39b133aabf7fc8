import type { LeaseLost } from '../errors.ts';
import type { Offer, RecallResult } from '../handoff/handoff.ts';
import type { Budget } from '../time/budget.ts';

/**
 * What a poll has shown of the next one: `more`, there is more to claim at once; `elsewhere`, another shard is to be polled;
 * `contended`, others hold what is there just now; `paused`, nothing may be claimed; or the milliseconds until something is due.
 */
export type NextPoll = 'more' | 'elsewhere' | 'contended' | 'paused' | number;

/** A capability, as its claim loop sees it. A unit is what takes one slot: a job, jobs that run together, a turn of an actor. */
export interface ClaimSource<Unit, Answer, H> {
  /** Lists the worker in the database, and forgets what an earlier id has claimed. @returns its id */
  register(): Promise<number>;
  /** Whether the worker's lease is certainly not over yet. */
  readonly hasLease: boolean;
  /** How many slots are taken by units that run. */
  readonly slotsTaken: number;
  /** Nothing may begin at the same time as what runs. */
  readonly isExclusive: boolean;
  /** How many units there is room for. @param prefetch  so many of them ahead of their slots */
  capacity(prefetch: number): number;
  /** One round trip. Leaves the offer in the database when there is nothing to claim. */
  claim(worker: number, limit: number, offer: Offer | undefined): Promise<Answer>;
  /** How many units an answer brought. */
  countUnits(answer: Answer): number;
  /** Gives what was claimed to the loop: see `ClaimLoop.add`. */
  post(answer: Answer, limit: number): void;
  /** Claims what is not claimed together with the rest, after it. */
  claimApart?(worker: number): Promise<void> | undefined;
  nextPoll(answer: Answer, limit: number): NextPoll;
  /** There may be something to claim, but this worker had no room for it, or its poll failed. */
  noteUnclaimed(): void;
  /** Begins a unit; it may end before this returns. */
  begin(unit: Unit): void;
  /** Gives units back that have not begun. @param why  the worker stops, or they were claimed too far ahead of their slots */
  release(units: readonly Unit[], why: 'stopped' | 'stalled'): void;
  /** Takes what was handed over; there is a slot for it. */
  takeHandoff(handoff: H): void;
  /** Gives back what was handed over: something else has taken the last slot. */
  declineHandoff(handoff: H): void;
  /** Has the database give back what the worker does not know. */
  recall(worker: number): Promise<RecallResult>;
  /** The same before the worker stops, its offers included. */
  leave(worker: number): Promise<void>;
  /** Says whether producers should notify this worker. */
  setWantsNotify(worker: number, wants: boolean): Promise<void>;
  /** The database says that the lease is lost. */
  lost(reason: LeaseLost): void;
  /** Waits for what runs, tells it to end once the time is up, and abandons what does not. */
  drain(time: Budget): Promise<void>;
  /** Writes what became of units. */
  readonly settler: { flushed(): Promise<void>; drop(): void };
  /** Ends everything else that the worker has. */
  close(worker: number | undefined): Promise<void>;
  onError(error: unknown): void;
}

export interface ClaimLoopOptions {
  /** `queue`, in the names of loops, probes and faults. */
  readonly name: string;
  readonly concurrency: number;
  readonly leaseMs: number;
  readonly pollMs: number;
  /** Units claimed ahead of their slots: a number, or as many as the last 50 ms would have run, and the most of these. */
  readonly prefetch: number | 'auto';
  readonly prefetchMax: number;
  /** See {@link AdaptivePrefetch}. */
  readonly aheadMs?: number | undefined;
}
