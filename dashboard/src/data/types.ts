/** What the API answers, as this app uses it. The whole is in its OpenAPI document. */

/** A way out, with `{id}` and the like in its address. */
export interface Link {
  readonly title: string;
  readonly of: 'job' | 'actor' | 'lock' | 'queue';
  readonly url: string;
}

export interface Me {
  readonly name: string;
  readonly role: string | null;
  readonly permissions: readonly string[];
  readonly by: string;
  readonly readOnly: boolean;
  readonly title: string | null;
  readonly links: readonly Link[];
  readonly version: string;
  readonly parts: Readonly<Record<string, boolean>>;
}

export interface Page<T> {
  readonly items: readonly T[];
  readonly after: string | null;
}

export interface Stats {
  readonly ready: number;
  readonly delayed: number;
  readonly parked: number;
  readonly inProgress: number;
  readonly error: number;
  readonly cancelled: number;
  readonly completePerMinute: number;
  readonly oldestReadyMs: number | null;
  readonly pausedAt: string | null;
  readonly workers: number;
  readonly slots: number;
}

export interface Queue {
  readonly name: string;
  readonly shards: number;
  readonly keyed: boolean;
  readonly attempts: number;
  readonly historyMs: number | null;
  readonly pausedAt: string | null;
  readonly createdAt: string;
  readonly kinds: readonly string[];
  readonly stats: Stats;
}

export interface QueuePage extends Page<Queue> {
  /** How many there are on all pages. */
  readonly total: number;
}

/** Of all queues, however many are shown one by one. */
export interface Totals {
  readonly queues: number;
  readonly ready: number;
  readonly inProgress: number;
  readonly error: number;
  readonly completePerMinute: number;
  readonly workers: number;
  readonly paused: number;
  /** Queues with something to do, and no worker. */
  readonly unattended: number;
  readonly oldestReadyMs: number | null;
}

export interface Live {
  readonly totals: Totals;
  /** How many there are beyond those that are shown one by one. */
  readonly truncated: { readonly queues: number; readonly actors: number };
  readonly at: string;
  readonly queues: readonly { readonly name: string; readonly stats: Stats }[];
  readonly locks: { readonly held: number; readonly waiting: number };
  readonly actors: readonly ActorCount[];
  readonly pages: { readonly open: number; readonly acked: number; readonly worst: string | null };
  readonly oldestTransactionMs: number | null;
  readonly connections: number;
  readonly maxConnections: number;
}

export interface ActorCount {
  readonly type: string;
  readonly paused: boolean;
  readonly states: Readonly<Record<string, number>>;
  readonly workers: number;
}

/** How it went over some time. */
interface Figures {
  readonly complete: number;
  readonly errors: number;
  readonly retries: number;
  readonly runP50Ms: number | null;
  readonly runP95Ms: number | null;
  readonly runP99Ms: number | null;
  readonly waitP50Ms: number | null;
  readonly waitP95Ms: number | null;
}

export interface Point extends Figures {
  readonly at: number;
}

export interface JobPage extends Page<Job> {
  /** Jobs that the index of words has yet to cover: some of what is searched for may be missing. */
  readonly indexBehind: number;
}

/** What a kind did over a span. */
export interface KindChart extends Figures {
  readonly queue: string;
  readonly kind: string;
  /** Of steps in which something was done. */
  readonly points: readonly Point[];
}

export interface Charts {
  readonly since: number;
  readonly until: number;
  readonly stepMs: number;
  readonly items: readonly KindChart[];
  /** How many are left out. */
  readonly truncated: number;
}

export type JobStatus = 'new' | 'in-progress' | 'complete' | 'error' | 'cancelled';

export interface Job {
  readonly id: string;
  readonly queue: string;
  readonly kind: string;
  readonly key: string | null;
  readonly status: JobStatus;
  readonly priority: number;
  readonly attempt: number;
  readonly enqueuedAt: string;
  readonly runAt: string | null;
  readonly claimedAt: string | null;
  readonly settledAt: string | null;
  readonly processId: string | null;
  readonly error: string | null;
}

export interface Move {
  readonly at: string;
  readonly from: string | null;
  readonly to: string;
  readonly attempt: number;
  readonly worker?: string | null;
  readonly reason: string;
  readonly error: string | null;
}

