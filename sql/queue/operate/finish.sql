-- Completing a job by hand: its work was done without a worker. Locks and waits are those of operate.sql.
--
-- The receipt of such a job names worker 0, an id that no worker has; its history has one move, by hand, and no claim.

-- Completes a job that waits, ended in error or was cancelled, with a result. If the job waited, the jobs that come after it may run now; if it had
-- ended, that was decided at its end. If it blocks its key, the key continues. Answers "complete", or "busy". Raises PW003 if the job is in progress or
-- complete. p_is_open: see queue_change.
create or replace function pawl.queue_finish_job(p_queue text, p_id bigint, p_result json, p_is_open boolean default false) returns text
language plpgsql /* planner: probe */ set lock_timeout = '500ms' as $$
declare
  v_shard smallint := pawl.queue_find(p_queue, p_id);
  v_now timestamptz := clock_timestamp();
  v_job record;
  v_key record;
  v_at record;
  v_out record;
  v_key_name text;
begin
  select j.queue, j.kind, j.key, q.keyed into v_job
  from pawl.queue_job j join pawl.queue_definition q on q.id = j.queue where j.shard = v_shard and j.id = p_id;
  v_key_name := case when v_job.keyed then v_job.key end;
  if exists (
    select 1 from pawl.queue_worker w
    where w.queue = v_job.queue and w.hold = 'transaction' and p_id = any (w.holding) and w.expires_at > clock_timestamp()) then
    perform pawl.queue_refuse_finishing(p_id, 'in-progress');
  end if;
  v_key := pawl.queue_lock_key(v_job.queue, v_shard, v_key_name);
  for v_try in 1..5 loop  -- between two statements an unkeyed job may move
    v_at := pawl.queue_locate(p_queue, v_shard, p_id);
    exit when v_at.place is null;  -- it was just moved to another shard
    if v_at.status in ('in-progress', 'complete') then
      perform pawl.queue_refuse_finishing(p_id, v_at.status);
    elsif v_at.status = 'new' then
      v_out := pawl.queue_take_waiting(v_at.place, v_job.queue, v_shard, v_job.kind, v_at.priority, v_job.key, p_id);
      continue when not v_out.taken;
    else
      delete from pawl.queue_dead d where d.shard = v_shard and d.id = p_id;
      continue when not found;
    end if;
    perform pawl.queue_require_queue(v_shard, p_id, v_job.queue);
    insert into pawl.queue_receipt_one (claim, worker, id, claimed_at, settled_at, process_id, shard, queue, attempt)
    values (nextval('pawl.queue_claim_id'), 0, p_id, v_now, v_now, '00000000-0000-0000-0000-000000000000', v_shard, v_job.queue, v_at.attempt);
    if p_result is not null then
      insert into pawl.queue_output as o (id, shard, result) values (p_id, v_shard, p_result)
      on conflict (shard, id) do update set result = excluded.result, result_of = null;
    end if;
    insert into pawl.queue_transition (at, id, shard, queue, attempt, from_status, to_status, reason)
    values (v_now, p_id, v_shard, v_job.queue, v_at.attempt, v_at.status, 'complete', 'complete by hand');
    delete from pawl.queue_cancel c where c.shard = v_shard and c.id = p_id;
    perform pawl.queue_note_untold(v_shard, array[p_id]);
    if v_at.status = 'new' then
      if v_key_name is not null then
        perform pawl.queue_replace_head(v_job.queue, v_shard, v_key_name, v_key.held, v_key.epoch, v_out.epoch);
      end if;
      perform pawl.queue_ended_by_hand(v_shard, p_id, p_is_open);
    else
      perform pawl.queue_unblock_key(v_job.queue, v_shard, v_job.key, p_id);
    end if;
    perform pawl.queue_wake(v_job.queue);
    return 'complete';
  end loop;
  return 'busy';
exception when lock_not_available then
  return 'busy';
end $$;

create or replace function pawl.queue_refuse_finishing(p_id bigint, p_status text) returns void
language plpgsql as $$
begin
  raise exception 'job % is %; only a job that waits, ended in error or was cancelled can be completed by hand', p_id,
    case p_status when 'in-progress' then 'in progress' else p_status end using errcode = 'PW003';
end $$;
