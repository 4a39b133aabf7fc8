-- Operating by hand: pause and resume a queue, cancel and retry a job.
--
-- What changes a job of a key first takes the key's advisory lock, which claimers only try, and then the key's row, which
-- an owner that gives the key up takes too: nobody claims, parks or raises a job of the key meanwhile. Every wait is
-- bounded; "busy" asks the caller to come back, because a claim that stays open (hold: 'transaction') may take long.

create function pawl.queue_pause(p_name text) returns void
language sql set search_path = pg_catalog, pg_temp as $$
  update pawl.queue_definition d set paused_at = coalesce(d.paused_at, clock_timestamp()) where d.id = pawl.queue_id(p_name)
$$;

-- Wakes the workers when the caller's transaction commits.
create function pawl.queue_resume(p_name text) returns void
language plpgsql as $$
declare
  v_queue smallint := pawl.queue_id(p_name);
begin
  update pawl.queue_definition d set paused_at = null where d.id = v_queue and d.paused_at is not null;
  if found then
    perform pg_notify('pawl_queue', v_queue::text);
  end if;
end $$;

-- Takes a key for a change by hand. Answers whether somebody works on it, and the epoch; both null when the key is free.
create function pawl.queue_seize(p_queue smallint, p_shard smallint, p_key text, out held boolean, out epoch bigint)
language plpgsql as $$
begin
  if p_key is null then
    return;
  end if;
  perform pg_advisory_xact_lock(hashtextextended(p_key, p_queue * 65536 + p_shard));
  select k.held, k.epoch into held, epoch from pawl.queue_key k
  where k.shard = p_shard and k.queue = p_queue and k.key = p_key for update;
end $$;

-- The head of a waiting key was taken away: raises the next one, or frees the key. The caller has seized the key.
create function pawl.queue_raise(p_queue smallint, p_shard smallint, p_key text, p_epoch bigint) returns void
language plpgsql as $$
begin
  update pawl.queue_key k set held = true where k.shard = p_shard and k.queue = p_queue and k.key = p_key and k.epoch = p_epoch;
  perform pawl.queue_give_up(p_queue, p_shard, array[p_key], array[p_epoch]);
end $$;

-- A job of a key went away: the next one takes its place if it was the head of a waiting key, or if it was the last ready
-- one of a free key (an enqueue of many jobs of one key parks most of them). The caller has seized the key.
create function pawl.queue_move_up(p_queue smallint, p_shard smallint, p_key text, p_held boolean, p_epoch bigint, p_was bigint) returns void
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
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
  perform pawl.queue_raise(p_queue, p_shard, p_key, v_epoch);
end $$;

-- Takes one job out of the ready run it is part of.
create function pawl.queue_unready(p_queue smallint, p_shard smallint, p_priority smallint, p_id bigint, out taken boolean, out attempt smallint, out epoch bigint)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
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

-- Takes one job out of the delayed run it is part of.
create function pawl.queue_undelay(p_shard smallint, p_id bigint, out taken boolean, out attempt smallint, out epoch bigint)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
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
  epoch := v_run.epoch;
  if v_run.n > 1 then
    insert into pawl.queue_delayed (run_at, id, shard, queue, priority, kind, n, attempt)
    select v_run.run_at, u.id, p_shard, v_run.queue, v_run.priority, v_run.kind, u.n, v_run.attempt
    from (values (v_run.id, p_id - v_run.id), (p_id + 1, v_run.id + v_run.n - 1 - p_id)) u (id, n) where u.n > 0;
  end if;
end $$;

-- Cancels a job. Answers its status now: "cancelled", or "in-progress" when its worker was told to stop it and has not
-- yet; or "busy": somebody is at the job just now, come back. A job that is to be cancelled while it runs is cancelled even
-- if that attempt fails and the job becomes new again; if the attempt completes first, it is complete.
create function pawl.queue_cancel_job(p_queue text, p_id bigint, p_reason text) returns text
language plpgsql
set lock_timeout = '500ms' set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
  v_shard smallint := pawl.queue_find(p_queue, p_id);
  v_job record;
  v_key record;
  v_at record;
  v_out record;
  v_worker bigint;
  v_key_name text;
