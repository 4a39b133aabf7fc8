-- Operating by hand: pause and resume a queue, run a job again. Cancelling is in cancel.sql.
--
-- A change of a job with a key first takes the key's advisory lock, which claims only try, and then the key's row, which an owner that gives the key
-- up locks, too. Meanwhile no job of the key is claimed, parked or made its head. Every wait is bounded. "busy" asks the caller to call again, because a
-- claim that stays open (hold: 'transaction') may take long.

create or replace function pawl.queue_pause(p_name text) returns void
language sql set search_path = pg_catalog, pg_temp as $$
  update pawl.queue_definition d set paused_at = coalesce(d.paused_at, clock_timestamp()) where d.id = pawl.queue_id(p_name)
$$;

-- Wakes the workers when the caller's transaction commits.
create or replace function pawl.queue_resume(p_name text) returns void
language plpgsql as $$
declare
  v_queue smallint := pawl.queue_id(p_name);
begin
  update pawl.queue_definition d set paused_at = null where d.id = v_queue and d.paused_at is not null;
  if found then
    perform pg_notify('pawl_queue', v_queue::text);
  end if;
end $$;

-- Makes a job that ended in error or was cancelled new again, with all its attempts before it. A job of a key takes its place in the key's order among
-- the jobs that have not been tried yet. A job that is delayed, or waits for its next attempt, becomes due now. Answers "new", or "busy".
-- A job that had ended before the number of shards was changed goes to the shard that it would have now: no worker claims from its former shard, or
-- jobs of its key are in two shards.
create or replace function pawl.queue_retry_job(p_queue text, p_id bigint) returns text
language plpgsql /* planner: probe */ set lock_timeout = '500ms' as $$
declare
  v_shard smallint := pawl.queue_find(p_queue, p_id);
  v_job record;
  v_key record;
  v_from text;
  v_key_name text;
  v_home smallint;
begin
  select j.queue, j.kind, j.priority, j.key, j.group_name, j.run_at, j.only_one, q.keyed, q.shards into v_job
  from pawl.queue_job j join pawl.queue_definition q on q.id = j.queue where j.shard = v_shard and j.id = p_id;
  v_key_name := case when v_job.keyed then v_job.key end;
  v_key := pawl.queue_lock_key(v_job.queue, v_shard, v_key_name);
  v_home := case when coalesce(v_job.group_name, v_job.key) is null then v_shard % v_job.shards
    else pawl.queue_shard(coalesce(v_job.group_name, v_job.key), v_job.shards) end;
  if v_home <> v_shard then
    update pawl.queue_dead d set shard = v_home where d.shard = v_shard and d.id = p_id;
    if found then
      perform pawl.queue_unblock_key(v_job.queue, v_shard, v_job.key, p_id);
      perform pawl.queue_carry_over(v_shard, p_id, v_job.queue, v_home, v_job.kind, v_job.only_one);
      return pawl.queue_retry_job(p_queue, p_id);
    end if;
  end if;
  delete from pawl.queue_dead d where d.shard = v_shard and d.id = p_id returning d.status into v_from;
  if not found then
    v_from := (pawl.queue_locate(p_queue, v_shard, p_id)).status;
    if v_from = 'new' then
      return pawl.queue_update_job(p_queue, p_id, null, clock_timestamp(), null, p_reason => 'retry by hand');
    elsif v_from is null then
      return 'busy';  -- it was just moved to another shard
    end if;
    raise exception 'job % is %; only a job that waits, ended in error or was cancelled can be retried', p_id, v_from using errcode = 'PW003';
  end if;
  perform pawl.queue_require_queue(v_shard, p_id, v_job.queue);
  perform pawl.queue_win_again(v_shard, p_id);
  if exists (select 1 from pawl.queue_outstanding(pawl.queue_watch_of(v_shard, p_id))) then
    -- It was cancelled before the jobs that it comes after had ended. A transaction that just ends the last of these does not see it.
    perform pawl.queue_look_again(v_shard, int8multirange(int8range(p_id, p_id + 1)));
    insert into pawl.queue_delayed (run_at, id, shard, queue, priority, kind, key, group_name)
    values (pawl.queue_never(), p_id, v_shard, v_job.queue, v_job.priority, v_job.kind, v_key_name, v_job.group_name);
  elsif v_job.run_at > clock_timestamp() then
    -- When it is due, it takes its place in the key like any other job.
    insert into pawl.queue_delayed (run_at, id, shard, queue, priority, kind, key, group_name)
    values (v_job.run_at, p_id, v_shard, v_job.queue, v_job.priority, v_job.kind, v_key_name, v_job.group_name);
  elsif v_job.group_name is not null then
    perform pawl.queue_line_up(v_job.queue, v_shard, array[p_id]);
  elsif v_key.epoch is null then
    insert into pawl.queue_ready (id, shard, queue, priority, kind, key)
    values (p_id, v_shard, v_job.queue, v_job.priority, v_job.kind, v_key_name);
  else
    insert into pawl.queue_parked (id, shard, queue, priority, kind, key)
    values (p_id, v_shard, v_job.queue, v_job.priority, v_job.kind, v_key_name);
    if not v_key.held then
      -- A later job that has not been tried is the key's head: it steps back, and the key's order decides anew.
      with head as (
        delete from pawl.queue_ready r
        where r.shard = v_shard and r.queue = v_job.queue and r.key = v_key_name and r.epoch = v_key.epoch and r.id > p_id and r.attempt = 0
        returning r.*
      )
      insert into pawl.queue_parked (id, shard, queue, priority, kind, attempt, lost, key)
      select h.id, h.shard, h.queue, h.priority, h.kind, h.attempt, h.lost, h.key from head h;
      if found then
        perform pawl.queue_promote_head(v_job.queue, v_shard, v_key_name, v_key.epoch);
      end if;
    end if;
  end if;
  -- A person who runs the job again wants it to run, so it does not expire any more.
  update pawl.queue_job j set options = nullif(j.options::jsonb - 'expiresAt', '{}')::json
  where j.shard = v_shard and j.id = p_id and j.options ->> 'expiresAt' is not null;
  insert into pawl.queue_transition (at, id, shard, queue, attempt, from_status, to_status, reason)
  values (clock_timestamp(), p_id, v_shard, v_job.queue, 0, v_from, 'new', 'retry by hand');
  delete from pawl.queue_cancel c where c.shard = v_shard and c.id = p_id;
  perform pawl.queue_unblock_key(v_job.queue, v_shard, v_job.key, p_id);
  perform pawl.queue_wake(v_job.queue);
  return 'new';
