-- Reading: where a job is now, and its outcome. Functions declared stable read with the snapshot of the statement that calls them, so they see a job
-- that moves meanwhile exactly once.

-- The shard of a job, if the job is of the given queue (null: of any). Raises PW002 if there is no such job.
create or replace function pawl.queue_find(p_queue text, p_id bigint) returns smallint
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

-- The shard that has a job: one probe in a queue of one shard, 256 for an id that no job has.
create or replace function pawl.queue_shard_of(p_id bigint) returns smallint
language sql stable
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
  select j.shard from generate_series(0, 255) s cross join lateral (
    select j.shard from pawl.queue_job j where j.shard = s::smallint and j.id = p_id) j
  limit 1
$$;

-- Where one job is: place is ready, delayed, parked, grouped, running, dead or complete. p_group: the job's group_name.
create or replace function pawl.queue_job_place(
  p_shard smallint, p_id bigint, p_queue smallint, p_kind smallint, p_priority smallint, p_key text, p_group text,
  out place text, out status text, out attempt smallint, out run_at timestamptz, out claimed_at timestamptz,
  out settled_at timestamptz, out process_id uuid, out worker bigint, out error text, out epoch bigint
)
language plpgsql stable
set enable_seqscan = off set jit = off set plan_cache_mode = force_generic_plan as $$
begin
  -- Receipts first: most jobs are complete, for as long as their history lasts, and a complete job stays complete.
  select 'complete', 'complete', r.attempt, case when r.worker > 0 then r.claimed_at end, r.settled_at,
    case when r.worker > 0 then pawl.queue_process(r.process_id, p_id, false) end, nullif(r.worker, 0)  -- 0: by hand
  into place, status, attempt, claimed_at, settled_at, process_id, worker
  from pawl.queue_receipt_one r where r.id = p_id limit 1;
  if found then
    return;
  end if;
  select 'complete', 'complete', r.attempt, r.claimed_at, r.settled_at, pawl.queue_process(r.process_id, p_id, r.unit), r.worker
  into place, status, attempt, claimed_at, settled_at, process_id, worker
  from pawl.queue_receipt_of(p_queue, p_key, p_id) r;
  if found then
    return;
  end if;
  select 'dead', d.status, d.attempt, d.at, d.error into place, status, attempt, settled_at, error
  from pawl.queue_dead d where d.shard = p_shard and d.id = p_id;
  if found then
    select pawl.queue_process(t.process_id, p_id, k.coalesce <> 'none'), t.worker into process_id, worker
    from pawl.queue_transitions(p_shard, p_id) t, pawl.queue_kind k
    where k.id = p_kind order by t.at desc limit 1;
    return;
  end if;
  select 'running', 'in-progress', r.attempt, r.claimed_at, pawl.queue_process(r.process_id, p_id, r.unit), r.worker
  into place, status, attempt, claimed_at, process_id, worker
  from pawl.queue_running r where r.shard = p_shard and r.ids @> p_id;
  if not found then
    select 'delayed', 'new', run.attempt, case when run.run_at < pawl.queue_never() then run.run_at end, run.epoch into place, status, attempt, run_at, epoch
    from (
      select d.id + d.n as past, d.attempt, d.run_at, d.epoch from pawl.queue_delayed d
      where d.shard = p_shard and d.id <= p_id order by d.id desc limit 1
    ) run where run.past > p_id;
  end if;
  if place is null and p_key is not null then
    select 'parked', 'new', p.attempt into place, status, attempt
    from pawl.queue_parked p where p.shard = p_shard and p.queue = p_queue and p.key = p_key and p.kind = p_kind and p.id = p_id;
  end if;
  if place is null and p_group is not null then
    select 'grouped', 'new', g.attempt into place, status, attempt
    from pawl.queue_grouped g
    where g.shard = p_shard and g.queue = p_queue and g.group_name = p_group and g.priority = p_priority and g.id = p_id;
  end if;
  if place is null then
    select 'ready', 'new', run.attempt, run.epoch into place, status, attempt, epoch
    from (
      select r.id + r.n as past, r.attempt, r.epoch from pawl.queue_ready r
      where r.shard = p_shard and r.queue = p_queue and r.priority = p_priority and r.id <= p_id
      order by r.id desc limit 1
    ) run where run.past > p_id;
  end if;
  if place is null then  -- the job outlives its receipt
    place := 'complete';
    status := 'complete';
  elsif attempt > (place = 'running')::int then
    select t.error into error from pawl.queue_transitions(p_shard, p_id) t
    where t.error is not null order by t.at desc limit 1;
  end if;
