import type { Note } from '../member/member.ts';
import type { KindName } from './declaration.ts';
import type { HeldJobs } from './effect.ts';
import type { Hand } from './hands/hand.ts';
import type { Group, Hold } from './plan.ts';

/** The hold of a unit: of a worker, or of a client that has claimed it by a call. */
export type RunHold = Hold | 'pull';

/** The notes of a worker, or of a client that claims by calls. `process` is the unit's processId. */
export type WorkerEvent =
  | {
      readonly do: 'begin';
      readonly process: string;
      /** The jobs as the handler sees them: with `coalesce: 'latest'`, only the newest. */
      readonly ids: readonly string[];
      readonly kind: string;
      readonly key: string | null;
      readonly attempt: number;
      readonly token: string;
      readonly hold: RunHold;
      /** How often the payload of each was changed by hand. */
      readonly versions: readonly number[];
      /** The call of a batch handler that it is part of. */
      readonly call?: string;
    }
  /** The lease does not end before this time, in milliseconds of the database's clock. */
  | { readonly do: 'kept'; readonly process: string; readonly until: number }
  | { readonly do: 'end'; readonly process: string; readonly how: string }
  | { readonly do: 'lost' }
  | { readonly do: 'stale' };

/** The notes of a producer. */
export type ProducerEvent =
  | {
      readonly do: 'ask';
      readonly operation: number;
      readonly numbers: readonly number[];
      readonly how: 'alone' | 'committed' | 'rolled back';
      readonly group?: Group | undefined;
      /** Each job of the request gives its payload to a waiting job of its key. */
      readonly replaces: boolean;
    }
  | { readonly do: 'sealed'; readonly operation: number }
  | {
      readonly do: 'told';
      readonly operation: number;
      readonly ids: readonly string[];
      /** The indexes of jobs that existed already. */
      readonly duplicates: readonly number[];
    }
  /** The producer is about to make a change by hand; `id` is that of the job. */
  | { readonly do: 'hand'; readonly operation: number; readonly hand: Hand; readonly id?: string | undefined }
  | { readonly do: 'handed'; readonly operation: number }
  | { readonly do: 'failed'; readonly operation: number; readonly error: string; readonly isUnknown: boolean }
  | { readonly do: 'cancel'; readonly id: string }
  | { readonly do: 'not cancelled'; readonly id: string; readonly error: string }
  | { readonly do: 'done' };

/** Times are milliseconds of the clock of the notes; those of the database are moved to it. */
export interface Request {
  readonly numbers: readonly number[];
  readonly askedAt: number;
  readonly how: 'alone' | 'committed' | 'rolled back';
  /** The outcome, as far as its producer knows. Unknown also if the producer died before the answer. */
  readonly outcome: 'acknowledged' | 'refused' | 'unknown';
  /** If acknowledged: the ids, in the order of `numbers`. */
  readonly ids: readonly string[];
  /** The numbers of jobs that existed already: their ids are those of other jobs. */
  readonly duplicates: ReadonlySet<number>;
  readonly group?: Group | undefined;
  /** Each job of the request gives its payload to a waiting job of its key, and is then a duplicate. */
  readonly replaces?: boolean | undefined;
  /** When it was acknowledged. */
  readonly answeredAt?: number | undefined;
  /** True: the seal of its batch was acknowledged. */
  readonly isSealed?: boolean | undefined;
}

/** A call of a handler. */
export interface Run {
  readonly process: string;
  readonly member: string;
  readonly pid: number;
  readonly hold: RunHold;
  readonly ids: readonly string[];
  readonly kind: KindName;
  readonly key: string | null;
  readonly attempt: number;
  readonly token: bigint;
  readonly begunAt: number;
  /** How often the payload of each was changed by hand, as this run saw it. */
  readonly versions: readonly number[];
  /** The call of a batch handler that it is part of. */
  readonly call?: string | undefined;
  /** The promised end of its lease. */
  readonly keptUntil?: number | undefined;
  /** Absent if its process died before, or if the handler never ended. */
  readonly ended?: { readonly at: number; readonly how: string } | undefined;
}

/** A row of queue_job. */
export interface Job {
  readonly id: string;
  /** 0 for a dead letter. */
  readonly n: number;
  /** The job of this dead letter. */
  readonly letterOf?: string | null | undefined;
  /** The kind that the job names for its dead letters. */
  readonly onError?: string | null | undefined;
  readonly kind: KindName;
  readonly key: string | null;
  readonly tenant?: string | null | undefined;
  readonly isDelayed: boolean;
  /** The time of the database at its enqueue. */
  readonly createdAt: number;
  /** The time by which the job must begin. */
  readonly expiresAt?: number | undefined;
  readonly tags?: readonly string[] | undefined;
  readonly committedAt: number;
  /** Its status at the end of the schedule. */
  readonly status: string;
}

/** A committed move of a job, as the database stores it. */
export interface Move {
  readonly job: string;
  readonly from: string;
  readonly to: string;
  readonly reason: string;
  readonly attempt: number;
  /** The process of the attempt that it ended; null if it ended none. */
  readonly process: string | null;
  readonly claimedAt: number | null;
  /** The time that the writing transaction read. */
  readonly at: number;
  readonly committedAt: number;
  /** The id of the transaction that wrote it. */
  readonly xid: string;
}

