-- A job that was claimed by itself, inside the transaction that it ran in, has a receipt of its own kind: one id, which a B-tree
-- finds, instead of a set of ranges under a GiST index. That was a quarter of what the database did for such a job. Older workers
-- may keep running: they write the other kind, and what reads receipts reads both.

create table pawl.queue_receipt_one (
  claim       bigint not null,
  worker      bigint not null,
  id          bigint not null,
  claimed_at  timestamptz not null,
  settled_at  timestamptz not null,
  process_id  uuid not null,
  shard       smallint not null,
  queue       smallint not null,
  attempt     smallint not null
);
create index queue_receipt_one_id on pawl.queue_receipt_one (id);
create index queue_receipt_one_settled_at on pawl.queue_receipt_one (queue, settled_at);

-- Where one job is: place is ready, delayed, parked, running, dead or complete.
create or replace function pawl.queue_look(
  p_shard smallint, p_id bigint, p_queue smallint, p_kind smallint, p_priority smallint, p_key text,
  out place text, out status text, out attempt smallint, out run_at timestamptz, out claimed_at timestamptz,
  out settled_at timestamptz, out process_id uuid, out worker bigint, out error text, out epoch bigint
)
language plpgsql stable
set enable_seqscan = off set jit = off as $$
begin
  select 'dead', d.status, d.attempt, d.at, d.error into place, status, attempt, settled_at, error
  from pawl.queue_dead d where d.shard = p_shard and d.id = p_id;
  if found then
    select pawl.queue_process(t.process_id, p_id, k.coalesce <> 'none'), t.worker into process_id, worker
    from pawl.queue_moves(p_shard, p_id) t, pawl.queue_kind k
    where k.id = p_kind order by t.at desc limit 1;
    return;
  end if;
  select 'running', 'in-progress', r.attempt, r.claimed_at, pawl.queue_process(r.process_id, p_id, r.unit), r.worker
  into place, status, attempt, claimed_at, process_id, worker
  from pawl.queue_running r where r.shard = p_shard and r.ids @> p_id;
  if not found then
    select 'delayed', 'new', run.attempt, run.run_at, run.epoch into place, status, attempt, run_at, epoch
    from (
      select d.id + d.n as past, d.attempt, d.run_at, d.epoch from pawl.queue_delayed d
      where d.shard = p_shard and d.id <= p_id order by d.id desc limit 1
    ) run where run.past > p_id;
  end if;
  if place is null and p_key is not null then
    select 'parked', 'new', p.attempt into place, status, attempt
    from pawl.queue_parked p where p.shard = p_shard and p.queue = p_queue and p.key = p_key and p.kind = p_kind and p.id = p_id;
  end if;
  if place is null then
    select 'ready', 'new', run.attempt, run.epoch into place, status, attempt, epoch
    from (
      select r.id + r.n as past, r.attempt, r.epoch from pawl.queue_ready r
      where r.shard = p_shard and r.queue = p_queue and r.priority = p_priority and r.id <= p_id
      order by r.id desc limit 1
    ) run where run.past > p_id;
  end if;
  if place is null then
    place := 'complete';
    status := 'complete';
    select r.attempt, r.claimed_at, r.settled_at, pawl.queue_process(r.process_id, p_id, false), r.worker
    into attempt, claimed_at, settled_at, process_id, worker
    from pawl.queue_receipt_one r where r.id = p_id limit 1;
    if not found then
      select r.attempt, r.claimed_at, r.settled_at, pawl.queue_process(r.process_id, p_id, r.unit), r.worker
      into attempt, claimed_at, settled_at, process_id, worker
      from pawl.queue_receipt r where r.ids @> p_id limit 1;
    end if;
  elsif attempt > (place = 'running')::int then
    select t.error into error from pawl.queue_moves(p_shard, p_id) t
    where t.error is not null order by t.at desc limit 1;
  end if;
end $$;

