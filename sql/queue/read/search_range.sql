-- The steps of a search: which jobs of a range of ids fit.

-- The newest jobs of a range of ids that fit, p_limit at most.
create or replace function pawl.queue_search_range(p_query pawl.queue_query, p_shards smallint[], p_from bigint, p_to bigint, p_limit int) returns bigint[]
language plpgsql stable /* planner: loop */ set plan_cache_mode = force_generic_plan as $$
begin
  if p_query.likes = '{}' and p_query.status = 'complete' then
    return pawl.queue_search_complete(p_query, p_shards, p_from, p_to, p_limit);
  end if;
  if p_query.likes = '{}' then
    return array(
      select j.id from unnest(p_shards) s (shard) cross join lateral (
        select j.id from pawl.queue_job j
        where j.shard = s.shard and j.id >= p_from and j.id < p_to
          and (p_query.queue is null or j.queue = p_query.queue) and (p_query.kinds is null or j.kind = any (p_query.kinds))
          and (p_query.since is null or j.created_at >= p_query.since) and (p_query.until is null or j.created_at < p_query.until)
          and (p_query.status is null or (pawl.queue_job_place(j.shard, j.id, j.queue, j.kind, j.priority, j.key, j.group_name)).status = p_query.status)
        order by j.id desc limit p_limit) j
      order by 1 desc limit p_limit);
  end if;
  return array(
    select j.id from unnest(p_shards) s (shard) cross join lateral (
      select j.id from pawl.queue_job j cross join lateral (select pawl.queue_text(j.payload) as said offset 0) t
      where j.shard = s.shard and j.id >= p_from and j.id < p_to
        and (p_query.queue is null or j.queue = p_query.queue) and (p_query.kinds is null or j.kind = any (p_query.kinds))
        and (p_query.since is null or j.created_at >= p_query.since) and (p_query.until is null or j.created_at < p_query.until)
        and t.said like all (p_query.likes) and t.said ~ all (p_query.regexes)
        and (p_query.status is null or (pawl.queue_job_place(j.shard, j.id, j.queue, j.kind, j.priority, j.key, j.group_name)).status = p_query.status)
      order by j.id desc limit p_limit) j
    order by 1 desc limit p_limit);
end $$;

-- The newest p_block jobs below p_before that have the query's tag, or without one its key, or else its status: the indexes give these in order.
create or replace function pawl.queue_search_candidates(p_query pawl.queue_query, p_before bigint, p_block int) returns table (shard smallint, id bigint)
language plpgsql stable /* planner: loop */ set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
declare
  v_queues smallint[] := case when p_query.queue is null then array(select q.id from pawl.queue_definition q) else array[p_query.queue] end;
begin
  if p_query.tag is not null then
    return query select t.shard, t.id from unnest(v_queues) q (queue) cross join lateral (
      select t.shard, t.id from pawl.queue_tag t
      where t.queue = q.queue and t.tag = p_query.tag and t.id < p_before order by t.id desc limit p_block) t
    order by t.id desc limit p_block;
  elsif p_query.key is not null then
    return query select j.shard, j.id from unnest(v_queues) q (queue) cross join generate_series(0, 255) s cross join lateral (
      select j.shard, j.id from pawl.queue_job j
      where j.shard = s::smallint and j.queue = q.queue and j.key = p_query.key and j.id < p_before order by j.id desc limit p_block) j
    order by j.id desc limit p_block;
  elsif p_query.status in ('error', 'cancelled') then
    return query select d.shard, d.id from unnest(v_queues) q (queue) cross join lateral (
      select d.shard, d.id from pawl.queue_dead d
      where d.queue = q.queue and d.status = p_query.status and d.id < p_before order by d.id desc limit p_block) d
    order by d.id desc limit p_block;
  elsif p_query.status = 'in-progress' then
    return query select r.shard, i.id from pawl.queue_running r
    cross join lateral unnest(r.ids) u (span) cross join lateral generate_series(lower(u.span), upper(u.span) - 1) i (id)
    where r.queue = any (v_queues) and i.id < p_before order by i.id desc limit p_block;
  else
    return query
    with recursive head as (
      select s::smallint as shard, q.queue, r.priority from unnest(v_queues) q (queue) cross join generate_series(0, 255) s cross join lateral (
        select r.priority from pawl.queue_ready r where r.shard = s::smallint and r.queue = q.queue order by r.priority limit 1) r
      union all
      select h.shard, h.queue, r.priority from head h cross join lateral (
        select r.priority from pawl.queue_ready r
        where r.shard = h.shard and r.queue = h.queue and r.priority > h.priority order by r.priority limit 1) r
    )
    select x.shard, x.id from (
      select r.shard, r.id from head h cross join lateral (
        select r.shard, i.id from (
          select r.shard, r.id, r.n from pawl.queue_ready r
          where r.shard = h.shard and r.queue = h.queue and r.priority = h.priority and r.id < p_before order by r.id desc limit p_block) r
        cross join lateral generate_series(r.id + r.n - 1, r.id, -1) i (id)
        where i.id < p_before limit p_block) r
      union all
      select d.shard, d.id from generate_series(0, 255) s cross join lateral (
        select d.shard, i.id from (
          select d.shard, d.id, d.n from pawl.queue_delayed d
          where d.shard = s::smallint and d.id < p_before and d.queue = any (v_queues) order by d.id desc limit p_block) d
        cross join lateral generate_series(d.id + d.n - 1, d.id, -1) i (id)
        where i.id < p_before limit p_block) d
      union all
      select p.shard, p.id from pawl.queue_parked p where p.queue = any (v_queues) and p.id < p_before
      union all
      select g.shard, g.id from pawl.queue_grouped g where g.queue = any (v_queues) and g.id < p_before
    ) x order by x.id desc limit p_block;
  end if;
