import { type PostgresEngine, statement } from '../engine/postgres/index.ts';

/** Counts of the live picture stop at this many rows. */
const MOST = 10_000;

/** Everything that is shown live, in one statement of bounded cost: every count stops at 10,000. */
const SNAPSHOT = statement(
  'http.snapshot',
  `
select json_build_object(
  'at', clock_timestamp(),
  'queues', coalesce((
    select json_agg(json_build_object('name', d.name, 'stats', pawl.queue_stats(d.name, $1::int)) order by d.name)
    from (select d.name from pawl.queue_definition d order by d.name limit 200) d), '[]'),
  'locks', json_build_object(
    'held', (select count(*) from (select 1 from pawl.lock_grant g where g.token is not null and g.expires_at > clock_timestamp() limit $1) x),
    'waiting', (select count(*) from (select 1 from pawl.lock_waiter w where w.expires_at > clock_timestamp() limit $1) x)),
  'actors', coalesce((
    select json_agg(json_build_object('type', t.name, 'paused', t.paused_at is not null, 'states', pawl.actor_counts(t.id, 1000),
      'workers', (select count(*) from pawl.actor_worker w where t.id = any (w.types) and w.expires_at > clock_timestamp())) order by t.name)
    from (select t.* from pawl.actor_type t order by t.name limit 200) t), '[]'),
  'pages', (
    select json_build_object('open', count(*) filter (where x.acked_at is null), 'acked', count(*) filter (where x.acked_at is not null),
      'worst', (array['info', 'warning', 'error', 'critical'])[max(x.severity)])
    from (select p.acked_at, p.severity from pawl.actor_page p where p.resolved_at is null limit $1) x),
  'oldestTransactionMs', (
    select round(extract(epoch from clock_timestamp() - min(a.xact_start)) * 1000) from pg_stat_activity a
    where a.datname = current_database() and a.pid <> pg_backend_pid() and a.backend_type = 'client backend'),
  'connections', (select count(*) from pg_stat_activity a where a.backend_type = 'client backend'),
  'maxConnections', current_setting('max_connections')::int,
  'wraparound', (select age(d.datfrozenxid) from pg_database d where d.datname = current_database())
) as answer`,
);

/**
 * Figures over time. Of every queue and bucket at most $5 batches are read, and what they show is scaled to the bucket: the
 * cost is bounded by buckets, not by jobs.
 */
const SERIES = statement(
  'http.series',
  `
select (extract(epoch from b.at) * 1000)::float8 as at, done.jobs::float8 as complete, failed.errors::float8 as errors, failed.retries::float8 as retries,
  done.run_p50::float8 as "runP50Ms", done.run_p95::float8 as "runP95Ms", done.wait_p50::float8 as "waitP50Ms", done.wait_p95::float8 as "waitP95Ms"
from generate_series(to_timestamp($2::float8 / 1000), to_timestamp($3::float8 / 1000), make_interval(secs => $4::float8 / 1000)) b (at)
cross join lateral (
  select coalesce(sum(x.jobs), 0) as jobs,
    percentile_cont(0.5) within group (order by x.run_ms) as run_p50, percentile_cont(0.95) within group (order by x.run_ms) as run_p95,
    percentile_cont(0.5) within group (order by x.wait_ms) as wait_p50, percentile_cont(0.95) within group (order by x.wait_ms) as wait_p95
  from (
    select r.run_ms, r.wait_ms,
      case when r.seen < $5::int then r.jobs
        else r.jobs * $4::float8 / greatest(1, extract(epoch from r.last_at - b.at) * 1000) end as jobs
    from pawl.queue_definition q cross join lateral (
      select pawl.queue_size(y.ids) as jobs, extract(epoch from y.settled_at - y.claimed_at) * 1000 as run_ms,
        count(*) over () as seen, max(y.settled_at) over () as last_at,
        (select extract(epoch from y.claimed_at - greatest(j.created_at, j.run_at)) * 1000 from pawl.queue_job j where j.shard = y.shard and j.id = lower(y.ids)) as wait_ms
      from (
        select r.* from pawl.queue_receipt r
        where r.queue = q.id and r.settled_at >= b.at and r.settled_at < b.at + make_interval(secs => $4::float8 / 1000)
        order by r.settled_at limit $5::int) y) r
    where $1::text is null or q.name = $1) x) done
cross join lateral (
  select count(*) filter (where t.to_status = 'error') as errors, count(*) filter (where t.to_status = 'new' and t.error is not null) as retries
  from pawl.queue_definition q cross join lateral (
    select t.to_status, t.error from pawl.queue_transition t
    where t.queue = q.id and t.at >= b.at and t.at < b.at + make_interval(secs => $4::float8 / 1000) order by t.at limit 1000) t
  where $1::text is null or q.name = $1) failed
order by b.at`,
);

