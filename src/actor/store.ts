import type { Handoff } from '../base/handoff/handoff.ts';

/** A claimed actor: what a turn begins with. */
export interface ActorClaim {
  readonly id: number;
  /** The id of its type. */
  readonly type: number;
  readonly state: string;
  readonly visit: number;
  readonly epoch: number;
  readonly attempt: number;
  /** Of its fields. */
  readonly version: number;
  /** How many of its children are not final. */
  readonly children: number;
  /** When it entered its state. */
  readonly enteredMs: number;
  /** 0 when it has none. */
  readonly parent: number;
  /** How often each was raised and not lowered. */
  readonly semaphores: Readonly<Record<string, number>>;
  readonly fields: unknown;
  /** Of this visit, if it has any. */
  readonly timers: TimerTable | undefined;
  /** Why the turn before failed, if it did. */
  readonly error: string | undefined;
  /** Why the actor was moved to its state, if that was a failure. */
  readonly cause: string | undefined;
  /** The database's clock when it was claimed. */
  readonly nowMs: number;
}

/** Since when a timer counts, and when it passes; null: it was cancelled. In ms since 1970, by the database's clock. */
export type TimerTimes = readonly [sinceMs: number, dueMs: number | null];

/** Timers by name. */
export type TimerTable = Readonly<Record<string, TimerTimes>>;

/** What a claim answers. */
export interface ClaimAnswer {
  readonly claims: readonly ActorClaim[];
  /** There is more to do at once. */
  readonly again?: boolean;
  /** Milliseconds until the next actor is due. */
  readonly due?: number;
  /** There was nothing, and the offer that went along was left. */
  readonly offered?: boolean;
}

/** An actor that was claimed for a worker by what came for it. */
export interface ActorHandoff extends Handoff {
  readonly claim: ActorClaim;
}

/** What names a turn in every write: the fencing token. */
export interface TurnToken {
  readonly actor: number;
  readonly epoch: number;
  readonly worker: number;
}

/** What became of a turn, ready to be committed. */
export interface TurnCommit {
  readonly id: number;
  readonly epoch: number;
  /** For the events; not written. */
  readonly attempt: number;
  readonly kind: 'to' | 'stay' | 'done' | 'failed' | 'released';
  /** Milliseconds until it is due again; undefined: it hibernates. */
  readonly waitMs: number | undefined;
  readonly from: string;
  readonly to?: string | undefined;
  readonly reason?: string | undefined;
  /** JSON; undefined when they did not change. */
  readonly fields?: string | undefined;
  readonly version?: number | undefined;
  /** The fields before it are kept: its type wants that. */
  readonly keepsFields?: boolean | undefined;
  readonly delta?: Readonly<Record<string, number>> | undefined;
  /** All of them, as JSON; undefined when they did not change. */
  readonly timers?: string | undefined;
  /** When the first timer passes that has not, in ms since 1970. */
  readonly timerAtMs?: number | undefined;
  readonly deadlineMs?: number | undefined;
  readonly error?: string | undefined;
  /** JSON. */
  readonly result?: string | undefined;
  /** Created by the turn. */
  readonly children?: number | undefined;
}

/** What a commit answers. */
export interface CommitAnswer {
  /** Actors that were no longer this worker's: nothing was written for them. */
  readonly stale: readonly number[];
  /** Turns that would have ended an actor with open children: they were written as failed. */
  readonly refused: readonly number[];
  /** Milliseconds until the first of the others is due again. */
  readonly due?: number;
}

/** A worker, as the database lists it. */
export interface WorkerRow {
  readonly host: string;
  readonly pid: number;
  readonly concurrency: number;
  readonly leaseMs: number;
  readonly types: readonly number[];
  /** By type: its states, and under `$version` that of its fields. */
  readonly knows: Readonly<Record<string, Readonly<Record<string, number>>>>;
  readonly wantsNotify: boolean;
}

/** A message, as the database has it. */
export interface MessageRow {
  readonly id: string;
  readonly name: string;
  readonly payload: unknown;
  /** When it was sent, by the database's clock. */
  readonly at: Date;
  /** Somebody waits for an answer. */
  readonly isAsked: boolean;
}

/** Which messages of an actor are read, oldest first. */
export interface MessageFilter {
  /** Undefined: of any name. */
  readonly name: string | undefined;
  readonly limit: number;
  /** Ids of those that are left out. */
  readonly except: readonly string[];
}

/** A child, as its parent sees it. */
export interface ChildRecord {
  readonly id: string;
  readonly type: string;
  readonly state: string;
  readonly key: string | null;
  readonly isFinal: boolean;
  /** What it gave to `done()`. */
  readonly result: unknown;
  readonly fields: unknown;
}