/** A committed row of a handler: of a guarded transaction, or of the transaction of its claim. */
export interface Effect {
  readonly job: string;
  readonly process: string;
  readonly token: bigint;
  readonly attempt: number;
  readonly committedAt: number;
  readonly xid: string;
}

/** A requested change by hand. */
export interface Change {
  readonly hand: Hand;
  readonly member: string;
  /** The id of the job. */
  readonly id: string;
  readonly askedAt: number;
  readonly outcome: 'acknowledged' | 'refused' | 'unknown';
  /** When it was acknowledged or refused; Infinity if the outcome is unknown. */
  readonly answeredAt: number;
}

/** The data of the checker. */
export interface QueueHistory {
  readonly requests: readonly Request[];
  readonly runs: readonly Run[];
  readonly jobs: readonly Job[];
  readonly moves: readonly Move[];
  readonly effects: readonly Effect[];
  readonly changes: readonly Change[];
  /** The greatest difference between the clocks of a note and of a commit. */
  readonly clockErrorMs: number;
  /** Whether tenants have the rate of the declaration. */
  readonly hasRate: boolean;
  /** How many jobs of a tenant run at a time. */
  readonly perTenant: number;
  /** Violations that were seen from outside: broken invariants, jobs that are not settled in time, locks that are left. */
  readonly complaints: readonly Complaint[];
}

export interface Complaint {
  readonly rule: string;
  readonly about: string;
  readonly story: readonly string[];
}

/** Makes requests of the notes of producers. */
export function toRequests(events: readonly Note<ProducerEvent>[]): Request[] {
  const asked = events.filter((event) => event.do === 'ask');
  return asked.map(({ member, operation, numbers, at, how, group, replaces }) => {
    const mine = events.filter((event) => event.member === member);
    const told = mine.find((event) => event.do === 'told' && event.operation === operation);
    const failed = mine.find((event) => event.do === 'failed' && event.operation === operation);
    const isRefused = failed?.do === 'failed' && !failed.isUnknown;
    return {
      numbers,
      askedAt: at,
      how,
      outcome: told !== undefined ? 'acknowledged' : isRefused ? 'refused' : 'unknown',
      ids: told?.do === 'told' ? told.ids : [],
      duplicates: new Set(told?.do === 'told' ? told.duplicates.flatMap((place) => numbers[place] ?? []) : []),
      group,
      replaces,
      answeredAt: told?.at,
      isSealed: mine.some((event) => event.do === 'sealed' && event.operation === operation),
    };
  });
}

/** Makes runs of the notes of workers and clients. @param offset  of the database's clock */
export function toRuns(events: readonly Note<WorkerEvent | ProducerEvent>[], offset: number): Run[] {
  const open = new Map<string, { at: number; how: string }>();
  const kept = new Map<string, number>();
  for (const event of events) {
    if (event.do === 'kept') kept.set(event.process, Math.max(event.until - offset, kept.get(event.process) ?? 0));
    if (event.do === 'end') open.set(`${event.pid} ${event.process}`, { at: event.at, how: event.how });
  }
  return events.flatMap((event): Run[] => {
    if (event.do !== 'begin') return [];
    const { process, member, pid, hold, ids, key, attempt, token, at, versions, call } = event;
    const kind = event.kind as KindName;
    const ended = open.get(`${pid} ${process}`);
    const keptUntil = kept.get(process);
    const run = { process, member, pid, hold, ids, kind, key, attempt, token: BigInt(token), versions, call };
    return [{ ...run, begunAt: at, ended, keptUntil }];
  });
}

/** Makes changes by hand of the notes of producers. */
export function toChanges(events: readonly Note<ProducerEvent>[]): Change[] {
  return events.flatMap((event): Change[] => {
    if (event.do !== 'hand') return [];
    const { hand, member, at, operation, id = '' } = event;
    const answer = events.find(
      (other) =>
        (other.do === 'handed' || other.do === 'failed') && other.member === member && other.operation === operation,
    );
    const isUnknown = answer === undefined || (answer.do === 'failed' && answer.isUnknown);
    const outcome = isUnknown ? 'unknown' : answer.do === 'handed' ? 'acknowledged' : 'refused';
    return [{ hand, member, id, askedAt: at, outcome, answeredAt: isUnknown ? Infinity : answer.at }];
  });
}

/** The note of the start of a unit. */
export function beginOf(
  unit: HeldJobs & { readonly kind: string; readonly key: string | null },
  hold: RunHold,
): Extract<WorkerEvent, { readonly do: 'begin' }> {
  const { kind, key, attempt, processId: process, token, jobs } = unit;
  const ids = jobs.map(({ id }) => id);
  const versions = jobs.map(({ payload }) => Number(Object(payload).version ?? 0));
  return { do: 'begin', process, ids, kind, key, attempt, token: token.toString(), hold, versions };
}