-- Every move of one job.
create or replace function pawl.queue_history(p_shard smallint, p_id bigint)
returns table (at timestamptz, from_status text, to_status text, attempt smallint, process_id uuid, worker bigint, reason text, error text)
language sql stable rows 4
set enable_seqscan = off set jit = off as $$
  select m.at, m.from_status, m.to_status, m.attempt, m.process_id, m.worker, m.reason, m.error
  from (
    select 0 as nth, j.created_at as at, null as from_status, 'new' as to_status, 0::smallint as attempt, null::uuid as process_id,
      null::bigint as worker, 'enqueue' as reason, null as error
    from pawl.queue_job j where j.shard = p_shard and j.id = p_id
    union all
    select 1, r.claimed_at, 'new', 'in-progress', r.attempt, pawl.queue_process(r.process_id, p_id, r.unit), r.worker, 'claim', null
    from pawl.queue_running r where r.shard = p_shard and r.ids @> p_id
    union all
    select 1, r.claimed_at, 'new', 'in-progress', r.attempt, pawl.queue_process(r.process_id, p_id, r.unit), r.worker, 'claim', null
    from pawl.queue_receipt r where r.ids @> p_id
    union all
    select 2, r.settled_at, 'in-progress', 'complete', r.attempt, pawl.queue_process(r.process_id, p_id, r.unit), r.worker, 'complete', null
    from pawl.queue_receipt r where r.ids @> p_id
    union all
    select m.* from pawl.queue_receipt_one r
    cross join lateral pawl.queue_process(r.process_id, p_id, false) process
    cross join lateral (
      select 1, r.claimed_at, 'new', 'in-progress', r.attempt, process, r.worker, 'claim', null
      union all
      select 2, r.settled_at, 'in-progress', 'complete', r.attempt, process, r.worker, 'complete', null
    ) m
    where r.id = p_id
    union all
    select m.* from pawl.queue_moves(p_shard, p_id) t
    cross join lateral (select j.kind from pawl.queue_job j where j.shard = p_shard and j.id = p_id) j
    join pawl.queue_kind k on k.id = j.kind
    cross join lateral pawl.queue_process(t.process_id, p_id, k.coalesce <> 'none') process
    cross join lateral (
      select 1, t.claimed_at, 'new', 'in-progress', t.attempt, process, t.worker, 'claim', null where t.claimed_at is not null
      union all
      select 2, t.at, t.from_status, t.to_status, t.attempt, process, t.worker, t.reason, t.error
    ) m
  ) m
  order by m.at, m.nth
$$;

-- How many jobs wait in each place of these queues (null: of all of them), in one statement; every count stops at p_most rows, so
-- the answer costs the same however deep a queue is. For each queue and shard some ten index probes, 0.1 ms for a queue in which
-- nothing waits. The time is a variable: with clock_timestamp() in its place the index would not be asked for the last minute, and
-- the whole history of a quiet queue be read.
create function pawl.queue_figures(p_queues smallint[], p_most int) returns table (queue smallint, stats json)
language plpgsql stable
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off
set plan_cache_mode = force_generic_plan as $$
declare
  v_queues smallint[] := coalesce(p_queues, array(select d.id from pawl.queue_definition d));
  v_now timestamptz := clock_timestamp();
  v_since timestamptz := v_now - interval '1 minute';
