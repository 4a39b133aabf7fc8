import { instant, type PostgresEngine, statement } from '../../../engine/postgres/index.ts';
import type { JobStatus } from '../../job.ts';

/** As text, so that numbers beyond 2^53 stay exact. */
const PAYLOAD = statement(
  'queue.payload',
  `
select j.payload::text as payload, coalesce(o.result, s.result)::text as result, o.progress::text as progress
from pawl.queue_job j left join pawl.queue_output o on o.shard = j.shard and o.id = j.id
left join pawl.queue_output s on s.shard = o.shard and s.id = o.result_of
where j.shard = pawl.queue_find(null, $1::bigint) and j.id = $1::bigint`,
);

/** The states of some jobs: a few index probes each. */
const STANDING = statement(
  'queue.standing',
  `
select u.id::text as id, x.status, x.attempt::int as attempt, ${instant('x.progress_at')} as "progressAt"
from pg_catalog.unnest($1::bigint[]) u (id) cross join lateral (
  select l.status, l.attempt, (select o.progress_at from pawl.queue_output o where o.shard = j.shard and o.id = j.id) as progress_at
  from pawl.queue_job j cross join lateral pawl.queue_job_place(j.shard, j.id, j.queue, j.kind, j.priority, j.key, j.group_name) l
  where j.shard = (select pawl.queue_shard_of(u.id)) and j.id = u.id offset 0) x`,
);

const TRACE = statement('queue.trace', 'select t.parent from pawl.queue_trace t where t.id = $1::bigint');

const RELATIONS = statement('queue.relations', 'select pawl.queue_relations($1::bigint) as answer');

