-- Reading: where a job is now, and what became of it. The views are the contract; the tables are not.
--   pawl.job          every job with its status; `where id = …` costs index probes
--   pawl.job_history  every move of every job, oldest first within a job
--   pawl.queue        the queues that are declared
--   pawl.worker       the workers that live, or were lost a moment ago
-- Functions declared stable read with the snapshot of the statement that calls them, so a job that moves meanwhile is
-- seen exactly once. Nothing here counts further than it is told to.

-- One job. Cost: a few index probes, and a look into the running batches (bounded by what the workers hold).
create function pawl.queue_status(p_shard smallint, p_id bigint) returns text
language sql stable as $$
  select case
    when d.status is not null then d.status
    when exists (select 1 from pawl.queue_running r where r.shard = p_shard and r.ids @> p_id) then 'in-progress'
    when exists (
        select 1 from (
          select d.id + d.n as past from pawl.queue_delayed d where d.shard = p_shard and d.id <= p_id order by d.id desc limit 1
        ) run where run.past > p_id)
      or exists (select 1 from pawl.queue_parked p where p.shard = p_shard and p.queue = j.queue and p.key = j.key and p.kind = j.kind and p.id = p_id)
      or exists (
        select 1 from (
          select r.id + r.n as past from pawl.queue_ready r
          where r.shard = p_shard and r.queue = j.queue and r.priority = j.priority and r.id <= p_id
          order by r.id desc limit 1
        ) run where run.past > p_id
      ) then 'new'
    else 'complete'
  end
  from pawl.queue_job j left join pawl.queue_dead d on d.shard = j.shard and d.id = j.id
  where j.shard = p_shard and j.id = p_id
$$;

-- In which shard a job is kept: one probe in a queue of one shard, 256 for an id that nobody has.
create function pawl.queue_shard_of(p_id bigint) returns smallint
language sql stable
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
  select j.shard from generate_series(0, 255) s cross join lateral (
    select j.shard from pawl.queue_job j where j.shard = s::smallint and j.id = p_id) j
  limit 1
$$;

-- The process id of one job of a claimed batch. A unit of several jobs has one for all of them.
create function pawl.queue_process(p_batch uuid, p_id bigint, p_unit boolean) returns uuid
language sql immutable as $$
  select case when p_unit then p_batch else (left(p_batch::text, 24) || lpad(to_hex(p_id % 281474976710656), 12, '0'))::uuid end
$$;

-- What code is told of jobs that have just ended in error without it: {jobs: [{id, kind, key, attempt, error, at, process, payload}],
-- more}. As many as 16 MB of payloads hold, as they are stored, 1000 at the most, and one at the least; more: how many there are beyond.
create function pawl.queue_ended(p_queue smallint, p_ids bigint[]) returns json
language sql
set enable_seqscan = off set enable_bitmapscan = off set enable_mergejoin = off set jit = off as $$
  with ended as materialized (
    select d.shard, d.id, k.name as kind, d.key, d.attempt, d.error, (date_part('epoch', j.created_at) * 1000)::bigint as at, j.payload,
      pawl.queue_process(t.process_id, d.id, k.coalesce <> 'none') as process,
      sum(pg_column_size(j.payload)) over (order by d.id) - pg_column_size(j.payload) as before
    from (select i.id from unnest(p_ids) i (id) order by i.id limit 1000) i
    cross join pawl.queue_definition q cross join lateral generate_series(0, q.shards - 1) s (shard)
    join pawl.queue_dead d on d.shard = s.shard and d.id = i.id
    join pawl.queue_job j on j.shard = d.shard and j.id = d.id
    join pawl.queue_kind k on k.id = j.kind
    left join lateral (
      select t.process_id from pawl.queue_transition t
      where t.shard = d.shard and t.id = d.id and t.to_status = 'error' order by t.at desc limit 1) t on true
    where q.id = p_queue
  )
  select json_build_object('jobs', json_agg(json_build_object('id', e.id, 'kind', e.kind, 'key', e.key, 'attempt', e.attempt, 'error', e.error,
    'at', e.at, 'process', e.process, 'payload', e.payload) order by e.id), 'more', cardinality(p_ids) - count(*))
  from ended e where e.before < 16777216
