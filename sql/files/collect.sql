-- Collecting objects that are no longer needed.

-- Ties a namespace to the store whose marker says p_store. The first store counts; a caller with another one learns which. p_store null only reads.
create or replace function pawl.file_attach(p_space text, p_store uuid, p_kind text) returns jsonb
language plpgsql as $$
begin
  insert into pawl.file_store (space, store, kind)
  select p_space, p_store, p_kind where p_store is not null
  on conflict (space) do nothing;
  return (
    select jsonb_build_object('store', s.store, 'kind', s.kind, 'probe', s.probe, 'pass', s.pass, 'database', pawl.file_database(),
      'haltedBecause', s.halted_because)
    from pawl.file_store s where s.space = p_space);
end $$;

-- The database that a statement runs in: a copy of it elsewhere is another one. pg_control_system() may be forbidden, and then only its passes show that
-- a copy is in another cluster.
create or replace function pawl.file_database() returns text
language plpgsql stable as $$
declare
  v_oid text := (select d.oid::text from pg_database d where d.datname = current_database());
begin
  return (select c.system_identifier from pg_control_system() c)::text || ':' || v_oid;
exception when insufficient_privilege then
  return '?:' || v_oid;
end $$;

-- Whether two answers of file_database() can be the same database: one of them may not know its cluster.
create or replace function pawl.file_is_database(p_one text, p_other text) returns boolean
language sql immutable set search_path = pg_catalog, pg_temp as $$
  select p_one = p_other
    or (p_one like '?%' or p_other like '?%') and split_part(p_one, ':', 2) = split_part(p_other, ':', 2)
$$;

-- Begins a pass. Its number is committed here before the store's marker says it. So the marker is ahead of the database only if the database went back in
-- time, or another copy of it collects in the same store. Then the collector stops.
create or replace function pawl.file_begin_pass(p_space text, p_marker_pass bigint, p_marker_database text) returns jsonb
language plpgsql as $$
declare
  v_store pawl.file_store;
  v_because text;
  v_database text := pawl.file_database();
begin
  select * into v_store from pawl.file_store s where s.space = p_space for update;
  v_because := case
    when v_store.halted_because is not null then v_store.halted_because
    when p_marker_pass > v_store.pass then format(
      'the store has seen pass %s, and the database only %s: the database was restored to an earlier point, or another copy of it collects there',
      p_marker_pass, v_store.pass)
    when not pawl.file_is_database(p_marker_database, v_database) then format(
      'the store is collected by the database %s, and this is %s: a copy of it, or it has moved', p_marker_database, v_database)
  end;
  if v_because is not null then
    update pawl.file_store s set halted_at = coalesce(s.halted_at, clock_timestamp()), halted_because = v_because where s.space = p_space;
    return jsonb_build_object('halted', v_because);
  end if;
  update pawl.file_store s set pass = s.pass + 1 where s.space = p_space;
  -- A role that may not know its cluster leaves to the marker what another role has written there.
  return jsonb_build_object('pass', v_store.pass + 1, 'database', case when v_database like '?%' then p_marker_database else v_database end);
end $$;

-- Claims due objects. A retired object is only condemned by that, and is due again when its readers have had their time. Any other object is to be deleted
-- in the store now, and is due again if the claim is never settled.
create or replace function pawl.file_claim(p_space text, p_grace_ms bigint, p_lease_ms bigint, p_limit int)
returns table (object uuid, was text, upload text, unfinished boolean, deletions smallint, claim bigint)
language plpgsql /* planner: probe */ set plan_cache_mode = force_generic_plan as $$
declare
  v_now timestamptz := clock_timestamp();
begin
  return query
  with due as materialized (
    select o.object, o.state
    from pawl.file_object o
    where o.space = p_space and o.collect_at <= v_now
    order by o.collect_at
    limit p_limit
    for update skip locked
  )
  update pawl.file_object o
  set state = case when o.state = 'deleted' then 'deleted' else 'deleting' end,
    collect_at = v_now + case when due.state = 'retired' then p_grace_ms else p_lease_ms end * interval '1 ms'
  from due
  where o.object = due.object
  returning o.object, due.state, o.upload, o.version is null, o.deletions, (extract(epoch from o.collect_at) * 1000000)::bigint;