exception when lock_not_available then
  return 'busy';
end $$;

-- Which table has a job, and the job's priority at that moment: an update may change it between two statements. Raises PW002 if the job's history has
-- just ended.
create or replace function pawl.queue_locate(p_queue text, p_shard smallint, p_id bigint, out place text, out status text, out attempt smallint, out worker bigint, out priority smallint)
language plpgsql stable as $$
begin
  select l.place, l.status, l.attempt, l.worker, j.priority into place, status, attempt, worker, priority
  from pawl.queue_job j cross join lateral pawl.queue_job_place(j.shard, j.id, j.queue, j.kind, j.priority, j.key, j.group_name) l
  where j.shard = p_shard and j.id = p_id;
  if not found then
    perform pawl.queue_find(p_queue, p_id);
  end if;
end $$;

-- Fails as for a job that another transaction holds, unless the job is still of the queue in which the caller has locked its key: it may have been moved
-- since the caller read that queue. The caller has the job, so it is not moved any more.
create or replace function pawl.queue_require_queue(p_shard smallint, p_id bigint, p_queue smallint) returns void
language plpgsql /* planner: probe */ as $$
begin
  if not exists (select 1 from pawl.queue_job j where j.shard = p_shard and j.id = p_id and j.queue = p_queue) then
    raise exception 'job % was just moved to another queue', p_id using errcode = '55P03';
  end if;
end $$;

-- Locks a key for a change by hand. Answers whether the key is held, and its epoch; both are null if the key is free.
create or replace function pawl.queue_lock_key(p_queue smallint, p_shard smallint, p_key text, out held boolean, out epoch bigint)
language plpgsql as $$
begin
  if p_key is null then
    return;
  end if;
  perform pg_advisory_xact_lock(hashtextextended(p_key, p_queue * 65536 + p_shard));
  select k.held, k.epoch into held, epoch from pawl.queue_key k
  where k.shard = p_shard and k.queue = p_queue and k.key = p_key for update;
end $$;

-- The head of a waiting key was taken away: raises the next job of the key, or frees the key. The caller has locked the key.
create or replace function pawl.queue_promote_head(p_queue smallint, p_shard smallint, p_key text, p_epoch bigint) returns void
language plpgsql as $$
begin
  update pawl.queue_key k set held = true where k.shard = p_shard and k.queue = p_queue and k.key = p_key and k.epoch = p_epoch;
  perform pawl.queue_release_keys(p_queue, p_shard, array[p_key], array[p_epoch]);
end $$;

-- A job of a key was taken away. The next job takes its place if it was the head of a waiting key, or the last ready job of a free key (an enqueue of
-- many jobs of one key parks most of them). The caller has locked the key.
create or replace function pawl.queue_replace_head(p_queue smallint, p_shard smallint, p_key text, p_held boolean, p_epoch bigint, p_was bigint) returns void
language plpgsql /* planner: probe */ as $$
declare
  v_epoch bigint := p_epoch;
