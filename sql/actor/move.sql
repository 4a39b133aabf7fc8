-- What an operator does to one actor: make it due now, or put it into another state.

-- Makes an actor due now, for any process that takes its type: a backoff or a nap is over. Answers false if a turn of it runs, or it is final.
create or replace function pawl.actor_retry(p_actor bigint) returns boolean
language plpgsql as $$
declare
  v_type smallint;
  v_held text;
begin
  update pawl.actor_instance a set wake_at = least(a.wake_at, clock_timestamp()), floor_at = null
  where a.id = p_actor and a.worker is null and a.tx_worker is null and a.finished_at is null
  returning a.type, case when a.held <> pawl.actor_isolation_reason(2) then format('%s; %s', a.held, case
    when a.lost >= 2 then 'resume it first' when a.held = 'the state is paused' then 'resume the state first'
    else 'start a program that knows its state, or move it to another one' end) end into v_type, v_held;
  if v_held is not null then
    raise exception 'actor % is held: %', p_actor, v_held using errcode = 'PW003';
  elsif v_type is not null then
    perform pawl.actor_wake(array[v_type]);
    return true;
  elsif not exists (select 1 from pawl.actor_instance a where a.id = p_actor) then
    raise exception 'there is no actor %', p_actor using errcode = 'PW002';
  end if;
  return false;
end $$;

-- Puts an actor into a state, as a new visit, and its fields with it: [{actor, epoch, runs, state, reason, version}, fields or null]. Answers false if the
-- actor is not at that epoch any more, or if its turn ran then (runs) and was committed since: the new fields were made of older ones. A turn that runs
-- is fenced off: its outcome is not written.
create or replace function pawl.actor_move(p_move json) returns boolean
language plpgsql as $$
declare
  v_part json[] := pawl.actor_elements(p_move);
  v_head json := v_part[1];
  v_id bigint := (v_head ->> 'actor')::bigint;
  v_state text := v_head ->> 'state';
  v_fields json := case when json_typeof(v_part[2]) = 'object' then v_part[2] end;
  v_now timestamptz;
  v_actor pawl.actor_instance;
  v_type pawl.actor_type;
begin
  select a.* into v_actor from pawl.actor_instance a where a.id = v_id for no key update;
  if not found then
    raise exception 'there is no actor %', v_id using errcode = 'PW002';
  elsif v_actor.finished_at is not null then
    raise exception 'actor % is final since %: it is not moved', v_id, to_char(v_actor.finished_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
      using errcode = 'PW003';
  elsif v_actor.epoch <> (v_head ->> 'epoch')::bigint
    or coalesce((v_head ->> 'runs')::boolean, false) and coalesce(v_actor.worker, v_actor.tx_worker) is null then
    return false;
  end if;
  select t.* into v_type from pawl.actor_type t where t.id = v_actor.type;
  if v_type.machine -> 'states' -> v_state is null then
    raise exception 'type "%" has no state "%"', v_type.name, v_state using errcode = 'PW001';
  end if;
  v_now := clock_timestamp();
  if v_type.field_history is not null and v_fields is not null and v_fields::text <> v_actor.fields::text then
    insert into pawl.actor_snapshot (at, actor, epoch, type, state, fields)
    values (v_now, v_id, v_actor.epoch + 1, v_actor.type, v_actor.state, v_actor.fields);
  end if;
  update pawl.actor_instance a set
    epoch = a.epoch + 1, visit = a.visit + 1, worker = null, tx_worker = null, signal_at = null, state = v_state, entered_at = v_now,
    deadline_at = pawl.actor_deadline(v_type.machine, v_state, v_now), wake_at = v_now, floor_at = null, timers = null,
    attempt = 0, lost = 0, held = null, error = null, cause = null,
    fields = coalesce(v_fields, a.fields), version = coalesce((v_head ->> 'version')::smallint, a.version)
  where a.id = v_id;
  insert into pawl.actor_transition (at, actor, epoch, attempt, type, from_state, to_state, reason)
  values (v_now, v_id, v_actor.epoch + 1, 0, v_actor.type, v_actor.state, v_state, 'moved: ' || (v_head ->> 'reason'));
  if v_fields is not null and v_type.indexes <> '{}' then
    perform pawl.actor_index(array[v_id]);
  end if;
  perform pawl.page_resolve_free(p.tag) from pawl.actor_page p
  where p.resolved_at is null and p.tag = any (array['actor-deadline:' || v_id, 'actor-mistake:' || v_id, 'actor-lost:' || v_id]);
  perform pawl.actor_wake(array[v_actor.type]);
  return true;
end $$;
