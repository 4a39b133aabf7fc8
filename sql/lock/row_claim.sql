-- Claiming rows of the users' own tables: up to n of them move from one status to another, each for one process, with a token that says whose it is.
-- Later they are settled on condition of that token.
--
-- Both are one function of one jsonb parameter, one round trip. As in rows.sql, mistakes of the caller are answered as `refused`, before anything is
-- written. Every name comes quoted from the catalog or through %I, every value through %L.

-- p: {status: {column, from: condition, to}, limit, where: [condition], order: [{column, desc}], retries?, token?, lease?: {column?, ms},
-- columns: [{field, column, as}], values: [{field, column, value}]}; p_table: null of the table's row type, which makes the rows
-- come back with their own types. Answers rows, or one row that has only `refused`.
--
-- Never more than p.limit rows, whatever the plan: one statement chooses and locks the rows, with its LIMIT above the locking, and the next one updates
-- them by their keys. (An UPDATE with a limited sub-select may run the sub-select again for each row, and lock n more each time.)
--
-- The update checks the whole condition once more, with a snapshot of its own. What a row says about itself was checked again after the row was
-- locked. What other rows say about it (a lease in lock_row_claim, a sub-select of the caller's) was read with the older snapshot: there a lease may have
-- run out that another process has just taken.
create or replace function pawl.lock_claim_rows(
  p_table anyelement, p jsonb, p_path text default current_setting('search_path'), out refused text, out key text, out token text, out captured anyelement
) returns setof record
language plpgsql as $$
declare
  v_relation oid := (select t.typrelid from pg_type t where t.oid = pg_typeof(p_table) and t.typrelid <> 0);
  v_name text := pawl.lock_relation_name(v_relation);
  v_t text := (select format('%I', c.relname) from pg_class c where c.oid = v_relation);
  v_from text := v_name || ' as ' || v_t;
  v_columns text[] := pawl.lock_key_columns(v_relation);
  v_types jsonb := pawl.lock_column_types(v_relation);
  v_schemas jsonb := pawl.lock_operator_schemas(v_relation);
  v_refused jsonb := coalesce(pawl.lock_refuse_column(v_relation, p -> 'columns', v_types),
    pawl.lock_refuse_value(v_relation, p -> 'values', v_types, p_path));
  v_key text := pawl.lock_key_value(v_t, v_columns, v_types);
  v_status text := p #>> '{status,column}';
  v_to text := format('%L::%s', p #>> '{status,to}', v_types ->> v_status);
  -- Quoted, or null if the caller named none: then each text that they are part of is null, and left out.
  v_retries text := quote_ident(p ->> 'retries');
  v_token text := quote_ident(p ->> 'token');
  v_lease text := quote_ident(p #>> '{lease,column}');
  v_until text := coalesce('clock_timestamp() + interval ''1 ms'' * (' || (p #>> '{lease,ms}') || ')::float8', 'null::timestamptz');
  v_expired text;
  v_where text;
  v_order text;
  v_set text;
  v_is text := pawl.lock_operator('=', v_status, v_schemas);
  v_choose text;
  v_write text;
  v_keys jsonb;
begin
  if v_refused is not null then
    refused := v_refused::text;
    return next;
    return;
  end if;
  v_expired := case
    when p -> 'lease' is null then null
    when v_lease is not null then format('%s.%s < %L::timestamptz', v_t, v_lease, clock_timestamp())
    else format('exists (select from pawl.lock_row_claim "pawl$c" where "pawl$c".relation = %L and "pawl$c".key = %s::text
      and "pawl$c".expires_at < clock_timestamp())', v_name, v_key) end;
  v_where := '(' || pawl.lock_condition(p #> '{status,from}', v_t, v_types, v_schemas)
    || coalesce(' or (' || format('%s.%I %s %s', v_t, v_status, v_is, v_to) || ' and ' || v_expired || ')', '') || ')'
    || coalesce(' and ' || v_t || '.' || v_retries || ' > 0', '')
    || coalesce((select string_agg(' and ' || pawl.lock_condition(w.c, v_t, v_types, v_schemas), '' order by w.n)
      from jsonb_array_elements(p -> 'where') with ordinality w (c, n)), '');
  v_order := coalesce((
    select string_agg(format('%s.%I %s, ', v_t, o.c ->> 'column', case when (o.c ->> 'desc')::boolean then 'desc' else 'asc' end), '' order by o.n)
    from jsonb_array_elements(p -> 'order') with ordinality o (c, n)), '') || pawl.lock_key_order(v_t, v_columns);

  v_choose := format('select pg_catalog.jsonb_agg(s.k) from (select %s as k from %s where %s order by %s limit %s for no key update of %s skip locked) s',
    v_key, v_from, v_where, v_order, (p ->> 'limit')::int, v_t);
  v_set := format('%I = %s', v_status, v_to)
    || coalesce(', ' || v_retries || ' = ' || v_t || '.' || v_retries || ' - 1', '')
    || coalesce(', ' || v_lease || ' = ' || v_until, '')
    || coalesce(', ' || v_token || ' = ' || case v_types ->> (p ->> 'token')
      when 'uuid' then 'gen_random_uuid()' else format('coalesce(%s.%s, 0) + 1', v_t, v_token) end, '');
  v_write := format(
    'with "pawl$changed" as (
      update %s set %s from %s as "pawl$keys" where %s and %s
      returning "pawl$keys"."pawl$ord" as ord, "pawl$keys"."pawl$key"::text as key, %s as token, row(%s.*)::%s as captured
    )%s
    select null::text, c.key, %s::text, c.captured from "pawl$changed" c%s order by c.ord',
    v_from, v_set, pawl.lock_key_rows(v_columns, v_types), pawl.lock_key_match(v_t, v_columns, v_schemas, '"pawl$keys"'), v_where,
    coalesce(v_t || '.' || v_token, 'null'), v_t, v_name,
    case when v_token is null then format(', "pawl$tokens" as (
      insert into pawl.lock_row_claim (relation, key, token, expires_at)
      select %L, c.key, pg_catalog.nextval(''pawl.lock_row_claim_token''), %s from "pawl$changed" c
      on conflict on constraint lock_row_claim_pkey
        do update set token = excluded.token, expires_at = excluded.expires_at, claimed_at = excluded.claimed_at
      returning key, token
    )', v_name, v_until) end,
    case when v_token is null then 'k.token' else 'c.token' end,
    case when v_token is null then ' join "pawl$tokens" k on k.key = c.key' end);

  if pg_catalog.to_regclass('pg_catalog.pg_dist_partition') is not null then
    delete from pawl.both where false; -- on Citus: has the caller's transaction committed in two phases
  end if;

  perform set_config('search_path', p_path, true);
  -- From here on the path is the caller's.
  execute v_choose into v_keys;
  if v_keys is not null then
    return query execute v_write using v_keys;
  end if;
end
$$;

-- p: {table, rows: [{key, token}], status: {column, is, to?}, token?, lease?: {column?, ms}, set: [{column, value}], columns, values}. Settles the rows that
-- still have the status and the token with which they were captured: writes p.set, and the status if `to` is given. Without `to` it renews the lease.
-- Answers {settled: numbers of rows, from 1}.
--
-- The rows are locked first, in the order of their keys. So two calls cannot lock each other out, and the update sees what a capture that was under way
-- has done.
create or replace function pawl.lock_settle_rows(p jsonb, p_path text default current_setting('search_path')) returns jsonb
language plpgsql as $$
declare
  v_table record := pawl.lock_find_table(p -> 'table', p_path);
  v_name text := pawl.lock_relation_name(v_table.relation);
  v_columns text[] := pawl.lock_key_columns(v_table.relation);
  v_types jsonb := pawl.lock_column_types(v_table.relation);
  v_schemas jsonb := pawl.lock_operator_schemas(v_table.relation);
  v_refused jsonb := coalesce(v_table.refused, pawl.lock_refuse_column(v_table.relation, p -> 'columns', v_types),
    pawl.lock_refuse_value(v_table.relation, p -> 'values', v_types, p_path));
  v_keys jsonb := (select jsonb_agg((r.r ->> 'key')::jsonb || jsonb_build_array(r.r ->> 'token') order by r.n)
    from jsonb_array_elements(p -> 'rows') with ordinality r (r, n));
  v_status text := p #>> '{status,column}';
  v_to text := p #>> '{status,to}';
  v_token text := p ->> 'token';
  v_until text := 'clock_timestamp() + interval ''1 ms'' * (' || (p #>> '{lease,ms}') || ')::float8';
  v_from text;
  v_match text;
  v_set text;
  v_lock text;
  v_write text;
  v_settled bigint[];
begin
  if v_refused is not null then
    return jsonb_build_object('refused', v_refused);
  end if;
  v_from := pawl.lock_key_rows(v_columns, v_types);
  v_match := pawl.lock_key_match('t', v_columns, v_schemas, 'k');
  v_lock := format('select count(*) from (select from %s t join %s k on %s order by %s for no key update of t) s',
    v_name, v_from, v_match, pawl.lock_key_order('t', v_columns));

  v_match := v_match || format(' and t.%I %s %L::%s', v_status, pawl.lock_operator('=', v_status, v_schemas), p #>> '{status,is}', v_types ->> v_status)
    || case when v_token is null
      then format(' and exists (select from pawl.lock_row_claim c where c.relation = %L and c.key = (k."pawl$key" - -1)::text
        and c.token = (k."pawl$key" ->> -1)::bigint)', v_name)
      else format(' and t.%I %s (k."pawl$key" ->> -1)::%s', v_token, pawl.lock_operator('=', v_token, v_schemas), v_types ->> v_token) end;
  -- A renewal whose lease is kept elsewhere still writes the row: by that, a capture under way sees that it is too late.
  v_set := concat_ws(', ', format('%I = %L::%s', v_status, coalesce(v_to, p #>> '{status,is}'), v_types ->> v_status),
    quote_ident(p #>> '{lease,column}') || ' = ' || v_until,
    (select string_agg(format('%I = %L::%s', s.s ->> 'column', s.s ->> 'value', v_types ->> (s.s ->> 'column')), ', ')
      from jsonb_array_elements(p -> 'set') s (s)));
  v_write := format('with changed as (update %s t set %s from %s k where %s returning k."pawl$ord" as ord, (k."pawl$key" - -1)::text as key)%s
    select coalesce(pg_catalog.array_agg(ord), ''{}'') from changed', v_name, v_set, v_from, v_match,
    case when v_token is null and v_to is not null
      then format(', gone as (delete from pawl.lock_row_claim c using changed where c.relation = %L and c.key = changed.key)', v_name)
      when v_token is null
      then format(', renewed as (update pawl.lock_row_claim c set expires_at = %s from changed where c.relation = %L and c.key = changed.key)', v_until, v_name)
    end);

  if pg_catalog.to_regclass('pg_catalog.pg_dist_partition') is not null then
    delete from pawl.both where false; -- on Citus: has the caller's transaction committed in two phases
  end if;

  perform set_config('search_path', p_path, true);
  -- From here on the path is the caller's.
  execute v_lock using v_keys;
  execute v_write into v_settled using v_keys;
  return pg_catalog.jsonb_build_object('settled', pg_catalog.to_jsonb(v_settled));
end
$$;

-- One condition: {column, op, values}, or {parts, values} of the caller's own SQL. There the values go in between the parts, as literals without a type:
-- each takes the type that its place asks for, as a parameter would.
--
-- IN and IS DISTINCT FROM look up an operator = by its name alone, so both are written in other words.
create or replace function pawl.lock_condition(p jsonb, p_table text, p_types jsonb, p_schemas jsonb) returns text
language plpgsql stable as $$
declare
  v_column text := p_table || '.' || quote_ident(p ->> 'column');
  v_list text;
  v_nulls boolean;
begin
  if p ? 'parts' then
    -- The line end is for SQL that ends with a comment.
    return (select '(' || string_agg(part || coalesce((select quote_nullable(v.x) from jsonb_array_elements_text(p -> 'values') with ordinality v (x, n)
      where v.n = e.n), ''), '' order by e.n) || E'\n)' from jsonb_array_elements_text(p -> 'parts') with ordinality e (part, n));
  end if;
  select string_agg(format('%L::%s', v.x, p_types ->> (p ->> 'column')), ', '), coalesce(bool_or(v.x is null), false)
    into v_list, v_nulls from jsonb_array_elements_text(p -> 'values') v (x);
  return case p ->> 'op'
    when 'in' then format(case when v_nulls then '(%1$s %2$s any (array[%3$s]) or %1$s is null)' else '%1$s %2$s any (array[%3$s])' end,
      v_column, pawl.lock_operator('=', p ->> 'column', p_schemas), v_list)
    when 'notIn' then format('%s %s all (array[%s])', v_column, pawl.lock_operator('<>', p ->> 'column', p_schemas), v_list)
    when 'not' then case when v_nulls then v_column || ' is not null'
      else format('(%s %s %s) is not true', v_column, pawl.lock_operator('=', p ->> 'column', p_schemas), v_list) end
    else format('%s %s %s', v_column, pawl.lock_operator(case p ->> 'op' when 'lt' then '<' when 'lte' then '<=' when 'gt' then '>' when 'gte' then '>=' end,
      p ->> 'column', p_schemas), v_list)
  end;
end
$$;

-- The key of a row, as the caller sees it and lock_row_claim keeps it. It is the same in every session: jsonb would write moments in the time zone of the
-- session, so they are in UTC.
create or replace function pawl.lock_key_value(p_table text, p_columns text[], p_types jsonb) returns text
language sql immutable as $$
  select format('pg_catalog.jsonb_build_array(%s)', string_agg(
    case when p_types ->> u.c = 'timestamp with time zone'
      then format('case when isfinite(%1$s.%2$I) then (pg_catalog.to_jsonb(%1$s.%2$I at time zone ''UTC'') operator(pg_catalog.#>>) ''{}'') || ''Z'' else %1$s.%2$I::text end', p_table, u.c)
      else format('%s.%I', p_table, u.c) end, ', ' order by u.n))
  from unnest(p_columns) with ordinality u (c, n)
$$;

-- Refuses the first of [{field, column, as?}] that the table does not have, or that has no type for this use.
create or replace function pawl.lock_refuse_column(p_relation oid, p_wanted jsonb, p_types jsonb) returns jsonb
language sql stable as $$
  select case when t.type is null
    then pawl.lock_refusal(w.field, format('the table %s has no column "%s"', pawl.lock_relation_name(p_relation), w."column"),
      w."column", array(select jsonb_object_keys(p_types)))
    else pawl.lock_refusal(w.field, format('the column "%s" is of type %s, but must be %s', w."column", t.type, r.words), null, '{}')
  end
  from rows from (jsonb_to_recordset(p_wanted) as (field text, "column" text, "as" text)) with ordinality w (field, "column", "as", n)
  cross join lateral (select p_types ->> w."column") t (type)
  left join (values
    ('token', array['bigint', 'uuid'], 'bigint or uuid'),
    ('lease', array['timestamp with time zone'], 'timestamp with time zone'),
    ('retries', array['smallint', 'integer', 'bigint'], 'smallint, integer or bigint')
  ) r ("as", types, words) on r."as" = w."as"
  where t.type is null or not t.type = any (r.types)
  order by w.n limit 1
$$;

-- Refuses the first of [{field, column, value}] whose value does not fit its column. For an enum, its labels are the candidates.
create or replace function pawl.lock_refuse_value(p_relation oid, p_values jsonb, p_types jsonb, p_path text) returns jsonb
language sql stable as $$
  select pawl.lock_refusal(v.field, format('the column "%s" is of type %s: %s', v."column", p_types ->> v."column", x.problem), v.value,
    array(select e.enumlabel::text from pg_attribute a join pg_enum e on e.enumtypid = a.atttypid
      where a.attrelid = p_relation and a.attname = v."column" order by e.enumsortorder))
  from rows from (jsonb_to_recordset(p_values) as (field text, "column" text, value text)) with ordinality v (field, "column", value, n)
  cross join lateral pawl.lock_cast_problem(v.value, p_types ->> v."column", p_path) x (problem)
  where x.problem is not null
  order by v.n limit 1
$$;

-- The table by its catalog name, always with its schema, as in lock_row_claim.
create or replace function pawl.lock_relation_name(p_relation oid) returns text
language sql stable as $$
  select format('%I.%I', n.nspname, c.relname) from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = p_relation
$$;
