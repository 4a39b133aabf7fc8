-- Locks without a lease. Older processes may keep running: what they take without one is so from the beginning.

-- A lock without a lease is granted with one, and then kept for good by whoever heard of it: what is granted after its
-- request was given up, as late as the network may bring it, ends by itself. False when not all of the names are held with
-- p_token any more; nothing is changed then.
create function pawl.lock_keep(p_space text, p_names text[], p_token bigint) returns boolean
language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
declare
  v_kept int;
begin
  perform pawl.lock_latch(p_space, p_names);
  -- Under the latch nobody takes it away between the two.
  perform from pawl.lock_grant g
  where g.space = p_space and g.name = any (p_names) and g.slot in (0, p_token) and g.token = p_token
    and g.expires_at > clock_timestamp()
  order by g.name
  for no key update;
  get diagnostics v_kept = row_count;
  if v_kept < cardinality(p_names) then
    return false;
  end if;
  update pawl.lock_grant g set lease_ms = null, expires_at = 'infinity'
  where g.space = p_space and g.name = any (p_names) and g.slot in (0, p_token) and g.token = p_token;
  return true;
end $$;
