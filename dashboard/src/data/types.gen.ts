// Written by scripts/dashboard-types.mjs from src/http/schemas.

export interface Error {
  readonly error: {
    readonly code:
      | 'body_incomplete'
      | 'body_too_large'
      | 'busy'
      | 'collector_halted'
      | 'conflict'
      | 'connection_failed'
      | 'corrupt_object'
      | 'cross_site'
      | 'deadlock'
      | 'duplicate_key'
      | 'forbidden'
      | 'identity_unavailable'
      | 'internal'
      | 'invalid_input'
      | 'lease_lost'
      | 'lock_not_available'
      | 'lock_timeout'
      | 'method_not_allowed'
      | 'not_found'
      | 'not_supported'
      | 'range_not_satisfiable'
      | 'rate_limited'
      | 'read_only'
      | 'schema_mismatch'
      | 'serialization_failed'
      | 'statement_timeout'
      | 'stopped'
      | 'store_refused'
      | 'store_unavailable'
      | 'throttled'
      | 'timed_out'
      | 'unauthorized'
      | 'unsupported_media_type'
      | 'upload_expired'
      | 'version_conflict';
    readonly message: string;
    readonly field?: string;
    readonly outcome?: 'nothing_written' | 'unknown';
    readonly requestId: string;
  };
}

export interface Queue {
  readonly name: string;
  readonly shards: number;
  readonly keyed: boolean;
  readonly perGroup: number | null;
  readonly rate: {
    readonly limit: number;
    readonly perMs: number;
  } | null;
  readonly attempts: number;
  readonly historyMs: number | null;
  readonly pausedAt: string | null;
  readonly pausedParts: readonly PausedPart[];
  readonly blockedKeys: number;
  readonly createdAt: string;
  readonly kinds: readonly string[];
  readonly workers: number;
  readonly stats: Stats;
}

export interface PausedPart {
  readonly kind: string | null;
  readonly key: string | null;
  readonly tag: string | null;
  readonly since: string;
}

export interface QueueList {
  readonly items: readonly Queue[];
  readonly after: string | null;
  readonly total: number;
}

export interface Stats {
  readonly 'new': number;
  readonly 'in-progress': number;
  readonly error: number;
  readonly cancelled: number;
  readonly ready: number;
  readonly delayed: number;
  readonly parked: number;
  readonly inProgress: number;
  readonly completePerMinute: number;
  readonly oldestReadyMs: number | null;
  readonly paused?: boolean;
  readonly pausedAt: string | null;
  readonly pausedParts: readonly PausedPart[];
  readonly blockedKeys: number;
  readonly workers: number;
  readonly slots: number;
}

export interface Diagnosis {
  readonly queue: string;
  readonly isMoving: boolean;
  readonly findings: readonly {
    readonly code: string;
    readonly text: string;
    readonly level: 'ok' | 'warning' | 'error';
    readonly advice?: string;
  }[];
}

export interface Series {
  readonly stepMs: number;
  readonly points: readonly Point[];
}

export interface Point {
  readonly at: number;
  readonly complete: number;
  readonly errors: number;
  readonly retries: number;
  readonly runP50Ms: number | null;
  readonly runP95Ms: number | null;
  readonly runP99Ms: number | null;
  readonly waitP50Ms: number | null;
  readonly waitP95Ms: number | null;
  readonly waitP99Ms: number | null;
}

export interface Charts {
  readonly since: number;
  readonly until: number;
  readonly stepMs: number;
  readonly truncated: number;
  readonly items: readonly KindChart[];
}

export interface KindChart {
  readonly queue: string;
  readonly kind: string;
  readonly complete: number;
  readonly errors: number;
  readonly retries: number;
  readonly runP50Ms: number | null;
  readonly runP95Ms: number | null;
  readonly runP99Ms: number | null;
  readonly waitP50Ms: number | null;
  readonly waitP95Ms: number | null;
  readonly waitP99Ms: number | null;
  readonly points: readonly Point[];
}

