-- Locks on rows of the users' own tables, and on names, inside the user's own transaction. Nothing is stored.
--
-- Each is one function of one jsonb parameter, so that any driver can call it in one round trip. Every wait runs in a subtransaction: if it ends without
-- success, its locks are gone, and the user's transaction goes on. That also settles the race of lock_timeout, where 55P03 is reported although the
-- lock was granted: the granted lock is given back.
--
-- Mistakes of the caller are answered, not raised: {"refused": {field, problem, word, candidates}}. An error would have ended the caller's transaction.
--
-- SQLSTATE PW900 never leaves these functions: it undoes a subtransaction.
--
-- The caller's search path decides only about names that the caller wrote: the name of the table, and conditions. Triggers, policies and checks of domains
-- belong to that table, and must run under the caller's search path as they do for its other statements. So each function takes that path as the default
-- of a parameter, which is evaluated where the call stands. It makes its statements under Pawl's own path (see pin.ts), and sets the caller's only to run
-- them, with all of Pawl's names qualified.

-- Locks rows: {table, keys, mode, ifLocked, timeout} → {locked, held, existing, outcome}: numbers of keys, from 1.
--
-- FOR NO KEY UPDATE and not FOR UPDATE: with the latter, every insert of a child row would wait, since its foreign key check takes FOR KEY SHARE on the
-- row. Rows are locked in the order of their primary key, whatever order the caller asks for, so that two callers cannot lock each other out: LockRows
-- stands above the sort.
--
-- With a timeout, rows are fetched from a cursor one by one: each fetch locks exactly one row, and only between two fetches can the rest of the time be
-- set, since lock_timeout counts anew for every lock.
create or replace function pawl.lock_rows(p jsonb, p_path text default current_setting('search_path')) returns jsonb
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
  -- Reads every key: the join reads none if the table is empty, and then an invalid key would count as missing.
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
  -- From here on the path is the caller's.
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
        perform pawl.lock_set_timeout(v_deadline);
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

-- Locks a name: {key, mode, ifLocked, timeout} → {outcome: done | held | timeout}. It is an advisory lock until the transaction ends. Shared and
-- exclusive requests wait in one queue, and a try does not pass waiters.
create or replace function pawl.lock_key(p jsonb) returns jsonb
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
      perform pawl.lock_set_timeout(v_deadline);
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

-- Runs a locking statement that skips locked rows, answers the rows that it locked, and gives these locks back.
create or replace function pawl.lock_free_rows(p_statement text, p_keys jsonb, p_path text) returns bigint[]
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

-- Sets how long the next lock may be waited for: the time until the deadline, and 1 ms when none is left.
create or replace function pawl.lock_set_timeout(p_deadline timestamptz) returns void
language sql volatile set search_path = pg_catalog, pg_temp as $$
  select set_config('lock_timeout', case when p_deadline = 'infinity' then '0' else
    greatest(1, ceil(extract(epoch from p_deadline - clock_timestamp()) * 1000))::bigint::text end, true)
$$;

-- The moment when a timeout ends; null: the session's lock_timeout counts.
create or replace function pawl.lock_deadline(p_timeout text) returns timestamptz
language sql volatile as $$
  select case p_timeout when 'Infinity' then 'infinity' else clock_timestamp() + p_timeout::bigint * interval '1 ms' end
$$;

-- {table} → {}, or its refusal.
create or replace function pawl.lock_require_table(p jsonb, p_path text default current_setting('search_path')) returns jsonb
language sql stable set search_path = pg_catalog, pg_temp as $$
  select case when f.refused is null then '{}'::jsonb else jsonb_build_object('refused', f.refused) end
  from pawl.lock_find_table(p -> 'table', p_path) f
$$;
