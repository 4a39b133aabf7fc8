-- Keys that stop at an error (keyOnError: 'block'): the later jobs of such a key wait until the job that failed is retried or skipped.
--
-- A blocked key counts as busy, under an epoch that no claim has: no owner gives it up, and claims park its ready jobs, as with any busy key. So claims,
-- enqueues and settlements know nothing of blocked keys.

-- Attempts at jobs of a shard (null: of any) have just ended in error, in this transaction, which owns their keys: stops the keys whose queue asks for
-- that. Answers whether it has stopped one.
create or replace function pawl.queue_block_keys(p_shard smallint, p_ids bigint[]) returns boolean
language plpgsql /* planner: loop */ as $$
declare
  v_key record;
  v_blocks boolean := false;
begin
  if not exists (select 1 from pawl.queue_definition d where d.blocks) then
    return false;
  end if;
  for v_key in
    select j.queue, j.shard, j.key, range_agg(int8range(j.id, j.id + 1)) as jobs
    from unnest(p_ids) i (id)
    cross join lateral (select coalesce(p_shard, pawl.queue_shard_of(i.id)) as shard offset 0) s
    cross join lateral (select j.id, j.queue, j.shard, j.key from pawl.queue_job j where j.shard = s.shard and j.id = i.id offset 0) j
    join pawl.queue_definition d on d.id = j.queue and d.blocks and d.keyed
    where j.key is not null
    group by j.queue, j.shard, j.key order by j.queue, j.shard, j.key
  loop
    perform pawl.queue_block_key(v_key.queue, v_key.shard, v_key.key, v_key.jobs);
    v_blocks := true;
  end loop;
  return v_blocks;
end $$;

-- Stops one key, and its head steps back: a head that is ready, or waits for its next attempt, is parked. A head that was enqueued for later only waits
-- for its time.
create or replace function pawl.queue_block_key(p_queue smallint, p_shard smallint, p_key text, p_jobs int8multirange) returns void
language plpgsql /* planner: probe */ as $$
declare
  v_was bigint;
begin
  select k.epoch into v_was from pawl.queue_key k where k.shard = p_shard and k.queue = p_queue and k.key = p_key for update;
  insert into pawl.queue_key as k (shard, queue, key, epoch, held) values (p_shard, p_queue, p_key, nextval('pawl.queue_claim_id'), true)
  on conflict (shard, queue, key) do update set epoch = excluded.epoch, held = true;
  insert into pawl.queue_blocked as b (shard, queue, key, jobs) values (p_shard, p_queue, p_key, p_jobs)
  on conflict (queue, shard, key) do update set jobs = b.jobs + excluded.jobs;
  with head as (
    delete from pawl.queue_ready r where r.shard = p_shard and r.queue = p_queue and r.key = p_key and r.epoch = v_was returning r.*
  ), tried as (
    delete from pawl.queue_delayed d
    where d.shard = p_shard and d.queue = p_queue and d.key = p_key and d.epoch = v_was and d.attempt > 0 returning d.*
  )
  insert into pawl.queue_parked (id, shard, queue, priority, kind, attempt, lost, key)
  select h.id, h.shard, h.queue, h.priority, h.kind, h.attempt, h.lost, h.key from head h
  union all
  select t.id, t.shard, t.queue, t.priority, t.kind, t.attempt, t.lost, t.key from tried t;
  update pawl.queue_delayed d set epoch = null where d.shard = p_shard and d.queue = p_queue and d.key = p_key and d.epoch = v_was;
end $$;

-- A job no longer blocks its key: if no other job does, the key continues. Answers whether the job blocked it. The caller has locked the key. In a queue
-- whose keys have no order any more, a key that was blocked before is still held, and would be again if the order came back. Nothing waits for it there,
-- so the caller need not have locked it.
create or replace function pawl.queue_unblock_key(p_queue smallint, p_shard smallint, p_key text, p_id bigint) returns boolean
language plpgsql /* planner: probe */ as $$
declare
  v_left int8multirange;
begin
  select b.jobs - int8multirange(int8range(p_id, p_id + 1)) into v_left from pawl.queue_blocked b
  where b.queue = p_queue and b.shard = p_shard and b.key = p_key and b.jobs @> p_id for update;
  if not found then
    return false;
  elsif isempty(v_left) then
    delete from pawl.queue_blocked b where b.queue = p_queue and b.shard = p_shard and b.key = p_key;
    perform pawl.queue_release_keys(p_queue, p_shard, array[p_key], array[k.epoch]) from pawl.queue_key k
    where k.shard = p_shard and k.queue = p_queue and k.key = p_key;
  else
    update pawl.queue_blocked b set jobs = v_left where b.queue = p_queue and b.shard = p_shard and b.key = p_key;
  end if;
  return true;
end $$;

-- Skips a job that blocks its key: the job stays in error, and the key continues past it. Answers "error", or "busy". Raises PW003 if the job blocks no
-- key. Locks and waits are those of operate.sql.
create or replace function pawl.queue_skip_job(p_queue text, p_id bigint) returns text
language plpgsql /* planner: probe */ set lock_timeout = '500ms' as $$
declare
  v_shard smallint := pawl.queue_find(p_queue, p_id);
  v_job record;
  v_status text;
begin
  select j.queue, j.key, d.attempt into v_job
  from pawl.queue_job j left join pawl.queue_dead d on d.shard = j.shard and d.id = j.id where j.shard = v_shard and j.id = p_id;
  perform pawl.queue_lock_key(v_job.queue, v_shard, v_job.key);
  if pawl.queue_unblock_key(v_job.queue, v_shard, v_job.key, p_id) is not true then
    v_status := (pawl.queue_locate(p_queue, v_shard, p_id)).status;
    raise exception 'job % is % and blocks no key, so there is nothing to skip', p_id,
      case v_status when 'error' then 'in error' when 'in-progress' then 'in progress' else v_status end using errcode = 'PW003';
  end if;
  insert into pawl.queue_transition (at, id, shard, queue, attempt, from_status, to_status, reason)
  values (clock_timestamp(), p_id, v_shard, v_job.queue, v_job.attempt, 'error', 'error', 'skip by hand');
  perform pawl.queue_wake(v_job.queue);
  return 'error';
exception when lock_not_available then
  return 'busy';
end $$;

-- Whether a job blocks its key.
create or replace function pawl.queue_is_blocker(p_shard smallint, p_id bigint) returns boolean
language sql stable /* planner: loop */ as $$
  select exists (
    select 1 from pawl.queue_job j
    cross join lateral (
      select 1 from pawl.queue_blocked b where b.queue = j.queue and b.shard = j.shard and b.key = j.key and b.jobs @> p_id limit 1) b
    where j.shard = p_shard and j.id = p_id)
$$;

-- Raises PW003 if a job blocks its key: without the job, nothing says how the key continues. p_change: what must not be done to the job.
create or replace function pawl.queue_refuse_blocker(p_shard smallint, p_id bigint, p_change text) returns void
language plpgsql stable as $$
begin
  if pawl.queue_is_blocker(p_shard, p_id) then
    raise exception 'job % cannot be % while it blocks its key; skip it first, then the key continues', p_id, p_change using errcode = 'PW003';
  end if;
end $$;