begin
  return query
  select d.id, json_build_object(
    'new', least(p_most, ready.n + delayed.n + parked.n), 'in-progress', least(p_most, running.n),
    'error', dead.error, 'cancelled', dead.cancelled,
    'ready', least(p_most, ready.n), 'delayed', delayed.n, 'parked', parked.n, 'inProgress', least(p_most, running.n),
    'completePerMinute', case when rate.batches < 1000 then rate.jobs
      else round(rate.jobs * 60 / greatest(0.001, extract(epoch from v_now - rate.since))) end,
    'oldestReadyMs', oldest.ms, 'pausedAt', d.paused_at, 'workers', worker.n, 'slots', worker.slots)
  from unnest(v_queues) q (id)
  cross join lateral (select d.* from pawl.queue_definition d where d.id = q.id) d
  cross join lateral (
    select coalesce(sum(x.n), 0) as n from (
      select r.n from generate_series(0, d.shards - 1) s cross join lateral (
        select r.n from pawl.queue_ready r where r.shard = s::smallint and r.queue = d.id limit p_most) r limit p_most) x) ready
  cross join lateral (
    select least(p_most, coalesce(sum(x.n), 0)) as n from (
      select r.n from generate_series(0, d.shards - 1) s cross join lateral (
        select r.n from pawl.queue_delayed r where r.shard = s::smallint and r.queue = d.id limit p_most) r limit p_most) x) delayed
  cross join lateral (
    select count(*) as n from (
      select from generate_series(0, d.shards - 1) s cross join lateral (
        select from pawl.queue_parked r where r.shard = s::smallint and r.queue = d.id limit p_most) r limit p_most) x) parked
  cross join lateral (
    select coalesce(sum(upper(u.span) - lower(u.span)), 0) as n from (
      select r.ids from generate_series(0, d.shards - 1) s cross join lateral (
        select r.ids from pawl.queue_running r where r.shard = s::smallint and r.queue = d.id limit p_most) r limit p_most) x
    cross join lateral unnest(x.ids) u (span)) running
  cross join lateral (
    select
      (select count(*) from (select from pawl.queue_dead x where x.queue = d.id and x.status = 'error' limit p_most) x) as error,
      (select count(*) from (select from pawl.queue_dead x where x.queue = d.id and x.status = 'cancelled' limit p_most) x) as cancelled) dead
  cross join lateral (
    select count(*) as n, coalesce(sum(w.concurrency), 0) as slots
    from pawl.queue_worker w where w.queue = d.id and w.expires_at > v_now) worker
  -- Of a very busy minute only the last batches are looked at, and what they show is scaled to the minute.
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
  -- The first of every priority and shard, which the index gives.
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

-- The figures of one queue.
create or replace function pawl.queue_stats(p_name text, p_most int) returns json
language sql stable set search_path = pg_catalog, pg_temp as $$
  select f.stats from pawl.queue_figures(array[pawl.queue_id(p_name)], p_most) f
$$;

-- Removes settled jobs whose history is over, oldest first, at most p_limit of them. Live jobs are never touched; nor is
-- the job that holds a unique key: "one, ever" outlives its history.
create or replace function pawl.queue_prune(p_queue smallint, p_limit int) returns integer
language plpgsql
set enable_seqscan = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan as $$
declare
  v_past timestamptz;
  v_jobs integer := 0;
  v_receipts tid[];
  v_ones tid[];
  v_unique smallint[];
