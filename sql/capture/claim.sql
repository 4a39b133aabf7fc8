-- Taking dirty keys. The worker that deals with a key holds its advisory lock to the end of the transaction; that lock is the whole claim. A crash of the
-- worker or of its connection gives all its keys back, and rolls back what it had written.
--
-- Each statement names its source, though the source of keys is always 0: the primary key of capture_dirty has the source before the id. Links are above
-- and below the keys of entities there, so they are searched for as "below 0" and "above 0": "not 0" would read everything between.

-- Takes up to p_limit keys, with all their rows among the p_rows oldest after p_after. p_only: these keys alone.
-- "last": all rows up to there are dealt with, or another worker has them. The next claim of the pass continues behind it, so that deleted rows that a
-- long snapshot keeps alive are stepped over once a pass. A worker that finds nothing begins a new pass from 0, and so finds rows with a lower id that
-- were committed late.
create or replace function pawl.capture_claim(
  p_line smallint, p_after bigint, p_rows int, p_limit int, p_ms int, p_only text[],
  out seen int, out cut boolean, out last bigint, out ids bigint[], out keys text[], out oldest timestamptz
)
language plpgsql /* planner: batch */ set enable_nestloop = off set plan_cache_mode = force_generic_plan as $$
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
    -- The limit left keys over: all rows before the first key that was not tried are dealt with.
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
  -- A new snapshot: it shows what another worker did with these keys before it let them go.
  select array_agg(d.id), array_agg(distinct d.key), min(d.at) into ids, keys, oldest
  from pawl.capture_dirty d join unnest(v_keys) u (key) on u.key = d.key
  where d.line = p_line and d.source = 0 and d.id > p_after and d.id <= v_end;
  if keys is not null and exists (select from pawl.capture_retry r where r.line = p_line) then
    -- An entity that backs off counts as dirty anyway: its rows go, so that claims do not read them again and again.
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

create or replace function pawl.capture_lock_key(p_line smallint, p_key text) returns boolean
language sql volatile as $$
  -- Other users of advisory locks, the queue among them, have seeds from 0 up.
  select pg_try_advisory_xact_lock(hashtextextended(p_key, (-1000000 - p_line)::bigint))
$$;

-- Makes the server end a transaction that takes too long: a worker that was paused in it must not keep its keys from others for ever.
create or replace function pawl.capture_limit(p_ms int) returns void
language plpgsql as $$
begin
  perform set_config('idle_in_transaction_session_timeout', p_ms::text, true), set_config('statement_timeout', p_ms::text, true);
end $$;

-- Acknowledges exactly the rows that were claimed.
create or replace function pawl.capture_settle(p_line smallint, p_ids bigint[], p_keys text[]) returns void
language plpgsql
set enable_seqscan = off as $$
begin
  delete from pawl.capture_dirty d where d.line = p_line and d.source = 0 and d.id = any (p_ids);
  if exists (select from pawl.capture_retry r where r.line = p_line) then
    delete from pawl.capture_retry r where r.line = p_line and md5(r.key) = any (array(select md5(k) from unnest(p_keys) k));
  end if;
end $$;

-- Lets an entity that cannot be projected now wait by itself. The caller holds its lock. Answers how many attempts have failed.
create or replace function pawl.capture_fail(p_line smallint, p_ids bigint[], p_key text, p_wait_ms double precision, p_error text) returns int
language sql set search_path = pg_catalog, pg_temp as $$
  delete from pawl.capture_dirty d where d.line = p_line and d.source = 0 and d.id = any (p_ids);
  insert into pawl.capture_retry as r (line, attempt, run_at, key, error)
  values (p_line, 1, clock_timestamp() + p_wait_ms * interval '1 millisecond', p_key, left(p_error, 4000))
  on conflict (line, md5(key)) do update set attempt = r.attempt + 1, run_at = excluded.run_at, error = excluded.error
  returning attempt;
$$;

-- Claims one entity whose time for another attempt has come.
create or replace function pawl.capture_claim_retry(p_line smallint, p_ms int) returns table (key text, attempt int)
language plpgsql as $$
begin
  perform pawl.capture_limit(p_ms);
  for key in
    select r.key from pawl.capture_retry r where r.line = p_line and r.run_at <= clock_timestamp() order by r.run_at limit 20
  loop
    if pawl.capture_lock_key(p_line, key) then
      select r.attempt into attempt from pawl.capture_retry r
      where r.line = p_line and md5(r.key) = md5(capture_claim_retry.key) and r.run_at <= clock_timestamp();
      if found then
        return next;
        return;
      end if;
    end if;
  end loop;
end $$;

-- Takes away links and whole tables, oldest first: the caller puts the entities that they mean in their place, in the same transaction. The limit holds
-- for each source, so that no source waits until another one is empty. Whole tables are taken all at once, and not while a sweep is under way: if each of
-- them began it anew, the last entities would never be reached.
create or replace function pawl.capture_take_links(p_line smallint, p_limit int) returns table (source smallint, key text)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off as $$
#variable_conflict use_column
declare
  v_source smallint := -1;
begin
  if exists (select from pawl.capture_sweep s where s.line = p_line and s.phase <> 'done') then
    v_source := (select d.source from pawl.capture_dirty d where d.line = p_line and d.source > 0 order by d.source limit 1);
  end if;
  while v_source is not null loop
    return query
    with mine as materialized (
      select d.ctid as tid from pawl.capture_dirty d
      where d.line = p_line and d.source = v_source order by d.id limit case when v_source > 0 then p_limit end for update skip locked
    ), gone as (
      delete from pawl.capture_dirty d where d.ctid = any (array(select m.tid from mine m)) returning d.source, d.key
    )
    select distinct g.source, g.key from gone g order by 1, 2;
    v_source := (
      select d.source from pawl.capture_dirty d where d.line = p_line and d.source > greatest(v_source, 0) order by d.source limit 1
    );
  end loop;
end $$;

-- Marks keys dirty: for repairs, and for the entities that a link leads to.
create or replace function pawl.capture_mark(p_line smallint, p_keys text[]) returns void
language sql set search_path = pg_catalog, pg_temp as $$
  insert into pawl.capture_dirty (line, source, key) select p_line, 0, k from unnest(p_keys) k order by k
$$;

-- Begins to go through all entities, or begins again. If p_again is false, a sweep that has not ended continues where it is.
create or replace function pawl.capture_sweep_start(p_line smallint, p_total bigint, p_again boolean) returns void
language sql set search_path = pg_catalog, pg_temp as $$
  insert into pawl.capture_sweep as s (line, phase, total) values (p_line, 'root', p_total)
  on conflict (line) do update set phase = 'root', after = null, done = 0, total = p_total, started_at = clock_timestamp(), ended_at = null
  where p_again or s.phase = 'done'
$$;
