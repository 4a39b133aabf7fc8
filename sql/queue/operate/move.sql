-- Moving a job to another queue. Locks and waits are those of operate.sql.

-- Moves a job that waits, ended in error or was cancelled to another queue. There it is a new job, of a kind with the same name or of p_to_kind: with its
-- id, key, payload, time, priority, options and history, and with all attempts before it. Answers "new", or "busy". PW001: that queue has no such kind,
-- the kind does not take the job, or the kind of the job's own dead letter (onError) does not exist there; PW003: the job's status does not allow it, the
-- job comes after jobs that have not ended, or its shard would change while a batch, a job or a process waits for it.
create or replace function pawl.queue_move_job(p_queue text, p_id bigint, p_to text, p_to_kind text) returns text
language plpgsql /* planner: probe */ set lock_timeout = '500ms' as $$
declare
  v_shard smallint := pawl.queue_find(p_queue, p_id);
  v_job record;
  v_to record;
  v_key record;
  v_at record;
  v_out record;
  v_key_name text;
  v_from text;
  v_run_at timestamptz;
begin
  select j.queue, j.kind, j.key, j.group_name, j.run_at, k.name as kind_name, q.keyed into v_job
  from pawl.queue_job j join pawl.queue_definition q on q.id = j.queue join pawl.queue_kind k on k.id = j.kind where j.shard = v_shard and j.id = p_id;
  v_to := pawl.queue_move_to(p_to, coalesce(p_to_kind, v_job.kind_name), v_job.key, v_job.group_name, v_shard);
  if v_to.queue = v_job.queue then
    raise exception 'job % is in queue "%" already', p_id, p_to using errcode = 'PW003';
  elsif exists (
    select 1 from pawl.queue_worker w
    where w.queue = v_job.queue and w.hold = 'transaction' and p_id = any (w.holding) and w.expires_at > clock_timestamp()) then
    raise exception 'job % is in progress, so it cannot be moved', p_id using errcode = 'PW003';
  end if;
  v_key_name := case when v_job.keyed then v_job.key end;
  v_key := pawl.queue_lock_key(v_job.queue, v_shard, v_key_name);
  v_run_at := v_job.run_at;
  perform pawl.queue_refuse_blocker(v_shard, p_id, 'moved');
  delete from pawl.queue_dead d where d.shard = v_shard and d.id = p_id returning d.status into v_from;
  if not found then
    v_from := 'new';
    for v_try in 1..5 loop  -- between two statements an unkeyed job may move
      v_at := pawl.queue_locate(p_queue, v_shard, p_id);
      if v_at.place is null then
        return 'busy';  -- it was just moved to another shard
      end if;
      if v_at.status <> 'new' then
        raise exception 'job % is %, so it cannot be moved; only a job that waits, ended in error or was cancelled can', p_id,
          case v_at.status when 'in-progress' then 'in progress' else v_at.status end using errcode = 'PW003';
      end if;
      v_out := pawl.queue_take_waiting(v_at.place, v_job.queue, v_shard, v_job.kind, v_at.priority, v_job.key, p_id);
      exit when v_out.taken;
    end loop;
    if not v_out.taken then
      return 'busy';
    elsif v_out.run_at = pawl.queue_never() then
      raise exception 'job % comes after jobs that have not ended, so it cannot be moved yet', p_id using errcode = 'PW003';
    elsif v_key_name is not null then
      perform pawl.queue_replace_head(v_job.queue, v_shard, v_key_name, v_key.held, v_key.epoch, v_out.epoch);
      perform pawl.queue_wake(v_job.queue);
    end if;
    if v_out.attempt = 0 then  -- a job that was set aside for a paused part of its queue is due
      v_run_at := case when v_out.run_at < pawl.queue_set_aside_at(0) then v_out.run_at end;
    end if;
    if v_job.group_name is not null and pawl.queue_leave_places(v_shard, int8multirange(int8range(p_id, p_id + 1))) <> '{}' then
      perform pawl.queue_wake(v_job.queue);
    end if;
  end if;
  perform pawl.queue_require_queue(v_shard, p_id, v_job.queue);
  -- After the first write: so a watch that is committed later is checked again after this transaction, and follows the job, see queue_follow_moved.
  if v_to.shard <> v_shard and exists (
    select 1 from pawl.queue_watch_part p where p.shard = v_shard and p.bucket = p_id / 256 and p.outstanding @> p_id) then
    raise exception 'job % cannot be moved now: it would be of another shard in queue "%", and a batch, a job or a process waits for it', p_id, p_to
      using errcode = 'PW003';
  end if;
  perform pawl.queue_carry_over(v_shard, p_id, v_to.queue, v_to.shard, v_to.kind, v_to.is_unique);
  if v_run_at > clock_timestamp() then
    insert into pawl.queue_delayed (run_at, id, shard, queue, priority, kind, key, group_name)
    select v_run_at, p_id, v_to.shard, v_to.queue, j.priority, v_to.kind, case when v_to.keyed then v_job.key end, v_job.group_name
    from pawl.queue_job j where j.shard = v_to.shard and j.id = p_id;
  elsif v_job.group_name is not null then
    perform pawl.queue_line_up(v_to.queue, v_to.shard, array[p_id]);
  else
    insert into pawl.queue_ready (id, shard, queue, priority, kind, key)
    select p_id, v_to.shard, v_to.queue, j.priority, v_to.kind, case when v_to.keyed then v_job.key end
    from pawl.queue_job j where j.shard = v_to.shard and j.id = p_id;
  end if;
  insert into pawl.queue_transition (at, id, shard, queue, attempt, from_status, to_status, reason)
  values (clock_timestamp(), p_id, v_to.shard, v_to.queue, 0, v_from, 'new', 'moved');
  perform pawl.queue_wake(v_to.queue);
  return 'new';
