-- What people do to actors and ask about them: the answers behind show, explain and diagram, pause and resume.

-- Everything about one actor, for show, explain and diagnostics.
create or replace function pawl.actor_show(p_actor bigint) returns json
language sql stable set search_path = pg_catalog, pg_temp as $$
  select json_build_object(
    'id', a.id::text, 'type', t.name, 'state', a.state, 'status', v.status, 'key', a.key, 'parent', a.parent::text, 'visit', a.visit, 'epoch', a.epoch,
    'attempt', a.attempt, 'lost', a.lost, 'fields', a.fields, 'version', a.version, 'result', a.result, 'error', a.error, 'held', a.held, 'openChildren', a.children + coalesce((
      select sum(i.n) from pawl.actor_inbox i where i.actor = a.id and i.name = '$child'), 0),
    'createdAt', a.created_at, 'enteredAt', a.entered_at, 'wakeAt', a.wake_at, 'deadlineAt', a.deadline_at, 'finishedAt', a.finished_at, 'pausedAt', a.paused_at,
    'typePausedAt', t.paused_at, 'statePausedAt', (select s.paused_at from pawl.actor_paused_state s where s.type = a.type and s.state = a.state),
    'timers', (select coalesce(json_object_agg(e.key, to_timestamp((e.value ->> 1)::double precision / 1000) order by e.value ->> 1), '{}')
      from jsonb_each(a.timers) e where e.value ->> 1 is not null),
    'dueInMs', round(extract(epoch from a.wake_at - clock_timestamp()) * 1000),
    'semaphores', coalesce((select json_object_agg(s.name, s.val order by s.name) from (
      select x.name, sum(x.val) as val from (
        select e.key as name, e.value::bigint as val from jsonb_each_text(a.semaphores) e
        union all select i.name, i.n from pawl.actor_inbox i where i.actor = a.id and i.name !~ '^[$]') x group by x.name) s), '{}'),
    'messages', (select count(*) from (select 1 from pawl.actor_message m where m.actor = a.id limit 1000) m),
    'worker', (select json_build_object('id', w.id::text, 'process', w.host || ':' || w.pid, 'claimedAt', a.claimed_at, 'expiresAt', w.expires_at,
      'lost', w.expires_at < clock_timestamp()) from pawl.actor_worker w where w.id = coalesce(a.worker, a.tx_worker)),
    'workers', (select count(*) from pawl.actor_worker w where a.type = any (w.types) and w.expires_at > clock_timestamp()),
    'ahead', case when a.wake_at <= clock_timestamp() then (
      select count(*) from (
        select 1 from pawl.actor_instance o where o.type = a.type and o.wake_at < a.wake_at and o.worker is null and o.tx_worker is null and o.paused_at is null and o.held is null
          and o.wake_at is not null order by o.wake_at limit 10000) o) end,
    'machine', t.machine
  )
  from pawl.actor_instance a join pawl.actor_type t on t.id = a.type join pawl.actor v on v.id = a.id
  where a.id = p_actor
$$;

-- How many actors of a type are in each state; each count stops at p_limit.
create or replace function pawl.actor_counts(p_type smallint, p_limit int) returns json
language sql stable
set enable_seqscan = off as $$
  with recursive state as (
    (select a.state from pawl.actor_instance a where a.type = p_type order by a.state limit 1)
    union all
    select n.state from state s cross join lateral (
      select a.state from pawl.actor_instance a where a.type = p_type and a.state > s.state order by a.state limit 1) n
  )
  select coalesce(json_object_agg(s.state, (
    select count(*) from (
      select 1 from pawl.actor_instance a where a.type = p_type and a.state = s.state and a.finished_at is null limit p_limit) x)), '{}')
  from state s
$$;

-- Releases an actor that is held because its processes died, after an operator has repaired it. Answers whether it was held for that.
create or replace function pawl.actor_release_isolated(p_actor bigint) returns boolean
language plpgsql as $$
begin
  update pawl.actor_instance a set held = null, lost = 0, wake_at = clock_timestamp()
  where a.id = p_actor and a.lost >= 2 and a.held is not null;
  if not found then
    return false;
  end if;
  perform pawl.page_resolve('actor-lost:' || p_actor);
  return true;
end $$;

-- Pauses {actor}, {type}, or {type, state}; with "resume": true resumes it. Answers whether that changed anything; of a type or a state always true.
create or replace function pawl.actor_pause(p_what json) returns boolean
language plpgsql as $$
declare
  v_resume boolean := coalesce((p_what ->> 'resume')::boolean, false);
  v_actor bigint := (p_what ->> 'actor')::bigint;
  v_type smallint;
begin
  if v_actor is not null then
    select a.type into v_type from pawl.actor_instance a where a.id = v_actor;
    if v_type is null then
      raise exception 'there is no actor %', v_actor using errcode = 'PW002';
    end if;
    update pawl.actor_instance a set paused_at = case when v_resume then null else clock_timestamp() end
    where a.id = v_actor and (a.paused_at is null) <> v_resume;
    if not found and not (v_resume and pawl.actor_release_isolated(v_actor)) then
      return false;
    end if;
    if v_resume then
      perform pawl.actor_wake(array[v_type]);
    end if;
    return true;
  end if;
  v_type := pawl.actor_type_id(p_what ->> 'type');
  if p_what ->> 'state' is null then
    update pawl.actor_type t set paused_at = case when v_resume then null else clock_timestamp() end
    where t.id = v_type and (t.paused_at is null) <> v_resume;
  elsif v_resume then
    delete from pawl.actor_paused_state s where s.type = v_type and s.state = p_what ->> 'state';
    -- A new statement: every transaction that held an actor under a share lock on that row has committed.
    update pawl.actor_instance a set held = null
    where a.type = v_type and a.state = p_what ->> 'state' and a.held = 'the state is paused';
  else
    insert into pawl.actor_paused_state (type, state) values (v_type, p_what ->> 'state') on conflict do nothing;
  end if;
  if v_resume then
    perform pawl.actor_wake(array[v_type]);
  end if;
  return true;
end $$;

-- Carries out what a turn asks for in addition to its own row, in the transaction that commits it: {create, page, resolve, enqueue or reply}. This waits
-- for 2 s at most for a key or a tag that another open transaction has: then the turn has failed, and is tried again. The turns behind it do not wait.
--
-- Older workers may keep running: they call the functions that this one calls.
create or replace function pawl.actor_apply_effect(p_what text, p_json json) returns json
language plpgsql
set lock_timeout = '2s' as $$
begin
  return case p_what
    when 'create' then pawl.actor_create_json(p_json)
    when 'page' then pawl.page_open(p_json)
    when 'resolve' then to_json(pawl.page_resolve(p_json ->> 0))
    when 'enqueue' then to_json(pawl.enqueue(p_json::jsonb))
    when 'reply' then to_json(pawl.actor_reply(p_json))
  end;
end $$;
