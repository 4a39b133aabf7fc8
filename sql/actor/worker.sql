-- What the processes report to the database, and what they do for it: types, heartbeats, pages for late actors, and the removal of old rows.

-- Declares types: [{name, semaphores, always, interrupts, indexes, machine, version, history: s or null, fieldHistory: s or null, backoff: [4]}].
-- Answers {name: id}. Writes nothing if nothing changed.
create or replace function pawl.actor_register(p_types json) returns json
language plpgsql as $$
declare
  v_type record;
begin
  for v_type in
    select x.name, x.semaphores, x.always, coalesce(x.interrupts, '{}') as interrupts, coalesce(x.indexes, '{}') as indexes, x.machine, x.version, make_interval(secs => x.history) as history,
      make_interval(secs => x."fieldHistory") as field_history, x.backoff
    from json_to_recordset(p_types) x (
      name text, semaphores text[], always text[], interrupts text[], indexes text[], machine json, version smallint, history double precision, "fieldHistory" double precision,
      backoff double precision[])
    order by x.name
  loop
    insert into pawl.actor_type (name, semaphores, always, interrupts, indexes, indexed, machine, version, history, field_history, backoff)
    select v_type.name, v_type.semaphores, v_type.always, v_type.interrupts, v_type.indexes, v_type.indexes, v_type.machine, v_type.version, v_type.history, v_type.field_history, v_type.backoff
    where not exists (select 1 from pawl.actor_type t where t.name = v_type.name)
    on conflict (name) do nothing;
    update pawl.actor_type t set
      semaphores = v_type.semaphores, always = v_type.always, interrupts = v_type.interrupts, indexes = v_type.indexes,
      indexed = array(select n from unnest(t.indexed) n where n = any (v_type.indexes)), machine = v_type.machine, version = v_type.version,
      history = v_type.history, field_history = v_type.field_history, backoff = v_type.backoff
    where t.name = v_type.name
      and (t.semaphores, t.always, t.interrupts, t.indexes, t.machine::text, t.version, t.history, t.field_history, t.backoff) is distinct from
        (v_type.semaphores, v_type.always, v_type.interrupts, v_type.indexes, v_type.machine::text, v_type.version, v_type.history, v_type.field_history, v_type.backoff);
  end loop;
  return (
    select json_object_agg(t.name, t.id) from pawl.actor_type t
    where t.name in (select x ->> 'name' from json_array_elements(p_types) x));
end $$;

-- Releases actors that are held because no program knew their state or fields. p_knows: {type id: {state: 1, $version}}, as the worker is listed by now.
-- Each worker calls this once it is listed, so no actor stays held that was held between the worker's start and its listing, or while the worker was
-- declared dead. Answers how many actors it released.
create or replace function pawl.actor_release_held(p_knows jsonb) returns integer
language plpgsql as $$
declare
  v_known record;
  v_actors integer := 0;
begin
  for v_known in
    select e.key::smallint as type, array(select k from jsonb_object_keys(e.value) k where k <> '$version') as states,
      (e.value ->> '$version')::smallint as version
    from jsonb_each(p_knows) e order by 1
  loop
    perform pawl.actor_lock_known(v_known.type, true);
    v_actors := v_actors + pawl.actor_release_held_type(v_known.type, v_known.states, v_known.version);
  end loop;
  return v_actors;
end $$;

-- The same for one type: the actors in these states whose fields are of p_version or older.
create or replace function pawl.actor_release_held_type(p_type smallint, p_states text[], p_version smallint) returns integer
language plpgsql as $$
declare
  v_actors integer;
