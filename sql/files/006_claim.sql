-- A claim is settled only by whoever still has it: one that stood still for longer than its lease, and whose objects another one
-- has deleted meanwhile, would count that deletion twice, and so leave out the second one, a `tombstone` later. Older processes
-- may keep running.

-- As in 004, and says which claim it is: when it would run out, in microseconds.
drop function pawl.file_claim(text, bigint, bigint, int);
create function pawl.file_claim(p_space text, p_grace_ms bigint, p_lease_ms bigint, p_limit int)
returns table (object uuid, was text, upload text, unfinished boolean, deletions smallint, claim bigint)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $$
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

-- As in 004, for claims that are still what they were.
create function pawl.file_settle(p_objects uuid[], p_tombstone_ms bigint, p_history_ms bigint, p_claims bigint[]) returns void
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
  perform pawl.file_settle(v_mine, p_tombstone_ms, p_history_ms);
end $$;