/** To the letter: numbers beyond 2^53 stay what they are. */
const PAYLOAD = statement(
  'http.payload',
  `
select j.payload::text as payload, o.result::text as result, o.progress::text as progress
from pawl.queue_job j left join pawl.queue_output o on o.shard = j.shard and o.id = j.id
where j.shard = pawl.queue_find(null, $1::bigint) and j.id = $1::bigint`,
);

const ENQUEUE = statement(
  'http.enqueue',
  `select pawl.enqueue(($1::jsonb - 'queue') || jsonb_build_object('queue', $2::text)) as answer`,
);

const ENQUEUE_TRACED = statement(
  'http.enqueue_traced',
  `
with added as materialized (
  select pawl.enqueue(($1::jsonb - 'queue') || jsonb_build_object('queue', $2::text)) as answer
), trace as (
  insert into pawl.queue_trace (id, parent) select (a.answer ->> 'id')::bigint, $3::text from added a where not (a.answer ->> 'duplicate')::boolean
)
select a.answer from added a`,
);

const TRACE = statement('http.trace', 'select t.parent from pawl.queue_trace t where t.id = $1::bigint');

/** Jobs of the same key around one, and those that ran as one unit with it. */
const SIBLINGS = statement(
  'http.siblings',
  `
select j.id::text as id, j.kind, j.status, j.process_id::text as "processId", j.enqueued_at as "enqueuedAt", j.settled_at as "settledAt"
from pawl.queue_job me
cross join lateral (
  (select o.shard, o.id from pawl.queue_job o where o.shard = me.shard and o.queue = me.queue and o.key = me.key and o.id < me.id order by o.id desc limit 15)
  union all
  (select o.shard, o.id from pawl.queue_job o where o.shard = me.shard and o.queue = me.queue and o.key = me.key and o.id > me.id order by o.id limit 15)
) near
join pawl.job j on j.shard = near.shard and j.id = near.id
where me.shard = pawl.queue_find(null, $1::bigint) and me.id = $1::bigint
order by j.id`,
);

/** Names that are held or waited for, a page by name: the indexes give them in order. */
const LOCKS = statement(
  'http.locks',
  `
with name as (
  select n.space, n.name from (
    (select distinct g.space, g.name from pawl.lock_grant g
      where g.token is not null and g.expires_at > clock_timestamp() and (g.space, g.name) > ($1::text collate "C", $2::text collate "C")
        and ($3::text is null or g.space = $3) and ($4::text is null or strpos(g.name, $4) > 0)
      order by g.space, g.name limit $6::int)
    union
    (select distinct w.space, w.name from pawl.lock_waiter w
      where w.expires_at > clock_timestamp() and (w.space, w.name) > ($1::text collate "C", $2::text collate "C")
        and ($3::text is null or w.space = $3) and ($4::text is null or strpos(w.name, $4) > 0)
      order by w.space, w.name limit $6::int)
  ) n
  where not $5::boolean or exists (
    select 1 from pawl.lock_waiter w where w.space = n.space and w.name = n.name and w.expires_at > clock_timestamp())
  order by n.space, n.name limit $6::int
)
select n.space as namespace, n.name,
  (select count(*)::int from pawl.lock_grant g where g.space = n.space and g.name = n.name and g.token is not null and g.expires_at > clock_timestamp()) as holders,
  (select count(*)::int from pawl.lock_waiter w where w.space = n.space and w.name = n.name and w.expires_at > clock_timestamp()) as waiters,
  h.mode, h.permits, h.token::text as token, h.host, h.pid, h.since, h.expires_at as "expiresAt",
  (select min(w.enqueued_at) from pawl.lock_waiter w where w.space = n.space and w.name = n.name and w.expires_at > clock_timestamp()) as "waitingSince"
from name n
left join lateral (
  select l.* from pawl.lock l where l.namespace = n.space and l.name = n.name and l.state = 'held' order by l.token limit 1) h on true
order by n.space, n.name`,
);

