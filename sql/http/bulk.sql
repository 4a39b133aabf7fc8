-- Bulk actions: a process that serves HTTP takes an action under a lease and changes its jobs. If that process dies, another process
-- continues the action.

-- Changes one job of a bulk action and writes the job's outcome. Answers the outcome; "settled" if the job has an outcome already;
-- "busy" if another transaction has the job, so the caller tries again later; "lost" if the caller no longer holds the action.
create or replace function pawl.http_bulk_change(p_bulk bigint, p_n int, p_holder uuid) returns text
language plpgsql as $$
declare
  v_bulk record;
  v_job bigint;
  v_outcome text := 'done';
  v_detail text;
begin
  select b.action, b.reason, b.to_queue, b.to_kind into v_bulk from pawl.http_bulk b
  where b.id = p_bulk and b.holder = p_holder and b.ended_at is null for key share;
  if not found then
    return 'lost';
  end if;
  select i.job into v_job from pawl.http_bulk_item i where i.bulk = p_bulk and i.n = p_n and i.outcome is null for update;
  if not found then
    return 'settled';
  end if;
  begin
    case v_bulk.action
      when 'retry' then v_detail := pawl.queue_retry_job(null, v_job);
      when 'cancel' then v_detail := pawl.queue_cancel_job(null, v_job, v_bulk.reason);
      when 'finish' then v_detail := pawl.queue_finish_job(null, v_job, null);
      when 'redrive' then v_detail := format('job %s is new', pawl.redrive(jsonb_build_object('id', v_job::text)) ->> 'id');
      when 'move' then v_detail := pawl.queue_move_job(null, v_job, v_bulk.to_queue, v_bulk.to_kind);
      when 'erase' then v_detail := pawl.queue_erase_job(null, v_job);
    end case;
  exception when sqlstate 'PW001' or sqlstate 'PW002' or sqlstate 'PW003' then
    v_outcome := 'refused';
    v_detail := sqlerrm;
  when lock_not_available then
    return 'busy';
  end;
  if v_detail = 'busy' then
    return 'busy';
  end if;
  update pawl.http_bulk_item i set outcome = v_outcome, detail = v_detail where i.bulk = p_bulk and i.n = p_n;
  return v_outcome;
end $$;
