import type { Note } from '../member/member.ts';
import type { KindName } from './declaration.ts';
import type { Group, Hold } from './plan.ts';

/** What a worker notes. `process` is the unit's processId. */
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
      readonly hold: Hold;
    }
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
    }
  | { readonly do: 'sealed'; readonly operation: number }
  | { readonly do: 'told'; readonly operation: number; readonly ids: readonly string[]; readonly duplicate: boolean }
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
  readonly isDuplicate: boolean;
  readonly group?: Group | undefined;
  /** Its batch is known to be sealed. */
  readonly isSealed?: boolean | undefined;
}

/** A handler that was called. */
export interface Run {
  readonly process: string;
  readonly member: string;
  readonly pid: number;
  readonly hold: Hold;
  readonly ids: readonly string[];
  readonly kind: KindName;
  readonly key: string | null;
  readonly attempt: number;
  readonly token: bigint;
  readonly begunAt: number;
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
  readonly kind: KindName;
  readonly key: string | null;
  readonly isDelayed: boolean;
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

/** All that the checker looks at. */
export interface QueueHistory {
  readonly requests: readonly Request[];
  readonly runs: readonly Run[];
  readonly jobs: readonly Job[];
  readonly moves: readonly Move[];
  readonly effects: readonly Effect[];
  /** By how much the clocks of a note and of a commit may differ. */
  readonly clockErrorMs: number;
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
  return asked.map(({ member, operation, numbers, at, how, group }) => {
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
      isDuplicate: told?.do === 'told' && told.duplicate,
      group,
      isSealed: mine.some((event) => event.do === 'sealed' && event.operation === operation),
    };
  });
}

/** What the workers noted, as runs. */
export function toRuns(events: readonly Note<WorkerEvent>[]): Run[] {
  const open = new Map<string, { at: number; how: string }>();
  for (const event of events) {
    if (event.do === 'end') open.set(`${event.pid} ${event.process}`, { at: event.at, how: event.how });
  }
  return events.flatMap((event): Run[] => {
    if (event.do !== 'begin') return [];
    const { process, member, pid, hold, ids, key, attempt, token, at } = event;
    const kind = event.kind as KindName;
    const ended = open.get(`${pid} ${process}`);
    return [{ process, member, pid, hold, ids, kind, key, attempt, token: BigInt(token), begunAt: at, ended }];
  });
}
