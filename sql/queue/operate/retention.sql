-- Removing rows that are old enough.

-- Removes settled jobs whose history is over, oldest first, p_limit at most. It never touches live jobs, or a job that is unique for ever: "one, ever"
-- outlives its history.
create or replace function pawl.queue_prune(p_queue smallint, p_limit int) returns integer
language plpgsql
set enable_seqscan = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan as $$
declare
  v_past timestamptz;
  v_jobs integer := 0;
  v_receipts tid[];
  v_ones tid[];
  v_unique smallint[];
  v_lasting boolean;
  v_blocked boolean;
begin
  perform pawl.queue_prune_rates(p_queue, p_limit);
  perform pawl.queue_sweep_places(p_queue, p_limit);
  select clock_timestamp() - d.history into v_past from pawl.queue_definition d where d.id = p_queue;
  if v_past is null then
    return 0;
  end if;
  v_unique := array(select k.id from pawl.queue_kind k where k.queue = p_queue and k.unique_key);
  v_lasting := exists (select 1 from pawl.queue_unique u where u.queue = p_queue);
  v_blocked := exists (select 1 from pawl.queue_blocked b where b.queue = p_queue);  -- a job that blocks its key stays until it is retried or skipped
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
      -- Locked, so that a job that is being put back is not removed. Jobs that are never removed are left out: they would fill the limit for
      -- ever.
      select d.shard, d.id from unnest(array['error', 'cancelled']) s (status) cross join lateral (
        select d.shard, d.id from pawl.queue_dead d
        cross join lateral (select j.only_one from pawl.queue_job j where j.shard = d.shard and j.id = d.id) j
        where d.queue = p_queue and d.status = s.status and d.at < v_past and d.kind <> all (v_unique) and j.only_one is not true and not (v_lasting and pawl.queue_is_lasting(d.id))
          and not (v_blocked and pawl.queue_is_blocker(d.shard, d.id))
        order by d.id limit p_limit for update of d skip locked) d) d
  ), job as (
    delete from pawl.queue_job j using settled s where j.shard = s.shard and j.id = s.id and j.only_one is not true
      and not (v_lasting and pawl.queue_is_lasting(j.id)) returning j.id
  ), tag as (
    delete from pawl.queue_tag t using job j where t.id = j.id
  ), output as (
    delete from pawl.queue_output o using settled s where o.shard = s.shard and o.id = s.id
  ), dead as (
    delete from pawl.queue_dead d using settled s, pawl.queue_job j
    where d.shard = s.shard and d.id = s.id and j.shard = s.shard and j.id = s.id and j.only_one is not true
      and not (v_lasting and pawl.queue_is_lasting(d.id))
  ), digest as (
    delete from pawl.queue_unique u using job g where v_lasting and u.job = g.id
  )
  -- The removal of receipts counts, too, if their jobs stay: another round may remove more.
  select greatest((select count(*) from job), (select count(*) from receipt) + (select count(*) from one)) into v_jobs;
  with over as (
    delete from pawl.queue_watch w where w.ctid = any (array(
      select o.ctid from pawl.queue_watch o where o.queue = p_queue and o.over_at < v_past order by o.over_at limit p_limit for update skip locked))
    returning w.id
  )
  delete from pawl.queue_batch_part b using over o where b.batch = o.id;
  with pack as (
    delete from pawl.queue_watch_over p where p.ctid = any (array(
      select o.ctid from pawl.queue_watch_over o where o.queue = p_queue and o.over_at < v_past order by o.over_at limit greatest(1, p_limit / 256)
      for update skip locked))
    returning p.watches
  ), over as materialized (
    select o.id from pack p cross join lateral unnest(p.watches) o (id)
  ), watch as (
    delete from pawl.queue_watch w using over o where w.id = o.id
  )
  delete from pawl.queue_child c using over o where c.watch = o.id;
  delete from pawl.queue_transition t where t.ctid = any (array(
    select o.ctid from pawl.queue_transition o where o.queue = p_queue and o.at < v_past order by o.at limit p_limit));
  return v_jobs;
end $$;

-- Whether a job owns its digest for ever, and so outlives its history.
create or replace function pawl.queue_is_lasting(p_id bigint) returns boolean
language sql stable set enable_seqscan = off as $$
  select exists (select 1 from pawl.queue_unique u where u.job = p_id and u.lasting)
$$;

-- Removes traces that are older than 30 days, p_limit at most. A job that runs after that has a span without a link.
create or replace function pawl.queue_trace_prune(p_limit int) returns int
language plpgsql
set enable_seqscan = off set jit = off as $$
declare
  v_gone int;
begin
  delete from pawl.queue_trace t
  where t.id in (
    select o.id from pawl.queue_trace o
    where o.at < clock_timestamp() - interval '30 days'
    limit p_limit);
  get diagnostics v_gone = row_count;
  return v_gone;
end $$;
