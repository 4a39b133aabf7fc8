-- What SQL gives to these functions is checked as pawl.enqueue() checks it: a field that is misspelt is refused instead of being
-- passed over, and so are fields of an actor that are no object, which only its turns would have found.
--
-- Older workers may keep running: they give what they always gave.

create function pawl.actor_require(p_call text, p_given jsonb, p_known text[]) returns void
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
  return pawl.actor_create_json(json_build_array(p_new - 'fields', coalesce(p_new -> 'fields', '{}')));
end $$;

create or replace function pawl.actor_send(p_message jsonb) returns boolean
language plpgsql as $$
begin
  perform pawl.actor_require('pawl.actor_send', p_message, array['actor', 'name', 'payload']);
  if coalesce(length(p_message ->> 'name'), 0) not between 1 and 200 then
    raise exception 'pawl.actor_send needs a name of 1 to 200 characters' using errcode = 'PW001';
  end if;
  perform pawl.refuse_huge_numbers('payload', p_message -> 'payload');
  return pawl.actor_send_json(json_build_array(p_message - 'payload', coalesce(p_message -> 'payload', 'null')));
end $$;

create or replace function pawl.actor_incr(p_incr jsonb) returns boolean
language plpgsql as $$
declare
  v_actor bigint;
  v_name text := p_incr ->> 'semaphore';
  v_n integer;
  v_type smallint;
  v_known text[];
  v_finished timestamptz;
begin
  perform pawl.actor_require('pawl.actor_incr', p_incr, array['actor', 'semaphore', 'n']);
  if coalesce(p_incr ->> 'n', '1') !~ '^[1-9][0-9]{0,6}$' then
    raise exception 'n must be 1 or more, and at most 9999999, but was %; only the owner of a turn may lower a semaphore', p_incr -> 'n'
      using errcode = 'PW001';
  end if;
  v_actor := (p_incr ->> 'actor')::bigint;
  v_n := coalesce((p_incr ->> 'n')::integer, 1);
  select a.type, t.semaphores, a.finished_at into v_type, v_known, v_finished
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
  perform pawl.actor_wake(array[v_type]);
  return true;
end $$;