export interface Schedule {
  readonly queue: string;
  readonly name: string;
  readonly cron: string;
  readonly timezone: string;
  readonly kind: string;
  readonly key: string | null;
  readonly group: string | null;
  readonly priority: number;
  readonly missed: 'skip' | 'last' | 'all';
  readonly missedForMs: number | null;
  readonly overlap: 'queue' | 'skip';
  readonly jitterMs: number | null;
  readonly nextAt: string | null;
  readonly lastAt: string | null;
  readonly pausedAt: string | null;
  readonly ofSet: boolean;
  readonly next: readonly string[];
}

export interface ScheduleRun {
  readonly at: string;
  readonly job: string;
  readonly status: 'new' | 'in-progress' | 'complete' | 'error' | 'cancelled' | null;
}

export interface ScheduleRunList {
  readonly items: readonly ScheduleRun[];
}

export interface WorkerReleased {
  readonly id: string;
  readonly jobs: number;
  readonly left: number;
}

export interface ScheduleList {
  readonly items: readonly Schedule[];
}

export interface ClaimedUnits {
  readonly items: readonly {
    readonly handle: string;
    readonly kind: string;
    readonly key: string | null;
    readonly attempt: number;
    readonly token: string;
    readonly processId: string;
    readonly expiresAt: string;
    readonly jobs: readonly {
      readonly id: string;
      readonly payload: unknown;
      readonly attempt: number;
      readonly enqueuedAt: string;
      readonly meta: unknown;
    }[];
  }[];
}

export interface UnitSettled {
  readonly to: 'complete' | 'retry' | 'error' | 'release' | 'cancelled';
}

export interface ExtendedClaim {
  readonly expiresAt: string;
  readonly isCancelled: boolean;
  readonly reason: string | null;
}

export interface Job {
  readonly id: string;
  readonly queue: string;
  readonly kind: string;
  readonly key: string | null;
  readonly group: string | null;
  readonly status: 'new' | 'in-progress' | 'complete' | 'error' | 'cancelled';
  readonly priority: number;
  readonly attempt: number;
  readonly enqueuedAt: string;
  readonly runAt: string | null;
  readonly claimedAt: string | null;
  readonly settledAt: string | null;
  readonly processId: string | null;
  readonly error: string | null;
  readonly progress: unknown;
  readonly attempts: number;
  readonly expiresAt: string | null;
  readonly tags: readonly string[];
  readonly schedule: {
    readonly name: string;
    readonly at: string;
  } | null;
}

export interface JobList {
  readonly items: readonly Job[];
  readonly after: string | null;
  readonly indexBehind: number;
}

export interface JobDetail {
  readonly id: string;
  readonly queue: string;
  readonly kind: string;
  readonly key: string | null;
  readonly group: string | null;
  readonly status: 'new' | 'in-progress' | 'complete' | 'error' | 'cancelled';
  readonly priority: number;
  readonly attempt: number;
  readonly enqueuedAt: string;
  readonly runAt: string | null;
  readonly claimedAt: string | null;
  readonly settledAt: string | null;
  readonly processId: string | null;
  readonly error: string | null;
  readonly progress: unknown;
  readonly attempts: number;
  readonly expiresAt: string | null;
  readonly tags: readonly string[];
  readonly schedule: {
    readonly name: string;
    readonly at: string;
  } | null;
  readonly payload?: unknown;
  readonly result?: unknown;
  readonly meta?: unknown;
  readonly payloadHidden: boolean;
  readonly explanation: JobExplanation;
  readonly history: readonly JobTransition[];
  readonly unit: readonly string[];
  readonly locks: readonly JobLock[];
  readonly traceparent: string | null;
  readonly retriedFrom: string | null;
  readonly retriedAs: readonly string[];
  readonly parents: readonly RelatedJob[];
  readonly children: readonly RelatedJob[];
  readonly afterError: string | null;
  readonly afterCancel: string | null;
  readonly afterBatches: readonly string[];
  readonly batches: readonly string[];
}

export interface RelatedJob {
  readonly id: string;
  readonly queue: string;
  readonly kind: string;
  readonly status: 'new' | 'in-progress' | 'complete' | 'error' | 'cancelled';
}

export interface JobLock {
  readonly namespace: string;
  readonly name: string;
  readonly state: 'held' | 'waiting' | 'ended';
  readonly mode: 'exclusive' | 'shared' | 'permit';
  readonly permits: number | null;
  readonly token: string | null;
  readonly host: string;
  readonly pid: number;
  readonly since: string;
  readonly endedAt: string | null;
  readonly outcome: 'released' | 'broken' | 'expired' | null;
}

