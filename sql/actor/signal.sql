-- Requests to an actor: create it, raise a semaphore, send a message. These functions run in the caller's transaction, insert, and do not wait. Those that
-- take jsonb are for users' own SQL. They refuse a misspelt field, as pawl.enqueue() does, and fields of an actor that are no object, which otherwise
-- only the actor's turns would find.

-- From SQL, in any transaction: select pawl.actor_create('{"type":"server","fields":{"size":2}}'); key and parent if you like.
-- The type's schema checks the fields before the first turn.
create or replace function pawl.actor_create(p_new jsonb) returns json
language plpgsql as $$
begin
  perform pawl.actor_require('pawl.actor_create', p_new, array['type', 'fields', 'key', 'parent']);
  if p_new ->> 'type' is null then
    raise exception 'pawl.actor_create needs a type' using errcode = 'PW001';
  elsif coalesce(jsonb_typeof(p_new -> 'fields'), 'object') <> 'object' then
    raise exception 'the fields of an actor are an object, but were %', left((p_new -> 'fields')::text, 100) using errcode = 'PW001';
  elsif octet_length(p_new ->> 'key') not between 1 and 1000 then
    raise exception 'key must be 1 to 1000 bytes long, got % bytes', octet_length(p_new ->> 'key') using errcode = 'PW001';
  end if;
  perform pawl.refuse_huge_numbers('fields', p_new -> 'fields');
  perform pawl.refuse_large('fields', p_new -> 'fields');
  return pawl.actor_create_json(json_build_array(p_new - 'fields', coalesce(p_new -> 'fields', '{}')));
end $$;

-- Creates an actor: [{type, id, parent, key, version, counted}, fields]; id and the rest may be missing; counted: the commit of the parent's turn counts
-- this child. Answers {id, created, state}: if an actor of the same type and key exists already, it is the answer, and nothing is written.
create or replace function pawl.actor_create_json(p_new json) returns json
language plpgsql as $$
declare
  v_part json[] := pawl.actor_elements(p_new);
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
    -- As a foreign key would: keeps the parent from becoming final meanwhile, and keeps out nothing else.
    select a.type, a.finished_at into v_parent_type, v_finished from pawl.actor_instance a where a.id = v_parent for key share;
    if v_parent_type is null then
      raise exception 'there is no actor %, so it cannot be the parent', v_parent using errcode = 'PW002';
    elsif v_finished is not null then
      raise exception 'actor % is final, so it cannot be the parent', v_parent using errcode = 'PW003';
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
  if v_type.indexes <> '{}' then
    perform pawl.actor_index(array[v_id]);
  end if;
  if v_parent is not null and not coalesce((v_head ->> 'counted')::boolean, false) then
    insert into pawl.actor_inbox (actor, type, name, n) values (v_parent, v_parent_type, '$child', 1);
  end if;
  perform pawl.actor_wake(array[v_type.id]);
  return json_build_object('id', v_id::text, 'created', true, 'state', v_state);
end $$;

-- Raises a semaphore: {actor, semaphore}, and n (1 by default). Answers whether it counts: an actor that is final has no use for it.
create or replace function pawl.actor_incr(p_incr jsonb) returns boolean
language plpgsql as $$
declare
  v_actor bigint;
  v_name text := p_incr ->> 'semaphore';
  v_n integer;
  v_type smallint;
  v_known text[];
  v_interrupts text[];
  v_runs boolean;
  v_finished timestamptz;
begin
  perform pawl.actor_require('pawl.actor_incr', p_incr, array['actor', 'semaphore', 'n']);
  if coalesce(p_incr ->> 'n', '1') !~ '^[1-9][0-9]{0,6}$' then
    raise exception 'n must be 1 or more, and at most 9999999, but was %; only the owner of a turn may lower a semaphore', p_incr -> 'n'
      using errcode = 'PW001';
  end if;
  v_actor := (p_incr ->> 'actor')::bigint;
  v_n := coalesce((p_incr ->> 'n')::integer, 1);
  select a.type, t.semaphores, t.interrupts, coalesce(a.worker, a.tx_worker) is not null, a.finished_at
  into v_type, v_known, v_interrupts, v_runs, v_finished
  from pawl.actor_instance a join pawl.actor_type t on t.id = a.type where a.id = v_actor;
  if v_type is null then
    raise exception 'there is no actor %', coalesce(v_actor::text, '(none given)') using errcode = 'PW002';
  elsif v_name is null or v_name <> all (v_known) then
    raise exception 'actor % has no semaphore %; %', v_actor, coalesce('"' || v_name || '"', '(none given)'),
      case when cardinality(v_known) = 0 then 'its type declares none' else 'its semaphores are ' || array_to_string(v_known, ', ') end
      using errcode = 'PW001';
  elsif v_finished is not null then
    return false;
  end if;
  insert into pawl.actor_inbox (actor, type, name, n) values (v_actor, v_type, v_name, v_n);
  -- This read takes no lock, either: a process that just begins a turn finds the semaphore itself, since it asks again and again.
  if v_runs and v_name = any (v_interrupts) then
    perform pg_notify('pawl_actor', 'interrupt:' || v_actor);
  end if;
  perform pawl.actor_wake(array[v_type]);
  return true;