end $$;

-- The receipt of a job, except of a job that was claimed by itself (queue_receipt_one). It costs one index probe; a second one if the job was in a unit
-- of several ranges; and if it was in a claim of several ranges, as many rows as have the job's id between their bounds. Ids of one key need not be
-- committed in order, so the unit with the nearest first id may be another one. Runs under the planner settings of its caller.
create or replace function pawl.queue_receipt_of(p_queue smallint, p_key text, p_id bigint) returns setof pawl.queue_receipt
language sql stable rows 1 as $$
  select r.* from (
    (select r.* from pawl.queue_receipt r where r.key_hash = 0 and r.first_id <= p_id order by r.first_id desc limit 1)
    union all
    (select r.* from pawl.queue_receipt r
      where r.key_hash = pawl.queue_key_hash(p_queue, p_key) and r.first_id <= p_id and r.ids @> p_id order by r.first_id desc limit 1)
    union all
    select r.* from pawl.queue_receipt r where r.key_hash is null and r.ids @> p_id
  ) r where r.ids @> p_id limit 1
$$;

-- The hash that finds the receipts of units of a key. It is stored, so it is a hash that every version of the server computes in the same way.
create or replace function pawl.queue_key_hash(p_queue smallint, p_key text) returns bigint
language sql immutable as $$
  select 1 + ('x' || substr(md5(p_queue || ' ' || p_key), 1, 15))::bit(60)::bigint
$$;

-- The status of one job. Cost: a few index probes, and a search of the running batches (bounded by the jobs that the workers hold).
create or replace function pawl.queue_status(p_shard smallint, p_id bigint) returns text
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
      )
      or (j.group_name is not null and exists (
        select 1 from pawl.queue_grouped g
        where g.shard = p_shard and g.queue = j.queue and g.group_name = j.group_name and g.priority = j.priority and g.id = p_id)) then 'new'
    else 'complete'
  end
  from pawl.queue_job j left join pawl.queue_dead d on d.shard = j.shard and d.id = j.id
  where j.shard = p_shard and j.id = p_id
$$;

-- Every move of one job, oldest first.
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
    select m.* from pawl.queue_job j cross join lateral pawl.queue_receipt_of(j.queue, j.key, p_id) r
    cross join lateral pawl.queue_process(r.process_id, p_id, r.unit) process
    cross join lateral (
      select 1, r.claimed_at, 'new', 'in-progress', r.attempt, process, r.worker, 'claim', null
      union all
      select 2, r.settled_at, 'in-progress', 'complete', r.attempt, process, r.worker, 'complete', null
    ) m
    where j.shard = p_shard and j.id = p_id
    union all
    select m.* from pawl.queue_receipt_one r
    cross join lateral pawl.queue_process(r.process_id, p_id, false) process
    cross join lateral (
      select 1, r.claimed_at, 'new', 'in-progress', r.attempt, process, r.worker, 'claim', null
      union all
      select 2, r.settled_at, 'in-progress', 'complete', r.attempt, process, r.worker, 'complete', null
    ) m
    where r.id = p_id and r.worker > 0
    union all
    select m.* from pawl.queue_transitions(p_shard, p_id) t
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

-- The process id of one job of a claimed batch. A unit of several jobs has one for all of them.
create or replace function pawl.queue_process(p_batch uuid, p_id bigint, p_unit boolean) returns uuid
language sql immutable as $$
  select case when p_unit then p_batch else (left(p_batch::text, 24) || lpad(to_hex(p_id % 281474976710656), 12, '0'))::uuid end
$$;

