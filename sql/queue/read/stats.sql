-- How many jobs wait where. Every count stops at a limit.

-- The figures of one queue.
create or replace function pawl.queue_stats(p_name text, p_most int) returns json
language sql stable set search_path = pg_catalog, pg_temp as $$
  select f.stats from pawl.queue_figures(array[pawl.queue_id(p_name)], p_most) f
$$;

-- How many jobs of these queues (null: of all queues) wait in each place, in one statement. Every count stops at p_most rows, so the answer costs the
-- same however deep a queue is: some ten index probes for each queue and shard, 0.1 ms for a queue in which nothing waits.
-- The time is a variable: with clock_timestamp() in its place, the planner would not use the index for the last minute, and would read the whole history
-- of a quiet queue. The delayed jobs are read in the order of the one index that has the queue in it: if the statistics know a single queue, the
-- planner otherwise takes another index, and reads the delayed jobs of all queues for each of them.
create or replace function pawl.queue_figures(p_queues smallint[], p_most int) returns table (queue smallint, stats json)
language plpgsql stable /* planner: loop */ set plan_cache_mode = force_generic_plan as $$
declare
  v_queues smallint[] := coalesce(p_queues, array(
    select d.id from pawl.queue_definition d where d.removed_at is null or not pawl.queue_is_gone(d)));
  v_now timestamptz := clock_timestamp();
  v_since timestamptz := v_now - interval '1 minute';
  v_running jsonb;
begin
  -- One pass for all queues: no index finds the batches of one queue, so each of a thousand queues would read the batches of all.
  select jsonb_object_agg(x.queue, x.n) into v_running from (
    select r.queue, sum((select sum(upper(u.span) - lower(u.span)) from unnest(r.ids) u (span))) as n
    from pawl.queue_running r where r.queue = any (v_queues) group by r.queue) x;

  return query
  select d.id, json_build_object(
    'new', least(p_most, ready.n + delayed.n + parked.n + grouped.n), 'in-progress', running.n,
    'error', dead.error, 'cancelled', dead.cancelled,
    'ready', least(p_most, ready.n), 'delayed', delayed.n, 'parked', least(p_most, parked.n + grouped.n), 'inProgress', running.n,
    'completePerMinute', case when rate.batches < 1000 then rate.jobs
      else round(rate.jobs * 60 / greatest(0.001, extract(epoch from v_now - rate.since))) end,
    'oldestReadyMs', oldest.ms, 'pausedAt', d.paused_at, 'pausedParts', pawl.queue_shown_parts(d.paused_parts), 'workers', worker.n, 'slots', worker.slots,
    'blockedKeys', (select count(*) from (select from pawl.queue_blocked b where b.queue = d.id limit p_most) x))
  from unnest(v_queues) q (id)
  cross join lateral (select d.* from pawl.queue_definition d where d.id = q.id) d
  cross join lateral (
    select coalesce(sum(x.n), 0) as n from (
      select r.n from generate_series(0, d.shards - 1) s cross join lateral (
        select r.n from pawl.queue_ready r where r.shard = s::smallint and r.queue = d.id limit p_most) r limit p_most) x) ready
  cross join lateral (
    select least(p_most, coalesce(sum(x.n), 0)) as n from (
      select r.n from generate_series(0, d.shards - 1) s cross join lateral (
        select r.n from pawl.queue_delayed r where r.shard = s::smallint and r.queue = d.id order by r.run_at, r.id limit p_most) r
      limit p_most) x) delayed
  cross join lateral (
    select count(*) as n from (
      select from generate_series(0, d.shards - 1) s cross join lateral (
        select from pawl.queue_parked r where r.shard = s::smallint and r.queue = d.id limit p_most) r limit p_most) x) parked
  cross join lateral (
    select count(*) as n from (
      select from generate_series(0, case when d.per_group is not null then d.shards - 1 else -1 end) s cross join lateral (
        select from pawl.queue_grouped r where r.shard = s::smallint and r.queue = d.id limit p_most) r limit p_most) x) grouped
  cross join lateral (select least(p_most, coalesce((v_running ->> d.id::text)::bigint, 0)) as n) running
  cross join lateral (
    select
      (select count(*) from (select from pawl.queue_dead x where x.queue = d.id and x.status = 'error' limit p_most) x) as error,
      (select count(*) from (select from pawl.queue_dead x where x.queue = d.id and x.status = 'cancelled' limit p_most) x) as cancelled) dead
  cross join lateral (
    select count(*) as n, coalesce(sum(w.concurrency), 0) as slots
    from pawl.queue_worker w where w.queue = d.id and w.expires_at > v_now) worker
  -- In a very busy minute only the last batches are read, and their rate is scaled to the minute.
  -- Counted here and not by queue_size(), which takes 15 µs a batch.
  cross join lateral (
    select coalesce(sum(x.jobs), 0) as jobs, count(*) as batches, min(x.settled_at) as since from (
      select y.jobs, y.settled_at from (
        (select (select sum(upper(u.span) - lower(u.span)) from unnest(r.ids) u (span)) as jobs, r.settled_at from pawl.queue_receipt r
        where r.queue = d.id and r.settled_at > v_since order by r.settled_at desc limit 1000)
        union all
        (select 1, r.settled_at from pawl.queue_receipt_one r
        where r.queue = d.id and r.settled_at > v_since order by r.settled_at desc limit 1000)) y
      order by y.settled_at desc limit 1000) x) rate
  -- The first job of every priority and shard, which the index gives.
  cross join lateral (
    with recursive head as (
      select s::smallint as shard, r.priority, r.id from generate_series(0, d.shards - 1) s cross join lateral (
        select r.priority, r.id from pawl.queue_ready r where r.shard = s::smallint and r.queue = d.id order by r.priority, r.id limit 1) r
      union all
      select h.shard, r.priority, r.id from head h cross join lateral (
        select r.priority, r.id from pawl.queue_ready r
        where r.shard = h.shard and r.queue = d.id and r.priority > h.priority order by r.priority, r.id limit 1) r
    )
    select case when count(*) > 0 then
      greatest(0, ceil(extract(epoch from v_now - min(greatest(j.created_at, j.run_at))) * 1000))::bigint end as ms
    from (select h.shard, h.id from head h limit 1000) h
    cross join lateral (select j.created_at, j.run_at from pawl.queue_job j where j.shard = h.shard and j.id = h.id) j) oldest;