/** Every wait there is, up to 500: who waits for which name, who holds it, and what the waiter keeps meanwhile. */
const WAITS = statement(
  'http.waits',
  `
select w.space as namespace, w.name, left(md5(w.nonce::text), 12) as claim, w.ticket::text as ticket, w.host, w.pid, w.enqueued_at as since,
  (select coalesce(json_agg(json_build_object('token', g.token::text, 'host', g.host, 'pid', g.pid)), '[]') from (
    select g.* from pawl.lock_grant g where g.space = w.space and g.name = w.name and g.token is not null and g.expires_at > clock_timestamp() limit 20) g) as holders,
  (select coalesce(json_agg(json_build_object('name', g.name, 'token', g.token::text)), '[]') from pawl.lock_grant g where g.space = w.space and g.token = any (w.holds) and g.expires_at > clock_timestamp()) as keeps
from pawl.lock_waiter w
where w.expires_at > clock_timestamp() and ($1::text is null or w.space = $1)
order by w.space, w.name, w.ticket
limit 500`,
);

/** The names that were held most often, and longest, within the hour; of at most 20,000 holds. */
const HOTTEST = statement(
  'http.hottest',
  `
select x.space as namespace, x.name, count(*)::int as holds, round(extract(epoch from avg(x.ended_at - x.granted_at)) * 1000)::float8 as "meanMs",
  round(extract(epoch from max(x.ended_at - x.granted_at)) * 1000)::float8 as "maxMs", count(*) filter (where x.outcome <> 'released')::int as lost
from (select p.* from pawl.lock_past p where p.ended_at > clock_timestamp() - interval '1 hour' and ($1::text is null or p.space = $1) limit 20000) x
group by x.space, x.name
order by holds desc, x.name
limit 20`,
);

const LOCK_HISTORY = statement(
  'http.lock_history',
  `
select p.namespace, p.name, p.token::text as token, p.mode, p.permits, p.host, p.pid, p.granted_at as "grantedAt", p.ended_at as "endedAt", p.outcome, p.reason
from pawl.lock_history p
where p.namespace = $1 and p.name = $2 and p.token < $3::bigint
order by p.token desc
limit $4::int`,
);

const PAGES = statement(
  'http.pages',
  `
select p.id::text as id, p.tag, p.severity, p.status, p.summary, p.actor_id::text as actor, p.root, p.suppressed, p.count,
  p.opened_at as "openedAt", p.seen_at as "seenAt", p.acked_at as "ackedAt", p.acked_by as "ackedBy", p.resolved_at as "resolvedAt"
from pawl.page p
where p.id < $1::bigint and ($2::text is null and p.status <> 'resolved' or $2 in (p.status, 'all')) and ($3::text is null or p.severity = $3)
order by p.id desc
limit $4::int`,
);

const ACTOR_WORKERS = statement(
  'http.actor_workers',
  `
select w.id::text as id, w.host, w.pid, w.concurrency, w.started_at as "startedAt", w.beat_at as "beatAt", w.expires_at > clock_timestamp() as "isLive",
  array(select t.name from pawl.actor_type t where t.id = any (w.types) order by t.name) as types
from pawl.actor_worker w
order by w.id
limit 1000`,
);

const AUDIT = statement(
  'http.audit',
  `
select a.id::text as id, a.at, a.ended_at as "endedAt", a.who, a.remote, a.user_agent as "userAgent", a.action, a.target, a.details, a.status, a.outcome, a.error
from pawl.audit a
where a.id < $1::bigint and ($2::text is null or a.who = $2) and ($3::text is null or a.action = $3)
order by a.id desc
limit $4::int`,
);

const AUDIT_BEGIN = statement(
  'http.audit_begin',
  `
insert into pawl.http_audit (who, remote, user_agent, action, target, details)
values ($1, $2, $3, $4, $5, $6::json)
returning id::text as id`,
);
const AUDIT_END = statement(
  'http.audit_end',
  'update pawl.http_audit set ended_at = clock_timestamp(), status = $2::smallint, error = $3 where id = $1::bigint',
);
const AUDIT_PRUNE = statement(
  'http.audit_prune',
  `
delete from pawl.http_audit
where id in (select a.id from pawl.http_audit a where a.at < clock_timestamp() - $1::float8 * interval '1 ms' order by a.at limit 1000)`,
);