begin
  if p_held or (p_epoch is not null and p_was is distinct from p_epoch) then
    return;
  elsif p_epoch is null then
    if exists (select 1 from pawl.queue_ready r where r.shard = p_shard and r.queue = p_queue and r.key = p_key)
      or not exists (select 1 from pawl.queue_parked p where p.shard = p_shard and p.queue = p_queue and p.key = p_key) then
      return;
    end if;
    v_epoch := nextval('pawl.queue_claim_id');
    insert into pawl.queue_key (shard, queue, key, epoch, held) values (p_shard, p_queue, p_key, v_epoch, false);
  end if;
  perform pawl.queue_promote_head(p_queue, p_shard, p_key, v_epoch);
end $$;

-- Takes a job out of the table in which it waits. taken: false if it is not there any more, or not yet: a job without a key may move between two
-- statements. run_at and epoch are those of the row that it had. The caller has locked the key, if there is one.
create or replace function pawl.queue_take_waiting(
  p_place text, p_queue smallint, p_shard smallint, p_kind smallint, p_priority smallint, p_key text, p_id bigint,
  out taken boolean, out attempt smallint, out lost smallint, out epoch bigint, out run_at timestamptz
)
language plpgsql /* planner: probe */ as $$
begin
  case p_place
    when 'ready' then
      select u.* into taken, attempt, lost, epoch from pawl.queue_take_ready(p_queue, p_shard, p_priority, p_id) u;
    when 'delayed' then
      select u.* into taken, attempt, lost, epoch, run_at from pawl.queue_take_delayed(p_shard, p_id) u;
    when 'parked' then
      with gone as (
        delete from pawl.queue_parked p
        where p.shard = p_shard and p.queue = p_queue and p.key = p_key and p.kind = p_kind and p.id = p_id returning p.attempt, p.lost)
      select true, g.attempt, g.lost into taken, attempt, lost from gone g;
      taken := coalesce(taken, false);
    when 'grouped' then
      with gone as (
        delete from pawl.queue_grouped g using pawl.queue_job j
        where j.shard = p_shard and j.id = p_id and g.shard = p_shard and g.queue = p_queue and g.group_name = j.group_name
          and g.priority = p_priority and g.id = p_id returning g.attempt, g.lost)
      select true, g.attempt, g.lost into taken, attempt, lost from gone g;
      taken := coalesce(taken, false);
  end case;
end $$;

-- Takes one job out of its ready run.
create or replace function pawl.queue_take_ready(
  p_queue smallint, p_shard smallint, p_priority smallint, p_id bigint,
  out taken boolean, out attempt smallint, out lost smallint, out epoch bigint
)
language plpgsql /* planner: probe */ as $$
declare
  v_run pawl.queue_ready;
begin
  select r.* into v_run from pawl.queue_ready r
  where r.shard = p_shard and r.queue = p_queue and r.priority = p_priority and r.id = (
    select r.id from pawl.queue_ready r
    where r.shard = p_shard and r.queue = p_queue and r.priority = p_priority and r.id <= p_id order by r.id desc limit 1)
    and r.id + r.n > p_id
  for update;
  taken := v_run.id is not null;
  if not taken then
    return;
  end if;
  attempt := v_run.attempt;
  lost := v_run.lost;
  epoch := v_run.epoch;
  if v_run.id = p_id then
    delete from pawl.queue_ready r where r.shard = p_shard and r.queue = p_queue and r.priority = p_priority and r.id = p_id;
  else
    update pawl.queue_ready r set n = p_id - r.id where r.shard = p_shard and r.queue = p_queue and r.priority = p_priority and r.id = v_run.id;
  end if;
  if v_run.id + v_run.n - 1 > p_id then
    insert into pawl.queue_ready (id, shard, queue, priority, kind, n, attempt)
    values (p_id + 1, p_shard, p_queue, p_priority, v_run.kind, v_run.id + v_run.n - 1 - p_id, v_run.attempt);
  end if;
end $$;

-- Takes one job out of its delayed run.
create or replace function pawl.queue_take_delayed(
  p_shard smallint, p_id bigint, out taken boolean, out attempt smallint, out lost smallint, out epoch bigint, out run_at timestamptz
)
language plpgsql /* planner: probe */ as $$
declare
  v_run pawl.queue_delayed;
begin
  delete from pawl.queue_delayed d
  where d.shard = p_shard and d.id = (
    select d.id from pawl.queue_delayed d where d.shard = p_shard and d.id <= p_id order by d.id desc limit 1)
    and d.id + d.n > p_id
  returning d.* into v_run;
  taken := v_run.id is not null;
  if not taken then
    return;
  end if;
  attempt := v_run.attempt;
  lost := v_run.lost;
  epoch := v_run.epoch;
  run_at := v_run.run_at;
  if v_run.n > 1 then
    insert into pawl.queue_delayed (run_at, id, shard, queue, priority, kind, n, attempt)
    select v_run.run_at, u.id, p_shard, v_run.queue, v_run.priority, v_run.kind, u.n, v_run.attempt
    from (values (v_run.id, p_id - v_run.id), (p_id + 1, v_run.id + v_run.n - 1 - p_id)) u (id, n) where u.n > 0;
  end if;
end $$;