exception when lock_not_available then
  return 'busy';
end $$;

-- The queue, kind and shard to which a job goes. Fails if the kind there does not take the job.
create or replace function pawl.queue_move_to(
  p_queue text, p_kind text, p_key text, p_group text, p_shard smallint, out queue smallint, out kind smallint, out shard smallint, out keyed boolean, out is_unique boolean
)
language plpgsql stable as $$
declare
  v_queue smallint := pawl.queue_id(p_queue);
  v_kind pawl.queue_kind;
  v_shards smallint;
  v_definition pawl.queue_definition;
begin
  select k.* into v_kind from pawl.queue_kind k where k.queue = v_queue and k.name = p_kind;
  if not found then
    raise exception 'queue "%" has no kind "%"; it has %; name the kind that the job is to have there', p_queue, p_kind,
      (select string_agg('"' || k.name || '"', ', ' order by k.name) from pawl.queue_kind k where k.queue = v_queue) using errcode = 'PW001', column = 'toKind';
  elsif p_key is null and (v_kind.unique_key or v_kind.unique_rule ->> 'by' = 'key' or v_kind.needs_key or v_kind.coalesce <> 'none' or cardinality(v_kind.after) > 0) then
    raise exception 'kind "%" of queue "%" needs a key, and the job has none', p_kind, p_queue using errcode = 'PW001', column = 'toKind';
  end if;
  select d.* into v_definition from pawl.queue_definition d where d.id = v_queue;
  if p_group is not null then
    perform pawl.queue_check_group(v_definition, v_kind, p_group, p_key);
  end if;
  v_shards := v_definition.shards;
  keyed := v_definition.keyed;
  queue := v_queue;
  kind := v_kind.id;
  is_unique := v_kind.unique_key;
  shard := case when v_shards = 1 then 0 when coalesce(p_group, p_key) is not null then pawl.queue_shard(coalesce(p_group, p_key), v_shards) else p_shard % v_shards end;
end $$;

-- Gives a job that its caller has taken out of its table another queue, and moves the rows that belong to it.
create or replace function pawl.queue_carry_over(p_shard smallint, p_id bigint, p_queue smallint, p_to smallint, p_kind smallint, p_unique boolean) returns void
language plpgsql /* planner: probe */ as $$
begin
  if p_unique and exists (
    select 1 from pawl.queue_job j join pawl.queue_definition d on d.id = p_queue and d.former_shards is not null
    cross join lateral pawl.queue_only_ones(d, p_kind, j.key) o
    where j.shard = p_shard and j.id = p_id and o.id <> p_id) then
    raise unique_violation;
  end if;
  delete from pawl.queue_unique u where u.job = p_id;
  delete from pawl.queue_cancel c where c.shard = p_shard and c.id = p_id;
  update pawl.queue_tag t set queue = p_queue, shard = p_to where t.id = p_id;
  update pawl.queue_expiry e set queue = p_queue, shard = p_to
  from (select j.queue, j.options from pawl.queue_job j where j.shard = p_shard and j.id = p_id and j.options is not null) j
  where e.queue = j.queue and e.expires_at = (j.options ->> 'expiresAt')::timestamptz and e.id = p_id;
  if p_to <> p_shard then
    insert into pawl.queue_transition (at, claimed_at, id, worker, process_id, shard, queue, attempt, from_status, to_status, reason, error)
    select t.at, t.claimed_at, p_id, t.worker, t.process_id, p_to, t.queue, t.attempt, t.from_status, t.to_status, t.reason,
      pawl.queue_error(t.shard, t.at, t.error, t.error_of)
    from pawl.queue_transition t where t.shard = p_shard and t.id > p_id - 256 and t.id <= p_id and t.id + t.n > p_id;
    perform pawl.queue_erase_moves(p_shard, p_id);
    update pawl.queue_output o set shard = p_to where o.shard = p_shard and o.id = p_id;
    delete from pawl.queue_child c where c.shard = p_shard and c.first = p_id and c.n = 1;
  end if;
  update pawl.queue_job j set queue = p_queue, kind = p_kind, shard = p_to, only_one = nullif(p_unique, false),
    options = case when (j.options ->> 'expiresAt')::timestamptz < clock_timestamp() then nullif(j.options::jsonb - 'expiresAt', '{}')::json else j.options end
  where j.shard = p_shard and j.id = p_id;
  perform pawl.queue_note_letters(p_to, array[p_id])
  from pawl.queue_job j where j.shard = p_to and j.id = p_id and j.options ->> 'onError' is not null;
  perform pawl.queue_win_again(p_to, p_id);
  insert into pawl.queue_search_again (id) values (p_id);
exception when unique_violation then
  raise exception 'job % cannot be moved: its kind there is unique, and has a job of its key', p_id using errcode = 'PW003';
end $$;

-- As the other functions of by_hand.sql: {"id"} or {"queue", "key"}, "to" (a queue) and "toKind". Answers {"id", "status": "new"}.
create or replace function pawl.move(request jsonb) returns jsonb
language plpgsql as $$
declare
  v_id bigint := pawl.queue_named('pawl.move', request, array['to', 'toKind']);
  v_begun timestamptz := clock_timestamp();
begin
  if request ->> 'to' is null then
    raise exception 'pawl.move needs "to", the queue that the job goes to' using errcode = 'PW001', column = 'to';
  end if;
  loop
    if pawl.queue_move_job(request ->> 'queue', v_id, request ->> 'to', request ->> 'toKind') <> 'busy' then
      return jsonb_build_object('id', v_id::text, 'status', 'new');
    end if;
    perform pawl.queue_await_others(v_id, v_begun);
  end loop;
end $$;
