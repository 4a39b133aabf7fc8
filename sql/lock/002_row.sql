-- Locks on rows of the users' own tables, and on names, inside the user's own transaction. Nothing is stored.
--
-- Each is one function of one jsonb parameter, so that any driver can call it in one round trip, and every wait runs in
-- a subtransaction: when it ends in vain, the locks it had got are gone and the user's transaction goes on. That also
-- settles the race of lock_timeout, where 55P03 is reported although the lock was granted: what was granted is given back.
--
-- What the caller got wrong is answered, not raised: {"refused": {field, problem, word, candidates}}. An error would
-- have ended the transaction it was called in.
--
-- SQLSTATE PW900 never leaves these functions: it undoes a subtransaction.
--
-- What is found without a schema, and by whose rights it then runs, is the caller's business only where he said it: the name of his
-- table, and conditions of his own. And what belongs to his table (triggers, policies, checks of domains) must run under his search
-- path, as it does for his other statements. So each takes that path with it, by the default of a parameter, which is evaluated where
-- the call stands; makes its statements under Pawl's own (see pin.ts); and takes his only to run them, all of its own names qualified.
-- Older workers may keep running: nothing here existed before.

create function pawl.lock_refusal(p_field text, p_problem text, p_word text, p_candidates text[]) returns jsonb
language sql immutable as $$
  select jsonb_build_object('field', p_field, 'problem', p_problem, 'word', p_word, 'candidates', p_candidates)
$$;

-- {"name": "task", "schema": "audit"}: the table, as the search path finds it when no schema is given.
create function pawl.lock_find_table(p_table jsonb, p_path text, out relation oid, out refused jsonb)
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
  elsif pawl.lock_key_columns(relation) is null then
    refused := pawl.lock_refusal('table', format('the table "%s" has no primary key, which is what names its rows; add one', v_shown), null, '{}');
  end if;
end
$$;

-- The columns of the primary key, in its order; null without one.
create function pawl.lock_key_columns(p_relation oid) returns text[]
language sql stable as $$
  select array_agg(a.attname::text order by k.n)
  from pg_index i
  cross join lateral unnest(i.indkey::int2[]) with ordinality k (attnum, n)
  join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
  where i.indrelid = p_relation and i.indisprimary and k.n <= i.indnkeyatts
$$;

-- The type of every column, as a cast writes it. Without its length: a cast to varchar(3) would cut a longer key to one
-- that names another row; -1 and not null, because null makes "character" of char(n), which is char(1).
create function pawl.lock_column_types(p_relation oid) returns jsonb
language sql stable as $$
  select jsonb_object_agg(a.attname, format_type(a.atttypid, -1))
  from pg_attribute a where a.attrelid = p_relation and a.attnum > 0 and not a.attisdropped
$$;

-- The schema of every column's operators =, < and so on, of which there may be others of the same name: those by which its type is
-- sorted. Of what has none of its own, an enum or varchar, they are Postgres'; a type of an extension that is not sorted is left out.
create function pawl.lock_operator_schemas(p_relation oid) returns jsonb
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

-- 'operator(pg_catalog.=)', for a column of the table whose schemas these are.
create function pawl.lock_operator(p_operator text, p_column text, p_schemas jsonb) returns text
language sql immutable as $$
  select case when p_schemas ->> p_column is null then p_operator else format('operator(%I.%s)', p_schemas ->> p_column, p_operator) end
$$;

-- What is wrong with a text as a value of a type; null when nothing is.
create function pawl.lock_cast_problem(p_value text, p_type text, p_path text) returns text
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
-- a FROM item that reads the list from $1. Names no user would give: conditions of theirs may stand beside it.
create function pawl.lock_key_rows(p_columns text[], p_types jsonb) returns text
language sql immutable as $$
  select format(
    '(select e.ord as "pawl$ord", e.k as "pawl$key", %s from pg_catalog.jsonb_array_elements($1::jsonb) with ordinality e (k, ord))',
    string_agg(format('(e.k operator(pg_catalog.->>) %s)::%s as %I', u.n - 1, p_types ->> u.c, 'pawl$' || u.n), ', ' order by u.n))
  from unnest(p_columns) with ordinality u (c, n)
$$;

-- 't."a" operator(pg_catalog.=) k."pawl$1" and …'
create function pawl.lock_key_match(p_table text, p_columns text[], p_schemas jsonb, p_keys text) returns text
language sql immutable as $$
  select string_agg(format('%s.%I %s %s.%I', p_table, u.c, pawl.lock_operator('=', u.c, p_schemas), p_keys, 'pawl$' || u.n), ' and ' order by u.n)
  from unnest(p_columns) with ordinality u (c, n)
