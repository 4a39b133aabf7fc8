-- Erasing: the content of a job goes at once, and not when its history is over. Locks and waits are those of operate.sql.

-- Erases one job: its payload, result, progress, errors, tags and history, and its words in the index. A waiting job is cancelled first, so that its
-- waiters are notified. Raises PW003 while the job is in progress. Answers "erased", or "busy". The job's id stays in the receipts, which say how many
-- jobs were settled when. A result that the jobs of a unit share stays with the other jobs. p_is_open: see queue_change.
-- If jobs or batches that wait for it are left to queue_look, a row of queue_dead stays until then. It says how the job ended, and nothing else. Without
-- it the job would count as complete, and the jobs after it would run.
create or replace function pawl.queue_erase_job(p_queue text, p_id bigint, p_is_open boolean default false) returns text
language plpgsql /* planner: probe */ set lock_timeout = '500ms' as $$
declare
  v_shard smallint := pawl.queue_find(p_queue, p_id);
  v_status text := (pawl.queue_locate(p_queue, v_shard, p_id)).status;
  v_dead pawl.queue_dead;
begin
  if v_status = 'new' then
    v_status := pawl.queue_cancel_job(p_queue, p_id, null, p_is_open => p_is_open);
    if v_status = 'busy' then
      return v_status;
    end if;
  end if;
  -- Of two calls at once, the second finds no job. If a retry by hand was first, it has removed the dead row, and the job is new below.
  perform from pawl.queue_job j where j.shard = v_shard and j.id = p_id for update;
  perform pawl.queue_refuse_blocker(v_shard, p_id, 'erased');
  delete from pawl.queue_dead d where d.shard = v_shard and d.id = p_id returning d.* into v_dead;
  v_status := (pawl.queue_locate(p_queue, v_shard, p_id)).status;
  if v_status <> 'complete' then
    raise exception 'job % is %, so it cannot be erased; cancel it, and erase it when it has ended', p_id,
      case v_status when 'in-progress' then 'in progress' else v_status end using errcode = 'PW003';
  end if;
  perform pawl.queue_erase_output(v_shard, p_id);
  perform pawl.queue_erase_moves(v_shard, p_id);
  delete from pawl.queue_cancel c where c.shard = v_shard and c.id = p_id;
  delete from pawl.queue_trace t where t.id = p_id;
  delete from pawl.queue_tag t where t.id = p_id;
  delete from pawl.queue_unique u where u.job = p_id;
  delete from pawl.queue_job j where j.shard = v_shard and j.id = p_id;
  insert into pawl.queue_search_again (id) values (p_id);
  insert into pawl.queue_dead (id, at, shard, queue, kind, attempt, status)
  select p_id, v_dead.at, v_shard, v_dead.queue, v_dead.kind, v_dead.attempt, v_dead.status
  where v_dead.id is not null and pawl.queue_is_awaited(v_shard, p_id);
  return 'erased';
exception when lock_not_available then
  return 'busy';
end $$;

-- Removes the output of a job. If the job keeps the result of its unit, the unit's next job gets it.
create or replace function pawl.queue_erase_output(p_shard smallint, p_id bigint) returns void
language plpgsql /* planner: probe */ as $$
declare
  v_result json;
  v_others bigint[];
begin
  delete from pawl.queue_output o where o.shard = p_shard and o.id = p_id returning o.result into v_result;
  if v_result is null then
    return;
  end if;
  v_others := array(
    select o.id from pawl.queue_job j cross join lateral pawl.queue_receipt_of(j.queue, j.key, p_id) r cross join lateral unnest(r.ids) u (span)
    join pawl.queue_output o on o.shard = p_shard and o.id >= lower(u.span) and o.id < upper(u.span)
    where j.shard = p_shard and j.id = p_id and r.unit and o.result_of = p_id order by 1);
  update pawl.queue_output o set
    result = case when o.id = v_others[1] then v_result end, result_of = case when o.id <> v_others[1] then v_others[1] end
  where o.shard = p_shard and o.id = any (v_others);
end $$;

-- Removes the moves of a job: its own rows, and its part of rows of runs. If it keeps an error for other jobs, the first of these gets the error.
create or replace function pawl.queue_erase_moves(p_shard smallint, p_id bigint) returns void
language plpgsql /* planner: probe */ as $$
declare
  v_move record;
  v_heir bigint;
begin
  for v_move in
    select t.ctid as tid, t.* from pawl.queue_transition t
    where t.shard = p_shard and t.id > p_id - 256 and t.id <= p_id and t.id + t.n > p_id for update
  loop
    if v_move.id < p_id then
      update pawl.queue_transition t set n = p_id - t.id where t.ctid = v_move.tid;
      if v_move.id + v_move.n - 1 > p_id then
        insert into pawl.queue_transition (at, claimed_at, id, worker, process_id, n, shard, queue, attempt, from_status, to_status, reason, error_of)
        values (v_move.at, v_move.claimed_at, p_id + 1, v_move.worker, v_move.process_id, v_move.id + v_move.n - 1 - p_id, p_shard, v_move.queue,
          v_move.attempt, v_move.from_status, v_move.to_status, v_move.reason, coalesce(v_move.error_of, case when v_move.error is not null then v_move.id end));
      end if;
      continue;
    end if;
    if v_move.n > 1 then
      v_heir := p_id + 1;
      update pawl.queue_transition t set id = v_heir, n = t.n - 1 where t.ctid = v_move.tid;
    else
      delete from pawl.queue_transition t where t.ctid = v_move.tid;
      continue when v_move.error is null;
      select min(t.id) into v_heir from pawl.queue_transition t where t.shard = p_shard and t.error_of = p_id and t.at = v_move.at;
      update pawl.queue_transition t set error = v_move.error, error_of = null
      where t.shard = p_shard and t.id = v_heir and t.error_of = p_id and t.at = v_move.at;
    end if;
    update pawl.queue_transition t set error_of = v_heir where t.shard = p_shard and t.error_of = p_id and t.at = v_move.at;
  end loop;
end $$;

-- Erases, cancels, retries or moves several jobs, each by itself. p_to, p_to_kind: where a move goes; p_reason: of a cancel. Answers {done, refused: their
-- status does not allow it, busy}.
create or replace function pawl.queue_change_many(
  p_queue text, p_action text, p_ids bigint[], p_to text default null, p_to_kind text default null, p_reason text default null
) returns json
language plpgsql as $$
declare
  v_id bigint;
  v_status text;
  v_done int := 0;
  v_refused int := 0;
  v_busy int := 0;
begin
  foreach v_id in array p_ids loop
    begin
      v_status := case p_action when 'erase' then pawl.queue_erase_job(p_queue, v_id) when 'cancel' then pawl.queue_cancel_job(p_queue, v_id, p_reason)
        when 'move' then pawl.queue_move_job(p_queue, v_id, p_to, p_to_kind) else pawl.queue_retry_job(p_queue, v_id) end;
      if v_status = 'busy' then
        v_busy := v_busy + 1;
      else
        v_done := v_done + 1;
      end if;
    exception when sqlstate 'PW001' or sqlstate 'PW002' or sqlstate 'PW003' then
      v_refused := v_refused + 1;
    end;
  end loop;
  return json_build_object('done', v_done, 'refused', v_refused, 'busy', v_busy);
end $$;