export interface JobExplanation {
  readonly status: 'new' | 'in-progress' | 'complete' | 'error' | 'cancelled';
  readonly reasons: readonly {
    readonly code: string;
    readonly text: string;
    readonly job?: string;
    readonly kind?: string;
    readonly until?: string;
    readonly since?: string;
    readonly worker?: string;
    readonly ahead?: number;
  }[];
}

export interface JobTransition {
  readonly at: string;
  readonly from: 'new' | 'in-progress' | 'complete' | 'error' | 'cancelled' | null;
  readonly to: 'new' | 'in-progress' | 'complete' | 'error' | 'cancelled';
  readonly attempt: number;
  readonly processId: string | null;
  readonly worker: string | null;
  readonly reason: string;
  readonly error: string | null;
}

export interface JobSiblings {
  readonly items: readonly {
    readonly id: string;
    readonly kind: string;
    readonly status: 'new' | 'in-progress' | 'complete' | 'error' | 'cancelled';
    readonly processId: string | null;
    readonly enqueuedAt: string;
    readonly settledAt: string | null;
  }[];
}

export interface Enqueued {
  readonly id: string;
  readonly status: 'new' | 'in-progress' | 'complete' | 'error' | 'cancelled';
  readonly duplicate: boolean;
}

export interface EnqueuedList {
  readonly items: readonly Enqueued[];
}

export interface JobRetried {
  readonly id: string;
  readonly status: 'new' | 'in-progress' | 'complete' | 'error' | 'cancelled';
  readonly duplicate?: boolean;
  readonly retriedFrom?: string;
}

export interface JobUpdated {
  readonly id: string;
  readonly status: 'new' | 'in-progress' | 'complete' | 'error' | 'cancelled';
}

export interface JobSkipped {
  readonly id: string;
  readonly status: 'new' | 'in-progress' | 'complete' | 'error' | 'cancelled';
}

export interface JobFinished {
  readonly id: string;
  readonly status: 'new' | 'in-progress' | 'complete' | 'error' | 'cancelled';
}

export interface JobRedriven {
  readonly id: string;
  readonly status: 'new' | 'in-progress' | 'complete' | 'error' | 'cancelled';
  readonly letter: string;
}

export interface JobErased {
  readonly id: string;
  readonly erased: boolean;
}

export interface FlowAdded {
  readonly ids: Readonly<Record<string, string>>;
  readonly duplicate: boolean;
}

export interface BatchMade {
  readonly id: string;
  readonly duplicate: boolean;
}

export interface Batch {
  readonly id: string;
  readonly queue: string;
  readonly total: number;
  readonly outstanding: number;
  readonly complete: number;
  readonly errors: number;
  readonly cancelled: number;
  readonly sealedAt: string | null;
  readonly doneAt: string | null;
  readonly problem: string | null;
}

export interface BatchList {
  readonly items: readonly Batch[];
  readonly after: string | null;
}

export interface TopicList {
  readonly items: readonly {
    readonly name: string;
    readonly subscriptions: readonly {
      readonly queue: string;
      readonly kind: string;
    }[];
  }[];
}

export interface Published {
  readonly items: readonly {
    readonly queue: string;
    readonly kind: string;
    readonly id: string;
    readonly status: 'new' | 'in-progress' | 'complete' | 'error' | 'cancelled';
    readonly duplicate: boolean;
  }[];
  readonly duplicate: boolean;
}

export interface QueueRemoved {
  readonly queue: string;
  readonly jobs: number;
  readonly cancelled: number;
  readonly moves: number;
  readonly schedules: number;
  readonly subscriptions: number;
  readonly batches: number;
  readonly workers: number;
}

export interface JobCancelled {
  readonly id: string;
  readonly status: 'new' | 'in-progress' | 'complete' | 'error' | 'cancelled';
  readonly cancelling: boolean;
}

export interface ErrorGroups {
  readonly items: readonly ErrorGroup[];
  readonly counted: number;
  readonly isAll: boolean;
}

