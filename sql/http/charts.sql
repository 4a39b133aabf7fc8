-- The charts over time, by queue and kind, and the groups of jobs in error. Both read tables that queues keep anyway; nothing is written
-- for them. A chart reads a few settlements of each queue and bucket, and a few jobs of each settlement. It scales these samples to the
-- bucket. So the number of queues and buckets bounds the cost of a chart, and the number of jobs does not.

-- One row for each queue and kind that ended or retried jobs from p_from to p_until, the busiest first. Without p_queue, it reads at most
-- p_most queues: those with the most settlements and moves, each counted to 1,000. In each row `others` is the number of queues left out.
create or replace function pawl.http_charts(p_queue text, p_from timestamptz, p_until timestamptz, p_step interval, p_most int)
returns table (
  queue text, kind text, complete double precision, errors double precision, retries double precision, times double precision[],
  points json, others int)
language plpgsql stable /* planner: loop */ set plan_cache_mode = force_generic_plan as $$
declare
  v_share constant double precision[] := array[0.5, 0.95, 0.99];
  v_queues smallint[];
  v_others int;
  v_each int;
begin
  select (array_agg(x.id order by x.n desc, x.id))[1:p_most], greatest(0, count(*) - p_most) into v_queues, v_others
  from (
    select d.id,
      (select count(*) from (select from pawl.queue_receipt r where r.queue = d.id and r.settled_at >= p_from and r.settled_at < p_until limit 1000) r)
      + (select count(*) from (select from pawl.queue_receipt_one r where r.queue = d.id and r.settled_at >= p_from and r.settled_at < p_until limit 1000) r)
      + (select count(*) from (select from pawl.queue_transition t where t.queue = d.id and t.at >= p_from and t.at < p_until limit 1000) t) as n
    from pawl.queue_definition d where p_queue is null or d.name = p_queue) x
  where x.n > 0;
  if v_queues is null then
    return;
  end if;
  -- Some 4,000 settlements in all, but at least eight of each bucket, which suffice for a rate.
  v_each := least(60, greatest(8, 4000 / (ceil(extract(epoch from p_until - p_from) / extract(epoch from p_step))::int * cardinality(v_queues))));
  return query
  with bucket as materialized (
    select b.at, least(b.at + p_step, p_until) as past from generate_series(p_from, p_until - interval '1 microsecond', p_step) b (at)
  ), settled as materialized (
    select q.id as queue, b.at, s.shard, s.claimed_at, s.picked, extract(epoch from s.settled_at - s.claimed_at) * 1000 as run_ms,
      -- If a bucket has more settlements than were read, their rate is assumed for the rest of the bucket.
      s.jobs / greatest(1, cardinality(s.picked)) * case when s.seen < v_each then 1
        else extract(epoch from b.past - b.at) / greatest(0.001, extract(epoch from s.last_at - b.at)) end as n
    from unnest(v_queues) q (id) cross join bucket b cross join lateral (
      select y.*, count(*) over () as seen, max(y.settled_at) over () as last_at,
        -- A random job of each step of a span: if kinds alternate, fixed steps would pick jobs of one kind only.
        array(select i + floor(random() * least(y.step, upper(u.span) - i))::bigint from unnest(y.ids) u (span)
          cross join lateral generate_series(lower(u.span), upper(u.span) - 1, y.step) i limit 4) as picked
      from (
        select z.*, greatest(1, z.jobs::bigint / 4) as step from (
          (select r.shard, r.claimed_at, r.settled_at, r.ids,
            (select sum(upper(u.span) - lower(u.span)) from unnest(r.ids) u (span))::double precision as jobs
          from pawl.queue_receipt r
          where r.queue = q.id and r.settled_at >= b.at and r.settled_at < b.past order by r.settled_at limit v_each)
          union all
          (select r.shard, r.claimed_at, r.settled_at, int8multirange(int8range(r.id, r.id + 1)), 1 from pawl.queue_receipt_one r
          where r.queue = q.id and r.settled_at >= b.at and r.settled_at < b.past order by r.settled_at limit v_each)) z
        order by z.settled_at limit v_each) y) s
  ), done as materialized (
    select s.queue, s.at, j.kind, s.n, s.run_ms,
      extract(epoch from s.claimed_at - greatest(j.created_at, j.run_at)) * 1000 as wait_ms
    from settled s cross join lateral unnest(s.picked) p (id) cross join lateral (
      select j.kind, j.created_at, j.run_at from pawl.queue_job j where j.shard = s.shard and j.id = p.id) j
  ), failed as materialized (
    select q.id as queue, b.at, t.to_status, j.kind,
      t.n * case when t.seen < 100 then 1
        else extract(epoch from b.past - b.at) / greatest(0.001, extract(epoch from t.last_at - b.at)) end as n
    from unnest(v_queues) q (id) cross join bucket b cross join lateral (
      select t.*, count(*) over () as seen, max(t.at) over () as last_at from (
        select t.at, t.shard, t.id, t.n, t.to_status, t.error, t.error_of from pawl.queue_transition t
        where t.queue = q.id and t.at >= b.at and t.at < b.past order by t.at limit 100) t) t
    cross join lateral (select j.kind from pawl.queue_job j where j.shard = t.shard and j.id = t.id) j
    where t.to_status = 'error' or t.to_status = 'new' and (t.error is not null or t.error_of is not null)
  ), point as (
    select x.queue, x.kind, x.at, sum(x.complete) as complete, sum(x.errors) as errors, sum(x.retries) as retries,
      percentile_cont(v_share) within group (order by x.run_ms) as run, percentile_cont(v_share) within group (order by x.wait_ms) as wait
    from (
      select d.queue, d.kind, d.at, d.n as complete, 0 as errors, 0 as retries, d.run_ms, d.wait_ms from done d
      union all
      select f.queue, f.kind, f.at, 0, case f.to_status when 'error' then f.n else 0 end, case f.to_status when 'new' then f.n else 0 end, null, null
      from failed f) x
    group by x.queue, x.kind, x.at
  ), line as (
    select p.queue, p.kind, sum(p.complete)::double precision as complete, sum(p.errors)::double precision as errors,
      sum(p.retries)::double precision as retries,
      json_agg(json_build_object('at', extract(epoch from p.at) * 1000, 'complete', p.complete, 'errors', p.errors, 'retries', p.retries,
        'runP50Ms', p.run[1], 'runP95Ms', p.run[2], 'runP99Ms', p.run[3],
        'waitP50Ms', p.wait[1], 'waitP95Ms', p.wait[2], 'waitP99Ms', p.wait[3]) order by p.at) as points
    from point p group by p.queue, p.kind
  )
  select d.name, k.name, l.complete, l.errors, l.retries,
    (select percentile_cont(v_share) within group (order by o.run_ms) || percentile_cont(v_share) within group (order by o.wait_ms)
      from done o where o.queue = l.queue and o.kind = l.kind),
    l.points, v_others
  from line l cross join lateral (select d.name from pawl.queue_definition d where d.id = l.queue) d
  cross join lateral (select k.name from pawl.queue_kind k where k.id = l.kind) k
  order by l.complete + l.errors + l.retries desc, d.name, k.name;