export interface JobDetail extends Job {
  readonly traceparent: string | null;
  /** The job that this one does once more, with another payload. */
  readonly retriedFrom: string | null;
  readonly retriedAs: readonly string[];
  readonly progress: unknown;
  readonly payloadHidden: boolean;
  readonly explanation: {
    readonly reasons: readonly { readonly code: string; readonly text: string; readonly job?: string }[];
  };
  readonly history: readonly Move[];
  readonly unit: readonly string[];
  readonly locks: readonly JobLock[];
}

/** What the handler of a job has locked, waits for, or had. */
export interface JobLock {
  readonly namespace: string;
  readonly name: string;
  readonly state: 'held' | 'waiting' | 'ended';
  readonly mode: string;
  readonly token: string | null;
  readonly since: string;
  readonly endedAt: string | null;
  readonly outcome: string | null;
}

export interface Lock {
  readonly namespace: string;
  readonly name: string;
  readonly holders: number;
  readonly waiters: number;
  readonly mode: string | null;
  readonly permits: number | null;
  readonly token: string | null;
  readonly host: string | null;
  readonly pid: number | null;
  readonly job: string | null;
  readonly since: string | null;
  readonly expiresAt: string | null;
  readonly waitingSince: string | null;
}

export interface LockDetail {
  readonly namespace: string;
  readonly name: string;
  readonly holders: readonly {
    readonly mode: string;
    readonly token: string;
    readonly host: string;
    readonly pid: number;
    readonly job: string | null;
    readonly since: string;
    readonly expiresAt?: string;
    readonly lastHeartbeatAt?: string;
  }[];
  readonly waiters: readonly {
    readonly mode: string;
    readonly ticket: string;
    readonly host: string;
    readonly pid: number;
    readonly job: string | null;
    readonly since: string;
  }[];
  readonly guardedBy: readonly number[];
  readonly blocking: readonly string[];
}

export interface Backend {
  readonly pid: number;
  readonly applicationName: string;
  readonly query: string;
  readonly blockedBy: readonly number[];
}

export interface LockGraph {
  readonly waits: readonly {
    readonly namespace: string;
    readonly name: string;
    /** The same for all names that are wanted together. */
    readonly claim: string;
    readonly ticket: string;
    readonly host: string;
    readonly pid: number;
    readonly job: string | null;
    readonly since: string;
    readonly holders: readonly {
      readonly token: string;
      readonly host: string;
      readonly pid: number;
      readonly job: string | null;
    }[];
    readonly keeps: readonly { readonly name: string; readonly token: string }[];
  }[];
  readonly backends: readonly Backend[];
  readonly cycles: readonly (readonly string[])[];
}

export interface LockPast {
  readonly token: string;
  readonly mode: string;
  readonly host: string;
  readonly pid: number;
  readonly job: string | null;
  readonly grantedAt: string;
  readonly endedAt: string;
  readonly outcome: string;
  readonly reason: string | null;
}

export interface HotLock {
  readonly namespace: string;
  readonly name: string;
  readonly holds: number;
  readonly meanMs: number;
  readonly maxMs: number;
  readonly lost: number;
}

export interface Machine {
  readonly initial: string;
  readonly always: Readonly<Record<string, string>>;
  readonly states: Readonly<
    Record<
      string,
      {
        readonly to: readonly string[];
        readonly everyMs?: number;
        readonly timeoutMs?: number;
        readonly deadlineMs?: number;
      }
    >
  >;
}

export interface ActorType {
  readonly name: string;
  readonly machine: Machine;
  readonly semaphores: readonly string[];
  readonly paused: boolean;
  readonly pausedStates: readonly string[];
  readonly counts: Readonly<Record<string, number>>;
  readonly workers: number;
}

export interface Actor {
  readonly id: string;
  readonly type: string;
  readonly state: string;
  readonly status: string;
  readonly key: string | null;
  readonly parent: string | null;
  readonly attempt: number;
  readonly error: string | null;
  readonly enteredAt: string;
  readonly wakeAt: string | null;
  readonly createdAt: string;
}

export interface ActorDetail extends Actor {
  readonly fields?: unknown;
  readonly result?: unknown;
  readonly payloadHidden: boolean;
  readonly visit: number;
  readonly epoch: number;
  readonly openChildren: number;
  readonly semaphores: Readonly<Record<string, number>>;
  readonly messages: number;
  readonly deadlineAt: string | null;
  readonly finishedAt: string | null;
  readonly pausedAt: string | null;
  readonly held: string | null;
  readonly lost: number;
  readonly worker: { readonly process: string; readonly claimedAt: string } | null;
  readonly machine: Machine;
  readonly explanation: { readonly reasons: readonly string[]; readonly advice: readonly string[] };
  readonly history: readonly Move[];
  /** Whether a turn of it can be run here. */
  readonly hasProgram: boolean;
}

