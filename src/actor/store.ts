import type { Handoff } from '../base/handoff/handoff.ts';

/** A claimed actor: the data with which a turn begins. */
export interface ActorClaim {
  readonly id: number;
  /** The id of its type. */
  readonly type: number;
  readonly state: string;
  readonly visit: number;
  readonly epoch: number;
  readonly attempt: number;
  /** The version of its fields. */
  readonly version: number;
  /** How many of its children are not final. */
  readonly children: number;
  /** When it entered its state. */
  readonly enteredMs: number;
  /** 0 if it has no parent. */
  readonly parent: number;
  /** How often each semaphore was raised and not lowered. */
  readonly semaphores: Readonly<Record<string, number>>;
  readonly fields: unknown;
  /** The timers of this visit, if it has any. */
  readonly timers: TimerTable | undefined;
  /** The error of the previous turn, if that failed. */
  readonly error: string | undefined;
  /** Why the actor was moved to its state, if a failure moved it. */
  readonly cause: string | undefined;
  /** The time of the claim, by the database's clock. */
  readonly nowMs: number;
}

/** When a timer began, and when it passes; null: it was cancelled. In ms since 1970, by the database's clock. */
export type TimerTimes = readonly [sinceMs: number, dueMs: number | null];

/** Timers by name. */
export type TimerTable = Readonly<Record<string, TimerTimes>>;

/** The answer to a claim. */
export interface ClaimAnswer {
  readonly claims: readonly ActorClaim[];
  /** True: there is more to do at once. */
  readonly again?: boolean;
  /** Milliseconds until the next actor is due. */
  readonly due?: number;
  /** True: no actor was due, and the offer that came with the claim was made. */
  readonly offered?: boolean;
}

/** An actor that a producer's call has claimed for a worker. */
export interface ActorHandoff extends Handoff {
  readonly claim: ActorClaim;
}

/** Identifies a turn in every write: the fencing token. */
export interface TurnToken {
  readonly actor: number;
  readonly epoch: number;
  readonly worker: number;
}

/** The outcome of a turn, ready to be committed. */
export interface TurnCommit {
  readonly id: number;
  readonly epoch: number;
  /** For the events; it is not written. */
  readonly attempt: number;
  readonly kind: 'to' | 'stay' | 'done' | 'failed' | 'released';
  /** Milliseconds until it is due again; undefined: it hibernates. */
  readonly waitMs: number | undefined;
  readonly from: string;
  readonly to?: string | undefined;
  readonly reason?: string | undefined;
  /** JSON; undefined if they did not change. */
  readonly fields?: string | undefined;
  readonly version?: number | undefined;
  /** True: the fields before the turn are kept, because the type declares `fieldHistory`. */
  readonly keepsFields?: boolean | undefined;
  readonly delta?: Readonly<Record<string, number>> | undefined;
  /** All timers, as JSON; undefined if they did not change. */
  readonly timers?: string | undefined;
  /** The time of the next timer that has not passed yet, in ms since 1970. */
  readonly timerAtMs?: number | undefined;
  readonly deadlineMs?: number | undefined;
  readonly error?: string | undefined;
  /** JSON. */
  readonly result?: string | undefined;
  /** The number of children that the turn created. */
  readonly children?: number | undefined;
}

/** The answer to a commit. */
export interface CommitAnswer {
  /** Actors that another worker owned by then: nothing was written for them. */
  readonly stale: readonly number[];
  /** Turns that would have ended an actor with open children: they were written as failed. */
  readonly refused: readonly number[];
  /** Milliseconds until the first of the other actors is due again. */
  readonly due?: number;
}

/** A worker, in the form in which the database lists it. */
export interface WorkerRow {
  readonly host: string;
  readonly pid: number;
  readonly concurrency: number;
  readonly leaseMs: number;
  readonly types: readonly number[];
  /** By type: its states, and under `$version` the version of its fields. */
  readonly knows: Readonly<Record<string, Readonly<Record<string, number>>>>;
  readonly wantsNotify: boolean;
}

/** A message, in the form of the database. */
export interface MessageRow {
  readonly id: string;
  readonly name: string;
  readonly payload: unknown;
  /** When it was sent, by the database's clock. */
  readonly at: Date;
  /** True: the sender waits for an answer. */
  readonly isAsked: boolean;
}

/** Which messages of an actor are read, oldest first. */
export interface MessageFilter {
  /** Undefined: messages of any name. */
  readonly name: string | undefined;
  readonly limit: number;
  /** Ids of messages to leave out. */
  readonly except: readonly string[];
}

/** A child, in the form for its parent. */
export interface ChildRecord {
  readonly id: string;
  readonly type: string;
  readonly state: string;
  readonly key: string | null;
  readonly isFinal: boolean;
  /** The result that it passed to `done()`. */
  readonly result: unknown;
  readonly fields: unknown;
}