end $$;

-- Which of these candidates fit: the payload, or the payload and one of the errors together, has every term.
create or replace function pawl.queue_search_fit(p_query pawl.queue_query, p_shards smallint[], p_ids bigint[]) returns bigint[]
language plpgsql stable
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan as $$
begin
  return array(
    -- In steps, each more expensive than the one before.
    with said as materialized (
      select j.shard, j.id, j.queue, j.kind, j.priority, j.key, j.group_name, case when p_query.likes = '{}' then '' else pawl.queue_text(j.payload) end as said
      from unnest(p_shards, p_ids) u (shard, id)
      cross join lateral (select j.* from pawl.queue_job j where j.shard = u.shard and j.id = u.id) j
      where (p_query.queue is null or j.queue = p_query.queue) and (p_query.kinds is null or j.kind = any (p_query.kinds))
        and (p_query.key is null or j.key = p_query.key)
        and (p_query.tag is null or exists (select from pawl.queue_tag t where t.queue = j.queue and t.tag = p_query.tag and t.id = j.id))
        and (p_query.since is null or j.created_at >= p_query.since) and (p_query.until is null or j.created_at < p_query.until)
    ), fit as materialized (
      select s.* from said s
      where (s.said like all (p_query.likes) and s.said ~ all (p_query.regexes)) or exists (
        select 1 from pawl.queue_transitions(s.shard, s.id) e cross join lateral (select s.said || e' \n' || lower(e.error) as said offset 0) x
        where e.error is not null and x.said like all (p_query.likes) and x.said ~ all (p_query.regexes))
    )
    select f.id from fit f
    where p_query.status is null or (pawl.queue_job_place(f.shard, f.id, f.queue, f.kind, f.priority, f.key, f.group_name)).status = p_query.status
    order by f.id desc);
end $$;