export interface ErrorGroup {
  readonly queue: string;
  readonly kind: string;
  readonly error: string | null;
  readonly example: string | null;
  readonly count: number;
  readonly firstAt: string;
  readonly lastAt: string;
  readonly jobs: readonly string[];
}

export interface Bulk {
  readonly id: string;
  readonly who: string;
  readonly action: 'retry' | 'cancel' | 'finish' | 'redrive' | 'move' | 'erase';
  readonly to: string | null;
  readonly toKind: string | null;
  readonly queue: string | null;
  readonly query: string;
  readonly reason: string | null;
  readonly limit: number;
  readonly status: 'waiting' | 'running' | 'done' | 'stopped' | 'failed';
  readonly startedAt: string;
  readonly endedAt: string | null;
  readonly found: number;
  readonly collected: boolean;
  readonly done: number;
  readonly refused: number;
  readonly error: string | null;
}

export interface BulkPreview {
  readonly found: number;
  readonly fitting: number;
  readonly isAll: boolean;
  readonly sample: readonly Job[];
}

export interface BulkList {
  readonly items: readonly Bulk[];
  readonly after: string | null;
}

export interface BulkResult {
  readonly job: string;
  readonly outcome: 'done' | 'refused';
  readonly detail: string;
}

export interface BulkResultList {
  readonly items: readonly BulkResult[];
  readonly after: string | null;
}

export interface Lock {
  readonly namespace: string;
  readonly name: string;
  readonly holders: number;
  readonly waiters: number;
  readonly mode: 'exclusive' | 'shared' | 'permit' | null;
  readonly permits: number | null;
  readonly token: string | null;
  readonly host: string | null;
  readonly pid: number | null;
  readonly job: string | null;
  readonly since: string | null;
  readonly expiresAt: string | null;
  readonly waitingSince: string | null;
}

export interface LockList {
  readonly items: readonly Lock[];
  readonly after: string | null;
}

export interface LockDetail {
  readonly namespace: string;
  readonly name: string;
  readonly holders: readonly {
    readonly name: string;
    readonly mode: 'exclusive' | 'shared' | 'permit';
    readonly permits?: number | null;
    readonly host: string;
    readonly pid: number;
    readonly job: string | null;
    readonly since: string;
    readonly token: string;
    readonly expiresAt: string | null;
    readonly leaseLeftMs: number | null;
    readonly lastHeartbeatAt: string | null;
  }[];
  readonly waiters: readonly {
    readonly name: string;
    readonly mode: 'exclusive' | 'shared' | 'permit';
    readonly permits?: number | null;
    readonly host: string;
    readonly pid: number;
    readonly job: string | null;
    readonly since: string;
    readonly ticket: string;
    readonly waitedMs: number;
  }[];
  readonly guardedBy: readonly number[];
  readonly blocking: readonly string[];
  readonly cycles: readonly (readonly string[])[];
  readonly backends: readonly Backend[];
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
    readonly keeps: readonly {
      readonly name: string;
      readonly token: string;
    }[];
  }[];
  readonly backends: readonly Backend[];
  readonly cycles: readonly (readonly string[])[];
}

export interface HotLocks {
  readonly items: readonly HotLock[];
}

export interface HotLock {
  readonly namespace: string;
  readonly name: string;
  readonly holds: number;
  readonly meanMs: number;
  readonly maxMs: number;
  readonly lost: number;
}

export interface LockPast {
  readonly namespace: string;
  readonly name: string;
  readonly token: string;
  readonly mode: 'exclusive' | 'shared' | 'permit';
  readonly permits: number | null;
  readonly host: string;
  readonly pid: number;
  readonly job: string | null;
  readonly grantedAt: string;
  readonly endedAt: string;
  readonly outcome: 'released' | 'broken' | 'expired';
  readonly reason: string | null;
}

export interface LockPastList {
  readonly items: readonly LockPast[];
  readonly after: string | null;
}

export interface Lease {
  readonly namespace: string;
  readonly name: string;
  readonly token: string;
  readonly handle: string;
  readonly leaseMs: number;
  readonly expiresAt: string;
}

export interface LockReleased {
  readonly released: boolean;
  readonly token: string;
}