$$;

-- The error of a move, wherever it is kept.
create function pawl.queue_error(p_shard smallint, p_at timestamptz, p_error text, p_error_of bigint) returns text
language sql stable as $$
  select case when p_error_of is null then p_error else (
    select t.error from pawl.queue_transition t where t.shard = p_shard and t.id = p_error_of and t.at = p_at and t.error is not null limit 1) end
$$;

-- The moves of one job, each with its error: rows of its own, and rows of runs.
create function pawl.queue_moves(p_shard smallint, p_id bigint)
returns table (
  at timestamptz, claimed_at timestamptz, worker bigint, process_id uuid, attempt smallint, from_status text, to_status text, reason text, error text)
language sql stable rows 4 as $$
  select t.at, t.claimed_at, t.worker, t.process_id, t.attempt, t.from_status, t.to_status, t.reason,
    pawl.queue_error(p_shard, t.at, t.error, t.error_of)
  from (
    select t.* from pawl.queue_transition t where t.shard = p_shard and t.id = p_id and t.n = 1
    union all
    select t.* from pawl.queue_transition t where t.shard = p_shard and t.id > p_id - 256 and t.id <= p_id and t.n > 1 and t.id + t.n > p_id
  ) t
$$;

-- How many jobs a claim holds.
create function pawl.queue_size(p_ids int8multirange) returns bigint
language sql immutable strict as $$
  select sum(pg_catalog.upper(u.span) - pg_catalog.lower(u.span))::bigint from pg_catalog.unnest(p_ids) u (span)
$$;

-- Where one job is: place is ready, delayed, parked, running, dead or complete.
create function pawl.queue_look(
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
    from pawl.queue_transition t, pawl.queue_kind k
    where t.shard = p_shard and t.id = p_id and k.id = p_kind order by t.at desc limit 1;
    return;
  end if;
  select 'running', 'in-progress', r.attempt, r.claimed_at, pawl.queue_process(r.process_id, p_id, r.unit), r.worker
  into place, status, attempt, claimed_at, process_id, worker
  from pawl.queue_running r where r.shard = p_shard and r.ids @> p_id;
  if not found then
    select 'delayed', 'new', d.attempt, d.run_at, d.epoch into place, status, attempt, run_at, epoch
    from pawl.queue_delayed d where d.shard = p_shard and d.id = p_id;
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
    select r.attempt, r.claimed_at, r.settled_at, pawl.queue_process(r.process_id, p_id, r.unit), r.worker
    into attempt, claimed_at, settled_at, process_id, worker
    from pawl.queue_receipt r where r.ids @> p_id limit 1;
  elsif attempt > (place = 'running')::int then
    select t.error into error from pawl.queue_transition t
    where t.shard = p_shard and t.id = p_id and t.error is not null order by t.at desc limit 1;
  end if;
end $$;

-- Every move of one job.
create function pawl.queue_history(p_shard smallint, p_id bigint)
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
    select m.* from pawl.queue_transition t
    cross join lateral (select j.kind from pawl.queue_job j where j.shard = t.shard and j.id = t.id) j
    join pawl.queue_kind k on k.id = j.kind
    cross join lateral pawl.queue_process(t.process_id, p_id, k.coalesce <> 'none') process
    cross join lateral (
      select 1, t.claimed_at, 'new', 'in-progress', t.attempt, process, t.worker, 'claim', null where t.claimed_at is not null
      union all
      select 2, t.at, t.from_status, t.to_status, t.attempt, process, t.worker, t.reason, t.error
    ) m
    where t.shard = p_shard and t.id = p_id
  ) m
  order by m.at, m.nth
$$;

