-- What others want of an actor. These functions run in the caller's transaction, insert, and wait for nobody.

create function pawl.actor_wake(p_types smallint[]) returns void
language plpgsql as $$
begin
  -- An unlocked read. A worker sets its flag, commits, and looks once more before it sleeps; what a producer that read the
  -- flag earlier commits later is found by the worker's poll.
  if exists (select 1 from pawl.actor_worker w where w.wants_notify and w.types && p_types) then
    perform pg_notify('pawl_actor', array_to_string(p_types, ','));
  end if;
end $$;

create function pawl.actor_type_id(p_name text) returns smallint
language plpgsql stable as $$
declare
  v_id smallint;
begin
  select t.id into v_id from pawl.actor_type t where t.name = p_name;
  if v_id is null then
    raise exception 'there is no actor type "%"; a program makes its types known when it first uses them', p_name using errcode = 'PW002';
  end if;
  return v_id;
end $$;

-- The elements of an array, to the letter: -> refuses U+0000 wherever it stands.
create function pawl.actor_parts(p_list json) returns json[]
language sql immutable as $$
  select array_agg(e.value order by e.ord) from json_array_elements(p_list) with ordinality e (value, ord)
$$;

-- The state is declared to last no longer than this.
create function pawl.actor_deadline(p_machine json, p_state text, p_now timestamptz) returns timestamptz
language sql immutable as $$
  select p_now + (p_machine -> 'states' -> p_state ->> 'deadlineMs')::double precision * interval '1 millisecond'
$$;

-- [{type, id, parent, key, version, counted}, fields]; id and the rest may be missing; counted: by the commit of the parent's turn. Answers {id, created, state}: an actor of the
-- same type and key that exists already is the answer, and nothing is written.
create function pawl.actor_create_json(p_new json) returns json
language plpgsql as $$
declare
  v_part json[] := pawl.actor_parts(p_new);
  v_head json := v_part[1];
  v_type pawl.actor_type;
  v_key text := v_head ->> 'key';
  v_parent bigint := (v_head ->> 'parent')::bigint;
  v_parent_type smallint;
  v_finished timestamptz;
  v_id bigint;
  v_state text;
  v_now timestamptz := clock_timestamp();
begin
  select t.* into v_type from pawl.actor_type t where t.id = pawl.actor_type_id(v_head ->> 'type');
  v_state := v_type.machine ->> 'initial';
  if v_parent is not null then
    -- As a foreign key would: keeps the parent from becoming final meanwhile, and nobody else out.
    select a.type, a.finished_at into v_parent_type, v_finished from pawl.actor_instance a where a.id = v_parent for key share;
    if v_parent_type is null then
      raise exception 'there is no actor %, which was to be the parent', v_parent using errcode = 'PW002';
    elsif v_finished is not null then
      raise exception 'actor %, which was to be the parent, is final', v_parent using errcode = 'PW003';
    end if;
  end if;
  v_id := coalesce((v_head ->> 'id')::bigint, nextval('pawl.actor_id'));
  insert into pawl.actor_instance (id, parent, wake_at, entered_at, deadline_at, created_at, type, version, state, key, fields)
  values (v_id, v_parent, v_now, v_now, pawl.actor_deadline(v_type.machine, v_state, v_now), v_now, v_type.id,
    coalesce((v_head ->> 'version')::smallint, v_type.version), v_state, v_key, v_part[2])
  on conflict (type, key) where key is not null do nothing;
  if not found then
    return (
      select json_build_object('id', a.id::text, 'created', false, 'state', a.state)
      from pawl.actor_instance a where a.type = v_type.id and a.key = v_key);
  end if;
  insert into pawl.actor_transition (at, actor, epoch, attempt, type, to_state, reason)
  values (v_now, v_id, 0, 0, v_type.id, v_state, 'created');
  if v_parent is not null and not coalesce((v_head ->> 'counted')::boolean, false) then
    insert into pawl.actor_inbox (actor, type, name, n) values (v_parent, v_parent_type, '$child', 1);
  end if;
  perform pawl.actor_wake(array[v_type.id]);
  return json_build_object('id', v_id::text, 'created', true, 'state', v_state);
end $$;

-- From SQL, in any transaction: select pawl.actor_create('{"type":"server","fields":{"size":2}}'); key and parent if you like.
-- The fields are checked by the type's schema before its first turn.
create function pawl.actor_create(p_new jsonb) returns json
language sql as $$
  select pawl.actor_create_json(json_build_array(p_new - 'fields', coalesce(p_new -> 'fields', '{}')))
$$;

-- {actor, semaphore}, and n (1 by default). Answers whether it counts: an actor that is final has no use for it.
create function pawl.actor_incr(p_incr jsonb) returns boolean
language plpgsql as $$
declare
  v_actor bigint := (p_incr ->> 'actor')::bigint;
  v_name text := p_incr ->> 'semaphore';
  v_n integer := coalesce((p_incr ->> 'n')::integer, 1);
  v_type smallint;
  v_known text[];
  v_finished timestamptz;
begin
  select a.type, t.semaphores, a.finished_at into v_type, v_known, v_finished
  from pawl.actor_instance a join pawl.actor_type t on t.id = a.type where a.id = v_actor;
  if v_type is null then
    raise exception 'there is no actor %', coalesce(v_actor::text, '(none given)') using errcode = 'PW002';
  elsif v_name is null or v_name <> all (v_known) then
    raise exception 'actor % has no semaphore "%"; %', v_actor, v_name,
      case when cardinality(v_known) = 0 then 'its type declares none' else 'its semaphores are ' || array_to_string(v_known, ', ') end
      using errcode = 'PW001';
  elsif v_n < 1 then
    raise exception 'n must be 1 or more, but was %; only the owner of a turn may lower a semaphore', v_n using errcode = 'PW001';
  elsif v_finished is not null then
    return false;
  end if;
  insert into pawl.actor_inbox (actor, type, name, n) values (v_actor, v_type, v_name, v_n);
  perform pawl.actor_wake(array[v_type]);
  return true;