export interface LockBroken {
  readonly broken: readonly {
    readonly token: string;
    readonly host: string;
    readonly pid: number;
    readonly since: string;
  }[];
}

export interface ActorType {
  readonly name: string;
  readonly machine: Machine;
  readonly semaphores: readonly string[];
  readonly indexes: readonly string[];
  readonly paused: boolean;
  readonly pausedStates: readonly string[];
  readonly counts: Readonly<Record<string, number>>;
  readonly workers: number;
}

export interface ActorTypeList {
  readonly items: readonly ActorType[];
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
        readonly hold?: string;
        readonly tries?: number;
        readonly giveUp?: string;
        readonly children?: string;
      }
    >
  >;
}

export interface Actor {
  readonly id: string;
  readonly type: string;
  readonly state: string;
  readonly status: 'running' | 'due' | 'napping' | 'hibernating' | 'backing off' | 'paused' | 'held' | 'final';
  readonly key: string | null;
  readonly parent: string | null;
  readonly attempt: number;
  readonly error: string | null;
  readonly enteredAt: string;
  readonly wakeAt: string | null;
  readonly createdAt: string;
}

export interface ActorList {
  readonly items: readonly Actor[];
  readonly after: string | null;
}

export interface ActorDetail {
  readonly id: string;
  readonly type: string;
  readonly state: string;
  readonly status: 'running' | 'due' | 'napping' | 'hibernating' | 'backing off' | 'paused' | 'held' | 'final';
  readonly key: string | null;
  readonly parent: string | null;
  readonly attempt: number;
  readonly error: string | null;
  readonly enteredAt: string;
  readonly wakeAt: string | null;
  readonly createdAt: string;
  readonly visit: number;
  readonly epoch: number;
  readonly fields?: unknown;
  readonly result?: unknown;
  readonly payloadHidden: boolean;
  readonly version: number;
  readonly openChildren: number;
  readonly semaphores: Readonly<Record<string, number>>;
  readonly messages: number;
  readonly timers: Readonly<Record<string, string>>;
  readonly deadlineAt: string | null;
  readonly finishedAt: string | null;
  readonly pausedAt: string | null;
  readonly typePausedAt: string | null;
  readonly statePausedAt: string | null;
  readonly held: string | null;
  readonly lost: number;
  readonly dueInMs: number | null;
  readonly worker: {
    readonly id: string;
    readonly process: string;
    readonly claimedAt: string;
    readonly expiresAt: string;
    readonly lost: boolean;
  } | null;
  readonly workers: number;
  readonly ahead: number | null;
  readonly machine: Machine;
  readonly explanation: {
    readonly id: string;
    readonly type: string;
    readonly state: string;
    readonly status: 'running' | 'due' | 'napping' | 'hibernating' | 'backing off' | 'paused' | 'held' | 'final';
    readonly reasons: readonly string[];
    readonly advice: readonly string[];
  };
  readonly history: readonly ActorTransition[];
  readonly hasProgram: boolean;
}

export interface ActorTransition {
  readonly at: string;
  readonly epoch: number;
  readonly from: string | null;
  readonly to: string;
  readonly reason: string;
  readonly attempt: number;
  readonly error: string | null;
}

export interface ActorHistoryList {
  readonly items: readonly ActorTransition[];
  readonly after: string | null;
}

export interface ActorFieldsChange {
  readonly at: string;
  readonly epoch: number;
  readonly state: string;
  readonly before?: unknown;
  readonly after?: unknown;
}

export interface ActorFieldsList {
  readonly items: readonly ActorFieldsChange[];
  readonly after: string | null;
}

export interface Raised {
  readonly raised: boolean;
}

export interface Retried {
  readonly retried: boolean;
}

export interface Answer {
  readonly answer?: unknown;
  readonly payloadHidden: boolean;
}

export interface Turn {
  readonly kind: 'to' | 'stay' | 'done' | 'failed' | 'released';
  readonly from: string;
  readonly to: string;
  readonly error: string | null;
}