end $$;

-- The jobs that are in error now, in groups of one queue, kind and shape of error, the largest group first. It reads the newest p_most
-- jobs of each queue, and keeps the newest p_most of all. In each row, `read` is the number of these jobs since p_since, and `whole` says
-- whether no job was left out. To make a shape takes 18 µs, so jobs with equal errors share one.
create or replace function pawl.http_errors(p_queue text, p_kind text, p_since timestamptz, p_most int, p_groups int)
returns table (
  queue text, kind text, shape text, error text, n bigint, first_at timestamptz, last_at timestamptz, jobs text[], read bigint, whole boolean)
language plpgsql stable /* planner: loop */ set plan_cache_mode = force_generic_plan as $$
declare
  v_queues smallint[] := array(select d.id from pawl.queue_definition d where p_queue is null or d.name = p_queue);
begin
  return query
  with dead as materialized (
    select d.queue, d.kind, d.id, d.at, d.shard, d.error from unnest(v_queues) q (id) cross join lateral (
      select d.queue, d.kind, d.id, d.at, d.shard, d.error from pawl.queue_dead d
      where d.queue = q.id and d.status = 'error' order by d.id desc limit p_most) d
    order by d.id desc limit p_most
  ), same as materialized (
    select d.queue, d.kind, d.error, count(*) as n, min(d.at) as first_at, max(d.at) as last_at, max(d.id) as newest,
      array_to_string((array_agg(d.id order by d.id desc))[1:5], ',') as ids
    from dead d where p_since is null or d.at >= p_since group by d.queue, d.kind, d.error
  ), shaped as (
    select s.*, pawl.http_error_shape(s.error) as shape from same s
  )
  select q.name, k.name, x.shape, x.error, x.n, x.first_at, x.last_at,
    array(select i.id from unnest(string_to_array(x.ids, ',')) i (id) order by i.id::bigint desc limit 5),
    (select sum(s.n)::bigint from same s), (select count(*) < p_most from dead)
  from (
    select s.queue, s.kind, s.shape, (array_agg(s.error order by s.newest desc))[1] as error, sum(s.n)::bigint as n,
      min(s.first_at) as first_at, max(s.last_at) as last_at, string_agg(s.ids, ',') as ids
    from shaped s group by s.queue, s.kind, s.shape) x
  cross join lateral (select d.name from pawl.queue_definition d where d.id = x.queue) q
  cross join lateral (select k.name from pawl.queue_kind k where k.id = x.kind) k
  where p_kind is null or k.name = p_kind
  order by x.n desc, x.last_at desc
  limit p_groups;
end $$;

-- The shape of an error: its first line, with … in place of quoted texts, ids and numbers, so that similar errors have one shape. Quoted
-- texts are replaced first, because they may contain ids and numbers.
create or replace function pawl.http_error_shape(p_error text) returns text
language sql immutable parallel safe as $$
  select regexp_replace(regexp_replace(regexp_replace(left(split_part(p_error, e'\n', 1), 500),
    '"[^"]*"|''[^'']*''|`[^`]*`', '…', 'g'),
    e'[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}|\\m(?=[0-9a-fA-F]*[0-9])[0-9a-fA-F]{12,}\\M', '…', 'g'),
    '[0-9]+([.,:][0-9]+)*', '…', 'g')
$$;