end $$;

create or replace function pawl.actor_send(p_message jsonb) returns boolean
language plpgsql as $$
begin
  perform pawl.actor_require('pawl.actor_send', p_message, array['actor', 'name', 'payload']);
  if coalesce(length(p_message ->> 'name'), 0) not between 1 and 200 then
    raise exception 'pawl.actor_send needs a name of 1 to 200 characters' using errcode = 'PW001';
  end if;
  perform pawl.refuse_huge_numbers('payload', p_message -> 'payload');
  perform pawl.refuse_large('payload', p_message -> 'payload');
  return pawl.actor_send_json(json_build_array(p_message - 'payload', coalesce(p_message -> 'payload', 'null')));
end $$;

-- Sends a message: [{actor, name}, payload]. Answers whether the actor can still read it: not if it is final.
create or replace function pawl.actor_send_json(p_message json) returns boolean
language plpgsql as $$
declare
  v_part json[] := pawl.actor_elements(p_message);
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

create or replace function pawl.actor_require(p_call text, p_given jsonb, p_known text[]) returns void
language plpgsql immutable as $$
declare
  v_unknown text;
begin
  if jsonb_typeof(p_given) is distinct from 'object' then
    raise exception '% takes an object, got %', p_call, coalesce(left(p_given::text, 100), 'null') using errcode = 'PW001';
  end if;
  if p_given - p_known <> '{}' then
    select k into v_unknown from jsonb_object_keys(p_given - p_known) k limit 1;
    raise exception 'unknown field "%" in %; it takes %', v_unknown, p_call, array_to_string(p_known, ', ') using errcode = 'PW001';
  end if;
  -- Fifteen digits are more ids than there will ever be, and no bigint is too small for them.
  if coalesce(p_given ->> 'actor', p_given ->> 'parent', '1') !~ '^[1-9][0-9]{0,14}$' then
    raise exception 'an actor is named by its id in %, such as "42", but was %', p_call, coalesce(p_given -> 'actor', p_given -> 'parent')
      using errcode = 'PW001';
  end if;
end $$;

create or replace function pawl.actor_type_id(p_name text) returns smallint
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

-- The elements of an array, to the letter: -> refuses U+0000 anywhere in it.
create or replace function pawl.actor_elements(p_list json) returns json[]
language sql immutable as $$
  select array_agg(e.value order by e.ord) from json_array_elements(p_list) with ordinality e (value, ord)
$$;

-- The moment until which the state is declared to last; null without one.
create or replace function pawl.actor_deadline(p_machine json, p_state text, p_now timestamptz) returns timestamptz
language sql immutable as $$
  select p_now + (p_machine -> 'states' -> p_state ->> 'deadlineMs')::double precision * interval '1 millisecond'
$$;

create or replace function pawl.actor_wake(p_types smallint[]) returns void
language plpgsql as $$
begin
  -- This read takes no lock. A worker sets its flag, commits, and searches once more before it sleeps. If a producer reads the flag earlier and commits
  -- later, the worker's poll finds its request.
  if exists (select 1 from pawl.actor_worker w where w.wants_notify and w.types && p_types) then
    perform pg_notify('pawl_actor', array_to_string(p_types, ','));
  end if;
end $$;

-- How often the semaphores of these actors are raised: {id: {name: n}}, in their rows and in the inbox. A process asks this about the turns that it runs and
-- that semaphores may interrupt.
create or replace function pawl.actor_raised(p_actors bigint[]) returns json
language sql stable
set enable_seqscan = off as $$
  select coalesce(json_object_agg(x.id, x.raised), '{}')
  from (
    select a.id, (
      select json_object_agg(s.name, s.n) from (
        select r.name, sum(r.n) as n
        from (
          select e.key as name, e.value::bigint as n from jsonb_each_text(a.semaphores) e
          union all
          select i.name, i.n from pawl.actor_inbox i where i.actor = a.id and i.name !~ '^[$]') r
        group by r.name) s) as raised
    from pawl.actor_instance a where a.id = any (p_actors)) x
  where x.raised is not null
$$;