end $$;

-- Settles objects that the caller has claimed and deleted in the store. Only a caller whose claim is still the last one settles. Otherwise a caller that
-- stood still for longer than its lease, and whose objects another one has deleted meanwhile, would count that deletion twice, and so leave out the
-- second one, a `tombstone` later.
create or replace function pawl.file_settle(p_objects uuid[], p_tombstone_ms bigint, p_history_ms bigint, p_claims bigint[]) returns void
language plpgsql
set enable_seqscan = off set jit = off set plan_cache_mode = force_generic_plan as $$
declare
  v_mine uuid[];
begin
  v_mine := array(
    select o.object
    from unnest(p_objects, p_claims) c (object, claim)
    join pawl.file_object o on o.object = c.object
    where (extract(epoch from o.collect_at) * 1000000)::bigint = c.claim
    for update of o
  );
  perform pawl.file_mark_deleted(v_mine, p_tombstone_ms, p_history_ms);
end $$;

-- Marks objects deleted. After the second deletion, a version's row is history, kept for p_history_ms (null: for ever); the row of an upload that never
-- became a version is removed.
create or replace function pawl.file_mark_deleted(p_objects uuid[], p_tombstone_ms bigint, p_history_ms bigint) returns void
language plpgsql
set enable_seqscan = off set jit = off set plan_cache_mode = force_generic_plan as $$
declare
  v_now timestamptz := clock_timestamp();
begin
  delete from pawl.file_object o
  where o.object = any (p_objects) and o.state = 'deleted' and (o.deletions >= 2 or (o.deletions = 1 and o.version is null));
  update pawl.file_object o
  set state = 'deleted', upload = null, deletions = o.deletions + 1, deleted_at = coalesce(o.deleted_at, v_now),
    collect_at = v_now + case when o.deletions = 0 then p_tombstone_ms else p_history_ms end * interval '1 ms'
  where o.object = any (p_objects) and o.state in ('deleting', 'deleted');
end $$;

-- An operator has checked: this database is the one that collects, from a pass that the marker has not seen.
create or replace function pawl.file_rearm(p_space text, p_marker_pass bigint) returns jsonb
language sql set search_path = pg_catalog, pg_temp as $$
  update pawl.file_store s
  set pass = greatest(s.pass, p_marker_pass) + 1, halted_at = null, halted_because = null
  where s.space = p_space
  returning jsonb_build_object('pass', s.pass, 'database', pawl.file_database())
$$;

-- How much the collector has to do, now and later.
create or replace function pawl.file_backlog(p_space text) returns jsonb
language sql stable set search_path = pg_catalog, pg_temp as $$
  select jsonb_build_object(
    'pending', count(*) filter (where o.state = 'pending'), 'retired', count(*) filter (where o.state = 'retired'),
    'deleting', count(*) filter (where o.state = 'deleting'), 'deleted', count(*) filter (where o.state = 'deleted'),
    'due', count(*) filter (where o.collect_at <= clock_timestamp()))
  from pawl.file_object o
  where o.space = p_space and o.collect_at is not null
$$;

-- Which of these names of objects have a row.
create or replace function pawl.file_existing(p_space text, p_objects uuid[]) returns setof uuid
language sql stable set search_path = pg_catalog, pg_temp as $$
  select o.object from pawl.file_object o where o.object = any (p_objects) and o.space = p_space
$$;

-- The readable objects with names after p_after and up to p_upto: the store must have these between two pages of its list.
create or replace function pawl.file_readable(p_space text, p_after uuid, p_upto uuid) returns setof jsonb
language sql stable set search_path = pg_catalog, pg_temp as $$
  select pawl.file_json(o)
  from pawl.file_object o
  where o.object > coalesce(p_after, '00000000-0000-0000-0000-000000000000')
    and o.object <= coalesce(p_upto, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
    and o.space = p_space and o.state in ('live', 'retired')
  order by o.object
$$;
