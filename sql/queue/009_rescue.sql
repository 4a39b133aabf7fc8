-- Taking back the jobs of workers that are gone, and of claims whose answer was lost.

-- Gives back what workers held whose lease ran out, and what is held by workers that are no more. The attempt is spent;
-- a job that has none left ends in error. Safe to run by any number of processes at once.
create function pawl.queue_rescue(p_queue smallint) returns integer
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan as $$
declare
  v_worker bigint;
  v_jobs integer := 0;
begin
  for v_worker in
    select w.id from pawl.queue_worker w where w.queue = p_queue and w.expires_at < clock_timestamp() order by w.id for update skip locked
  loop
    v_jobs := v_jobs + pawl.queue_lost(v_worker, null, true) + pawl.queue_suspect(v_worker);
    delete from pawl.queue_worker w where w.id = v_worker and w.holding = '{}';
  end loop;
  delete from pawl.queue_offer o where o.ctid = any (array(
    select o.ctid from pawl.queue_offer o
    where o.queue = p_queue and not exists (select 1 from pawl.queue_worker w where w.id = o.worker) for update skip locked));
  for v_worker in
    select distinct r.worker from pawl.queue_running r where r.queue = p_queue
      and not exists (select 1 from pawl.queue_worker w where w.id = r.worker) order by 1
  loop
    v_jobs := v_jobs + pawl.queue_lost(v_worker, null, true);
  end loop;
  if v_jobs > 0 then
    perform pg_notify('pawl_queue', p_queue::text);
  end if;
  return v_jobs;
end $$;

-- Takes what a lost worker holds out of its claims. Answers the claims with the jobs taken. What somebody is settling just now is
-- left alone, and so is a job that is guarded by an open transaction, with what else the worker has of its key: whoever looks for
-- lost workers next comes by again. Nobody waits here.
create function pawl.queue_take_back(p_worker bigint) returns setof pawl.queue_running
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan as $$
declare
  v_free bigint[];
  v_claims bigint[];
  v_jobs bigint[];
  v_out int8multirange;
begin
  v_free := array(select r.id from pawl.queue_running r where r.worker = p_worker order by r.id for update skip locked);
  if not exists (select 1 from pawl.queue_running r where r.worker = p_worker and r.id <> all (v_free)) then
    return query delete from pawl.queue_running r where r.worker = p_worker and r.id = any (v_free) returning r.*;
    return;
  end if;
  -- Some are guarded: job by job. A lock for each, which nobody pays whose transactions are short.
  v_claims := array(select r.id from pawl.queue_running r where r.worker = p_worker order by r.id for no key update skip locked);
  v_jobs := array(
    select j.id from pawl.queue_running r cross join lateral unnest(r.ids) u (span)
    join pawl.queue_job j on j.shard = r.shard and j.id >= lower(u.span) and j.id < upper(u.span)
    where r.worker = p_worker and r.id = any (v_claims) for update of j skip locked);
  with job as materialized (
    select r.queue, j.key, j.id, r.id = any (v_claims) and f.id is not null as is_free
    from pawl.queue_running r cross join lateral unnest(r.ids) u (span)
    join pawl.queue_job j on j.shard = r.shard and j.id >= lower(u.span) and j.id < upper(u.span)
    left join unnest(v_jobs) f (id) on f.id = j.id
    where r.worker = p_worker
  )
  select range_agg(int8range(j.id, j.id + 1)) into v_out from job j
  where j.is_free and not exists (select 1 from job k where k.queue = j.queue and k.key = j.key and not k.is_free);
  return query
  with mine as materialized (
    select r.*, r.ids * v_out as out from pawl.queue_running r
    where r.worker = p_worker and r.id = any (v_claims) and r.ids && v_out
  ), gone as (
    delete from pawl.queue_running r where r.worker = p_worker and r.id in (select m.id from mine m where isempty(m.ids - m.out))
  ), kept as (
    update pawl.queue_running r set ids = r.ids - m.out from mine m
    where r.worker = p_worker and r.id = m.id and not isempty(m.ids - m.out)
  )
  select m.id, m.worker, m.claimed_at, m.process_id, m.shard, m.queue, m.attempt, m.unit, m.out from mine m;
end $$;

-- Gives back what a worker holds, except the claims it knows of: a worker whose claim was committed but whose answer was
-- lost disowns it (p_known, the attempt is not spent; no handler has begun, so none can guard it); a lost worker knows of none.
create function pawl.queue_lost(p_worker bigint, p_known bigint[], p_charge boolean) returns integer
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan as $$
declare
  v_now timestamptz := clock_timestamp();
  v_keys json;
  v_jobs integer;
