import { ERROR_SCHEMA } from './failure.ts';
import type { JsonSchema } from './field.ts';

const text: JsonSchema = { type: 'string' };
const whole: JsonSchema = { type: 'integer' };
const number: JsonSchema = { type: 'number' };
const yes: JsonSchema = { type: 'boolean' };
const time: JsonSchema = { type: 'string', format: 'date-time' };
const any: JsonSchema = true;
/** Beyond what a JavaScript number holds, so it is a string. */
const digits: JsonSchema = { type: 'string', pattern: '^-?\\d+$' };

const orNull = (schema: JsonSchema): JsonSchema => ({ anyOf: [schema, { type: 'null' }] });
const list = (items: JsonSchema): JsonSchema => ({ type: 'array', items });
const one = (...values: string[]): JsonSchema => ({ type: 'string', enum: values });
const map = (values: JsonSchema): JsonSchema => ({ type: 'object', additionalProperties: values });
export const ref = (name: string): JsonSchema => ({ $ref: `#/components/schemas/${name}` });

/** An object with these properties, all of them there unless they end in "?", and no others. */
function object(properties: Readonly<Record<string, JsonSchema>>): JsonSchema {
  const all = Object.entries(properties);
  return {
    type: 'object',
    properties: Object.fromEntries(all.map(([name, schema]) => [name.replace(/\?$/, ''), schema])),
    required: all.map(([name]) => name).filter((name) => !name.endsWith('?')),
    additionalProperties: false,
  };
}

/** A page of a list: pass `after` on to get the next one; null when this is the last. */
function page(items: JsonSchema): JsonSchema {
  return object({ items: list(items), after: orNull(text) });
}

/** Percentiles of running and waiting; null when nothing was completed. */
const times = {
  runP50Ms: orNull(number),
  runP95Ms: orNull(number),
  runP99Ms: orNull(number),
  waitP50Ms: orNull(number),
  waitP95Ms: orNull(number),
  waitP99Ms: orNull(number),
};

const jobStatus = one('new', 'in-progress', 'complete', 'error', 'cancelled');
const lockMode = one('exclusive', 'shared', 'permit');
const actorStatus = one('running', 'due', 'napping', 'hibernating', 'backing off', 'paused', 'held', 'final');

const job = {
  id: digits,
  queue: text,
  kind: text,
  key: orNull(text),
  status: jobStatus,
  priority: whole,
  attempt: whole,
  enqueuedAt: time,
  runAt: orNull(time),
  claimedAt: orNull(time),
  settledAt: orNull(time),
  processId: orNull(text),
  error: orNull(text),
  progress: any,
};

const stats = object({
  new: whole,
  'in-progress': whole,
  error: whole,
  cancelled: whole,
  ready: whole,
  delayed: whole,
  parked: whole,
  inProgress: whole,
  completePerMinute: whole,
  oldestReadyMs: orNull(whole),
  paused: yes,
  pausedAt: orNull(time),
  workers: whole,
  slots: whole,
});

const lockOutcome = one('released', 'broken', 'expired');
const holder = {
  name: text,
  mode: lockMode,
  'permits?': orNull(whole),
  host: text,
  pid: whole,
  job: orNull(digits),
  since: time,
};

const actor = {
  id: digits,
  type: text,
  state: text,
  status: actorStatus,
  key: orNull(text),
  parent: orNull(digits),
  attempt: whole,
  error: orNull(text),
  enteredAt: time,
  wakeAt: orNull(time),
  createdAt: time,
};

const machine = object({
  initial: text,
  always: map(text),
  states: map(
    object({ to: list(text), 'everyMs?': number, 'timeoutMs?': number, 'deadlineMs?': number, 'hold?': text }),
  ),
});

const bulk = {
  id: digits,
  who: text,
  action: one('retry', 'cancel'),
  queue: orNull(text),
  query: text,
  reason: orNull(text),
  limit: whole,
  status: one('waiting', 'running', 'done', 'stopped', 'failed'),
  startedAt: time,
  endedAt: orNull(time),
  found: whole,
  collected: yes,
  done: whole,
  refused: whole,
  error: orNull(text),
};