export interface Schedule {
  readonly queue: string;
  readonly name: string;
  readonly cron: string;
  readonly timezone: string;
  readonly kind: string;
  readonly key: string | null;
  readonly missed: string;
  readonly nextAt: string | null;
  readonly lastAt: string | null;
  readonly next: readonly string[];
}

export interface PageRecord {
  readonly id: string;
  readonly tag: string;
  readonly severity: string;
  readonly status: string;
  readonly summary: string;
  readonly actor: string | null;
  readonly suppressed: boolean;
  readonly count: number;
  readonly openedAt: string;
  readonly seenAt: string;
  readonly ackedBy: string | null;
  readonly resolvedAt: string | null;
}

export interface HistoryEvent {
  readonly at: string;
  readonly part: string;
  readonly event: string;
  readonly subject: string;
  readonly id: string;
  readonly detail: string | null;
  readonly process: string | null;
  /** Of a lock. */
  readonly namespace: string | null;
}

export interface Workers {
  readonly queues: readonly {
    readonly id: string;
    readonly queue: string;
    readonly host: string;
    readonly pid: number;
    readonly hold: string;
    readonly concurrency: number;
    readonly inProgress: number;
    readonly startedAt: string;
    readonly beatAt: string;
    readonly isLive: boolean;
  }[];
  readonly actors: readonly {
    readonly id: string;
    readonly host: string;
    readonly pid: number;
    readonly concurrency: number;
    readonly startedAt: string;
    readonly beatAt: string;
    readonly isLive: boolean;
    readonly types: readonly string[];
  }[];
}

export interface Bulk {
  readonly id: string;
  readonly who: string;
  readonly action: string;
  readonly queue: string | null;
  readonly query: string;
  readonly reason: string | null;
  readonly status: string;
  readonly startedAt: string;
  readonly endedAt: string | null;
  readonly found: number;
  readonly collected: boolean;
  readonly done: number;
  readonly refused: number;
  readonly error: string | null;
}

/** Jobs in error that say the same. */
export interface ErrorGroup {
  readonly queue: string;
  readonly kind: string;
  /** Null: it may not be seen. */
  readonly error: string | null;
  readonly count: number;
  readonly firstAt: string;
  readonly lastAt: string;
  /** The newest of them. */
  readonly jobs: readonly string[];
}

export interface ErrorGroups {
  readonly items: readonly ErrorGroup[];
  readonly counted: number;
  /** Not, where only the newest were read. */
  readonly isAll: boolean;
}

/** What a bulk action would find, and do. */
export interface BulkPreview {
  readonly found: number;
  /** Of these it can be done. */
  readonly fitting: number;
  /** Not, where there were too many to count. */
  readonly isAll: boolean;
  readonly sample: readonly Job[];
}

export interface BulkResult {
  readonly job: string;
  readonly outcome: string;
  readonly detail: string;
}

export interface Admin {
  readonly server: {
    readonly version: string;
    readonly database: string;
    readonly user: string;
    readonly roundTripMs: number;
    readonly clockAheadMs: number;
    readonly hasPooler: boolean;
    readonly isReadOnly: boolean;
    readonly connections: number;
    readonly maxConnections: number;
    readonly oldestTransaction: { readonly pid: number; readonly application: string; readonly ageMs: number } | null;
  };
  readonly migrations: {
    readonly state: string;
    readonly problem: string | null;
    readonly applied: readonly {
      readonly line: string;
      readonly number: number;
      readonly name: string;
      readonly appliedAt: string;
    }[];
    readonly pending: readonly { readonly line: string; readonly number: number; readonly name: string }[];
    readonly functions: readonly {
      readonly line: string;
      readonly state: string;
      readonly appliedAt: string | null;
      readonly retired: readonly string[];
    }[];
  };
  readonly tables: readonly {
    readonly name: string;
    readonly bytes: number;
    readonly rows: number;
    readonly deadRows: number;
    readonly vacuumedAt: string | null;
  }[];
  readonly process: {
    readonly pid: number;
    readonly node: string;
    readonly version: string;
    readonly startedAt: string;
    readonly watchers: number;
    readonly rssBytes: number;
  };
}