/**
 * What happened, over all parts, newest first: of each part the newest that fit, then the newest of these. $1 since, $2 until,
 * $3 how many, $4 the only part, $5 a queue, type of actors or name of a lock, $6 a word.
 */
const HISTORY = statement(
  'http.history',
  `
select to_json(e.at) #>> '{}' as at, e.part, e.event, e.subject, e.id, e.detail, e.process, e.namespace
from (
  (select t.at, 'job' as part, t.reason as event, q.name as subject, t.id::text as id, left(t.error, 300) as detail, t.worker::text as process, null::text as namespace
  from pawl.queue_definition q cross join lateral (
    select t.* from pawl.queue_transition t
    where t.queue = q.id and t.at >= $1::timestamptz and t.at <= $2::timestamptz
      and ($6::text is null or t.id::text = $6 or strpos(lower(coalesce(t.error, t.reason)), lower($6)) > 0)
    order by t.at desc limit $3::int) t
  where ($4::text is null or $4 = 'job') and ($5::text is null or q.name = $5))
  union all
  (select r.settled_at, 'job', 'complete', q.name, lower(r.ids)::text,
    case when pawl.queue_size(r.ids) > 1 then pawl.queue_size(r.ids) || ' jobs in one batch' end, r.worker::text, null
  from pawl.queue_definition q cross join lateral (
    select r.* from pawl.queue_receipt r
    where r.queue = q.id and r.settled_at >= $1 and r.settled_at <= $2 and ($6::text is null or $6 ~ '^[0-9]{1,18}$' and r.ids @> $6::bigint)
    order by r.settled_at desc limit $3) r
  where ($4::text is null or $4 = 'job') and ($5::text is null or q.name = $5))
  union all
  (select p.ended_at, 'lock', p.outcome, p.name, p.token::text,
    coalesce(p.reason, 'held ' || round(extract(epoch from p.ended_at - p.granted_at)::numeric, 3) || ' s'), p.host || ':' || p.pid, p.space
  from pawl.lock_past p
  where ($4::text is null or $4 = 'lock') and p.ended_at >= $1 and p.ended_at <= $2 and ($5::text is null or p.name = $5)
    and ($6::text is null or strpos(lower(p.name || ' ' || coalesce(p.reason, '') || ' ' || p.host || ':' || p.pid), lower($6)) > 0)
  order by p.ended_at desc limit $3)
  union all
  (select g.granted_at, 'lock', 'granted', g.name, g.token::text, null, g.host || ':' || g.pid, g.space
  from pawl.lock_grant g
  where ($4::text is null or $4 = 'lock') and g.token is not null and g.granted_at >= $1 and g.granted_at <= $2 and ($5::text is null or g.name = $5)
    and ($6::text is null or strpos(lower(g.name || ' ' || g.host || ':' || g.pid), lower($6)) > 0)
  order by g.granted_at desc limit $3)
  union all
  (select h.at, 'actor', h.reason, t.name, h.actor::text, coalesce(h.from_state || ' → ', '') || h.to_state || coalesce(': ' || left(h.error, 300), ''), h.worker::text, null
  from pawl.actor_type t cross join lateral (
    select h.* from pawl.actor_transition h
    where h.type = t.id and h.at >= $1 and h.at <= $2
      and ($6::text is null or h.actor::text = $6 or strpos(lower(h.to_state || ' ' || h.reason || ' ' || coalesce(h.error, '')), lower($6)) > 0)
    order by h.at desc limit $3) h
  where ($4::text is null or $4 = 'actor') and ($5::text is null or t.name = $5))
  union all
  (select p.opened_at, 'page', 'opened', p.tag, p.id::text, p.summary, null, null
  from pawl.actor_page p
  where ($4::text is null or $4 = 'page') and p.opened_at >= $1 and p.opened_at <= $2 and ($5::text is null or p.tag = $5)
    and ($6::text is null or strpos(lower(p.tag || ' ' || p.summary), lower($6)) > 0)
  order by p.id desc limit $3)
  union all
  (select p.resolved_at, 'page', 'resolved', p.tag, p.id::text, p.summary, null, null
  from pawl.actor_page p
  where ($4::text is null or $4 = 'page') and p.resolved_at >= $1 and p.resolved_at <= $2 and ($5::text is null or p.tag = $5)
    and ($6::text is null or strpos(lower(p.tag || ' ' || p.summary), lower($6)) > 0)
  order by p.resolved_at desc limit $3)
  union all
  (select a.at, 'audit', a.action, a.target, a.id::text, a.error, a.who, null
  from pawl.http_audit a
  where ($4::text = 'audit' or $4 is null and $7::boolean) and $7::boolean and a.at >= $1 and a.at <= $2 and $5::text is null
    and ($6::text is null or strpos(lower(a.action || ' ' || a.target || ' ' || a.who), lower($6)) > 0)
  order by a.at desc limit $3)
) e
where $8::timestamptz is null or (e.at, e.part, e.event, e.id) < ($8::timestamptz, $9::text, $10::text, $11::text)
order by e.at desc, e.part desc, e.event desc, e.id desc
limit $3`,
  { prepare: false },
);

