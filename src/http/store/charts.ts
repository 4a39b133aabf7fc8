import { instant, type PostgresEngine, statement } from '../../engine/postgres/index.ts';

/**
 * Figures over time. Of every queue and bucket at most $5 batches are read, and what they show is scaled to the bucket: the
 * cost is bounded by buckets and by the queues that had something to do, not by jobs.
 */
const SERIES = statement(
  'http.series',
  `
with active as materialized (
  select q.id from pawl.queue_definition q
  where ($1::text is null or q.name = $1) and (
    exists (select 1 from pawl.queue_receipt r where r.queue = q.id and r.settled_at >= to_timestamp($2::float8 / 1000) and r.settled_at < to_timestamp($3::float8 / 1000) + make_interval(secs => $4::float8 / 1000))
    or exists (select 1 from pawl.queue_receipt_one r where r.queue = q.id and r.settled_at >= to_timestamp($2::float8 / 1000) and r.settled_at < to_timestamp($3::float8 / 1000) + make_interval(secs => $4::float8 / 1000))
    or exists (select 1 from pawl.queue_transition t where t.queue = q.id and t.at >= to_timestamp($2::float8 / 1000) and t.at < to_timestamp($3::float8 / 1000) + make_interval(secs => $4::float8 / 1000)))
)
select to_json(extract(epoch from b.at) * 1000) as at, to_json(done.jobs::numeric) as complete, to_json(failed.errors::numeric) as errors, to_json(failed.retries::numeric) as retries,
  to_json(done.run[1]::numeric) as "runP50Ms", to_json(done.run[2]::numeric) as "runP95Ms", to_json(done.run[3]::numeric) as "runP99Ms",
  to_json(done.wait[1]::numeric) as "waitP50Ms", to_json(done.wait[2]::numeric) as "waitP95Ms", to_json(done.wait[3]::numeric) as "waitP99Ms"
from generate_series(to_timestamp($2::float8 / 1000), to_timestamp($3::float8 / 1000), make_interval(secs => $4::float8 / 1000)) b (at)
cross join lateral (
  select coalesce(sum(x.jobs), 0) as jobs,
    percentile_cont(array[0.5, 0.95, 0.99]) within group (order by x.run_ms) as run,
    percentile_cont(array[0.5, 0.95, 0.99]) within group (order by x.wait_ms) as wait
  from (
    select r.run_ms, r.wait_ms,
      case when r.seen < $5::int then r.jobs
        else r.jobs * $4::float8 / greatest(1, extract(epoch from r.last_at - b.at) * 1000) end as jobs
    from active q cross join lateral (
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
        order by z.settled_at limit $5::int) y) r) x) done
cross join lateral (
  select coalesce(sum(t.n) filter (where t.to_status = 'error'), 0) as errors, coalesce(sum(t.n) filter (where t.to_status = 'new' and (t.error is not null or t.error_of is not null)), 0) as retries
  from active q cross join lateral (
    select t.to_status, t.error, t.error_of, t.n from pawl.queue_transition t
    where t.queue = q.id and t.at >= b.at and t.at < b.at + make_interval(secs => $4::float8 / 1000) order by t.at limit 1000) t) failed
order by b.at`,
);

const CHARTS = statement(
  'http.charts',
  `
select queue, kind, complete, errors, retries, times, points, others
from pawl.http_charts($1::text, to_timestamp($2::float8 / 1000), to_timestamp($3::float8 / 1000), make_interval(secs => $4::float8 / 1000), $5::int)`,
);

const ERRORS = statement(
  'http.errors',
  `
select queue, kind, shape, error, n::int as count, ${instant('first_at')} as "firstAt", ${instant('last_at')} as "lastAt", jobs, read::int as read, whole
from pawl.http_errors($1::text, $2::text, $3::timestamptz, $4::int, $5::int)`,
);

type Row = Record<string, unknown>;

export interface ChartRow {
  readonly queue: string;
  readonly kind: string;
  readonly complete: number;
  readonly errors: number;
  readonly retries: number;
  /** p50, p95 and p99 of running, then of waiting; null when nothing was completed. */
  readonly times: readonly number[] | null;
  readonly points: readonly object[];
  readonly others: number;
}

export interface ErrorRow {
  readonly queue: string;
  readonly kind: string;
  readonly shape: string | null;
  readonly error: string | null;
  readonly count: number;
  readonly firstAt: Date;
  readonly lastAt: Date;
  readonly jobs: readonly string[];
  readonly read: number;
  readonly whole: boolean;
}

/** How it went: over time, and what went wrong. */
export class ChartStore {
  readonly #reads: PostgresEngine;

  constructor(reads: PostgresEngine) {
    this.#reads = reads;
  }

  series(queue: string | undefined, from: number, to: number, stepMs: number, batches: number): Promise<Row[]> {
    return this.#reads.query(SERIES, [queue ?? null, from, to, stepMs, batches]);
  }

  /** By queue and kind; without a queue of the `most` busiest. */
  charts(queue: string | undefined, from: number, to: number, stepMs: number, most: number): Promise<ChartRow[]> {
    return this.#reads.query<ChartRow>(CHARTS, [queue ?? null, from, to, stepMs, most]);
  }

  /** Of the newest `most` jobs in error the largest groups. */
  errors(
    of: { readonly queue: string | undefined; readonly kind: string | undefined; readonly since: Date | undefined },
    most: number,
    groups: number,
  ): Promise<ErrorRow[]> {
    return this.#reads.query<ErrorRow>(ERRORS, [of.queue ?? null, of.kind ?? null, of.since ?? null, most, groups]);
  }
}