begin
  with free as (
    update pawl.actor_instance a set held = null, wake_at = least(a.wake_at, clock_timestamp())
    where a.type = p_type and a.held is not null and a.held <> 'the state is paused' and a.lost < 2
      and a.state = any (p_states) and a.version <= p_version
    returning a.state
  )
  select count(*) into v_actors from free;
  perform pawl.page_resolve_free('actor-unknown:' || p_type || ':' || s.state) from unnest(p_states) s (state)
  where exists (select 1 from pawl.actor_page p where p.tag = 'actor-unknown:' || p_type || ':' || s.state and p.resolved_at is null);
  return v_actors;
end $$;

-- Locks a type, so that one of two callers waits for the other: a worker that is listed (p_lists), and a caller that would hold an actor. Either that
-- caller sees the worker that knows the actor's state, or the worker sees the held actor.
create or replace function pawl.actor_lock_known(p_type smallint, p_lists boolean) returns void
language plpgsql as $$
begin
  if p_lists then
    perform 1 from pawl.actor_type t where t.id = p_type for no key update;
  else
    perform 1 from pawl.actor_type t where t.id = p_type for share;
  end if;
end $$;

-- Reports an actor that this worker's program cannot run: {actor, epoch, worker, type, state, version, reason}. If another live worker knows the state,
-- the actor is left to that worker for a second; otherwise it is held, and a page is opened. Answers whether it is held. This waits for a locked page
-- for 2 s at most: then the actor is given back, and comes again.
create or replace function pawl.actor_report_unknown(p_turn json) returns boolean
language plpgsql
set lock_timeout = '2s' as $$
declare
  v_held boolean;
begin
  perform pawl.actor_lock_known((p_turn ->> 'type')::smallint, false);
  v_held := not exists (
    select 1 from pawl.actor_worker w
    where w.id <> (p_turn ->> 'worker')::bigint and w.expires_at > clock_timestamp()
      and w.knows -> (p_turn ->> 'type') ? (p_turn ->> 'state')
      and (w.knows -> (p_turn ->> 'type') ->> '$version')::int >= (p_turn ->> 'version')::int);
  update pawl.actor_instance a set
    worker = null, signal_at = null, attempt = greatest(a.attempt - 1, 0), lost = case when v_held then 0 else a.lost end,
    held = case when v_held then p_turn ->> 'reason' else pawl.actor_isolation_reason(a.lost) end, error = case when v_held then p_turn ->> 'reason' end,
    wake_at = clock_timestamp() + case when v_held then interval '0' else interval '1 second' end
  where a.id = (p_turn ->> 'actor')::bigint and a.epoch = (p_turn ->> 'epoch')::bigint and a.worker = (p_turn ->> 'worker')::bigint;
  if not found then
    return false;
  end if;
  if v_held then
    insert into pawl.actor_transition (at, actor, epoch, worker, attempt, type, from_state, to_state, reason, error)
    values (clock_timestamp(), (p_turn ->> 'actor')::bigint, (p_turn ->> 'epoch')::bigint, (p_turn ->> 'worker')::bigint, 0,
      (p_turn ->> 'type')::smallint, p_turn ->> 'state', p_turn ->> 'state', 'held', p_turn ->> 'reason');
    perform pawl.page_open(json_build_object('tag', 'actor-unknown:' || (p_turn ->> 'type') || ':' || (p_turn ->> 'state'), 'severity', 3,
      'summary', p_turn ->> 'reason', 'actor', p_turn -> 'actor'));
  end if;
  return v_held;
end $$;

-- The heartbeat of a process: answers the workers that are still its own. It turns notifications on, and never off: see queue_beat.
create or replace function pawl.actor_beat(p_workers bigint[], p_wants boolean[]) returns bigint[]
language plpgsql as $$
declare
  v_alive bigint[];
begin
  with renewed as (
    update pawl.actor_worker w set
      beat_at = clock_timestamp(), expires_at = clock_timestamp() + w.lease, latest_at = greatest(w.latest_at, w.expires_at), wants_notify = w.wants_notify or b.wants
    from unnest(p_workers, p_wants) b (id, wants) where w.id = b.id returning w.id
  )
  select array_agg(r.id) into v_alive from renewed r;
  return coalesce(v_alive, '{}');
