-- Bulk actions: a process that serves HTTP takes an action under a lease and works it off; when that process dies, another one goes
-- on where it ended.

-- Changes one job of a bulk action and writes down what became of it. Answers the outcome; or "settled" when it has one
-- already; "busy" when somebody is at the job just now, come back; "lost" when the action is not the caller's any more.
create or replace function pawl.http_bulk_change(p_bulk bigint, p_n int, p_holder uuid) returns text
language plpgsql as $$
declare
  v_bulk record;
  v_job bigint;
  v_outcome text := 'done';
  v_detail text;
begin
  select b.action, b.reason into v_bulk from pawl.http_bulk b
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
    end case;
  exception when sqlstate 'PW001' or sqlstate 'PW002' or sqlstate 'PW003' then
    v_outcome := 'refused';
    v_detail := sqlerrm;
  end;
  if v_detail = 'busy' then
    return 'busy';
  end if;
  update pawl.http_bulk_item i set outcome = v_outcome, detail = v_detail where i.bulk = p_bulk and i.n = p_n;
  return v_outcome;
end $$;