/** Jobs of the same key around one job, and those that ran in one unit with it. */
const SIBLINGS = statement(
  'queue.siblings',
  `
select j.id::text as id, j.kind, j.status, j.process_id::text as "processId", ${instant('j.enqueued_at')} as "enqueuedAt", ${instant('j.settled_at')} as "settledAt"
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

/**
 * Figures over time. It reads at most $5 batches per queue and bucket, and scales their figures to the bucket: buckets and
 * active queues bound the cost, and not jobs.
 */
const SERIES = statement(
  'queue.series',
  `
with active as materialized (
  select q.id from pawl.queue_definition q
  where ($1::text is null or q.name = $1) and (
    exists (select 1 from pawl.queue_receipt r where r.queue = q.id and r.settled_at >= to_timestamp($2::float8 / 1000::float8) and r.settled_at < to_timestamp($3::float8 / 1000::float8) + make_interval(secs => $4::float8 / 1000::float8))
    or exists (select 1 from pawl.queue_receipt_one r where r.queue = q.id and r.settled_at >= to_timestamp($2::float8 / 1000::float8) and r.settled_at < to_timestamp($3::float8 / 1000::float8) + make_interval(secs => $4::float8 / 1000::float8))
    or exists (select 1 from pawl.queue_transition t where t.queue = q.id and t.at >= to_timestamp($2::float8 / 1000::float8) and t.at < to_timestamp($3::float8 / 1000::float8) + make_interval(secs => $4::float8 / 1000::float8)))
)
select pg_catalog.to_json(extract(epoch from b.at) * 1000::numeric) as at, pg_catalog.to_json(done.jobs::numeric) as complete, pg_catalog.to_json(failed.errors::numeric) as errors, pg_catalog.to_json(failed.retries::numeric) as retries,
  pg_catalog.to_json(done.run[1]::numeric) as "runP50Ms", pg_catalog.to_json(done.run[2]::numeric) as "runP95Ms", pg_catalog.to_json(done.run[3]::numeric) as "runP99Ms",
  pg_catalog.to_json(done.wait[1]::numeric) as "waitP50Ms", pg_catalog.to_json(done.wait[2]::numeric) as "waitP95Ms", pg_catalog.to_json(done.wait[3]::numeric) as "waitP99Ms"
from generate_series(to_timestamp($2::float8 / 1000::float8), to_timestamp($3::float8 / 1000::float8), make_interval(secs => $4::float8 / 1000::float8)) b (at)
cross join lateral (
  select coalesce(sum(x.jobs), 0) as jobs,
    percentile_cont(array[0.5, 0.95, 0.99]::float8[]) within group (order by x.run_ms) as run,
    percentile_cont(array[0.5, 0.95, 0.99]::float8[]) within group (order by x.wait_ms) as wait
  from (
    select r.run_ms, r.wait_ms,
      case when r.seen < $5::int then r.jobs::float8
        else r.jobs::float8 * $4::float8 / greatest(1::float8, extract(epoch from r.last_at - b.at)::float8 * 1000::float8) end as jobs
    from active q cross join lateral (
      select y.jobs, extract(epoch from y.settled_at - y.claimed_at) ::float8 * 1000::float8 as run_ms,
        count(*) over () as seen, max(y.settled_at) over () as last_at,
        (select extract(epoch from y.claimed_at - greatest(j.created_at, j.run_at))::float8 * 1000::float8 from pawl.queue_job j where j.shard = y.shard and j.id = y.id) as wait_ms
      from (
        select z.* from (
          (select r.shard, r.claimed_at, r.settled_at, pg_catalog.lower(r.ids) as id, pawl.queue_size(r.ids) as jobs from pawl.queue_receipt r
          where r.queue = q.id and r.settled_at >= b.at and r.settled_at < b.at + make_interval(secs => $4::float8 / 1000::float8)
          order by r.settled_at limit $5::int)
          union all
          (select r.shard, r.claimed_at, r.settled_at, r.id, 1 from pawl.queue_receipt_one r
          where r.queue = q.id and r.settled_at >= b.at and r.settled_at < b.at + make_interval(secs => $4::float8 / 1000::float8)
          order by r.settled_at limit $5::int)) z
        order by z.settled_at limit $5::int) y) r) x) done
cross join lateral (
  select coalesce(sum(t.n) filter (where t.to_status = 'error'), 0) as errors, coalesce(sum(t.n) filter (where t.to_status = 'new' and (t.error is not null or t.error_of is not null)), 0) as retries
  from active q cross join lateral (
    select t.to_status, t.error, t.error_of, t.n from pawl.queue_transition t
    where t.queue = q.id and t.at >= b.at and t.at < b.at + make_interval(secs => $4::float8 / 1000::float8) order by t.at limit 1000) t) failed
order by b.at`,
);

type Row = Record<string, unknown>;

/** The state of a job. */
export interface JobStanding {
  readonly id: string;
  readonly status: JobStatus;
  readonly attempt: number;
  readonly progressAt: Date | null;
}

/** A related job. */
export interface RelatedJob {
  readonly id: string;
  readonly queue: string;
  readonly kind: string;
  readonly status: JobStatus;
}

/** The relations of a job to others; fifty of each kind at most. */
export interface JobRelations {
  /** The jobs that it comes after. */
  readonly parents: readonly RelatedJob[];
  /** Jobs that come after it, and wait for it. */
  readonly children: readonly RelatedJob[];
  /** What happens to the job if one of its parents ended in error, or was cancelled; null without parents. */
  readonly afterError: string | null;
  readonly afterCancel: string | null;
  /** Batches that it comes after. */
  readonly afterBatches: readonly string[];
  /** Batches that wait for it. */
  readonly batches: readonly string[];
}

/** Jobs of all queues, and figures of queues over time, for the HTTP API. */
export class QueueOverview {
  readonly #reads: PostgresEngine;

  constructor(reads: PostgresEngine) {
    this.#reads = reads;
  }

  /** @throws NotFound */
  async payload(job: string): Promise<Record<'payload' | 'result' | 'progress', string | null> | undefined> {
    const [row] = await this.#reads.query<Record<'payload' | 'result' | 'progress', string | null>>(PAYLOAD, [job]);
    return row;
  }

  /** The states of the existing ones of these jobs. */
  standing(jobs: readonly string[]): Promise<JobStanding[]> {
    return this.#reads.query<JobStanding>(STANDING, [jobs]);
  }

  /** The trace in which a job was enqueued. */
  async trace(job: string): Promise<string | undefined> {
    const [row] = await this.#reads.query<{ parent: string }>(TRACE, [job]);
    return row?.parent;
  }

  async relations(job: string): Promise<JobRelations | undefined> {
    const [row] = await this.#reads.query<{ answer: JobRelations }>(RELATIONS, [job]);
    return row?.answer;
  }

  siblings(job: string): Promise<Row[]> {
    return this.#reads.query(SIBLINGS, [job]);
  }

  /** A point for each step; at most `batches` are read per queue and step. */
  series(queue: string | undefined, from: number, to: number, stepMs: number, batches: number): Promise<Row[]> {
    return this.#reads.query(SERIES, [queue ?? null, from, to, stepMs, batches]);
  }
}