begin
  select j.queue, j.kind, j.priority, j.key, q.keyed into v_job
  from pawl.queue_job j join pawl.queue_definition q on q.id = j.queue where j.shard = v_shard and j.id = p_id;
  v_key_name := case when v_job.keyed then v_job.key end;

  -- A unit whose claim stays open cannot be seen here; its worker tells of it once it has been running for a moment.
  select w.id into v_worker from pawl.queue_worker w
  where w.queue = v_job.queue and w.hold = 'transaction' and p_id = any (w.holding) and w.expires_at > clock_timestamp();
  if found then
    perform pawl.queue_ask_cancel(v_job.queue, v_shard, p_id, v_worker, p_reason);
    return 'in-progress';
  end if;

  v_key := pawl.queue_seize(v_job.queue, v_shard, v_key_name);
  for v_try in 1..5 loop  -- between two statements an unkeyed job may move
    v_at := pawl.queue_look(v_shard, p_id, v_job.queue, v_job.kind, v_job.priority, v_job.key);
    case v_at.place
      when 'ready' then
        select u.* into v_out from pawl.queue_unready(v_job.queue, v_shard, v_job.priority, p_id) u;
      when 'delayed' then
        select u.* into v_out from pawl.queue_undelay(v_shard, p_id) u;
      when 'parked' then
        with gone as (
          delete from pawl.queue_parked p
          where p.shard = v_shard and p.queue = v_job.queue and p.key = v_job.key and p.kind = v_job.kind and p.id = p_id returning p.attempt)
        select true as taken, g.attempt, null::bigint as epoch into v_out from gone g;
      when 'running' then
        perform pawl.queue_ask_cancel(v_job.queue, v_shard, p_id, v_at.worker, p_reason);
        return 'in-progress';
      else
        if v_at.status = 'cancelled' then
          return 'cancelled';
        end if;
        raise exception 'job % is %, so it cannot be cancelled any more', p_id,
          case v_at.status when 'error' then 'in error' else v_at.status end using errcode = 'PW003';
    end case;
    if v_out.taken then
      insert into pawl.queue_dead (id, at, shard, queue, kind, attempt, status, key, error)
      values (p_id, clock_timestamp(), v_shard, v_job.queue, v_job.kind, v_out.attempt, 'cancelled', v_job.key, p_reason);
      insert into pawl.queue_transition (at, id, shard, queue, attempt, from_status, to_status, reason, error)
      values (clock_timestamp(), p_id, v_shard, v_job.queue, v_out.attempt, 'new', 'cancelled', 'cancel', p_reason);
      delete from pawl.queue_cancel c where c.shard = v_shard and c.id = p_id;
      if v_key_name is not null then
        perform pawl.queue_move_up(v_job.queue, v_shard, v_key_name, v_key.held, v_key.epoch, v_out.epoch);
      end if;
      if v_key_name is not null then
        perform pawl.queue_wake(v_job.queue);
      end if;
      return 'cancelled';
    end if;
  end loop;
  return 'busy';
exception when lock_not_available then
  return 'busy';
end $$;

-- Tells the worker of a running job to stop it: its next heartbeat brings the row, and the notification asks for one now.
create function pawl.queue_ask_cancel(p_queue smallint, p_shard smallint, p_id bigint, p_worker bigint, p_reason text) returns void
language plpgsql as $$
begin
  insert into pawl.queue_cancel (id, shard, worker, reason) values (p_id, p_shard, p_worker, p_reason)
  on conflict (shard, id) do update set worker = excluded.worker, reason = coalesce(excluded.reason, pawl.queue_cancel.reason);
  perform pg_notify('pawl_queue', 'cancel ' || p_queue);
end $$;

-- Wishes to cancel whose job is no longer under the worker that was told: one that came back is cancelled now, or its
-- next worker is told; one that is settled leaves nothing behind. Costs one look at an empty table as a rule.
create function pawl.queue_sweep_cancels(p_queue smallint) returns integer
language plpgsql
set enable_seqscan = off set jit = off as $$
declare
  v_wish record;
  v_swept integer := 0;