const DELETE_SCHEDULE = statement(
  'http.delete_schedule',
  'delete from pawl.queue_schedule where queue = pawl.queue_id($1::text) and name = $2::text returning name',
);
const RUN_SCHEDULE = statement(
  'http.run_schedule',
  `
select pawl.enqueue(jsonb_build_object('queue', q.name, 'kind', k.name, 'payload', s.payload::jsonb, 'priority', s.priority)
  || case when s.key is null then '{}' else jsonb_build_object('key', s.key) end) as answer
from pawl.queue_schedule s
join pawl.queue_definition q on q.id = s.queue
join pawl.queue_kind k on k.id = s.kind
where q.name = $1 and s.name = $2`,
);

const PING = statement('http.ping', 'select 1 as one');

/** One event of the history over all parts. `at` is to the microsecond. */
export interface HistoryEvent {
  readonly at: string;
  readonly part: 'job' | 'lock' | 'actor' | 'page' | 'audit';
  readonly event: string;
  readonly subject: string;
  readonly id: string;
  readonly detail: string | null;
  readonly process: string | null;
  /** Of a lock. */
  readonly namespace: string | null;
}

export interface HistoryQuery {
  readonly since: Date;
  readonly until: Date;
  readonly part: string | undefined;
  readonly subject: string | undefined;
  readonly word: string | undefined;
  readonly withAudit: boolean;
  readonly after: readonly [at: string, part: string, event: string, id: string] | undefined;
  readonly limit: number;
}

export interface LiveSnapshot {
  readonly at: string;
  readonly queues: readonly {
    readonly name: string;
    readonly stats: Readonly<Record<string, number | string | null>>;
  }[];
  readonly locks: { readonly held: number; readonly waiting: number };
  readonly actors: readonly {
    readonly type: string;
    readonly paused: boolean;
    readonly states: Readonly<Record<string, number>>;
    readonly workers: number;
  }[];
  readonly pages: { readonly open: number; readonly acked: number; readonly worst: string | null };
  readonly oldestTransactionMs: number | null;
  readonly connections: number;
  readonly maxConnections: number;
  /** Transaction ids used since the last freeze; at 2,000 million Postgres stops. */
  readonly wraparound: number;
}

export interface AuditEntry {
  readonly who: string;
  readonly remote: string | undefined;
  readonly userAgent: string | undefined;
  readonly action: string;
  readonly target: string;
  readonly details: string | null;
}

type Row = Record<string, unknown>;

/** The statements of this surface: what it shows beside what the capabilities offer, and its audit. */
export class HttpStore {
  readonly #reads: PostgresEngine;
  readonly #writes: PostgresEngine;

  /** @param reads  with a limit to how long a statement may take */
  constructor(reads: PostgresEngine, writes: PostgresEngine) {
    this.#reads = reads;
    this.#writes = writes;
  }

  async ping(): Promise<void> {
    await this.#reads.query(PING);
  }

  async snapshot(): Promise<LiveSnapshot> {
    const [row] = await this.#reads.query<{ answer: LiveSnapshot }>(SNAPSHOT, [MOST]);
    if (row === undefined) throw new Error('the database answered no row where one always comes');
    return row.answer;
  }

  series(queue: string | undefined, from: number, to: number, stepMs: number, batches: number): Promise<Row[]> {
    return this.#reads.query(SERIES, [queue ?? null, from, to, stepMs, batches]);
  }