export interface Page {
  readonly id: string;
  readonly tag: string;
  readonly severity: 'info' | 'warning' | 'error' | 'critical';
  readonly status: 'open' | 'acked' | 'resolved';
  readonly summary: string;
  readonly actor: string | null;
  readonly root: string | null;
  readonly suppressed: boolean;
  readonly count: number;
  readonly openedAt: string;
  readonly seenAt: string;
  readonly ackedAt: string | null;
  readonly ackedBy: string | null;
  readonly resolvedAt: string | null;
}

export interface PageDetail {
  readonly id: string;
  readonly tag: string;
  readonly severity: 'info' | 'warning' | 'error' | 'critical';
  readonly status: 'open' | 'acked' | 'resolved';
  readonly summary: string;
  readonly actor: string | null;
  readonly root: string | null;
  readonly suppressed: boolean;
  readonly count: number;
  readonly openedAt: string;
  readonly seenAt: string;
  readonly ackedAt: string | null;
  readonly ackedBy: string | null;
  readonly resolvedAt: string | null;
  readonly details: unknown;
}

export interface PageList {
  readonly items: readonly Page[];
  readonly after: string | null;
}

export interface CaptureList {
  readonly items: readonly Capture[];
  readonly missing: readonly string[];
  readonly culprits: readonly {
    readonly pid: number | null;
    readonly database: string | null;
    readonly user: string | null;
    readonly application: string | null;
    readonly state: string;
    readonly ageMs: number;
    readonly holdsKeys: boolean;
  }[];
}

export interface Capture {
  readonly entity: string;
  readonly root: string;
  readonly tables: readonly string[];
  readonly consumers: readonly Consumer[];
}

export interface Consumer {
  readonly entity: string;
  readonly name: string;
  readonly guarantee: 'latest' | 'ordered';
  readonly outstanding: number;
  readonly oldestMs: number | null;
  readonly failing: number;
  readonly error: string | null;
  readonly sweepDone: number | null;
  readonly sweepTotal: number | null;
}

export interface Difference {
  readonly kind: string;
  readonly object: string;
  readonly problem: string;
}

export interface CaptureDetail {
  readonly entity: string;
  readonly root: string;
  readonly tables: readonly string[];
  readonly consumers: readonly Consumer[];
  readonly differences: readonly Difference[];
  readonly isDeclared: boolean;
}

export interface CapturePlan {
  readonly by: 'installed' | 'declared';
  readonly sql: string;
  readonly differences: readonly Difference[];
}

export interface CaptureApplied {
  readonly mended: readonly Difference[];
}

export interface CaptureVerified {
  readonly isWhole: boolean;
  readonly differences: readonly Difference[];
}

export interface CaptureReplayed {
  readonly begun: readonly string[];
  readonly consumers: readonly Consumer[];
}

export interface CaptureReconciled {
  readonly items: readonly {
    readonly name: string;
    readonly checked: number;
    readonly drifted: number;
    readonly keys: readonly string[];
  }[];
}

export interface CaptureDetached {
  readonly entity: string;
  readonly detached: boolean;
}

export interface Change {
  readonly id: string;
  readonly at: string;
  readonly table: string;
  readonly op: 'insert' | 'update' | 'delete' | 'truncate';
  readonly key: string | null;
  readonly oldKey: string | null;
  readonly before: Readonly<Record<string, string | null>> | null;
  readonly after: Readonly<Record<string, string | null>> | null;
  readonly actor: string | null;
  readonly reason: string | null;
  readonly dbUser: string;
}

