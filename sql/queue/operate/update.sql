-- Changing a waiting job. Locks and waits are those of operate.sql.

-- Gives a waiting job another payload, time, priority or options of its own; null leaves a value as it is. Answers "new", or "busy". Raises PW003 if the
-- job has begun or ended. p_reason: what the history says.
--
-- The job moves to a row of its own: a claim that has read the old row, or looked ahead to it, finds it gone, and then takes the job with its new
-- values. A run is split. A job of a key that keeps its time and priority stays in its row: no claim takes it without the lock of its key, and the owner
-- of the key does not need that lock, so it does not wait for this transaction. A job that comes after others still waits for them; its new time
-- counts after that.
create or replace function pawl.queue_update_job(
  p_queue text, p_id bigint, p_payload json, p_run_at timestamptz, p_priority smallint, p_options json default null, p_reason text default 'update'
) returns text
language plpgsql /* planner: probe */ set lock_timeout = '500ms' as $$
declare
  v_shard smallint := pawl.queue_find(p_queue, p_id);
  v_job record;
  v_key record;
  v_at record;
  v_out record;
  v_key_name text;
  v_moves boolean;
begin
  select j.queue, j.kind, j.key, j.group_name, q.keyed into v_job
  from pawl.queue_job j join pawl.queue_definition q on q.id = j.queue where j.shard = v_shard and j.id = p_id;
  v_key_name := case when v_job.keyed then v_job.key end;
  v_moves := v_key_name is null or p_run_at is not null or p_priority is not null;
  if exists (
    select 1 from pawl.queue_worker w
    where w.queue = v_job.queue and w.hold = 'transaction' and p_id = any (w.holding) and w.expires_at > clock_timestamp()) then
    perform pawl.queue_refuse_change(p_id, 'in-progress');
  end if;
  if v_moves then
    v_key := pawl.queue_lock_key(v_job.queue, v_shard, v_key_name);
  else
    perform pg_advisory_xact_lock(hashtextextended(v_key_name, v_job.queue * 65536 + v_shard));
  end if;
  for v_try in 1..5 loop  -- between two statements an unkeyed job may move
    v_at := pawl.queue_locate(p_queue, v_shard, p_id);
    exit when v_at.place is null;  -- it was just moved to another shard
    if v_at.status <> 'new' then
      perform pawl.queue_refuse_change(p_id, v_at.status);
    end if;
    if p_payload is not null then
      perform pawl.queue_win_again(v_shard, p_id, p_payload);
    end if;
    if v_moves then
      v_out := pawl.queue_take_waiting(v_at.place, v_job.queue, v_shard, v_job.kind, v_at.priority, v_job.key, p_id);
      continue when not v_out.taken;
    elsif current_setting('transaction_isolation') <> 'read committed' then
      perform pawl.queue_confirm_place(v_at.place, v_job.queue, v_shard, v_job.kind, v_at.priority, v_job.key, p_id);
    end if;
    perform pawl.queue_require_queue(v_shard, p_id, v_job.queue);
    update pawl.queue_job j set
      payload = coalesce(p_payload, j.payload), run_at = coalesce(p_run_at, j.run_at), priority = coalesce(p_priority, j.priority),
      options = case when p_options is null then j.options else (coalesce(j.options::jsonb, '{}') || p_options::jsonb)::json end
    where j.shard = v_shard and j.id = p_id;
    if v_moves then
      perform pawl.queue_put_back(v_at.place, v_job.queue, v_shard, v_job.kind, coalesce(p_priority, v_at.priority), v_key_name, p_id,
        v_out.attempt, v_out.lost, v_out.epoch, case when v_out.run_at = pawl.queue_never() then v_out.run_at else coalesce(p_run_at, v_out.run_at) end,
        v_key.held, v_key.epoch, v_job.group_name);
    end if;
    if p_options is not null then
      delete from pawl.queue_tag t where t.id = p_id;
      perform pawl.queue_note_options(v_shard, array[p_id]);
    end if;
    if p_payload is not null then
      insert into pawl.queue_search_again (id) values (p_id);
    end if;
    insert into pawl.queue_transition (at, id, shard, queue, attempt, from_status, to_status, reason)
    values (clock_timestamp(), p_id, v_shard, v_job.queue, v_at.attempt, 'new', 'new', p_reason);
    if v_moves then
      perform pawl.queue_wake(v_job.queue);
    end if;
    return 'new';
  end loop;
  return 'busy';
exception when lock_not_available then
  return 'busy';
end $$;

-- For a transaction whose snapshot may be older than its lock of the key: raises a serialization error if the job has left its place since the
-- snapshot, as when it has begun. Keeps no lock of the job's row.
create or replace function pawl.queue_confirm_place(
  p_place text, p_queue smallint, p_shard smallint, p_kind smallint, p_priority smallint, p_key text, p_id bigint
) returns void
language plpgsql as $$
begin
  perform pawl.queue_take_waiting(p_place, p_queue, p_shard, p_kind, p_priority, p_key, p_id);
  raise exception 'it is there' using errcode = 'PWHTB';
