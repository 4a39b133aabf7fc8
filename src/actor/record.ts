import type { Machine } from './machine.ts';

/** The status of an actor. */
export type ActorStatus = 'running' | 'due' | 'napping' | 'hibernating' | 'backing off' | 'paused' | 'held' | 'final';

export const ACTOR_STATUSES: readonly ActorStatus[] = [
  'running',
  'due',
  'napping',
  'hibernating',
  'backing off',
  'paused',
  'held',
  'final',
];

/** One actor, as `list` shows it. */
export interface ActorSummary {
  readonly id: string;
  readonly type: string;
  readonly state: string;
  readonly status: ActorStatus;
  readonly key: string | null;
  readonly parent: string | null;
  readonly attempt: number;
  readonly error: string | null;
  readonly enteredAt: Date;
  readonly wakeAt: Date | null;
  readonly createdAt: Date;
}

/** Everything about one actor. */
export interface ActorRecord extends ActorSummary {
  readonly visit: number;
  readonly epoch: number;
  readonly fields: unknown;
  readonly version: number;
  readonly result: unknown;
  readonly openChildren: number;
  /** How often each semaphore was raised and not yet lowered. */
  readonly semaphores: Readonly<Record<string, number>>;
  /** The number of messages that wait to be received; counted up to 1,000. */
  readonly messages: number;
  /** When each timer of this visit passes or has passed. */
  readonly timers: Readonly<Record<string, Date>>;
  readonly deadlineAt: Date | null;
  readonly finishedAt: Date | null;
  readonly pausedAt: Date | null;
  readonly typePausedAt: Date | null;
  readonly statePausedAt: Date | null;
  /** Why no turn may begin, if a worker found that no program can run the actor. */
  readonly held: string | null;
  /** Turns in a row whose process died or hung. At two, the actor runs alone; at three, it is held. */
  readonly lost: number;
  /** Milliseconds until the actor is due; negative if it has been due for that long. */
  readonly dueInMs: number | null;
  /** The worker that runs a turn of the actor now. */
  readonly worker: {
    readonly id: string;
    readonly process: string;
    readonly claimedAt: Date;
    readonly expiresAt: Date;
    readonly lost: boolean;
  } | null;
  /** The number of live workers that take this type. */
  readonly workers: number;
  /** Actors of its type that are due before it; null unless it is due. Counted up to 10,000. */
  readonly ahead: number | null;
  readonly machine: Machine;
}

/** One row of an actor's history. */
export interface ActorTransition {
  readonly at: Date;
  /** The epoch of the turn; rises from row to row. */
  readonly epoch: number;
  /** Null: the row records the creation. */
  readonly from: string | null;
  readonly to: string;
  readonly reason: string;
  readonly attempt: number;
  readonly error: string | null;
}

/** The change of an actor's fields by one turn. */
export interface FieldChange {
  readonly at: Date;
  /** The epoch of the turn; the same as in its history. */
  readonly epoch: number;
  /** The state in which the turn ran. */
  readonly state: string;
  readonly before: unknown;
  readonly after: unknown;
}

export interface PageRecord {
  readonly id: string;
  readonly tag: string;
  readonly severity: 'info' | 'warning' | 'error' | 'critical';
  readonly status: 'open' | 'acked' | 'resolved';
  readonly summary: string;
  readonly details: unknown;
  readonly actor: string | null;
  readonly root: string | null;
  /** True: another page about the same root was delivered. This page is kept, but was not delivered. */
  readonly suppressed: boolean;
  readonly count: number;
  readonly openedAt: Date;
  readonly seenAt: Date;
  readonly ackedAt: Date | null;
  readonly ackedBy: string | null;
  readonly resolvedAt: Date | null;
}