end $$;

-- [{actor, name}, payload]. Answers whether anybody will read it.
create function pawl.actor_send_json(p_message json) returns boolean
language plpgsql as $$
declare
  v_part json[] := pawl.actor_parts(p_message);
  v_actor bigint := (v_part[1] ->> 'actor')::bigint;
  v_type smallint;
  v_finished timestamptz;
begin
  select a.type, a.finished_at into v_type, v_finished from pawl.actor_instance a where a.id = v_actor;
  if v_type is null then
    raise exception 'there is no actor %', coalesce(v_actor::text, '(none given)') using errcode = 'PW002';
  elsif v_finished is not null then
    return false;
  end if;
  insert into pawl.actor_message (actor, name, payload) values (v_actor, v_part[1] ->> 'name', v_part[2]);
  insert into pawl.actor_inbox (actor, type, name) values (v_actor, v_type, '$message');
  perform pawl.actor_wake(array[v_type]);
  return true;
end $$;

create function pawl.actor_send(p_message jsonb) returns boolean
language sql as $$
  select pawl.actor_send_json(json_build_array(p_message - 'payload', coalesce(p_message -> 'payload', 'null')))
$$;

-- Semaphores with changes added; what comes to nothing is left out, so none is ever below 0.
create function pawl.actor_add(p_semaphores jsonb, p_names text[], p_counts bigint[]) returns jsonb
language sql immutable as $$
  select coalesce(jsonb_object_agg(s.name, s.n) filter (where s.n > 0), '{}')
  from (
    select x.name, sum(x.n) as n
    from (select e.key as name, e.value::bigint as n from jsonb_each_text(p_semaphores) e union all select * from unnest(p_names, p_counts)) x
    group by x.name
  ) s
$$;

-- Takes what is in the inboxes over into the rows of the actors, and wakes them. Skips actors whose row somebody has locked:
-- they are found by the next look. Answers 0 when nothing is left, 1 when only those are, and 2 when there may be more.
--
-- What comes while a turn runs is marked (signal_at), under the lock of the row, which the commit of that turn takes as
-- well: either the commit sees the mark and makes the actor due at once, or this finds the row as the commit left it, and
-- makes it due itself. Both ways the actor runs once more.
create function pawl.actor_absorb(p_types smallint[], p_limit int) returns integer
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan as $$
declare
  v_actors bigint[];
  v_seen bigint[];
  v_now timestamptz := clock_timestamp();
begin
  select array_agg(distinct x.actor) into v_actors
  from unnest(p_types) t (type)
  cross join lateral (select i.actor from pawl.actor_inbox i where i.type = t.type order by i.id limit p_limit) x;
  if v_actors is null then
    return 0;
  end if;
  v_seen := array(
    select a.id from pawl.actor_instance a where a.id = any (v_actors) order by a.id for no key update skip locked);
  -- A new statement: for each of these actors it sees everything that was committed before its row was locked.
  with gone as (
    delete from pawl.actor_inbox i where i.actor = any (v_seen) returning i.actor, i.name, i.n, i.at
  ), change as materialized (
    select g.actor, array_agg(g.name) filter (where g.name !~ '^[$]') as names, array_agg(g.n::bigint) filter (where g.name !~ '^[$]') as counts,
      min(g.at) filter (where g.name <> '$child') as at, coalesce(sum(g.n) filter (where g.name = '$child'), 0) as children,
      coalesce(bool_or(g.n < 0), false) as final
    from (select g.actor, g.name, sum(g.n) as n, min(g.at) as at from gone g group by g.actor, g.name, g.n < 0) g
    group by g.actor
  ), wake as materialized (
    select c.*, t.always && c.names as at_once,
      case
        when a.finished_at is not null then null
        when c.at is not null then c.at
        -- The last child is final, or was before its birth was told of.
        when a.children + c.children = 0 and (c.final or a.children < 0) then v_now
      end as wake_at
    from change c join pawl.actor_instance a on a.id = c.actor join pawl.actor_type t on t.id = a.type
  )
  update pawl.actor_instance a set
    semaphores = case when w.names is null or a.finished_at is not null then a.semaphores else pawl.actor_add(a.semaphores, w.names, w.counts) end,
    children = a.children + w.children,
    signal_at = case when coalesce(a.worker, a.lent) is not null then least(w.wake_at, a.signal_at) else a.signal_at end,
    -- A failing actor that is nudged again and again must not run in a loop; but to be destroyed need not wait.
    wake_at = case
      when coalesce(a.worker, a.lent) is not null or w.wake_at is null then a.wake_at
      when w.at_once then least(a.wake_at, w.wake_at)
      else least(a.wake_at, greatest(w.wake_at, a.floor_at))
    end
  from wake w where a.id = w.actor;
  if cardinality(v_seen) < cardinality(v_actors) then
    -- Of actors that are no more.
    delete from pawl.actor_inbox i where i.actor = any (v_actors)
      and not exists (select 1 from pawl.actor_instance a where a.id = i.actor);
  end if;
  return case
    when not exists (select 1 from unnest(p_types) t (type) cross join lateral (select 1 from pawl.actor_inbox i where i.type = t.type limit 1) x) then 0
    when v_seen = '{}' then 1
    else 2
  end;
end $$;