const pageOfActors = {
  id: digits,
  tag: text,
  severity: one('info', 'warning', 'error', 'critical'),
  status: one('open', 'acked', 'resolved'),
  summary: text,
  actor: orNull(digits),
  root: orNull(text),
  suppressed: yes,
  count: whole,
  openedAt: time,
  seenAt: time,
  ackedAt: orNull(time),
  ackedBy: orNull(text),
  resolvedAt: orNull(time),
};

const consumer = object({
  entity: text,
  name: text,
  guarantee: one('latest', 'ordered'),
  outstanding: whole,
  oldestMs: orNull(number),
  failing: whole,
  error: orNull(text),
  sweepDone: orNull(whole),
  sweepTotal: orNull(whole),
});

const capture = { entity: text, root: text, tables: list(text), consumers: list(consumer) };
const differences = list(object({ kind: text, object: text, problem: text }));
const values = orNull(map(orNull(text)));

const file = {
  namespace: text,
  id: text,
  version: whole,
  state: one('live', 'retired', 'deleting', 'deleted'),
  size: whole,
  sha256: text,
  contentType: orNull(text),
  author: orNull(text),
  writtenAt: time,
  retiredAt: orNull(time),
  keptUntil: orNull(time),
};

const standing = object({
  pid: whole,
  mode: one('share', 'exclusive'),
  since: orNull(time),
  application: orNull(text),
  blockedBy: list(whole),
});

const reload = { scope: text, host: text, pid: whole, since: time, expiresAt: time };