create view pawl.job as
select j.id, q.name as queue, k.name as kind, j.key, l.status, j.priority, coalesce(l.attempt, 0::smallint) as attempt, j.payload,
  j.created_at as enqueued_at, coalesce(l.run_at, j.run_at) as run_at, l.claimed_at, l.settled_at, l.process_id, l.error,
  o.progress, coalesce(o.result, s.result) as result, j.shard
from pawl.queue_job j
join pawl.queue_definition q on q.id = j.queue
join pawl.queue_kind k on k.id = j.kind
cross join lateral pawl.queue_look(j.shard, j.id, j.queue, j.kind, j.priority, j.key) l
left join pawl.queue_output o on o.shard = j.shard and o.id = j.id
left join pawl.queue_output s on s.shard = o.shard and s.id = o.result_of;

create view pawl.job_history as
select j.id as job, h.at, h.from_status, h.to_status, h.attempt, h.process_id, h.worker, h.reason, h.error, j.shard
from pawl.queue_job j cross join lateral pawl.queue_history(j.shard, j.id) h;

create view pawl.queue as
select d.name, d.shards, d.keyed, d.attempts, d.history, d.paused_at, d.created_at,
  array(select k.name from pawl.queue_kind k where k.queue = d.id order by k.name) as kinds,
  (select count(*)::int from pawl.queue_worker w where w.queue = d.id and w.expires_at > clock_timestamp()) as workers
from pawl.queue_definition d;

create view pawl.worker as
select w.id, d.name as queue, w.host, w.pid, w.hold, w.concurrency,
  (select coalesce(sum(pawl.queue_size(r.ids)), 0)::bigint + cardinality(w.holding) from pawl.queue_running r where r.worker = w.id) as in_progress,
  w.started_at, w.beat_at, w.expires_at, w.expires_at > clock_timestamp() as is_live
from pawl.queue_worker w join pawl.queue_definition d on d.id = w.queue;

-- The id of a queue. Raises PW002 when there is none of that name.
create function pawl.queue_id(p_name text) returns smallint
language plpgsql stable as $$
declare
  v_id smallint;
begin
  select d.id into v_id from pawl.queue_definition d where d.name = p_name;
  if not found then
    raise exception 'queue "%" does not exist; there %', p_name, coalesce((
      select 'are ' || string_agg('"' || x.name || '"', ', ') from (select d.name from pawl.queue_definition d order by d.name limit 20) x),
      'is none yet: a queue is made known by its first enqueue, its first worker, or register()') using errcode = 'PW002';
  end if;
  return v_id;
end $$;

-- One job's shard, if it is of the given queue (null: of any). Raises PW002 when there is no such job.
create function pawl.queue_find(p_queue text, p_id bigint) returns smallint
language plpgsql stable as $$
declare
  v_shard smallint := pawl.queue_shard_of(p_id);
  v_queue text;
begin
  select q.name into v_queue from pawl.queue_job j join pawl.queue_definition q on q.id = j.queue where j.shard = v_shard and j.id = p_id;
  if v_queue is null then
    raise exception 'there is no job %; it was never committed, or its history is over', p_id using errcode = 'PW002';
  end if;
  if v_queue <> p_queue then
    raise exception 'queue "%" has no job %; that one is of queue "%"', p_queue, p_id, v_queue using errcode = 'PW002';
  end if;
  return v_shard;
end $$;

-- How many jobs wait in each place; every count stops at p_most rows, so the answer costs the same however deep the queue is.
create function pawl.queue_stats(p_name text, p_most int) returns json
language plpgsql stable
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off as $$
declare
  v_queue smallint := pawl.queue_id(p_name);
  v_paused timestamptz;
  v_shards int;
  v_ready bigint; v_delayed bigint; v_parked bigint; v_running bigint; v_error bigint; v_cancelled bigint; v_workers int; v_slots bigint;
  v_rate record;