$$;

-- 't."a", t."b"'
create function pawl.lock_key_order(p_table text, p_columns text[]) returns text
language sql immutable as $$
  select string_agg(format('%s.%I', p_table, u.c), ', ' order by u.n) from unnest(p_columns) with ordinality u (c, n)
$$;

-- Keys given as objects, by column name, become lists in the order of the primary key.
create function pawl.lock_arrange_keys(p_keys jsonb, p_columns text[], out keys jsonb, out refused jsonb)
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

-- The first key of which a value is none of its column's type.
create function pawl.lock_refuse_key(p_keys jsonb, p_columns text[], p_types jsonb, p_path text) returns jsonb
language sql stable as $$
  select pawl.lock_refusal(format('ids.%s', e.ord - 1), format('the column "%s" is of type %s: %s', u.c, p_types ->> u.c, x.problem), null, '{}')
  from jsonb_array_elements(p_keys) with ordinality e (k, ord)
  cross join unnest(p_columns) with ordinality u (c, n)
  cross join lateral pawl.lock_cast_problem(e.k ->> (u.n - 1)::int, p_types ->> u.c, p_path) x (problem)
  where x.problem is not null
  order by e.ord, u.n limit 1
$$;

-- Runs a locking statement that skips what is held, tells what it got, and gives it back.
create function pawl.lock_free_rows(p_statement text, p_keys jsonb, p_path text) returns bigint[]
language plpgsql as $$
declare
  v_free bigint[];
begin
  perform set_config('search_path', p_path, true);
  execute p_statement into v_free using p_keys;
  raise exception using errcode = 'PW900';
exception when sqlstate 'PW900' then
  return v_free;
end
$$;

-- Sets how long the next lock may be waited for: what is left until the deadline, and 1 ms when nothing is.
create function pawl.lock_patience(p_deadline timestamptz) returns void
language sql volatile set search_path = pg_catalog, pg_temp as $$
  select set_config('lock_timeout', case when p_deadline = 'infinity' then '0' else
    greatest(1, ceil(extract(epoch from p_deadline - clock_timestamp()) * 1000))::bigint::text end, true)
$$;

-- null: as the session says.
create function pawl.lock_deadline(p_timeout text) returns timestamptz
language sql volatile as $$
  select case p_timeout when 'Infinity' then 'infinity' else clock_timestamp() + p_timeout::bigint * interval '1 ms' end
$$;

-- {table, keys, mode, ifLocked, timeout} → {locked, held, existing, outcome}: numbers of keys, from 1.
--
-- FOR NO KEY UPDATE and not FOR UPDATE: the latter would make every insert of a child row wait, whose foreign key check
-- takes FOR KEY SHARE on the row. Rows are locked in the order of their primary key, whatever order was asked for, so
-- that two callers cannot lock each other out: LockRows stands above the sort.
--
-- With a timeout, rows are fetched from a cursor one by one, because each fetch locks exactly one row, and only between
-- two of them can the rest of the time be set: lock_timeout counts anew for every lock.
create function pawl.lock_rows(p jsonb, p_path text default current_setting('search_path')) returns jsonb
language plpgsql as $$
declare
  v_table record;
  v_arranged record;
  v_columns text[];
  v_types jsonb;
  v_keys text;
  v_from text;
  v_read text;
  v_lock text;
  v_skip text;
  v_exist text;
  v_locked bigint[] := '{}';
  v_existing bigint[];
  v_ord bigint;
  v_mode text := p ->> 'ifLocked';
  v_deadline timestamptz := pawl.lock_deadline(p ->> 'timeout');
  v_before text := current_setting('lock_timeout');
  v_own text := current_setting('search_path');
  v_rows refcursor;
