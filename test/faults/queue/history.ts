import type { Note } from '../member/member.ts';
import type { KindName } from './declaration.ts';
import type { HeldJobs } from './effect.ts';
import type { Hand } from './hands/hand.ts';
import type { Group, Hold } from './plan.ts';

/** How a unit is held: by a worker, or by a client that has claimed it by a call. */
export type RunHold = Hold | 'pull';

/** What a worker notes, and a client that claims by calls. `process` is the unit's processId. */
export type WorkerEvent =
  | {
      readonly do: 'begin';
      readonly process: string;
      /** As the handler sees them: with `coalesce: 'latest'`, the newest alone. */
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
  /** A lease ends then and no earlier: milliseconds of the database's clock. */
  | { readonly do: 'kept'; readonly process: string; readonly until: number }
  | { readonly do: 'end'; readonly process: string; readonly how: string }
  | { readonly do: 'lost' }
  | { readonly do: 'stale' };

/** What a producer notes. */
export type ProducerEvent =
  | {
      readonly do: 'ask';
      readonly operation: number;
      readonly numbers: readonly number[];
      readonly how: 'alone' | 'committed' | 'rolled back';
      readonly group?: Group | undefined;
      /** Each of its jobs gives one of its key that waits its payload. */
      readonly replaces: boolean;
    }
  | { readonly do: 'sealed'; readonly operation: number }
  | {
      readonly do: 'told';
      readonly operation: number;
      readonly ids: readonly string[];
      /** The places of those that were there already. */
      readonly duplicates: readonly number[];
    }
  /** It is about to change something by hand; `id` is the job's. */
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
  /** What became of it, as its producer knows. Unknown also where the producer died before it was told. */
  readonly outcome: 'acknowledged' | 'refused' | 'unknown';
  /** When acknowledged: in the order of `numbers`. */
  readonly ids: readonly string[];
  /** The numbers of those that were there already: the id is that of another job. */
  readonly duplicates: ReadonlySet<number>;
  readonly group?: Group | undefined;
  /** Each of its jobs gives one of its key that waits its payload, and is a duplicate then. */
  readonly replaces?: boolean | undefined;
  /** When it was acknowledged. */
  readonly answeredAt?: number | undefined;
  /** Its batch is known to be sealed. */
  readonly isSealed?: boolean | undefined;
}

/** A handler that was called. */
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
  /** Its lease was promised until then. */
  readonly keptUntil?: number | undefined;
  /** Absent where its process died first, or never let go. */
  readonly ended?: { readonly at: number; readonly how: string } | undefined;
}

/** A row of queue_job. */
export interface Job {
  readonly id: string;
  /** 0 for a dead letter. */
  readonly n: number;
  /** The job that it is the dead letter of. */
  readonly letterOf?: string | null | undefined;
  /** The kind that it names for its own dead letters. */
  readonly onError?: string | null | undefined;
  readonly kind: KindName;
  readonly key: string | null;
  readonly tenant?: string | null | undefined;
  readonly isDelayed: boolean;
  /** As its enqueue read the clock of the database. */
  readonly createdAt: number;
  /** Where it has to begin before. */
  readonly expiresAt?: number | undefined;
  readonly tags?: readonly string[] | undefined;
  readonly committedAt: number;
  /** Where it is in the end. */
  readonly status: string;
}

/** A committed move of a job, as the database keeps it. */
export interface Move {
  readonly job: string;
  readonly from: string;
  readonly to: string;
  readonly reason: string;
  readonly attempt: number;
  /** Of the attempt that ended by it; null where it ended none. */
  readonly process: string | null;
  readonly claimedAt: number | null;
  /** As the transaction that wrote it read the clock. */
  readonly at: number;
  readonly committedAt: number;
  /** Of the transaction that wrote it. */
  readonly xid: string;
}

/** A committed row that a handler wrote, in a guarded transaction or in that of its claim. */
export interface Effect {
  readonly job: string;
  readonly process: string;
  readonly token: bigint;
  readonly attempt: number;
  readonly committedAt: number;
  readonly xid: string;
}

/** A change by hand that was asked for. */
export interface Change {
  readonly hand: Hand;
  readonly member: string;
  /** Of the job. */
  readonly id: string;
  readonly askedAt: number;
  readonly outcome: 'acknowledged' | 'refused' | 'unknown';
  /** When it was acknowledged or refused; without an end where that is unknown. */
  readonly answeredAt: number;
}

/** All that the checker looks at. */
export interface QueueHistory {
  readonly requests: readonly Request[];
  readonly runs: readonly Run[];
  readonly jobs: readonly Job[];
  readonly moves: readonly Move[];
  readonly effects: readonly Effect[];
  readonly changes: readonly Change[];
  /** By how much the clocks of a note and of a commit may differ. */
  readonly clockErrorMs: number;
  /** Whether tenants have the rate of the declaration. */
  readonly hasRate: boolean;
  /** How many jobs of a tenant run at a time. */
  readonly perTenant: number;
  /** What was seen from outside and may not be: broken invariants, jobs that were not done in time, locks that are left. */
  readonly complaints: readonly Complaint[];
}

export interface Complaint {
  readonly rule: string;
  readonly about: string;
  readonly story: readonly string[];
}

/** What the producers noted, as requests. */
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

/** What workers and clients noted, as runs. @param offset  of the database's clock */
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

/** What the producers noted, as changes by hand. */
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

/** The note of a unit that begins. */
export function beginOf(
  unit: HeldJobs & { readonly kind: string; readonly key: string | null },
  hold: RunHold,
): Extract<WorkerEvent, { readonly do: 'begin' }> {
  const { kind, key, attempt, processId: process, token, jobs } = unit;
  const ids = jobs.map(({ id }) => id);
  const versions = jobs.map(({ payload }) => Number(Object(payload).version ?? 0));
  return { do: 'begin', process, ids, kind, key, attempt, token: token.toString(), hold, versions };
}
