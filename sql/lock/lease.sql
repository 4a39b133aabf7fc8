-- Keeping and checking held locks. Every statement of a holder names its token, and changes nothing when the token is not the
-- current one.

-- Renews the locks that are still held, and answers which of the given rows these are (by their place). The rows are locked in the order of their key, as
-- everywhere. A guard's share lock does not make this wait: the key does not change.
create or replace function pawl.lock_beat(p_spaces text[], p_names text[], p_tokens bigint[]) returns setof int
language sql
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
  select pawl.lock_flush();
  with mine as materialized (
    select g.ctid as tid, u.place from unnest(p_spaces, p_names, p_tokens) with ordinality u (space, name, token, place)
    join pawl.lock_grant g on g.space = u.space and g.name = u.name and g.slot in (0, u.token) and g.token = u.token
    where g.expires_at > clock_timestamp()
    order by g.space, g.name, g.slot
    for no key update of g
  ), kept as (
    update pawl.lock_grant g
    set expires_at = case when g.lease_ms is null then 'infinity' else clock_timestamp() + g.lease_ms * interval '1 ms' end
    from mine m where g.ctid = m.tid
    returning m.place
  )
  select place::int from kept
$$;

-- Ends the lease of a lock that was asked for without one. Such a lock is granted with a lease; the process that received the grant then keeps the lock
-- for good by this call. So if a grant arrives after its request was given up, as late as the network may bring it, the grant ends by itself. Answers
-- false, and changes nothing, if not all of the names are held with p_token any more.
create or replace function pawl.lock_drop_lease(p_space text, p_names text[], p_token bigint) returns boolean
language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
declare
  v_kept int;
begin
  perform pawl.lock_latch(p_space, p_names);
  -- Under the latch, no other process takes the lock away between the two statements.
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

-- A guard in the caller's own transaction, at any isolation: fails unless {space, names, token} is held, and keeps it held until that transaction ends.
-- Until then the row cannot be removed, so no other process can be granted the lock. The lease may run out meanwhile. A snapshot older than the grant
-- does not see the grant: values that were read before the lock was granted prove nothing.
create or replace function pawl.lock_guard(p jsonb) returns boolean
language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
declare
  v_names text[] := array(select jsonb_array_elements_text(p -> 'names'));
  v_found int;
begin
  perform from pawl.lock_grant g
  where g.space = p ->> 'space' and g.name = any (v_names) and g.slot in (0, (p ->> 'token')::bigint)
    and g.token = (p ->> 'token')::bigint and g.outcome is null
  order by g.name
  for key share;
  get diagnostics v_found = row_count;
  if v_found < cardinality(v_names) then
    raise exception 'lock % is no longer held with token %: it expired and was taken over, was released or broken, or this transaction''s snapshot is older than it',
      (select string_agg(to_json(n)::text, ', ') from unnest(v_names) n), p ->> 'token' using errcode = 'PW004';
  end if;
  return true;
end $$;

-- The server processes whose open transactions guard a name. A row's share lock is in its xmax, as one transaction or as the number of a group of them,
-- and SQL cannot see which of the two. A number that is no running transaction is looked up as a group: if it is a transaction that has ended, the server
-- refuses it, or it names a group of long ago, whose members have ended, too.
create or replace function pawl.lock_guarding_pids(p_space text, p_name text) returns setof int
language plpgsql as $$
declare
  v_xmax xid;
begin
  for v_xmax in
    select g.xmax from pawl.lock_grant g where g.space = p_space and g.name = p_name and g.xmax::text <> '0'
  loop
    return query select a.pid from pg_stat_activity a where a.backend_xid = v_xmax;
    continue when found;
    begin
      return query
        select a.pid from pg_get_multixact_members(v_xmax) m join pg_stat_activity a on a.backend_xid = m.xid;
    exception when internal_error or invalid_parameter_value then
      null;
    end;
  end loop;
end $$;

-- Removes rows that are no longer needed, a bounded number: holders and waiters that died over a minute ago, slots free for an hour, history before
-- p_keep, and rows of oncePer, which stay for the longest of their periods, and after that as long as history. Passes over a name whose latch is taken:
-- it takes several latches, in no order, so it must not wait for any. Like every decision under a latch it needs read committed, and a commit that is on
-- disk before a waiter learns of its grant.
create or replace function pawl.lock_sweep(p_keep interval) returns int
language plpgsql as $$
declare
  v_name record;
  v_count int := 0;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'locks are decided under read committed, not %', current_setting('transaction_isolation')
      using errcode = 'PW005';
  end if;
  for v_name in
    select g.space, g.name from pawl.lock_grant g where g.expires_at < clock_timestamp() - interval '1 minute'
    union
    select w.space, w.name from pawl.lock_waiter w where w.expires_at < clock_timestamp() - interval '1 minute'
    limit 100
  loop
    continue when not pg_try_advisory_xact_lock(hashtextextended(v_name.name, hashtextextended(v_name.space, 1885435756)));
    perform pawl.lock_flush();
    perform pawl.lock_evict(v_name.space, v_name.name);
    perform pawl.lock_grant_next(v_name.space, v_name.name, '');
    v_count := v_count + 1;
  end loop;
  -- A request for one of these names waits a moment meanwhile, and makes the row anew.
  delete from pawl.lock_grant d
  where d.ctid = any (array(
    select g.ctid from pawl.lock_grant g
    where g.token is null and g.granted_at < clock_timestamp() - interval '1 hour'
    limit 10000 for update skip locked
  ));
  delete from pawl.lock_past p
  where p.ctid = any (array(
    select q.ctid from pawl.lock_past q where q.ended_at < clock_timestamp() - p_keep limit 10000 for update skip locked
  ));
  delete from pawl.lock_period p
  where p.ctid = any (array(
    select q.ctid from pawl.lock_period q
    where q.started_at < clock_timestamp() - p_keep - q.period_ms * interval '1 ms'
    limit 10000 for update skip locked
  ));
  return v_count;
end $$;
