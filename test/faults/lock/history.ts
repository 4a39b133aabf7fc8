import type { Note } from '../member/member.ts';
import type { Violation } from '../plan.ts';
import type { EngineName, Step } from './plan.ts';

/** The notes of a client. `op`: its thread and the number of the step. */
export type ClientEvent =
  | { readonly do: 'ask'; readonly op: string; readonly step: Step }
  | { readonly do: 'granted'; readonly op: string; readonly token: string }
  /** It checked whether it holds the lock; the check began at `at`. */
  | { readonly do: 'look'; readonly op: string; readonly isHeld: boolean }
  | { readonly do: 'lost'; readonly op: string; readonly reason: string }
  | { readonly do: 'wrote'; readonly op: string; readonly how: 'committed' | 'refused' | 'unknown' }
  | { readonly do: 'ended'; readonly op: string; readonly how: End; readonly error?: string }
  /** Its event loop, or the machine, was blocked for this time. */
  | { readonly do: 'lag'; readonly ms: number }
  | { readonly do: 'done'; readonly thread: number };

/** `refused`: the lock was not granted. `run`, `not run`: of a run once in a period. */
export type End = 'released' | 'lost' | 'failed' | 'refused' | 'run' | 'not run' | 'broke';

/** One step, as its client saw it. Times are of the clock that all processes share. */
export interface Operation {
  readonly id: string;
  readonly member: string;
  readonly pid: number;
  readonly step: Step;
  readonly askedAt: number;
  grantedAt: number | undefined;
  token: string | undefined;
  /** The last moment at which it certainly believed that it holds the lock. */
  believedUntil: number | undefined;
  lostAt: number | undefined;
  lostReason: string | undefined;
  wrote: 'committed' | 'refused' | 'unknown' | undefined;
  /** Undefined: its process was killed before the end. */
  end: { readonly at: number; readonly how: End; readonly error: string | undefined } | undefined;
}

/** A guarded write that was committed, in the order of the commits. */
export interface Written {
  readonly op: string;
  readonly name: string;
  readonly value: number;
  readonly token: string;
  readonly committedAt: number;
}

/** A decision of the database about a name, in the order of the decisions. Postgres only. */
export interface Decision {
  readonly at: number;
  /** A place was taken, renewed or removed; or the lock was granted. */
  readonly what: 'place' | 'kept' | 'gone' | 'grant';
  readonly name: string;
  readonly nonce: string;
  readonly capacity: number;
  readonly ticket: number | undefined;
  readonly token: string | undefined;
  readonly expiresAt: number;
  /** The transaction: its decisions are made together. */
  readonly transaction: string;
}

/** The end of a hold. Postgres only. */
export interface HoldEnd {
  readonly name: string;
  readonly token: string;
  readonly at: number;
  readonly outcome: 'released' | 'broken' | 'expired';
}

/** A waiter that was seen in the queue. */
export interface Sighting {
  readonly at: number;
  readonly name: string;
  readonly pid: number;
}

/** A violation in addition to those of the operations. */
export type Complaint = Violation;

export interface LockHistory {
  readonly engine: EngineName;
  readonly operations: readonly Operation[];
  readonly written: readonly Written[];
  readonly decisions: readonly Decision[];
  readonly ended: readonly HoldEnd[];
  readonly sightings: readonly Sighting[];
  /** Members that met no fault except steps of their clock, and that were not blocked. */
  readonly calm: ReadonlySet<string>;
  /** The server was restarted: a release without a waiter may be forgotten. */
  readonly wasRestarted: boolean;
  readonly complaints: readonly Complaint[];
  /** The greatest difference between a time of the database and a time of the processes. */
  readonly clockErrorMs: number;
}

/** Makes operations of the notes of all members. */
export function toOperations(events: readonly Note<ClientEvent>[]): Operation[] {
  const all = new Map<string, Operation>();
  for (const event of events.toSorted((a, b) => a.at - b.at)) {
    const { member, pid, at } = event;
    if (event.do === 'lag' || event.do === 'done') continue;
    const id = `${member}/${event.op}`;
    if (event.do === 'ask') {
      const nothing = { grantedAt: undefined, token: undefined, believedUntil: undefined, lostAt: undefined };
      const later = { lostReason: undefined, wrote: undefined, end: undefined };
      all.set(id, { id, member, pid, step: event.step, askedAt: at, ...nothing, ...later });
    }
    const operation = all.get(id);
    if (operation !== undefined) add(operation, event, at);
  }
  return [...all.values()];
}

function add(operation: Operation, event: ClientEvent, at: number): void {
  switch (event.do) {
    case 'granted':
      Object.assign(operation, { grantedAt: at, token: event.token, believedUntil: at });
      break;
    case 'look':
      if (event.isHeld) operation.believedUntil = Math.max(at, operation.believedUntil ?? at);
      break;
    case 'lost':
      Object.assign(operation, { lostAt: at, lostReason: event.reason });
      break;
    case 'wrote':
      operation.wrote = event.how;
      break;
    case 'ended':
      operation.end = { at, how: event.how, error: event.error };
      break;
    case 'ask':
    case 'lag':
    case 'done':
  }
}