end $$;

-- Opens pages for actors that have been in their state for longer than declared. Answers ms until the next deadline; null if there is none. It does not
-- wait for an actor or a page that another transaction has locked, and tries these again later; in random order, so that they keep out none behind them.
create or replace function pawl.actor_deadlines() returns double precision
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set lock_timeout = '20ms' as $$
declare
  v_id bigint;
  v_late record;
begin
  for v_id in
    select d.id from (
      select d.id from pawl.actor_instance d where d.deadline_at <= clock_timestamp() order by d.deadline_at limit 100) d
    order by random()
  loop begin
    perform 1 from pawl.actor_instance a where a.id = v_id for no key update skip locked;
    continue when not found;
    update pawl.actor_instance a set deadline_at = null where a.id = v_id and a.deadline_at <= clock_timestamp()
    returning a.id, a.state, a.type, a.entered_at, a.error into v_late;
    continue when not found;
    perform pawl.page_open(json_build_object(
      'tag', 'actor-deadline:' || v_late.id, 'severity', 3, 'actor', v_late.id,
      'summary', (select t.name from pawl.actor_type t where t.id = v_late.type) || ' ' || v_late.id || ' is in "' || v_late.state || '" since '
        || to_char(v_late.entered_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') || ', longer than its deadline',
      'details', json_build_object('state', v_late.state, 'error', v_late.error)));
  exception when lock_not_available then
    null;
  end; end loop;
  return (
    select greatest(0, extract(epoch from d.deadline_at - clock_timestamp()) * 1000) from pawl.actor_instance d
    where d.deadline_at is not null order by d.deadline_at limit 1);
end $$;

-- Removes rows whose time is over: final actors, their history, effects of past visits, resolved pages; p_limit of each at most.
create or replace function pawl.actor_prune(p_limit int) returns integer
language plpgsql
set enable_seqscan = off as $$
declare
  v_type record;
  v_ids bigint[];
  v_rows integer := 0;
begin
  for v_type in select t.id, clock_timestamp() - t.history as past from pawl.actor_type t where t.history is not null loop
    v_ids := array(
      select a.id from pawl.actor_instance a where a.type = v_type.id and a.finished_at < v_type.past
        -- A parent that has not read the results of its children keeps them.
        and not exists (select 1 from pawl.actor_instance p where p.id = a.parent and p.finished_at is null)
      order by a.finished_at limit p_limit for update skip locked);
    delete from pawl.actor_instance a where a.id = any (v_ids);
    delete from pawl.actor_effect e where e.actor = any (v_ids);
    delete from pawl.actor_snapshot s where s.actor = any (v_ids);
    delete from pawl.actor_message m where m.actor = any (v_ids);
    delete from pawl.actor_field f where f.actor = any (v_ids);
    delete from pawl.actor_inbox i where i.actor = any (v_ids);
    v_rows := v_rows + cardinality(v_ids);
    delete from pawl.actor_transition t where t.ctid = any (array(
      select o.ctid from pawl.actor_transition o where o.type = v_type.id and o.at < v_type.past order by o.at limit p_limit));
  end loop;
  perform pawl.actor_prune_snapshots(p_limit);
  perform pawl.actor_prune_questions(p_limit);
  delete from pawl.actor_effect e where e.ctid = any (array(
    select o.ctid from pawl.actor_effect o where o.at < clock_timestamp() - interval '1 day'
      and not exists (select 1 from pawl.actor_instance a where a.id = o.actor and a.visit = o.visit) order by o.at limit p_limit));
  delete from pawl.actor_page p where p.ctid = any (array(
    select o.ctid from pawl.actor_page o where o.resolved_at < clock_timestamp() - interval '14 days'
    order by o.resolved_at limit p_limit for update skip locked));
  perform pawl.page_sweep();
  return v_rows;
end $$;