export interface ChangeList {
  readonly items: readonly Change[];
  readonly after: string | null;
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

export interface FileList {
  readonly items: readonly FileVersion[];
  readonly after: string | null;
}

export interface FileDetail {
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
  readonly meta: Readonly<Record<string, string>>;
  readonly object: string;
  readonly live: number | null;
  readonly isOpen: boolean;
  readonly holders: readonly FileStanding[];
  readonly waiters: readonly FileStanding[];
  readonly reloads: readonly FileReload[];
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

export interface FileWritten {
  readonly id: string;
  readonly version: number;
  readonly previous: number | null;
  readonly size: number;
  readonly sha256: string;
}

export interface FileRemoved {
  readonly id: string;
  readonly removed: boolean;
}

export interface FileStores {
  readonly items: readonly FileStore[];
}

export interface FileStore {
  readonly namespace: string;
  readonly kind: string;
  readonly store: string;
  readonly attachedAt: string;
  readonly pass: number;
  readonly probe: Readonly<Record<string, boolean>> | null;
  readonly haltedAt: string | null;
  readonly haltedBecause: string | null;
  readonly pending: number;
  readonly retired: number;
  readonly deleting: number;
  readonly deleted: number;
  readonly due: number;
  readonly isOpen: boolean;
}

export interface FileReloads {
  readonly items: readonly FileReload[];
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
  readonly failed: readonly {
    readonly name: string;
    readonly error: string;
  }[];
  readonly next: string | null;
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

export interface Link {
  readonly title: string;
  readonly of: 'job' | 'actor' | 'lock' | 'queue';
  readonly url: string;
}

export interface Live {
  readonly at: string;
  readonly queues: readonly {
    readonly name: string;
    readonly stats: Stats;
  }[];
  readonly locks: {
    readonly held: number;
    readonly waiting: number;
  };
  readonly actors: readonly {
    readonly type: string;
    readonly paused: boolean;
    readonly states: Readonly<Record<string, number>>;
    readonly workers: number;
  }[];
  readonly totals: {
    readonly queues: number;
    readonly ready: number;
    readonly delayed: number;
    readonly parked: number;
    readonly inProgress: number;
    readonly error: number;
    readonly cancelled: number;
    readonly completePerMinute: number;
    readonly workers: number;
    readonly slots: number;
    readonly paused: number;
    readonly unattended: number;
    readonly oldestReadyMs: number | null;
  };
  readonly truncated: {
    readonly queues: number;
    readonly actors: number;
  };
  readonly pages: {
    readonly open: number;
    readonly acked: number;
    readonly worst: string | null;
  };
  readonly oldestTransactionMs: number | null;
  readonly connections: number;
  readonly maxConnections: number;
  readonly wraparound: number;
}

export interface Attention {
  readonly items: readonly {
    readonly level: 'warning' | 'error';
    readonly text: string;
    readonly advice?: string;
    readonly look: string;
  }[];
}

export interface Workers {
  readonly queues: readonly {
    readonly id: string;
    readonly queue: string;
    readonly host: string;
    readonly pid: number;
    readonly hold: 'lease' | 'transaction';
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

export interface HistoryEvent {
  readonly at: string;
  readonly part: 'job' | 'lock' | 'actor' | 'page' | 'audit';
  readonly event: string;
  readonly subject: string;
  readonly id: string;
  readonly detail: string | null;
  readonly process: string | null;
  readonly namespace: string | null;
}

export interface HistoryList {
  readonly items: readonly HistoryEvent[];
  readonly after: string | null;
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
    readonly oldestTransaction: {
      readonly pid: number;
      readonly application: string;
      readonly ageMs: number;
    } | null;
  };
  readonly migrations: {
    readonly state: 'current' | 'behind' | 'newer' | 'changed';
    readonly problem: string | null;
    readonly applied: readonly {
      readonly line: string;
      readonly number: number;
      readonly name: string;
      readonly appliedAt: string;
    }[];
    readonly pending: readonly {
      readonly line: string;
      readonly number: number;
      readonly name: string;
    }[];
    readonly functions: readonly {
      readonly line: string;
      readonly state: 'current' | 'behind';
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
  readonly settings: Readonly<Record<string, unknown>>;
}

export interface Audit {
  readonly id: string;
  readonly at: string;
  readonly endedAt: string | null;
  readonly who: string;
  readonly remote: string | null;
  readonly userAgent: string | null;
  readonly action: string;
  readonly target: string;
  readonly details: unknown;
  readonly status: number | null;
  readonly outcome: 'unknown' | 'done' | 'refused';
  readonly error: string | null;
}

export interface AuditList {
  readonly items: readonly Audit[];
  readonly after: string | null;
}

export interface DevControls {
  readonly items: readonly {
    readonly id: string;
    readonly title: string;
    readonly about: string;
    readonly look: string;
    readonly isOn: boolean;
  }[];
}

export interface Done {
  readonly done: string;
}

export interface Health {
  readonly status: string;
  readonly checks?: Readonly<Record<string, string>>;
}

export type Json = unknown;