  /** @throws NotFound */
  async payload(job: string): Promise<Record<'payload' | 'result' | 'progress', string | null> | undefined> {
    const [row] = await this.#reads.query<Record<'payload' | 'result' | 'progress', string | null>>(PAYLOAD, [job]);
    return row;
  }

  /** `request` is JSON, and is kept to the letter as far as jsonb does. @throws NotFound, InvalidInput */
  async enqueue(queue: string, request: string, trace: string | undefined): Promise<unknown> {
    const [row] =
      trace === undefined
        ? await this.#writes.query<{ answer: unknown }>(ENQUEUE, [request, queue])
        : await this.#writes.query<{ answer: unknown }>(ENQUEUE_TRACED, [request, queue, trace]);
    return row?.answer;
  }

  /** The trace that a job was enqueued in. */
  async trace(job: string): Promise<string | undefined> {
    const [row] = await this.#reads.query<{ parent: string }>(TRACE, [job]);
    return row?.parent;
  }

  siblings(job: string): Promise<Row[]> {
    return this.#reads.query(SIBLINGS, [job]);
  }

  locks(after: readonly [string, string], filter: LockFilter): Promise<(Row & { namespace: string; name: string })[]> {
    const { namespace, name, contended, limit } = filter;
    return this.#reads.query(LOCKS, [...after, namespace ?? null, name ?? null, contended, limit]);
  }

  waits(
    namespace: string | undefined,
  ): Promise<(Row & { namespace: string; name: string; keeps: readonly object[] })[]> {
    return this.#reads.query(WAITS, [namespace ?? null]);
  }

  hottest(namespace: string | undefined): Promise<Row[]> {
    return this.#reads.query(HOTTEST, [namespace ?? null]);
  }

  lockHistory(namespace: string, name: string, before: string, limit: number): Promise<(Row & { token: string })[]> {
    return this.#reads.query(LOCK_HISTORY, [namespace, name, before, limit]);
  }

  pages(
    before: string,
    status: string | undefined,
    severity: string | undefined,
    limit: number,
  ): Promise<(Row & { id: string })[]> {
    return this.#reads.query(PAGES, [before, status ?? null, severity ?? null, limit]);
  }

  actorWorkers(): Promise<Row[]> {
    return this.#reads.query(ACTOR_WORKERS);
  }

  audit(
    before: string,
    who: string | undefined,
    action: string | undefined,
    limit: number,
  ): Promise<(Row & { id: string })[]> {
    return this.#reads.query(AUDIT, [before, who ?? null, action ?? null, limit]);
  }

  history(query: HistoryQuery): Promise<HistoryEvent[]> {
    const { since, until, part, subject, word, withAudit, after, limit } = query;
    const [at = null, ...rest] = after ?? [];
    const from = [
      since,
      after === undefined ? until : at,
      limit,
      part ?? null,
      subject ?? null,
      word ?? null,
      withAudit,
    ];
    return this.#reads.query<HistoryEvent>(HISTORY, [...from, at, rest[0] ?? null, rest[1] ?? null, rest[2] ?? null]);
  }

  /** @returns whether there was one @throws NotFound  no such queue */
  async deleteSchedule(queue: string, name: string): Promise<boolean> {
    return (await this.#writes.query(DELETE_SCHEDULE, [queue, name])).length > 0;
  }

  /** Enqueues what a schedule would, now. @returns undefined when there is no such schedule */
  async runSchedule(queue: string, name: string): Promise<unknown> {
    const [row] = await this.#writes.query<{ answer: unknown }>(RUN_SCHEDULE, [queue, name]);
    return row?.answer;
  }

  /** Committed before the action begins. @returns its id */
  async beginAudit({ who, remote, userAgent, action, target, details }: AuditEntry): Promise<string> {
    const values = [who, remote ?? null, userAgent ?? null, action, target, details];
    const [row] = await this.#writes.query<{ id: string }>(AUDIT_BEGIN, values);
    return row?.id ?? '';
  }

  async endAudit(id: string, status: number, error: string | undefined): Promise<void> {
    await this.#writes.query(AUDIT_END, [id, status, error ?? null]);
  }

  async pruneAudit(keepMs: number): Promise<void> {
    await this.#writes.query(AUDIT_PRUNE, [keepMs]);
  }
}

export interface LockFilter {
  readonly namespace: string | undefined;
  readonly name: string | undefined;
  readonly contended: boolean;
  readonly limit: number;
}