begin
  select d.paused_at, d.shards - 1 into v_paused, v_shards from pawl.queue_definition d where d.id = v_queue;
  select coalesce(sum(x.n), 0) into v_ready from (
    select r.n from generate_series(0, v_shards) s cross join lateral (
      select r.n from pawl.queue_ready r where r.shard = s::smallint and r.queue = v_queue limit p_most) r limit p_most) x;
  select count(*) into v_delayed from (
    select from generate_series(0, v_shards) s cross join lateral (
      select from pawl.queue_delayed r where r.shard = s::smallint and r.queue = v_queue limit p_most) r limit p_most) x;
  select count(*) into v_parked from (
    select from generate_series(0, v_shards) s cross join lateral (
      select from pawl.queue_parked r where r.shard = s::smallint and r.queue = v_queue limit p_most) r limit p_most) x;
  select coalesce(sum(pawl.queue_size(x.ids)), 0) into v_running from (
    select r.ids from generate_series(0, v_shards) s cross join lateral (
      select r.ids from pawl.queue_running r where r.shard = s::smallint and r.queue = v_queue limit p_most) r limit p_most) x;
  select count(*) into v_error from (
    select from pawl.queue_dead d where d.queue = v_queue and d.status = 'error' limit p_most) x;
  select count(*) into v_cancelled from (
    select from pawl.queue_dead d where d.queue = v_queue and d.status = 'cancelled' limit p_most) x;
  select count(*), coalesce(sum(w.concurrency), 0) into v_workers, v_slots
  from pawl.queue_worker w where w.queue = v_queue and w.expires_at > clock_timestamp();
  -- Of a very busy minute only the last batches are looked at, and what they show is scaled to the minute.
  select coalesce(sum(pawl.queue_size(x.ids)), 0) as jobs, count(*) as batches, min(x.settled_at) as since into v_rate from (
    select r.ids, r.settled_at from pawl.queue_receipt r
    where r.queue = v_queue and r.settled_at > clock_timestamp() - interval '1 minute' order by r.settled_at desc limit 1000) x;
  return json_build_object(
    'new', least(p_most, v_ready + v_delayed + v_parked), 'in-progress', least(p_most, v_running),
    'error', v_error, 'cancelled', v_cancelled,
    'ready', least(p_most, v_ready), 'delayed', v_delayed, 'parked', v_parked, 'inProgress', least(p_most, v_running),
    'completePerMinute', case when v_rate.batches < 1000 then v_rate.jobs
      else round(v_rate.jobs * 60 / greatest(0.001, extract(epoch from clock_timestamp() - v_rate.since))) end,
    'oldestReadyMs', pawl.queue_oldest_ready(v_queue, v_shards),
    'pausedAt', v_paused, 'workers', v_workers, 'slots', v_slots);
end $$;

-- For how long the oldest ready job has been waiting, in ms: the first of every priority and shard, which the index gives.
create function pawl.queue_oldest_ready(p_queue smallint, p_shards int) returns bigint
language sql stable
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off as $$
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

-- Whether anything of a queue is left to do: the four places in one look.
create function pawl.queue_left(p_name text, out ready boolean, out parked boolean, out running boolean, out delayed boolean)
language plpgsql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
  v_queue smallint := pawl.queue_id(p_name);
  v_shards int;
begin
  select d.shards - 1 into v_shards from pawl.queue_definition d where d.id = v_queue;
  select coalesce(bool_or(exists (select 1 from pawl.queue_ready r where r.shard = s::smallint and r.queue = v_queue)), false),
    coalesce(bool_or(exists (select 1 from pawl.queue_parked r where r.shard = s::smallint and r.queue = v_queue)), false),
    coalesce(bool_or(exists (select 1 from pawl.queue_running r where r.shard = s::smallint and r.queue = v_queue)), false),
    coalesce(bool_or(exists (select 1 from pawl.queue_delayed r where r.shard = s::smallint and r.queue = v_queue)), false)
  into ready, parked, running, delayed from generate_series(0, v_shards) s;
end $$;