exception when sqlstate 'PWHTB' then
  null;
end $$;

create or replace function pawl.queue_refuse_change(p_id bigint, p_status text) returns void
language plpgsql as $$
begin
  raise exception 'job % is %, so it can no longer be changed; only a waiting job can be changed', p_id,
    case p_status when 'in-progress' then 'in progress' when 'error' then 'in error' else p_status end using errcode = 'PW003';
end $$;

-- Puts a job back that was taken out of the table in which it waits. It returns to that table, unless its time has changed: a due job becomes ready, as
-- by its time, and a job for later is delayed. A job of a key that has not been tried then leaves its place in the key, and the others continue; a job
-- that waits for its next attempt remains the key's head. A job of a group that is put off gives its place back, unless it keeps its place in its key; a
-- job without a place waits for one. p_held and p_key_epoch are those of the job's key.
create or replace function pawl.queue_put_back(
  p_place text, p_queue smallint, p_shard smallint, p_kind smallint, p_priority smallint, p_key text, p_id bigint,
  p_attempt smallint, p_lost smallint, p_epoch bigint, p_run_at timestamptz, p_held boolean, p_key_epoch bigint, p_group text
) returns void
language plpgsql /* planner: probe */ as $$
declare
  v_lines_up boolean := p_group is not null and not exists (select 1 from pawl.queue_place p where p.shard = p_shard and p.id = p_id);
begin
  if p_group is not null and not v_lines_up and p_run_at > clock_timestamp() and (p_key is null or p_attempt = 0) then
    perform pawl.queue_leave_places(p_shard, int8multirange(int8range(p_id, p_id + 1)));
    v_lines_up := true;
  end if;
  if p_run_at > clock_timestamp() then
    insert into pawl.queue_delayed (run_at, id, shard, queue, priority, kind, attempt, lost, epoch, key, group_name)
    values (p_run_at, p_id, p_shard, p_queue, p_priority, p_kind, p_attempt, p_lost,
      case when p_place = 'delayed' or p_attempt > 0 then p_epoch end, p_key, case when v_lines_up then p_group end);
    if p_key is not null and p_place <> 'delayed' and (p_epoch is null or p_attempt = 0) then
      perform pawl.queue_replace_head(p_queue, p_shard, p_key, p_held, p_key_epoch, p_epoch);
    end if;
  elsif v_lines_up then
    perform pawl.queue_line_up(p_queue, p_shard, array[p_id], array[p_attempt], array[p_lost]);
  elsif p_place = 'parked' then
    insert into pawl.queue_parked (id, shard, queue, priority, kind, attempt, lost, key)
    values (p_id, p_shard, p_queue, p_priority, p_kind, p_attempt, p_lost, p_key);
  else
    insert into pawl.queue_ready (id, shard, queue, priority, kind, attempt, lost, epoch, key)
    values (p_id, p_shard, p_queue, p_priority, p_kind, p_attempt, p_lost, p_epoch, p_key);
  end if;
end $$;

-- Gives a job of a run a row of its own, in a transaction of its own, before another transaction changes the job and stays open: claims take the other
-- jobs of the run meanwhile. Does nothing if the job is in no run, or another transaction has locked the run.
create or replace function pawl.queue_isolate(p_request jsonb) returns void
language plpgsql /* planner: probe */ as $$
declare
  v_id bigint := pawl.queue_named('isolate', p_request, '{}');
  v_shard smallint := pawl.queue_shard_of(v_id);
  v_job pawl.queue_job;
  v_out record;
begin
  select j.* into v_job from pawl.queue_job j where j.shard = v_shard and j.id = v_id;
  perform from pawl.queue_ready r
  where r.shard = v_shard and r.queue = v_job.queue and r.priority = v_job.priority and r.n > 1 and r.id = (
    select r.id from pawl.queue_ready r
    where r.shard = v_shard and r.queue = v_job.queue and r.priority = v_job.priority and r.id <= v_id order by r.id desc limit 1)
  for update skip locked;
  if found then
    v_out := pawl.queue_take_ready(v_job.queue, v_shard, v_job.priority, v_id);
    if v_out.taken then
      insert into pawl.queue_ready (id, shard, queue, priority, kind, attempt)
      values (v_id, v_shard, v_job.queue, v_job.priority, v_job.kind, v_out.attempt);
    end if;
    return;
  end if;
  perform from pawl.queue_delayed d
  where d.shard = v_shard and d.n > 1 and d.id = (
    select d.id from pawl.queue_delayed d where d.shard = v_shard and d.id <= v_id order by d.id desc limit 1)
  for update skip locked;
  if found then
    v_out := pawl.queue_take_delayed(v_shard, v_id);
    if v_out.taken then
      insert into pawl.queue_delayed (run_at, id, shard, queue, priority, kind, attempt)
      values (v_out.run_at, v_id, v_shard, v_job.queue, v_job.priority, v_job.kind, v_out.attempt);
    end if;
  end if;
exception when sqlstate 'PW002' then  -- only the other transaction can see the job
end $$;