end $$;

-- Whether a queue has any work: the four places in one statement.
create or replace function pawl.queue_has_work(p_name text, out ready boolean, out parked boolean, out running boolean, out delayed boolean)
language plpgsql stable /* planner: probe */ as $$
declare
  v_queue smallint := pawl.queue_id(p_name);
  v_shards int;
begin
  select d.shards - 1 into v_shards from pawl.queue_definition d where d.id = v_queue;
  select coalesce(bool_or(exists (select 1 from pawl.queue_ready r where r.shard = s::smallint and r.queue = v_queue)), false),
    coalesce(bool_or(exists (select 1 from pawl.queue_parked r where r.shard = s::smallint and r.queue = v_queue)
      or exists (select 1 from pawl.queue_grouped r where r.shard = s::smallint and r.queue = v_queue)), false),
    coalesce(bool_or(exists (select 1 from pawl.queue_running r where r.shard = s::smallint and r.queue = v_queue)), false),
    coalesce(bool_or(exists (select 1 from pawl.queue_delayed r where r.shard = s::smallint and r.queue = v_queue)), false)
  into ready, parked, running, delayed from generate_series(0, v_shards) s;
end $$;

-- How long the oldest ready job has waited, in ms: reads the first job of every priority and shard, which the index gives.
create or replace function pawl.queue_oldest_ready(p_queue smallint, p_shards int) returns bigint
language sql stable /* planner: loop */ as $$
  with recursive head as (
    select s::smallint as shard, r.priority, r.id from generate_series(0, p_shards) s cross join lateral (
      select r.priority, r.id from pawl.queue_ready r where r.shard = s::smallint and r.queue = p_queue order by r.priority, r.id limit 1) r
    union all
    select h.shard, r.priority, r.id from head h cross join lateral (
      select r.priority, r.id from pawl.queue_ready r
      where r.shard = h.shard and r.queue = p_queue and r.priority > h.priority order by r.priority, r.id limit 1) r
  )
  select case when count(*) > 0 then
    greatest(0, ceil(extract(epoch from clock_timestamp() - min(greatest(j.created_at, j.run_at))) * 1000))::bigint end
  from (select h.shard, h.id from head h limit 1000) h
  cross join lateral (select j.created_at, j.run_at from pawl.queue_job j where j.shard = h.shard and j.id = h.id) j
$$;