-- The newest complete jobs of a range of ids: jobs that no other table has. Each table is asked once for the whole range, which takes a fiftieth of
-- asking for each job, and less where runs of ready jobs cover the range. The ids of the other jobs are one set of ranges, in which each job is found by
-- halving: a list would be walked for every job.
create or replace function pawl.queue_search_complete(p_query pawl.queue_query, p_shards smallint[], p_from bigint, p_to bigint, p_limit int) returns bigint[]
language plpgsql stable /* planner: loop */ set plan_cache_mode = force_generic_plan as $$
begin
  return array(
    with job as materialized (
      select j.shard, j.id, j.queue, j.kind, j.priority, j.key, j.group_name from unnest(p_shards) s (shard) cross join lateral (
        select j.* from pawl.queue_job j
        where j.shard = s.shard and j.id >= p_from and j.id < p_to
          and (p_query.queue is null or j.queue = p_query.queue) and (p_query.kinds is null or j.kind = any (p_query.kinds))
          and (p_query.since is null or j.created_at >= p_query.since) and (p_query.until is null or j.created_at < p_query.until)) j
    ), line as materialized (
      select distinct j.shard, j.queue, j.priority from job j
    ), run as materialized (
      -- Runs that begin in the range, and the run before it, which may reach into it.
      select r.id, r.n from line l cross join lateral (
        select r.id, r.n from pawl.queue_ready r
        where r.shard = l.shard and r.queue = l.queue and r.priority = l.priority and r.id >= p_from and r.id < p_to) r
      union all
      select r.id, r.n from line l cross join lateral (
        select r.id, r.n from pawl.queue_ready r
        where r.shard = l.shard and r.queue = l.queue and r.priority = l.priority and r.id < p_from order by r.id desc limit 1) r
    ), elsewhere as materialized (
      select coalesce(range_agg(x.span), '{}') as ids from (
        select int8range(r.id, r.id + r.n) as span from run r
        union all
        select int8range(d.id, d.id + d.n) from unnest(p_shards) s (shard) cross join lateral (
          select d.id, d.n from pawl.queue_delayed d where d.shard = s.shard and d.id >= p_from - 255 and d.id < p_to) d
        union all
        select int8range(d.id, d.id + 1) from unnest(p_shards) s (shard) cross join lateral (
          select d.id from pawl.queue_dead d where d.shard = s.shard and d.id >= p_from and d.id < p_to) d
        union all
        select u.span from unnest(p_shards) s (shard)
        cross join lateral (select r.ids from pawl.queue_running r where r.shard = s.shard and r.ids && int8range(p_from, p_to)) r
        cross join lateral unnest(r.ids) u (span)) x
    )
    select j.id from job j cross join elsewhere e
    where not e.ids @> j.id
      and (j.key is null or not exists (
        select from pawl.queue_parked p where p.shard = j.shard and p.queue = j.queue and p.key = j.key and p.kind = j.kind and p.id = j.id))
      and (j.group_name is null or not exists (
        select from pawl.queue_grouped g
        where g.shard = j.shard and g.queue = j.queue and g.group_name = j.group_name and g.priority = j.priority and g.id = j.id))
    order by j.id desc limit p_limit);
end $$;

-- A complete job has a receipt, for as long as its history lasts. Answers the id below which the newest complete job may be, above p_low. It passes over
-- ids in strides that double while they have no receipt, and halve when they have one. The receipts may be of any queue: their indexes know ids alone.
create or replace function pawl.queue_search_settled(p_before bigint, p_low bigint) returns bigint
language plpgsql stable /* planner: probe */ set plan_cache_mode = force_generic_plan as $$
declare
  v_last bigint;
  v_stride bigint := 1024;
begin
  -- There is nothing beyond the last id.
  select s.last_value + 1 into v_last from pawl.queue_job_id s;
  p_before := least(p_before, v_last);
  while p_before > p_low loop
    if pawl.queue_has_receipts(greatest(p_before - v_stride, p_low), p_before) then
      exit when v_stride <= 1024;
      v_stride := v_stride / 2;
    else
      p_before := p_before - v_stride;
      v_stride := v_stride * 2;
    end if;
  end loop;
  return greatest(p_before, p_low);
end $$;

-- Whether any job from p_from on, before p_to, has a receipt.
create or replace function pawl.queue_has_receipts(p_from bigint, p_to bigint) returns boolean
language sql stable as $$
  select exists (
      select from (select r.ids from pawl.queue_receipt r where r.key_hash = 0 and r.first_id < p_to order by r.first_id desc limit 1) r
      where upper(r.ids) > p_from)
    or exists (select from pawl.queue_receipt r where r.key_hash is null and r.ids && int8range(p_from, p_to))
    or exists (select from pawl.queue_receipt r where r.key_hash > 0 and r.ids && int8range(p_from, p_to))
    or exists (select from pawl.queue_receipt_one r where r.id >= p_from and r.id < p_to)
$$;

-- The id from which a step of a search reads: the 1,024 newest jobs below p_before, and from p_low on; null if there is none. A function of its own, for
-- its settings: a bitmap of a million jobs that were never analysed took 200 ms.
create or replace function pawl.queue_search_step(p_shards smallint[], p_before bigint, p_low bigint) returns bigint
language plpgsql stable /* planner: probe */ set plan_cache_mode = force_generic_plan as $$
begin
  return (
    select min(x.id) from (
      select j.id from unnest(p_shards) s (shard) cross join lateral (
        select j.id from pawl.queue_job j where j.shard = s.shard and j.id >= p_low and j.id < p_before order by j.id desc limit 1024) j
      order by j.id desc limit 1024) x);
end $$;

-- The shards that have jobs from p_low on.
create or replace function pawl.queue_search_shards(p_low bigint) returns smallint[]
language plpgsql stable /* planner: probe */ set plan_cache_mode = force_generic_plan as $$
begin
  return array(
    select j.shard from generate_series(0, 255) s cross join lateral (
      select j.shard from pawl.queue_job j where j.shard = s::smallint and j.id >= p_low limit 1) j);
end $$;