-- Describes jobs that have just ended without their worker: {jobs: [{id, kind, key, attempt, status, error, origin, process, payload}], more}. As many
-- as have 16 MB of payloads, as they are stored, 1000 at most, and one at least; more: how many are left out.
create or replace function pawl.queue_describe_ended(p_queue smallint, p_ids bigint[]) returns json
language sql /* planner: batch */ as $$
  with ended as materialized (
    select j.shard, j.id, k.name as kind, j.key, coalesce(d.attempt, c.attempt) as attempt, coalesce(d.status, c.status) as status, d.error, pawl.queue_origin(j.created_at, j.options, j.group_name)::json as origin, j.payload,
      pawl.queue_process(t.process_id, j.id, k.coalesce <> 'none') as process,
      sum(pg_column_size(j.payload)) over (order by j.id) - pg_column_size(j.payload) as before
    from (select i.id from unnest(p_ids) i (id) order by i.id limit 1000) i
    cross join pawl.queue_definition q cross join lateral generate_series(0, q.shards - 1) s (shard)
    join pawl.queue_job j on j.shard = s.shard and j.id = i.id
    join pawl.queue_kind k on k.id = j.kind
    left join pawl.queue_dead d on d.shard = j.shard and d.id = j.id
    left join lateral (
      select p.attempt, p.status from pawl.queue_job_place(j.shard, j.id, j.queue, j.kind, j.priority, j.key, j.group_name) p
      where p.status = 'complete') c on d.id is null
    left join lateral (
      select t.process_id from pawl.queue_transition t
      where t.shard = d.shard and t.id = d.id and t.to_status = 'error' order by t.at desc limit 1) t on true
    where q.id = p_queue and (d.id is not null or c.status is not null)
  )
  select json_build_object('jobs', json_agg(json_build_object('id', e.id, 'kind', e.kind, 'key', e.key, 'attempt', e.attempt, 'status', e.status, 'error', e.error,
    'origin', e.origin, 'process', e.process, 'payload', e.payload) order by e.id), 'more', cardinality(p_ids) - count(*))
  from ended e where e.before < 16777216
$$;

-- The error of a move, which another move may keep for it.
create or replace function pawl.queue_error(p_shard smallint, p_at timestamptz, p_error text, p_error_of bigint) returns text
language sql stable as $$
  select case when p_error_of is null then p_error else (
    select t.error from pawl.queue_transition t where t.shard = p_shard and t.id = p_error_of and t.at = p_at and t.error is not null limit 1) end
$$;

-- The moves of one job, each with its error: rows of its own, and rows of runs.
create or replace function pawl.queue_transitions(p_shard smallint, p_id bigint)
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
create or replace function pawl.queue_size(p_ids int8multirange) returns bigint
language sql immutable strict as $$
  select sum(pg_catalog.upper(u.span) - pg_catalog.lower(u.span))::bigint from pg_catalog.unnest(p_ids) u (span)
$$;

-- Words for error messages above read committed, where a transaction sees the queues of the moment when it began. A program that has registered a queue
-- since then searches the message for these words (queue/declare/unseen.ts).
create or replace function pawl.queue_snapshot() returns text
language sql stable as $$
  select case when current_setting('transaction_isolation') in ('repeatable read', 'serializable') then ' in the snapshot of this transaction' else '' end
$$;

-- The id of a queue. Raises PW002 if there is none of that name.
create or replace function pawl.queue_id(p_name text) returns smallint
language plpgsql stable as $$
declare
  v_id smallint;
begin
  select d.id into v_id from pawl.queue_definition d where d.name = p_name and (d.removed_at is null or not pawl.queue_is_gone(d));
  if not found then
    raise exception 'queue "%" does not exist%; there %', p_name, pawl.queue_snapshot(), coalesce((
      select 'are ' || string_agg('"' || x.name || '"', ', ') from (select d.name from pawl.queue_definition d where d.removed_at is null or not pawl.queue_is_gone(d) order by d.name limit 20) x),
      'is none yet: a queue is made known by its first enqueue, its first worker, or register()') using errcode = 'PW002';
  end if;
  return v_id;
end $$;

-- The newest job of a key, or null.
create or replace function pawl.queue_newest(p_queue text, p_key text) returns bigint
language plpgsql stable /* planner: probe */ as $$
begin
  return (
    select j.id from pawl.queue_definition q cross join lateral (
      select j.id from pawl.queue_job j
      where j.shard = case when q.shards = 1 then 0::smallint else pawl.queue_shard(p_key, q.shards) end and j.queue = q.id and j.key = p_key
      order by j.id desc limit 1) j
    where q.name = p_queue);
end $$;