begin
  v_table := pawl.lock_find_table(p -> 'table', p_path);
  if v_table.refused is not null then
    return jsonb_build_object('refused', v_table.refused);
  end if;
  v_columns := pawl.lock_key_columns(v_table.relation);
  v_types := pawl.lock_column_types(v_table.relation);
  v_arranged := pawl.lock_arrange_keys(p -> 'keys', v_columns);
  if v_arranged.refused is not null then
    return jsonb_build_object('refused', v_arranged.refused);
  end if;
  v_keys := pawl.lock_key_rows(v_columns, v_types);
  v_from := format('%s t join %s k on %s', v_table.relation::regclass, v_keys,
    pawl.lock_key_match('t', v_columns, pawl.lock_operator_schemas(v_table.relation), 'k'));
  -- Reads every key: the join reads none when the table is empty, and what is no key would count as missing.
  v_read := format('select pg_catalog.count(k) from %s k', v_keys);
  v_exist := format('select coalesce(pg_catalog.array_agg(k."pawl$ord"), ''{}'') from %s', v_from);
  v_lock := format('select k."pawl$ord" as ord from %s order by %s for %s of t', v_from, pawl.lock_key_order('t', v_columns),
    case p ->> 'mode' when 'share' then 'share' else 'no key update' end);
  v_skip := format('select coalesce(pg_catalog.array_agg(s.ord), ''{}'') from (%s skip locked) s', v_lock);

  begin
    perform set_config('search_path', p_path, true);
    execute v_read using v_arranged.keys;
    execute v_exist into v_existing using v_arranged.keys;
    perform pg_catalog.set_config('search_path', v_own, true);
  exception when data_exception or integrity_constraint_violation then
    return jsonb_build_object('refused', pawl.lock_refuse_key(v_arranged.keys, v_columns, v_types, p_path));
  end;

  perform set_config('search_path', p_path, true);
  -- From here on it is the caller's path.
  if v_mode <> 'wait' then
    begin
      execute v_skip into v_locked using v_arranged.keys;
      -- Looked up after the locks were asked for, so that a row that was deleted meanwhile counts as missing, not as held.
      execute v_exist into v_existing using v_arranged.keys;
      if v_mode = 'fail' and not v_existing operator(pg_catalog.<@) v_locked then
        raise exception using errcode = 'PW900';
      end if;
    exception when sqlstate 'PW900' then
      return pg_catalog.jsonb_build_object('outcome', 'held', 'locked', v_locked, 'existing', v_existing);
    end;
    return pg_catalog.jsonb_build_object('outcome', 'done', 'locked', v_locked, 'existing', v_existing);
  end if;

  begin
    open v_rows for execute v_lock using v_arranged.keys;
    loop
      if v_deadline is not null then
        perform pawl.lock_patience(v_deadline);
      end if;
      fetch next from v_rows into v_ord;
      exit when not found;
      v_locked := v_locked operator(pg_catalog.||) v_ord;
    end loop;
    close v_rows;
    if v_deadline is not null then
      perform pg_catalog.set_config('lock_timeout', v_before, true);
    end if;
  exception when lock_not_available then
    return pg_catalog.jsonb_build_object('outcome', 'timeout', 'locked', pawl.lock_free_rows(v_skip, v_arranged.keys, p_path),
      'existing', v_existing, 'sessionTimeout', v_before);
  end;
  return pg_catalog.jsonb_build_object('outcome', 'done', 'locked', v_locked, 'existing', v_locked);
end
$$;

-- {key, mode, ifLocked, timeout} → {outcome: done | held | timeout}. An advisory lock until the transaction ends. Shared and
-- exclusive wait in one queue, and a try does not pass those who wait.
create function pawl.lock_key(p jsonb) returns jsonb
language plpgsql as $$
declare
  v_key bigint := p ->> 'key';
  v_shared boolean := p ->> 'mode' = 'shared';
  v_deadline timestamptz := pawl.lock_deadline(p ->> 'timeout');
  v_before text := current_setting('lock_timeout');
begin
  if p ->> 'ifLocked' <> 'wait' then
    return jsonb_build_object('outcome', case when
      case when v_shared then pg_try_advisory_xact_lock_shared(v_key) else pg_try_advisory_xact_lock(v_key) end
      then 'done' else 'held' end);
  end if;
  begin
    if v_deadline is not null then
      perform pawl.lock_patience(v_deadline);
    end if;
    if v_shared then
      perform pg_advisory_xact_lock_shared(v_key);
    else
      perform pg_advisory_xact_lock(v_key);
    end if;
    if v_deadline is not null then
      perform set_config('lock_timeout', v_before, true);
    end if;
  exception when lock_not_available then
    return jsonb_build_object('outcome', 'timeout', 'sessionTimeout', v_before);
  end;
  return jsonb_build_object('outcome', 'done');
end
$$;

-- {table} → {} or its refusal.
create function pawl.lock_require_table(p jsonb, p_path text default current_setting('search_path')) returns jsonb
language sql stable set search_path = pg_catalog, pg_temp as $$
  select case when f.refused is null then '{}'::jsonb else jsonb_build_object('refused', f.refused) end
  from pawl.lock_find_table(p -> 'table', p_path) f
$$;