begin
  with disowned as (
    delete from pawl.queue_running r where p_known is not null and r.worker = p_worker and r.id <> all (p_known) returning r.*
  ), gone as materialized (
    select d.* from disowned d
    union all
    select r.* from pawl.queue_take_back(p_worker) r where p_known is null
  ), held as materialized (
    select g.shard, g.queue, g.claimed_at, g.process_id, g.attempt, i.id, j.kind, j.priority, j.key as own_key, k.key, k.epoch,
      -- Of a key only the first job can have begun, or the one unit that was claimed.
      p_charge and (k.key is null or g.unit or i.id = min(i.id) over (partition by g.shard, g.queue, k.key)) as charged,
      coalesce(kd.attempts, q.attempts) as attempts
    from gone g
    cross join lateral unnest(g.ids) u (span)
    cross join lateral generate_series(lower(u.span), upper(u.span) - 1) i (id)
    cross join lateral (select j.kind, j.priority, j.key from pawl.queue_job j where j.shard = g.shard and j.id = i.id limit 1) j
    join pawl.queue_definition q on q.id = g.queue
    join pawl.queue_kind kd on kd.id = j.kind
    left join lateral (
      select k.key, k.epoch from pawl.queue_key k
      where k.shard = g.shard and k.queue = g.queue and k.key = j.key and k.held limit 1) k on true
  ), job as materialized (
    select h.*, (case when h.charged then h.attempt else h.attempt - 1 end)::smallint as after, h.charged and h.attempt >= h.attempts as spent
    from held h
  ), dead as (
    insert into pawl.queue_dead (id, at, shard, queue, kind, attempt, status, key, error)
    select j.id, v_now, j.shard, j.queue, j.kind, j.attempt, 'error', j.own_key,
      'the worker was lost during attempt ' || j.attempt || ', the last one'
    from job j where j.spent
  ), ready as (
    insert into pawl.queue_ready (id, shard, queue, priority, kind, attempt)
    select j.id, j.shard, j.queue, j.priority, j.kind, j.after from job j where not j.spent and j.key is null
  ), parked as (
    insert into pawl.queue_parked (id, shard, queue, priority, kind, attempt, key)
    select j.id, j.shard, j.queue, j.priority, j.kind, j.after, j.key from job j where not j.spent and j.key is not null
  ), moved as (
    insert into pawl.queue_transition (at, claimed_at, id, worker, process_id, shard, queue, attempt, from_status, to_status, reason)
    select v_now, j.claimed_at, j.id, p_worker, j.process_id, j.shard, j.queue, j.attempt, 'in-progress',
      case when j.spent then 'error' else 'new' end, case when p_charge then 'worker lost' else 'claim lost' end
    from job j
  )
  select (select count(*) from job), coalesce(json_agg(k), '[]') into v_jobs, v_keys
  from (
    select d.shard, d.queue, array_agg(d.key order by d.key) as keys, array_agg(d.epoch order by d.key) as epochs
    from (select distinct h.shard, h.queue, h.key, h.epoch from held h where h.key is not null) d group by d.shard, d.queue
  ) k;
  -- The keys of the jobs just given back, and no others: this worker may hold more of them.
  perform pawl.queue_give_up(k.queue, k.shard, k.keys, k.epochs)
  from json_to_recordset(v_keys) k (shard smallint, queue smallint, keys text[], epochs bigint[]);
  return v_jobs;
end $$;

-- Jobs that a lost worker was running inside its own open transaction: the crash rolled everything back, the attempt
-- included. A job that somebody is at just now stays noted, to be looked at again: a job that kills every worker is claimed
-- anew long before the lease of the last one is over.
create function pawl.queue_suspect(p_worker bigint) returns integer
language plpgsql as $$
declare
  v_jobs integer;
begin
  with held as (
    select w.queue, i.id from pawl.queue_worker w cross join lateral unnest(w.holding) i (id) where w.id = p_worker
  ), there as materialized (
    select r.ctid as tid, r.shard, r.queue, r.id, r.kind, r.key, r.attempt + 1 as attempt,
      r.attempt + 1 >= coalesce(kd.attempts, q.attempts) and r.key is null as spent
    from held h join pawl.queue_job j on j.id = h.id
    join pawl.queue_ready r on r.shard = j.shard and r.queue = j.queue and r.priority = j.priority and r.id = j.id and r.n = 1
    join pawl.queue_definition q on q.id = r.queue join pawl.queue_kind kd on kd.id = r.kind
  ), free as materialized (
    -- Nobody moves the jobs of a key without its lock.
    select t.* from there t where t.key is null or pawl.queue_try_key(t.queue, t.shard, t.key)
  ), mine as materialized (
    select f.* from free f join pawl.queue_ready r on r.ctid = f.tid for update of r skip locked
  ), kept as (
    update pawl.queue_worker w set holding = array(select t.id from there t where t.id not in (select m.id from mine m))
    where w.id = p_worker
  ), charged as (
    update pawl.queue_ready r set attempt = m.attempt from mine m where r.ctid = m.tid and not m.spent
  ), gone as (
    delete from pawl.queue_ready r using mine m where r.ctid = m.tid and m.spent
  ), dead as (
    insert into pawl.queue_dead (id, at, shard, queue, kind, attempt, status, key, error)
    select m.id, clock_timestamp(), m.shard, m.queue, m.kind, m.attempt, 'error', m.key,
      'the worker was lost during attempt ' || m.attempt || ', the last one' from mine m where m.spent
  ), moved as (
    insert into pawl.queue_transition (at, id, worker, shard, queue, attempt, from_status, to_status, reason)
    select clock_timestamp(), m.id, p_worker, m.shard, m.queue, m.attempt, 'in-progress',
      case when m.spent then 'error' else 'new' end, 'worker lost' from mine m
  )
  select count(*) into v_jobs from mine;
  return v_jobs;
end $$;
