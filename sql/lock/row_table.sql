-- The facts about a user's table for the functions that lock or claim its rows: its name, key and columns, and whether given keys fit.

create or replace function pawl.lock_refusal(p_field text, p_problem text, p_word text, p_candidates text[]) returns jsonb
language sql immutable as $$
  select jsonb_build_object('field', p_field, 'problem', p_problem, 'word', p_word, 'candidates', p_candidates)
$$;

-- Finds a table, {"name": "task", "schema": "audit"}: by the search path if no schema is given.
create or replace function pawl.lock_find_table(p_table jsonb, p_path text, out relation oid, out refused jsonb)
language plpgsql stable as $$
declare
  v_name text := p_table ->> 'name';
  v_schema text := p_table ->> 'schema';
  v_shown text := concat_ws('.', v_schema, v_name);
  v_quoted text := case when v_schema is null then format('%I', v_name) else format('%I.%I', v_schema, v_name) end;
  v_own text := current_setting('search_path');
  v_schemas name[];
  v_kind "char";
begin
  perform set_config('search_path', p_path, true);
  relation := pg_catalog.to_regclass(v_quoted);
  v_schemas := pg_catalog.current_schemas(false);
  perform pg_catalog.set_config('search_path', v_own, true);
  if relation is null then
    refused := pawl.lock_refusal('table', format('there is no table "%s"', v_shown), v_name, array(
      select c.relname::text from pg_class c join pg_namespace n on n.oid = c.relnamespace
      where c.relkind in ('r', 'p') and n.nspname not in ('pg_catalog', 'information_schema')
        and case when v_schema is null then n.nspname = any (v_schemas) else n.nspname = v_schema end
      order by c.relname limit 1000));
    return;
  end if;
  select c.relkind into v_kind from pg_class c where c.oid = relation;
  if v_kind not in ('r', 'p') then
    refused := pawl.lock_refusal('table', format('"%s" is no table, and only rows of tables can be locked', v_shown), null, '{}');
  elsif pawl.lock_is_elsewhere(relation) then
    refused := pawl.lock_refusal('table', format('the rows of "%s" are spread over other nodes by Citus, where no lock of this transaction '
      'holds them in one order; lock a name with lockKey(), or take a lock by createLocks()', v_shown), null, '{}') || '{"unsupported": true}';
  elsif pawl.lock_key_columns(relation) is null then
    refused := pawl.lock_refusal('table', format('the table "%s" has no primary key, which is what names its rows; add one', v_shown), null, '{}');
  end if;
end
$$;

-- Whether Citus keeps the rows of a table in shards, which may be on other nodes. If Citus only knows a table, or copies it to all nodes, the locks are
-- taken on this node.
create or replace function pawl.lock_is_elsewhere(p_relation oid) returns boolean
language plpgsql stable as $$
declare
  v_is boolean;
begin
  if to_regclass('pg_catalog.pg_dist_partition') is null then
    return false;
  end if;
  execute 'select d.partmethod <> ''n'' or d.repmodel = ''s'' and d.colocationid <> 0 from pg_dist_partition d where d.logicalrelid = $1'
    into v_is using p_relation;
  return coalesce(v_is, false);
end
$$;

-- The columns of the primary key, in its order; null without one.
create or replace function pawl.lock_key_columns(p_relation oid) returns text[]
language sql stable as $$
  select array_agg(a.attname::text order by k.n)
  from pg_index i
  cross join lateral unnest(i.indkey::int2[]) with ordinality k (attnum, n)
  join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
  where i.indrelid = p_relation and i.indisprimary and k.n <= i.indnkeyatts
$$;

-- The type of every column, as a cast writes it. Without its length: a cast to varchar(3) would cut a longer key to one that names another row. With -1
-- and not null, since null makes "character" of char(n), which is char(1).
create or replace function pawl.lock_column_types(p_relation oid) returns jsonb
language sql stable as $$
  select jsonb_object_agg(a.attname, format_type(a.atttypid, -1))
  from pg_attribute a where a.attrelid = p_relation and a.attnum > 0 and not a.attisdropped
$$;

-- The schema of every column's operators =, < and so on: those by which its type is sorted, since others may have the same name. A type without operators
-- of its own, as an enum or varchar, has those of Postgres; a type of an extension that is not sorted is left out.
create or replace function pawl.lock_operator_schemas(p_relation oid) returns jsonb
language sql stable as $$
  with recursive base (name, type) as (
    select a.attname, a.atttypid from pg_attribute a where a.attrelid = p_relation and a.attnum > 0 and not a.attisdropped
    union all
    select b.name, t.typbasetype from base b join pg_type t on t.oid = b.type where t.typbasetype <> 0
  )
  select jsonb_object_agg(b.name, coalesce(c.schema, 'pg_catalog'))
  from base b join pg_type t on t.oid = b.type
  left join lateral (
    select n.nspname as schema
    from pg_opclass c join pg_am m on m.oid = c.opcmethod and m.amname = 'btree'
    join pg_amop a on a.amopfamily = c.opcfamily and a.amoplefttype = c.opcintype and a.amoprighttype = c.opcintype and a.amopstrategy = 3
    join pg_operator o on o.oid = a.amopopr join pg_namespace n on n.oid = o.oprnamespace
    where c.opcintype = t.oid and c.opcdefault
  ) c on true
  where t.typbasetype = 0 and (c.schema is not null or t.typtype <> 'b' or t.typelem <> 0 or t.typnamespace = 'pg_catalog'::regnamespace)
