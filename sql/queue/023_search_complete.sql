-- Searches for what is complete pass over whatever nobody has settled yet. Until now a million jobs that wait were walked through
-- a thousand at a time, each step longer than the budget of a page, and page after page was empty.
-- Older workers may keep running: the functions answer as before.

-- As in 018, but where the others are is one set of ranges, in which each job is looked up by halving: as a list it was walked
-- for every job.
create or replace function pawl.queue_search_complete(p_query pawl.queue_query, p_shards smallint[], p_from bigint, p_to bigint, p_limit int) returns bigint[]
language plpgsql stable
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $$
begin
  return array(
    with job as materialized (
      select j.shard, j.id, j.queue, j.kind, j.priority, j.key from unnest(p_shards) s (shard) cross join lateral (
        select j.* from pawl.queue_job j
        where j.shard = s.shard and j.id >= p_from and j.id < p_to
          and (p_query.queue is null or j.queue = p_query.queue) and (p_query.kinds is null or j.kind = any (p_query.kinds))
          and (p_query.since is null or j.created_at >= p_query.since) and (p_query.until is null or j.created_at < p_query.until)) j
    ), line as materialized (
      select distinct j.shard, j.queue, j.priority from job j
    ), run as materialized (
      -- Runs that begin in the range, and the one before it, which may reach into it.
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
    order by j.id desc limit p_limit);
end $$;

-- What is complete has a receipt, for as long as it is there. Answers below which id the newest of them may be, above p_low: the
-- ids are passed over in strides that double while there is no receipt in them, and halve when there is. Of whichever queue: the
-- index of receipts knows ids alone.
create function pawl.queue_search_settled(p_before bigint, p_low bigint) returns bigint
language plpgsql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $$
declare
  v_last bigint;
  v_stride bigint := 1024;
begin
  -- Beyond the last id there is nothing.
  select s.last_value + 1 into v_last from pawl.queue_job_id s;
  p_before := least(p_before, v_last);
  while p_before > p_low loop
    if exists (select from pawl.queue_receipt r where r.ids && int8range(greatest(p_before - v_stride, p_low), p_before)) then
      exit when v_stride <= 1024;
      v_stride := v_stride / 2;
    else
      p_before := p_before - v_stride;
      v_stride := v_stride * 2;
    end if;
  end loop;
  return greatest(p_before, p_low);
end $$;

-- As in 014, but what nobody has settled is passed over where only what is complete is wanted.
create or replace function pawl.queue_search_all(p_query pawl.queue_query, p_before bigint, p_limit int, p_end timestamptz, out ids bigint[], out horizon bigint)
language plpgsql stable
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan as $$
declare
  v_sealed bigint;
  v_from bigint;
  v_to bigint;
  v_shards smallint[];
  v_chunks bigint[];
  -- A job that holds a unique key for ever outlives its receipt: where there is any, nothing is passed over.
  v_passes boolean := p_query.status = 'complete' and not exists (select from pawl.queue_job j where j.only_one);
begin
  ids := '{}';
  horizon := p_before;
  select s.sealed_to into v_sealed from pawl.queue_search_state s;
  if horizon > v_sealed then
    v_shards := array(
      select j.shard from generate_series(0, 255) s cross join lateral (
        select j.shard from pawl.queue_job j where j.shard = s::smallint and j.id >= v_sealed limit 1) j);
    while horizon > v_sealed loop
      if v_passes then
        horizon := pawl.queue_search_settled(horizon, v_sealed);
        exit when horizon = v_sealed;
      end if;
      select min(x.id) into v_from from (
        select j.id from unnest(v_shards) s (shard) cross join lateral (
          select j.id from pawl.queue_job j where j.shard = s.shard and j.id >= v_sealed and j.id < horizon order by j.id desc limit 1024) j
        order by j.id desc limit 1024) x;
      if v_from is null then
        horizon := v_sealed;
        exit;
      end if;
      ids := ids || pawl.queue_search_range(p_query, v_shards, v_from, horizon, p_limit - cardinality(ids));
      horizon := v_from;
      if cardinality(ids) >= p_limit or clock_timestamp() > p_end then
        return;
      end if;
    end loop;
  end if;
  -- The index is asked by itself: the words of a chunk are too long to be read for a comparison.
  if p_query.buckets = '{}' then
    select array_agg(c.id_from order by c.id_from desc) into v_chunks from pawl.queue_search_chunk c where c.id_from < horizon
      and (p_query.queue is null or p_query.queue = any (c.queues)) and (p_query.kinds is null or c.kinds && p_query.kinds)
      and (p_query.since is null or c.last_at >= p_query.since) and (p_query.until is null or c.first_at < p_query.until);
  else
    select array_agg(c.id_from order by c.id_from desc) into v_chunks
    from (select c.* from pawl.queue_search_chunk c where c.words @> p_query.buckets offset 0) c where c.id_from < horizon
      and (p_query.queue is null or p_query.queue = any (c.queues)) and (p_query.kinds is null or c.kinds && p_query.kinds)
      and (p_query.since is null or c.last_at >= p_query.since) and (p_query.until is null or c.first_at < p_query.until);
  end if;
  foreach v_from in array coalesce(v_chunks, '{}') loop
    if cardinality(ids) >= p_limit or clock_timestamp() > p_end then
      return;
    end if;
    select c.id_to, c.shards into v_to, v_shards from pawl.queue_search_chunk c where c.id_from = v_from;
    horizon := v_from;
    continue when v_passes and not exists (select from pawl.queue_receipt r where r.ids && int8range(v_from, v_to));
    ids := ids || pawl.queue_search_range(p_query, v_shards, v_from, least(v_to, p_before), p_limit - cardinality(ids));
  end loop;
  horizon := 0;
end $$;
