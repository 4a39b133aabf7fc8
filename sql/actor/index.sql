-- Actors by their fields: a row for each field that the actor's type declares in "index", written by the transaction that changes the fields. An index of
-- the server's own would be made by DDL at the start of a program, and would keep every commit that changes fields, of all types, from being a HOT
-- update. Types without "index" have no rows, and their commits cost one probe of the few types.

-- Brings the rows of these actors up to date. The caller has locked the actors' rows, or has just written them.
create or replace function pawl.actor_index(p_actors bigint[]) returns void
language sql
set enable_seqscan = off as $$
  with wanted as materialized (
    select a.id as actor, a.type, e.key as name, pawl.actor_index_value(e.value) as value
    from pawl.actor_instance a
    join pawl.actor_type t on t.id = a.type and t.indexes <> '{}'
    cross join lateral json_each(a.fields) e
    where a.id = any (p_actors) and e.key = any (t.indexes) and json_typeof(e.value) in ('string', 'number', 'boolean')
  ), gone as (
    delete from pawl.actor_field f
    where f.actor = any (p_actors) and not exists (select 1 from wanted w where w.actor = f.actor and w.name = f.name)
  )
  insert into pawl.actor_field as f (type, actor, name, value)
  select w.type, w.actor, w.name, w.value from wanted w order by w.actor, w.name
  on conflict (actor, name) do update set value = excluded.value where f.value <> excluded.value
$$;

-- The index entry of a value: 1 and 1.0 are the same, "1" is another. A long text becomes its hash, since an entry has room for little.
create or replace function pawl.actor_index_value(p_value json) returns text
language sql immutable set search_path = pg_catalog, pg_temp as $$
  select case json_typeof(p_value)
    when 'number' then 'n' || trim_scale((p_value #>> '{}')::numeric)::text
    when 'boolean' then 'b' || (p_value #>> '{}')
    when 'string' then
      case when octet_length(p_value #>> '{}') <= 400 then 's' || (p_value #>> '{}')
      else 'h' || encode(sha256(convert_to(p_value #>> '{}', 'UTF8')), 'hex') end
  end
$$;

-- Writes the rows of actors that existed before their type declared its index: p_limit actors after p_after, or the actors p_ids. Answers {"last": the last
-- of them, null if there are no more, "left": those that another transaction has locked}. The caller tries these again: a turn that has read the type
-- before it declared the index keeps the row of its actor locked until the actor's fields can be read.
create or replace function pawl.actor_index_fill(p_type text, p_after bigint, p_limit int, p_ids bigint[]) returns json
language plpgsql
set enable_seqscan = off as $$
declare
  v_type smallint := pawl.actor_type_id(p_type);
  v_all bigint[] := p_ids;
  v_ids bigint[];
begin
  if v_all is null then
    v_all := array(select a.id from pawl.actor_instance a where a.type = v_type and a.id > p_after order by a.id limit p_limit);
  end if;
  v_ids := array(select a.id from pawl.actor_instance a where a.id = any (v_all) order by a.id for no key update skip locked);
  perform pawl.actor_index(v_ids);
  return json_build_object('last', v_all[cardinality(v_all)], 'left', array(
    select u.id from unnest(v_all) u (id) join pawl.actor_instance a on a.id = u.id where u.id <> all (v_ids)));
end $$;

-- Notes that all actors of a type have their rows, unless the type has declared another index by now.
create or replace function pawl.actor_index_filled(p_type text, p_names text[]) returns void
language plpgsql as $$
begin
  update pawl.actor_type t set indexed = t.indexes where t.name = p_type and t.indexes = p_names and t.indexed <> t.indexes;
end $$;
