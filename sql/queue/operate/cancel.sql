-- Cancelling a job by hand. Locks and waits are those of operate.sql.

-- Cancels a job. Answers its status now: "cancelled"; "in-progress" if its worker was asked to stop it and has not yet; or "busy" if another transaction
-- has locked the job: call again. A job that is to be cancelled while it runs is cancelled even if that attempt fails and the job becomes new again; if
-- the attempt completes first, the job is complete. p_expires: only cancels a job that has not begun, and asks no worker: see queue_expire. p_is_open:
-- see queue_change.
create or replace function pawl.queue_cancel_job(
  p_queue text, p_id bigint, p_reason text, p_expires boolean default false, p_is_open boolean default false
) returns text
language plpgsql /* planner: probe */ set lock_timeout = '500ms' as $$
declare
  v_shard smallint := pawl.queue_find(p_queue, p_id);
  v_job record;
  v_key record;
  v_at record;
  v_out record;
  v_worker bigint;
  v_key_name text;
begin
  select j.queue, j.kind, j.key, q.keyed into v_job
  from pawl.queue_job j join pawl.queue_definition q on q.id = j.queue where j.shard = v_shard and j.id = p_id;
  v_key_name := case when v_job.keyed then v_job.key end;

  -- A unit whose claim stays open is not visible here; its worker reports it once it has been running for a moment.
  select w.id into v_worker from pawl.queue_worker w
  where w.queue = v_job.queue and w.hold = 'transaction' and p_id = any (w.holding) and w.expires_at > clock_timestamp();
  if found then
    if not p_expires then
      perform pawl.queue_ask_cancel(v_job.queue, v_shard, p_id, v_worker, p_reason);
    end if;
    return 'in-progress';
  end if;

  v_key := pawl.queue_lock_key(v_job.queue, v_shard, v_key_name);
  for v_try in 1..5 loop  -- between two statements an unkeyed job may move
    v_at := pawl.queue_locate(p_queue, v_shard, p_id);
    exit when v_at.place is null;  -- it was just moved to another shard
    if p_expires and (v_at.place in ('running', 'dead', 'complete') or v_at.attempt > 0) then
      return v_at.status;
    elsif v_at.place = 'running' then
      perform pawl.queue_ask_cancel(v_job.queue, v_shard, p_id, v_at.worker, p_reason);
      return 'in-progress';
    elsif v_at.status = 'cancelled' then
      return 'cancelled';
    elsif v_at.status <> 'new' then
      raise exception 'job % is %, so it can no longer be cancelled', p_id,
        case v_at.status when 'error' then 'in error' else v_at.status end using errcode = 'PW003';
    end if;
    v_out := pawl.queue_take_waiting(v_at.place, v_job.queue, v_shard, v_job.kind, v_at.priority, v_job.key, p_id);
    if v_out.taken then
      perform pawl.queue_require_queue(v_shard, p_id, v_job.queue);
      insert into pawl.queue_dead (id, at, shard, queue, kind, attempt, status, key, error)
      values (p_id, clock_timestamp(), v_shard, v_job.queue, v_job.kind, v_out.attempt, 'cancelled', v_job.key, p_reason);
      insert into pawl.queue_transition (at, id, shard, queue, attempt, from_status, to_status, reason, error)
      values (clock_timestamp(), p_id, v_shard, v_job.queue, v_out.attempt, 'new', 'cancelled', case when p_expires then 'expired' else 'cancel' end, p_reason);
      delete from pawl.queue_cancel c where c.shard = v_shard and c.id = p_id;
      perform pawl.queue_note_untold(v_shard, array[p_id]);
      if v_key_name is not null then
        perform pawl.queue_replace_head(v_job.queue, v_shard, v_key_name, v_key.held, v_key.epoch, v_out.epoch);
      end if;
      if v_key_name is not null then
        perform pawl.queue_wake(v_job.queue);
      end if;
      perform pawl.queue_ended_by_hand(v_shard, p_id, p_is_open);
      return 'cancelled';
    end if;
  end loop;
  return 'busy';
exception when lock_not_available then
  return 'busy';
end $$;

-- Asks the worker of a running job to stop it: its next heartbeat answers the row, and the notification makes it send one now.
create or replace function pawl.queue_ask_cancel(p_queue smallint, p_shard smallint, p_id bigint, p_worker bigint, p_reason text) returns void
language plpgsql as $$
begin
  insert into pawl.queue_cancel (id, shard, worker, reason) values (p_id, p_shard, p_worker, p_reason)
  on conflict (shard, id) do update set worker = excluded.worker, reason = coalesce(excluded.reason, pawl.queue_cancel.reason);
  perform pg_notify('pawl_queue', 'cancel ' || p_queue);
end $$;

-- Deals with requests to cancel a job that is no longer under the worker that was notified: a job that came back is cancelled now, or its next worker is
-- notified; the request for a settled job is removed. Also ends jobs that have expired, and forgets ends that no worker reports. As a rule this costs a
-- few probes of empty tables.
create or replace function pawl.queue_sweep_cancels(p_queue smallint) returns integer
language plpgsql
set enable_seqscan = off set jit = off as $$
declare
  v_wish record;
  v_stuck text[] := '{}';
  v_swept integer := 0;
begin
  perform pawl.queue_expire(p_queue, 1000);
  delete from pawl.queue_untold u where u.queue = p_queue and not exists (
    select 1 from pawl.queue_worker w where w.queue = p_queue and w.tells and w.expires_at > clock_timestamp());
  for v_wish in
    select c.shard, c.id, c.reason, j.key, l.status from pawl.queue_cancel c
    cross join lateral (select j.* from pawl.queue_job j where j.shard = c.shard and j.id = c.id) j
    cross join lateral pawl.queue_job_place(j.shard, j.id, j.queue, j.kind, j.priority, j.key, j.group_name) l
    where j.queue = p_queue and (l.place <> 'running' or l.worker is distinct from c.worker)
      and not exists (select 1 from pawl.queue_worker w where w.id = c.worker and c.id = any (w.holding))
    order by random() limit 100  -- otherwise jobs that are locked come first each time
  loop
    continue when v_wish.key = any (v_stuck);
    begin
      if v_wish.status in ('new', 'in-progress') then
        if pawl.queue_cancel_job(null, v_wish.id, v_wish.reason) = 'busy' then
          v_stuck := v_stuck || v_wish.key;
          exit when cardinality(v_stuck) = 3;  -- the call has waited for each
          continue;
        end if;
      else
        delete from pawl.queue_cancel c where c.shard = v_wish.shard and c.id = v_wish.id;
      end if;
      v_swept := v_swept + 1;
    exception when sqlstate 'PW002' or sqlstate 'PW003' then  -- the job was erased or settled between the two reads; the next sweep sees that
    end;
  end loop;
  delete from pawl.queue_cancel c where not exists (select 1 from pawl.queue_job j where j.shard = c.shard and j.id = c.id);
  return v_swept;
end $$;