$$;

-- 'operator(pg_catalog.=)', for a column of the table that has these schemas.
create or replace function pawl.lock_operator(p_operator text, p_column text, p_schemas jsonb) returns text
language sql immutable as $$
  select case when p_schemas ->> p_column is null then p_operator else format('operator(%I.%s)', p_schemas ->> p_column, p_operator) end
$$;

-- The problem with a text as a value of a type; null if there is none.
create or replace function pawl.lock_cast_problem(p_value text, p_type text, p_path text) returns text
language plpgsql stable as $$
declare
  v_text text := format('select %L::%s', p_value, p_type);
  v_own text := current_setting('search_path');
begin
  perform set_config('search_path', p_path, true);
  execute v_text;
  perform pg_catalog.set_config('search_path', v_own, true);
  return null;
exception when data_exception or integrity_constraint_violation then
  return sqlerrm;
end
$$;

-- A list of keys as rows: "pawl$ord", "pawl$key" (as it came) and "pawl$1"… of the types of the key columns. The result is
-- a FROM item that reads the list from $1. A user's own conditions may follow it, so its names are such as no user gives.
create or replace function pawl.lock_key_rows(p_columns text[], p_types jsonb) returns text
language sql immutable as $$
  select format(
    '(select e.ord as "pawl$ord", e.k as "pawl$key", %s from pg_catalog.jsonb_array_elements($1::jsonb) with ordinality e (k, ord))',
    string_agg(format('(e.k operator(pg_catalog.->>) %s)::%s as %I', u.n - 1, p_types ->> u.c, 'pawl$' || u.n), ', ' order by u.n))
  from unnest(p_columns) with ordinality u (c, n)
$$;

-- 't."a" operator(pg_catalog.=) k."pawl$1" and …'
create or replace function pawl.lock_key_match(p_table text, p_columns text[], p_schemas jsonb, p_keys text) returns text
language sql immutable as $$
  select string_agg(format('%s.%I %s %s.%I', p_table, u.c, pawl.lock_operator('=', u.c, p_schemas), p_keys, 'pawl$' || u.n), ' and ' order by u.n)
  from unnest(p_columns) with ordinality u (c, n)
$$;

-- 't."a", t."b"'
create or replace function pawl.lock_key_order(p_table text, p_columns text[]) returns text
language sql immutable as $$
  select string_agg(format('%s.%I', p_table, u.c), ', ' order by u.n) from unnest(p_columns) with ordinality u (c, n)
$$;

-- Turns keys that are given as objects, by column name, into lists in the order of the primary key.
create or replace function pawl.lock_arrange_keys(p_keys jsonb, p_columns text[], out keys jsonb, out refused jsonb)
language plpgsql stable as $$
declare
  v_bad record;
begin
  select e.k, e.ord - 1 as at into v_bad
  from jsonb_array_elements(p_keys) with ordinality e (k, ord)
  where case jsonb_typeof(e.k)
    when 'object' then not (e.k ?& p_columns) or (select count(*) from jsonb_object_keys(e.k)) <> cardinality(p_columns)
    else jsonb_array_length(e.k) <> cardinality(p_columns)
  end
  order by e.ord limit 1;
  if found then
    refused := pawl.lock_refusal(format('ids.%s', v_bad.at), format('the primary key is (%s), but the id was %s',
      array_to_string(p_columns, ', '), left(v_bad.k::text, 100)), null, '{}');
    return;
  end if;
  select jsonb_agg(case jsonb_typeof(e.k)
    when 'object' then (select jsonb_agg(e.k -> u.c order by u.n) from unnest(p_columns) with ordinality u (c, n))
    else e.k
  end order by e.ord) into keys
  from jsonb_array_elements(p_keys) with ordinality e (k, ord);
end
$$;

-- Refuses the first key of which a value does not fit its column's type.
create or replace function pawl.lock_refuse_key(p_keys jsonb, p_columns text[], p_types jsonb, p_path text) returns jsonb
language sql stable as $$
  select pawl.lock_refusal(format('ids.%s', e.ord - 1), format('the column "%s" is of type %s: %s', u.c, p_types ->> u.c, x.problem), null, '{}')
  from jsonb_array_elements(p_keys) with ordinality e (k, ord)
  cross join unnest(p_columns) with ordinality u (c, n)
  cross join lateral pawl.lock_cast_problem(e.k ->> (u.n - 1)::int, p_types ->> u.c, p_path) x (problem)
  where x.problem is not null
  order by e.ord, u.n limit 1
$$;