/** What the routes answer, by name. */
export const SCHEMAS: Readonly<Record<string, JsonSchema>> = {
  Error: ERROR_SCHEMA,
  Me: object({
    name: text,
    role: orNull(text),
    permissions: list(text),
    by: text,
    readOnly: yes,
    title: orNull(text),
    links: list(object({ title: text, of: one('job', 'actor', 'lock', 'queue'), url: text })),
    version: text,
    parts: map(yes),
  }),
  Done: object({ done: text }),
  Queue: object({
    name: text,
    shards: whole,
    keyed: yes,
    attempts: whole,
    historyMs: orNull(number),
    pausedAt: orNull(time),
    createdAt: time,
    kinds: list(text),
    workers: whole,
    stats,
  }),
  QueuePage: object({ items: list(ref('Queue')), after: orNull(text), total: whole }),
  Diagnosis: object({
    queue: text,
    isMoving: yes,
    findings: list(object({ code: text, text, level: one('ok', 'warning', 'error'), 'advice?': text })),
  }),
  Job: object(job),
  JobPage: object({ items: list(ref('Job')), after: orNull(text), indexBehind: whole }),
  JobDetail: object({
    ...job,
    'payload?': any,
    'result?': any,
    payloadHidden: yes,
    explanation: ref('JobExplanation'),
    history: list(ref('JobTransition')),
    unit: list(digits),
    locks: list(ref('JobLock')),
    traceparent: orNull(text),
    retriedFrom: orNull(digits),
    retriedAs: list(digits),
  }),
  JobLock: object({
    namespace: text,
    name: text,
    state: one('held', 'waiting', 'ended'),
    mode: lockMode,
    permits: orNull(whole),
    token: orNull(digits),
    host: text,
    pid: whole,
    since: time,
    endedAt: orNull(time),
    outcome: orNull(lockOutcome),
  }),
  JobExplanation: object({
    status: jobStatus,
    reasons: list(
      object({
        code: text,
        text,
        'job?': digits,
        'kind?': text,
        'until?': time,
        'since?': time,
        'worker?': text,
        'ahead?': whole,
      }),
    ),
  }),
  JobTransition: object({
    at: time,
    from: orNull(jobStatus),
    to: jobStatus,
    attempt: whole,
    processId: orNull(text),
    worker: orNull(text),
    reason: text,
    error: orNull(text),
  }),
  JobSiblings: object({
    items: list(
      object({
        id: digits,
        kind: text,
        status: jobStatus,
        processId: orNull(text),
        enqueuedAt: time,
        settledAt: orNull(time),
      }),
    ),
  }),
  Json: any,
  Enqueued: object({ id: digits, status: jobStatus, duplicate: yes }),
  EnqueuedList: object({ items: list(ref('Enqueued')) }),
  JobRetried: object({ id: digits, status: jobStatus, 'duplicate?': yes, 'retriedFrom?': digits }),
  JobCancelled: object({ id: digits, status: jobStatus, cancelling: yes }),
  Bulk: object(bulk),
  BulkPreview: object({ found: whole, fitting: whole, isAll: yes, sample: list(ref('Job')) }),
  BulkPage: page(ref('Bulk')),
  BulkResultPage: page(object({ job: digits, outcome: one('done', 'refused'), detail: text })),
  Schedule: object({
    queue: text,
    name: text,
    cron: text,
    timezone: text,
    kind: text,
    key: orNull(text),
    priority: whole,
    missed: one('skip', 'one', 'all'),
    nextAt: orNull(time),
    lastAt: orNull(time),
    next: list(time),
  }),
  ScheduleList: object({ items: list(ref('Schedule')) }),
  Lock: object({
    namespace: text,
    name: text,
    holders: whole,
    waiters: whole,
    mode: orNull(lockMode),
    permits: orNull(whole),
    token: orNull(digits),
    host: orNull(text),
    pid: orNull(whole),
    job: orNull(digits),
    since: orNull(time),
    expiresAt: orNull(time),
    waitingSince: orNull(time),
  }),
  LockPage: page(ref('Lock')),
  LockDetail: object({
    namespace: text,
    name: text,
    holders: list(
      object({ ...holder, token: digits, 'expiresAt?': time, 'leaseLeftMs?': number, 'lastHeartbeatAt?': time }),
    ),
    waiters: list(object({ ...holder, ticket: digits, waitedMs: number })),
    guardedBy: list(whole),
    blocking: list(text),
    cycles: list(list(text)),
    backends: list(ref('Backend')),
  }),
  Backend: object({ pid: whole, applicationName: text, query: text, blockedBy: list(whole) }),
  LockGraph: object({
    waits: list(
      object({
        namespace: text,
        name: text,
        claim: text,
        ticket: digits,
        host: text,
        pid: whole,
        job: orNull(digits),
        since: time,
        holders: list(object({ token: digits, host: text, pid: whole, job: orNull(digits) })),
        keeps: list(object({ name: text, token: digits })),
      }),
    ),
    backends: list(ref('Backend')),
    cycles: list(list(text)),
  }),
  HotLocks: object({
    items: list(object({ namespace: text, name: text, holds: whole, meanMs: number, maxMs: number, lost: whole })),
  }),
  LockPast: object({
    namespace: text,
    name: text,
    token: digits,
    mode: lockMode,
    permits: orNull(whole),
    host: text,
    pid: whole,
    job: orNull(digits),
    grantedAt: time,
    endedAt: time,
    outcome: lockOutcome,
    reason: orNull(text),
  }),
  LockPastPage: page(ref('LockPast')),
  Lease: object({ namespace: text, name: text, token: digits, handle: text, leaseMs: whole, expiresAt: time }),
  LockReleased: object({ released: yes, token: digits }),
  LockBroken: object({ broken: list(object({ token: digits, host: text, pid: whole, since: time })) }),
  ActorType: object({
    name: text,
    machine,
    semaphores: list(text),
    paused: yes,
    pausedStates: list(text),
    counts: map(whole),
    workers: whole,
  }),
  ActorTypeList: object({ items: list(ref('ActorType')) }),
  Actor: object(actor),
  ActorPage: page(ref('Actor')),
  ActorDetail: object({
    ...actor,
    visit: whole,
    epoch: whole,
    'fields?': any,
    'result?': any,
    payloadHidden: yes,
    version: whole,
    openChildren: whole,
    semaphores: map(whole),
    messages: whole,
    deadlineAt: orNull(time),
    finishedAt: orNull(time),
    pausedAt: orNull(time),
    typePausedAt: orNull(time),
    statePausedAt: orNull(time),
    held: orNull(text),
    lost: whole,
    dueInMs: orNull(number),
    worker: orNull(object({ id: digits, process: text, claimedAt: time, expiresAt: time, lost: yes })),
    workers: whole,
    ahead: orNull(whole),
    machine,
    explanation: object({
      id: digits,
      type: text,
      state: text,
      status: actorStatus,
      reasons: list(text),
      advice: list(text),
    }),
    history: list(ref('ActorTransition')),
    hasProgram: yes,
  }),
  ActorTransition: object({
    at: time,
    epoch: whole,
    from: orNull(text),
    to: text,
    reason: text,
    attempt: whole,
    error: orNull(text),
  }),
  ActorHistoryPage: page(ref('ActorTransition')),
  Raised: object({ raised: yes }),
  Turn: object({ kind: one('to', 'stay', 'done', 'failed', 'released'), from: text, to: text, error: orNull(text) }),
  PageOfActor: object(pageOfActors),
  PageDetail: object({ ...pageOfActors, details: any }),
  PagePage: page(ref('PageOfActor')),
  HistoryEvent: object({
    at: text,
    part: one('job', 'lock', 'actor', 'page', 'audit'),
    event: text,
    subject: text,
    id: text,
    detail: orNull(text),
    process: orNull(text),
    namespace: orNull(text),
  }),
  HistoryPage: page(ref('HistoryEvent')),
  Workers: object({
    queues: list(
      object({
        id: digits,
        queue: text,
        host: text,
        pid: whole,
        hold: one('lease', 'transaction'),
        concurrency: whole,
        inProgress: whole,
        startedAt: time,
        beatAt: time,
        isLive: yes,
      }),
    ),
    actors: list(
      object({
        id: digits,
        host: text,
        pid: whole,
        concurrency: whole,
        startedAt: time,
        beatAt: time,
        isLive: yes,
        types: list(text),
      }),
    ),
  }),
  Live: object({
    at: text,
    queues: list(object({ name: text, stats: map(any) })),
    locks: object({ held: whole, waiting: whole }),
    actors: list(object({ type: text, paused: yes, states: map(whole), workers: whole })),
    totals: object({
      queues: whole,
      ready: whole,
      delayed: whole,
      parked: whole,
      inProgress: whole,
      error: whole,
      cancelled: whole,
      completePerMinute: whole,
      workers: whole,
      slots: whole,
      paused: whole,
      unattended: whole,
      oldestReadyMs: orNull(whole),
    }),
    truncated: object({ queues: whole, actors: whole }),
    pages: object({ open: whole, acked: whole, worst: orNull(text) }),
    oldestTransactionMs: orNull(number),
    connections: whole,
    maxConnections: whole,
    wraparound: whole,
  }),
  Series: object({
    stepMs: whole,
    points: list(
      object({
        at: number,
        complete: number,
        errors: number,
        retries: number,
        ...times,
      }),
    ),
  }),
  Charts: object({
    since: number,
    until: number,
    stepMs: whole,
    truncated: whole,
    items: list(
      object({
        queue: text,
        kind: text,
        complete: number,
        errors: number,
        retries: number,
        ...times,
        points: list(object({ at: number, complete: number, errors: number, retries: number, ...times })),
      }),
    ),
  }),
  ErrorGroups: object({
    items: list(
      object({
        queue: text,
        kind: text,
        error: orNull(text),
        example: orNull(text),
        count: whole,
        firstAt: time,
        lastAt: time,
        jobs: list(digits),
      }),
    ),
    counted: whole,
    isAll: yes,
  }),
  Attention: object({
    items: list(object({ level: one('warning', 'error'), text, 'advice?': text, look: text })),
  }),
  Admin: object({
    server: object({
      version: text,
      database: text,
      user: text,
      roundTripMs: number,
      clockAheadMs: number,
      hasPooler: yes,
      isReadOnly: yes,
      connections: whole,
      maxConnections: whole,
      oldestTransaction: orNull(object({ pid: whole, application: text, ageMs: number })),
    }),
    migrations: object({
      state: one('current', 'behind', 'newer', 'changed'),
      problem: orNull(text),
      applied: list(object({ line: text, number: whole, name: text, appliedAt: time })),
      pending: list(object({ line: text, number: whole, name: text })),
      functions: list(
        object({ line: text, state: one('current', 'behind'), appliedAt: orNull(time), retired: list(text) }),
      ),
    }),
    tables: list(object({ name: text, bytes: number, rows: number, deadRows: number, vacuumedAt: orNull(time) })),
    process: object({ pid: whole, node: text, version: text, startedAt: time, watchers: whole, rssBytes: number }),
    settings: map(any),
  }),
  Audit: object({
    id: digits,
    at: time,
    endedAt: orNull(time),
    who: text,
    remote: orNull(text),
    userAgent: orNull(text),
    action: text,
    target: text,
    details: any,
    status: orNull(whole),
    outcome: one('unknown', 'done', 'refused'),
    error: orNull(text),
  }),
  AuditPage: page(ref('Audit')),
  DevControls: object({
    items: list(object({ id: text, title: text, about: text, look: text, isOn: yes })),
  }),
  CaptureList: object({
    items: list(object(capture)),
    missing: list(text),
    culprits: list(
      object({
        pid: orNull(whole),
        database: orNull(text),
        user: orNull(text),
        application: orNull(text),
        state: text,
        ageMs: number,
        holdsKeys: yes,
      }),
    ),
  }),
  CaptureDetail: object({ ...capture, differences, isDeclared: yes }),
  CapturePlan: object({ by: one('installed', 'declared'), sql: text, differences }),
  CaptureApplied: object({ mended: differences }),
  CaptureVerified: object({ isWhole: yes, differences }),
  CaptureReplayed: object({ begun: list(text), consumers: list(consumer) }),
  CaptureReconciled: object({
    items: list(object({ name: text, checked: whole, drifted: whole, keys: list(text) })),
  }),
  CaptureDetached: object({ entity: text, detached: yes }),
  Change: object({
    id: digits,
    at: time,
    table: text,
    op: one('insert', 'update', 'delete', 'truncate'),
    key: orNull(text),
    oldKey: orNull(text),
    before: values,
    after: values,
    actor: orNull(text),
    reason: orNull(text),
    dbUser: text,
  }),
  ChangePage: page(ref('Change')),
  File: object(file),
  FilePage: page(ref('File')),
  FileDetail: object({
    ...file,
    meta: map(text),
    object: text,
    live: orNull(whole),
    isOpen: yes,
    holders: list(standing),
    waiters: list(standing),
    reloads: list(object(reload)),
  }),
  FileWritten: object({ id: text, version: whole, previous: orNull(whole), size: whole, sha256: text }),
  FileRemoved: object({ id: text, removed: yes }),
  FileStores: object({
    items: list(
      object({
        namespace: text,
        kind: text,
        store: text,
        attachedAt: time,
        pass: number,
        probe: orNull(map(yes)),
        haltedAt: orNull(time),
        haltedBecause: orNull(text),
        pending: whole,
        retired: whole,
        deleting: whole,
        deleted: whole,
        due: whole,
        isOpen: yes,
      }),
    ),
  }),
  FileReloads: object({ items: list(object({ sha256: text, ...reload })) }),
  Swept: object({ condemned: whole, deleted: whole, deletedAgain: whole, failed: whole }),
  Reconciled: object({
    seen: whole,
    strangers: list(text),
    quarantined: list(text),
    damaged: list(object({ id: text, version: whole, object: text, damage: one('missing', 'size') })),
    failed: list(object({ name: text, error: text })),
    next: orNull(text),
  }),
  Health: object({ status: text, 'checks?': map(text) }),
};