export interface Audit {
  readonly id: string;
  readonly at: string;
  readonly who: string;
  readonly remote: string | null;
  readonly action: string;
  readonly target: string;
  readonly details: unknown;
  readonly outcome: string;
  readonly error: string | null;
}

export interface Capture {
  readonly entity: string;
  readonly root: string;
  readonly tables: readonly string[];
  readonly consumers: readonly {
    readonly name: string;
    readonly guarantee: string;
    readonly outstanding: number;
    readonly oldestMs: number | null;
    readonly failing: number;
    readonly error: string | null;
    readonly sweepDone: number | null;
    readonly sweepTotal: number | null;
  }[];
}

/** What one turn of an actor came to. */
export interface Turn {
  readonly kind: string;
  readonly from: string;
  readonly to: string;
  readonly error: string | null;
}

export interface Captures {
  readonly items: readonly Capture[];
  readonly culprits: readonly {
    readonly pid: number | null;
    readonly user: string | null;
    readonly application: string | null;
    readonly state: string;
    readonly ageMs: number;
  }[];
  /** Declared by the program, and not installed. */
  readonly missing: readonly string[];
}

export interface CaptureDetail extends Capture {
  /** Whether this server was given the declaration, without which nothing can be compared. */
  readonly isDeclared: boolean;
  readonly differences: readonly { readonly kind: string; readonly object: string; readonly problem: string }[];
}

export interface Change {
  readonly id: string;
  readonly at: string;
  readonly table: string;
  readonly op: string;
  readonly key: string | null;
  readonly before: Readonly<Record<string, string | null>> | null;
  readonly after: Readonly<Record<string, string | null>> | null;
  readonly actor: string | null;
  readonly dbUser: string;
}

export interface FileVersion {
  readonly namespace: string;
  readonly id: string;
  readonly version: number;
  readonly state: 'live' | 'retired' | 'deleting' | 'deleted';
  readonly size: number;
  readonly sha256: string;
  readonly contentType: string | null;
  readonly author: string | null;
  readonly writtenAt: string;
  readonly retiredAt: string | null;
  readonly keptUntil: string | null;
}

export interface FileStanding {
  readonly pid: number;
  readonly mode: 'share' | 'exclusive';
  readonly since: string | null;
  readonly application: string | null;
  readonly blockedBy: readonly number[];
}

export interface FileReload {
  readonly sha256?: string;
  readonly scope: string;
  readonly host: string;
  readonly pid: number;
  readonly since: string;
  readonly expiresAt: string;
}

export interface FileDetail extends FileVersion {
  readonly meta: Readonly<Record<string, string>>;
  readonly object: string;
  readonly live: number | null;
  /** Whether this server can reach the bytes. */
  readonly isOpen: boolean;
  readonly holders: readonly FileStanding[];
  readonly waiters: readonly FileStanding[];
  readonly reloads: readonly FileReload[];
}

export interface FileStore {
  readonly namespace: string;
  readonly kind: string;
  readonly store: string;
  readonly attachedAt: string;
  readonly haltedAt: string | null;
  readonly haltedBecause: string | null;
  readonly pending: number;
  readonly retired: number;
  readonly deleting: number;
  readonly deleted: number;
  readonly due: number;
  readonly isOpen: boolean;
}

export interface FileWritten {
  readonly id: string;
  readonly version: number;
  readonly previous: number | null;
  readonly size: number;
  readonly sha256: string;
}

export interface Swept {
  readonly condemned: number;
  readonly deleted: number;
  readonly deletedAgain: number;
  readonly failed: number;
}

export interface Reconciled {
  readonly seen: number;
  readonly strangers: readonly string[];
  readonly quarantined: readonly string[];
  readonly damaged: readonly {
    readonly id: string;
    readonly version: number;
    readonly object: string;
    readonly damage: 'missing' | 'size';
  }[];
  readonly failed: readonly { readonly name: string; readonly error: string }[];
  /** Where to go on, when there is more than was compared. */
  readonly next: string | null;
}

export interface CapturePlan {
  readonly by: 'declared' | 'installed';
  readonly sql: string;
  readonly differences: CaptureDetail['differences'];
}

export interface CaptureCompared {
  readonly items: readonly {
    readonly name: string;
    readonly checked: number;
    readonly drifted: number;
    readonly keys: readonly string[];
  }[];
}