begin
  select clock_timestamp() - d.history into v_past from pawl.queue_definition d where d.id = p_queue;
  if v_past is null then
    return 0;
  end if;
  v_unique := array(select k.id from pawl.queue_kind k where k.queue = p_queue and k.unique_key);
  v_receipts := array(
    select r.ctid from pawl.queue_receipt r where r.queue = p_queue and r.settled_at < v_past order by r.settled_at limit p_limit);
  v_ones := array(
    select r.ctid from pawl.queue_receipt_one r where r.queue = p_queue and r.settled_at < v_past order by r.settled_at limit p_limit);
  with receipt as (
    delete from pawl.queue_receipt r where r.ctid = any (v_receipts) returning r.shard, r.ids
  ), one as (
    delete from pawl.queue_receipt_one r where r.ctid = any (v_ones) returning r.shard, r.id
  ), settled as materialized (
    select r.shard, i.id from receipt r cross join lateral unnest(r.ids) u (span)
    cross join lateral generate_series(lower(u.span), upper(u.span) - 1) i (id)
    union all
    select o.shard, o.id from one o
    union all
    select d.shard, d.id from (
      -- Locked: one that somebody makes new again just now is his. Those that are never removed do not count: they would fill
      -- the limit for ever.
      select d.shard, d.id from unnest(array['error', 'cancelled']) s (status) cross join lateral (
        select d.shard, d.id from pawl.queue_dead d
        cross join lateral (select j.only_one from pawl.queue_job j where j.shard = d.shard and j.id = d.id) j
        where d.queue = p_queue and d.status = s.status and d.at < v_past and d.kind <> all (v_unique) and j.only_one is not true
        order by d.id limit p_limit for update of d skip locked) d) d
  ), job as (
    delete from pawl.queue_job j using settled s where j.shard = s.shard and j.id = s.id and j.only_one is not true returning j.id
  ), output as (
    delete from pawl.queue_output o using settled s where o.shard = s.shard and o.id = s.id
  ), dead as (
    delete from pawl.queue_dead d using settled s, pawl.queue_job j
    where d.shard = s.shard and d.id = s.id and j.shard = s.shard and j.id = s.id and j.only_one is not true
  )
  -- Receipts of jobs that stay are worth another round, too.
  select greatest((select count(*) from job), (select count(*) from receipt) + (select count(*) from one)) into v_jobs;
  delete from pawl.queue_transition t where t.ctid = any (array(
    select o.ctid from pawl.queue_transition o where o.queue = p_queue and o.at < v_past order by o.at limit p_limit));
  return v_jobs;
end $$;

-- What is complete has a receipt, for as long as it is there. Answers below which id the newest of them may be, above p_low: the
-- ids are passed over in strides that double while there is no receipt in them, and halve when there is. Of whichever queue: the
-- indexes of receipts know ids alone.
create or replace function pawl.queue_search_settled(p_before bigint, p_low bigint) returns bigint
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
    if exists (select from pawl.queue_receipt r where r.ids && int8range(greatest(p_before - v_stride, p_low), p_before))
      or exists (select from pawl.queue_receipt_one r where r.id >= greatest(p_before - v_stride, p_low) and r.id < p_before) then
      exit when v_stride <= 1024;
      v_stride := v_stride / 2;
    else
      p_before := p_before - v_stride;
      v_stride := v_stride * 2;
    end if;
  end loop;
  return greatest(p_before, p_low);
end $$;

-- From which id on a step of a search reads that begins below p_before and ends at p_low: the 1,024 newest jobs in between; null when
-- there is none. A function of its own, for its settings: a bitmap of a million jobs that were never analysed took 200 ms.
create function pawl.queue_search_step(p_shards smallint[], p_before bigint, p_low bigint) returns bigint
language plpgsql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $$
begin
  return (
    select min(x.id) from (
      select j.id from unnest(p_shards) s (shard) cross join lateral (
        select j.id from pawl.queue_job j where j.shard = s.shard and j.id >= p_low and j.id < p_before order by j.id desc limit 1024) j
      order by j.id desc limit 1024) x);
end $$;

-- In which shards there are jobs from p_low on.
create function pawl.queue_search_shards(p_low bigint) returns smallint[]
language plpgsql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $$
begin
  return array(
    select j.shard from generate_series(0, 255) s cross join lateral (
      select j.shard from pawl.queue_job j where j.shard = s::smallint and j.id >= p_low limit 1) j);
end $$;

-- As in 023.
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
    v_shards := pawl.queue_search_shards(v_sealed);
    while horizon > v_sealed loop
      if v_passes then
        horizon := pawl.queue_search_settled(horizon, v_sealed);
        exit when horizon = v_sealed;
      end if;
      v_from := pawl.queue_search_step(v_shards, horizon, v_sealed);
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
    continue when v_passes and not exists (select from pawl.queue_receipt r where r.ids && int8range(v_from, v_to))
      and not exists (select from pawl.queue_receipt_one r where r.id >= v_from and r.id < v_to);
    ids := ids || pawl.queue_search_range(p_query, v_shards, v_from, least(v_to, p_before), p_limit - cardinality(ids));
  end loop;
  horizon := 0;
end $$;
