-- One index on the log of dirty keys instead of two. Writers pay for an index of which a condition says that a row is not in it, too:
-- it is opened and its condition made ready in each statement, a fifth of what the triggers cost an update of one row.
--
-- With the source in the key, links stand by themselves there as they did in the index of their own. They are before and after the
-- keys of entities, so they are looked for as "below 0" and "above 0": "not 0" would read everything between.
--
-- Writers of captured tables wait while the index is built. Workers of the version before may keep running; they find the same, and
-- read more of the index to find it. Triggers stay as they are.

alter table pawl.capture_dirty drop constraint capture_dirty_pkey, add constraint capture_dirty_pkey primary key (line, source, id);
drop index pawl.capture_dirty_link;

-- The three below say which source they mean, and are otherwise what they were.
create or replace function pawl.capture_claim(
  p_line smallint, p_after bigint, p_rows int, p_limit int, p_ms int, p_only text[],
  out seen int, out cut boolean, out last bigint, out ids bigint[], out keys text[], out oldest timestamptz
)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_nestloop = off set enable_mergejoin = off set jit = off
set plan_cache_mode = force_generic_plan as $$
declare
  v_end bigint;
  v_keys text[];
  v_rest text[];
  v_gone bigint[];
begin
  perform pawl.capture_limit(p_ms);
  with look as materialized (
    select d.id, d.key from pawl.capture_dirty d
    where d.line = p_line and d.source = 0 and d.id > p_after order by d.id limit p_rows
  ), first as materialized (
    select l.key, min(l.id) as id from look l where p_only is null or l.key = any (p_only) group by l.key order by min(l.id)
  ), mine as materialized (
    select f.key, f.id from first f where pawl.capture_lock_key(p_line, f.key) limit p_limit
  )
  select (select count(*) from look), (select max(l.id) from look l), (select array_agg(m.key) from mine m),
    case when (select count(*) from mine) < p_limit then null else (select max(m.id) from mine m) end
  into seen, v_end, v_keys, last;
  if last is not null then
    cut := true;
    -- The limit left something: all before the first key that was not tried is dealt with.
    select min(d.id) - 1 into last from pawl.capture_dirty d
    where d.line = p_line and d.source = 0 and d.id > last and d.id <= v_end and not exists (select from unnest(v_keys) u (key) where u.key = d.key);
  end if;
  last := coalesce(last, v_end, p_after);
  cut := coalesce(cut, false);
  ids := '{}';
  keys := '{}';
  if v_keys is null then
    return;
  end if;
  -- A new snapshot: what another worker did with these keys before it let them go is seen now.
  select array_agg(d.id), array_agg(distinct d.key), min(d.at) into ids, keys, oldest
  from pawl.capture_dirty d join unnest(v_keys) u (key) on u.key = d.key
  where d.line = p_line and d.source = 0 and d.id > p_after and d.id <= v_end;
  if keys is not null and exists (select from pawl.capture_retry r where r.line = p_line) then
    -- An entity that backs off is dirty already: its rows go, so that they are not looked at again and again.
    select array_agg(r.key) into v_rest from pawl.capture_retry r join unnest(keys) u (key) on u.key = r.key
    where r.line = p_line and r.run_at > clock_timestamp();
    if v_rest is not null then
      with gone as (
        delete from pawl.capture_dirty d using unnest(v_rest) u (key)
        where d.line = p_line and d.source = 0 and d.id = any (ids) and d.key = u.key returning d.id
      )
      select array_agg(g.id) into v_gone from gone g;
      ids := array(select i from unnest(ids) i where i <> all (v_gone));
      keys := array(select k from unnest(keys) k where k <> all (v_rest));
    end if;
  end if;
  ids := coalesce(ids, '{}');
  keys := coalesce(keys, '{}');
end $$;

create or replace function pawl.capture_settle(p_line smallint, p_ids bigint[], p_keys text[]) returns void
language plpgsql
set enable_seqscan = off as $$
begin
  delete from pawl.capture_dirty d where d.line = p_line and d.source = 0 and d.id = any (p_ids);
  if exists (select from pawl.capture_retry r where r.line = p_line) then
    delete from pawl.capture_retry r where r.line = p_line and md5(r.key) = any (array(select md5(k) from unnest(p_keys) k));
  end if;
end $$;

create or replace function pawl.capture_fail(p_line smallint, p_ids bigint[], p_key text, p_wait_ms double precision, p_error text) returns int
language sql set search_path = pg_catalog, pg_temp as $$
  delete from pawl.capture_dirty d where d.line = p_line and d.source = 0 and d.id = any (p_ids);
  insert into pawl.capture_retry as r (line, attempt, run_at, key, error)
  values (p_line, 1, clock_timestamp() + p_wait_ms * interval '1 millisecond', p_key, left(p_error, 4000))
  on conflict (line, md5(key)) do update set attempt = r.attempt + 1, run_at = excluded.run_at, error = excluded.error
  returning attempt;
$$;

-- Links and whole tables, oldest first, taken away: the caller puts what they mean in their place, in the same transaction. The limit
-- is that of each source, so that none has to wait until another has nothing more.
create or replace function pawl.capture_take_links(p_line smallint, p_limit int) returns table (source smallint, key text)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off as $$
#variable_conflict use_column
declare
  v_source smallint := -1;
begin
  while v_source is not null loop
    return query
    with mine as materialized (
      select d.ctid as tid from pawl.capture_dirty d
      where d.line = p_line and d.source = v_source order by d.id limit p_limit for update skip locked
    ), gone as (
      delete from pawl.capture_dirty d where d.ctid = any (array(select m.tid from mine m)) returning d.source, d.key
    )
    select distinct g.source, g.key from gone g order by 1, 2;
    v_source := (
      select d.source from pawl.capture_dirty d where d.line = p_line and d.source > greatest(v_source, 0) order by d.source limit 1
    );
  end loop;
end $$;