begin
  for v_wish in
    select c.shard, c.id, c.reason, l.status from pawl.queue_cancel c
    cross join lateral (select j.* from pawl.queue_job j where j.shard = c.shard and j.id = c.id) j
    cross join lateral pawl.queue_look(j.shard, j.id, j.queue, j.kind, j.priority, j.key) l
    where j.queue = p_queue and (l.place <> 'running' or l.worker is distinct from c.worker)
      and not exists (select 1 from pawl.queue_worker w where w.id = c.worker and c.id = any (w.holding))
    order by c.shard, c.id limit 100
  loop
    begin
      if v_wish.status in ('new', 'in-progress') then
        perform pawl.queue_cancel_job(null, v_wish.id, v_wish.reason);
      else
        delete from pawl.queue_cancel c where c.shard = v_wish.shard and c.id = v_wish.id;
      end if;
      v_swept := v_swept + 1;
    exception when sqlstate 'PW003' then  -- it was settled between the two looks; the next sweep sees that
    end;
  end loop;
  delete from pawl.queue_cancel c where not exists (select 1 from pawl.queue_job j where j.shard = c.shard and j.id = c.id);
  return v_swept;
end $$;

-- A job that ended in error or was cancelled becomes new again, with all its attempts before it. A job of a key takes its
-- place in the key's order among those that have not been tried yet. Answers "new", or "busy".
create function pawl.queue_retry_job(p_queue text, p_id bigint) returns text
language plpgsql
set lock_timeout = '500ms' set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
  v_shard smallint := pawl.queue_find(p_queue, p_id);
  v_job record;
  v_key record;
  v_from text;
  v_key_name text;
begin
  select j.queue, j.kind, j.priority, j.key, q.keyed into v_job
  from pawl.queue_job j join pawl.queue_definition q on q.id = j.queue where j.shard = v_shard and j.id = p_id;
  v_key_name := case when v_job.keyed then v_job.key end;
  v_key := pawl.queue_seize(v_job.queue, v_shard, v_key_name);
  delete from pawl.queue_dead d where d.shard = v_shard and d.id = p_id returning d.status into v_from;
  if not found then
    v_from := (pawl.queue_look(v_shard, p_id, v_job.queue, v_job.kind, v_job.priority, v_job.key)).status;
    raise exception 'job % is %; only a job that ended in error or was cancelled can be retried', p_id, v_from using errcode = 'PW003';
  end if;
  if v_key.epoch is null then
    insert into pawl.queue_ready (id, shard, queue, priority, kind, key)
    values (p_id, v_shard, v_job.queue, v_job.priority, v_job.kind, v_key_name);
  else
    insert into pawl.queue_parked (id, shard, queue, priority, kind, key)
    values (p_id, v_shard, v_job.queue, v_job.priority, v_job.kind, v_key_name);
    if not v_key.held then
      -- A later job that has not been tried waits at the key's head: it steps back, and the key's order decides anew.
      with head as (
        delete from pawl.queue_ready r
        where r.shard = v_shard and r.queue = v_job.queue and r.key = v_key_name and r.epoch = v_key.epoch and r.id > p_id and r.attempt = 0
        returning r.*
      )
      insert into pawl.queue_parked (id, shard, queue, priority, kind, attempt, key)
      select h.id, h.shard, h.queue, h.priority, h.kind, h.attempt, h.key from head h;
      if found then
        perform pawl.queue_raise(v_job.queue, v_shard, v_key_name, v_key.epoch);
      end if;
    end if;
  end if;
  insert into pawl.queue_transition (at, id, shard, queue, attempt, from_status, to_status, reason)
  values (clock_timestamp(), p_id, v_shard, v_job.queue, 0, v_from, 'new', 'retry by hand');
  delete from pawl.queue_cancel c where c.shard = v_shard and c.id = p_id;
  perform pawl.queue_wake(v_job.queue);
  return 'new';
exception when lock_not_available then
  return 'busy';
end $$;
