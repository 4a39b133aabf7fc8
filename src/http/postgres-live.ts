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
select to_json(extract(epoch from b.at) * 1000) as at, to_json(done.jobs::numeric) as complete, to_json(failed.errors::numeric) as errors, to_json(failed.retries::numeric) as retries,
  to_json(done.run_p50::numeric) as "runP50Ms", to_json(done.run_p95::numeric) as "runP95Ms", to_json(done.wait_p50::numeric) as "waitP50Ms", to_json(done.wait_p95::numeric) as "waitP95Ms"
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
      select y.jobs, extract(epoch from y.settled_at - y.claimed_at) * 1000 as run_ms,
        count(*) over () as seen, max(y.settled_at) over () as last_at,
        (select extract(epoch from y.claimed_at - greatest(j.created_at, j.run_at)) * 1000 from pawl.queue_job j where j.shard = y.shard and j.id = y.id) as wait_ms
      from (
        select z.* from (
          (select r.shard, r.claimed_at, r.settled_at, lower(r.ids) as id, pawl.queue_size(r.ids) as jobs from pawl.queue_receipt r
          where r.queue = q.id and r.settled_at >= b.at and r.settled_at < b.at + make_interval(secs => $4::float8 / 1000)
          order by r.settled_at limit $5::int)
          union all
          (select r.shard, r.claimed_at, r.settled_at, r.id, 1 from pawl.queue_receipt_one r
          where r.queue = q.id and r.settled_at >= b.at and r.settled_at < b.at + make_interval(secs => $4::float8 / 1000)
          order by r.settled_at limit $5::int)) z
        order by z.settled_at limit $5::int) y) r
    where $1::text is null or q.name = $1) x) done
cross join lateral (
  select coalesce(sum(t.n) filter (where t.to_status = 'error'), 0) as errors, coalesce(sum(t.n) filter (where t.to_status = 'new' and (t.error is not null or t.error_of is not null)), 0) as retries
  from pawl.queue_definition q cross join lateral (
    select t.to_status, t.error, t.error_of, t.n from pawl.queue_transition t
    where t.queue = q.id and t.at >= b.at and t.at < b.at + make_interval(secs => $4::float8 / 1000) order by t.at limit 1000) t
  where $1::text is null or q.name = $1) failed
order by b.at`,
);

const PING = statement('http.ping', 'select 1 as one');

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

type Row = Record<string, unknown>;

/** How everything stands now, and how it went. */
export class LiveStore {
  readonly #reads: PostgresEngine;

  constructor(reads: PostgresEngine) {
    this.#reads = reads;
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
}
