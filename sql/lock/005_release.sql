-- Keeping, checking, giving up and taking away. Every statement of a holder names its token, and changes nothing when the
-- token is not the current one. Older processes may keep running.

-- Renews what is still held, and says which of the rows (by their place) are. The rows are locked in the order of their
-- key, as everywhere. A guard's share lock does not stand in the way: the key does not change.
create function pawl.lock_beat(p_spaces text[], p_names text[], p_tokens bigint[]) returns setof int
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

-- Keeps places of one name each, and says which of them still have two living ones before them; the others have to look. Takes no
-- latch, and no row that somebody decides about just now: it waits for nobody. Whoever decides about one of them waits for the
-- end of this statement. A place need not last: nobody waits for the disk.
create function pawl.lock_keep_places(p_nonces uuid[], p_waiter_ms int[]) returns setof uuid
language sql
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
  select set_config('synchronous_commit', 'off', true);
  with mine as materialized (
    select w.ctid as tid, u.waiter_ms from unnest(p_nonces, p_waiter_ms) u (nonce, waiter_ms)
    join pawl.lock_waiter w on w.nonce = u.nonce
    where w.expires_at > clock_timestamp()
    order by w.space, w.name, w.ticket
    for no key update of w skip locked
  ), kept as (
    update pawl.lock_waiter w set expires_at = clock_timestamp() + m.waiter_ms * interval '1 ms'
    from mine m where w.ctid = m.tid
    returning w.space, w.name, w.ticket, w.nonce
  )
  select k.nonce from kept k
  where 2 = (
    select count(*) from (
      select from pawl.lock_waiter o
      where o.space = k.space and o.name = k.name and o.ticket < k.ticket and o.expires_at > clock_timestamp()
      order by o.ticket limit 2
    ) front
  )
$$;

-- In the caller's own transaction, any isolation: fails unless {space, names, token} is held, and keeps it so until that
-- transaction ends, as nobody can remove the row, and so nobody be granted the lock, before. The lease may have run out
-- meanwhile. A snapshot older than the grant does not see it: what was read before the lock was had proves nothing.
create function pawl.lock_guard(p jsonb) returns boolean
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

-- Gives up those of the names that are held with p_token, and grants them to who waits. False when not all of them are.
-- p_finish counts the run for oncePer: true as a success, false as a failure that is kept. Does not wait for a guard's open
-- transaction: the row is marked, and goes when the next one looks.
create function pawl.lock_release(
  p_space text, p_names text[], p_token bigint, p_process text, p_finish boolean default null,
  out released boolean, out called text[]
)
language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
declare
  v_name text;
  v_gone int;
  v_marked int := 0;
begin
  perform pawl.lock_latch(p_space, p_names);
  if p_finish is not null then
    insert into pawl.lock_period as p (space, name, started_at, token, failed)
    select g.space, g.name, g.granted_at, g.token, not p_finish
    from pawl.lock_grant g
    where g.space = p_space and g.name = p_names[1] and g.token = p_token and g.outcome is null
    on conflict (space, name) do update
    set started_at = excluded.started_at, token = excluded.token, failed = excluded.failed;
  end if;
  with mine as materialized (
    select g.ctid as tid from pawl.lock_grant g
    where g.space = p_space and g.name = any (p_names) and g.slot in (0, p_token) and g.token = p_token and g.outcome is null
    for update skip locked
  ), gone as (
    delete from pawl.lock_grant g where g.ctid = any (array(select m.tid from mine m)) returning g.*
  )
  insert into pawl.lock_past
  select space, name, token, capacity, pid, lease_ms, granted_at, clock_timestamp(), process, host, 'released'
  from gone;
  get diagnostics v_gone = row_count;
  if v_gone < cardinality(p_names) then
    update pawl.lock_grant g set expires_at = '-infinity', outcome = 'released'
    where g.space = p_space and g.name = any (p_names) and g.slot in (0, p_token) and g.token = p_token and g.outcome is null;
    get diagnostics v_marked = row_count;
  end if;
  released := v_gone + v_marked = cardinality(p_names);
  foreach v_name in array p_names loop
    if exists (select from pawl.lock_waiter w where w.space = p_space and w.name = v_name) then
      called := called || pawl.lock_call(p_space, v_name, p_process);
    end if;
  end loop;
end $$;

-- The short way to give up one name held alone; else all that lock_release does. Null when it was not held; else the waiters
-- of this process that were called, with a comma between them. Cost: one latch, one row written in place, one row of
-- history, one look for waiters.
create function pawl.lock_free(p_space text, p_name text, p_token bigint, p_process text) returns text
language plpgsql
set enable_seqscan = off as $$
declare
  v_pid int;
  v_lease_ms bigint;
  v_granted_at timestamptz;
  v_process text;
  v_host text;
  v_now timestamptz;
  v_is_awaited boolean;
  v_next pawl.lock_waiter;
  v_called text;
begin
  if current_setting('transaction_isolation') = 'read committed' then
    if pg_advisory_xact_lock(hashtextextended(p_name, hashtextextended(p_space, 1885435756))) is null then end if;
    if current_setting('synchronous_commit') = 'off' then
      perform pawl.lock_flush();
    end if;
    -- A row that nobody has locked since its last renewal is free without a look at who may have.
    update pawl.lock_grant g set token = null, expires_at = 'infinity'
    where g.space = p_space and g.name = p_name and g.slot = 0 and g.token = p_token and g.outcome is null and g.xmax = 0
    returning g.pid, g.lease_ms, g.granted_at, g.process, g.host into v_pid, v_lease_ms, v_granted_at, v_process, v_host;
    if found then
      v_now := clock_timestamp();
      insert into pawl.lock_past
      values (p_space, p_name, p_token, 1, v_pid, v_lease_ms, v_granted_at, v_now, v_process, v_host, 'released')
      returning exists (select from pawl.lock_waiter w where w.space = p_space and w.name = p_name) into v_is_awaited;
      if not v_is_awaited then
        return '';
      end if;
      -- To the first in line, if it will hold alone; as lock_call does.
      delete from pawl.lock_waiter w
      where w.space = p_space and w.name = p_name
        and w.ticket = (
          select f.ticket from pawl.lock_waiter f where f.space = p_space and f.name = p_name order by f.ticket limit 1
        )
        and w.capacity = 1 and w.expires_at > v_now and w.expires_at <= v_now + w.lease_ms * interval '1 ms'
      returning w.* into v_next;
      if not found then
        return array_to_string(pawl.lock_call(p_space, p_name, p_process), ',');
      end if;
      update pawl.lock_grant g
      set token = nextval('pawl.lock_token'), nonce = v_next.nonce, pid = v_next.pid, lease_ms = v_next.lease_ms, granted_at = v_now,
        expires_at = v_next.expires_at, process = v_next.process, host = v_next.host
      where g.space = p_space and g.name = p_name and g.slot = 0
      returning v_next.nonce || ' ' || g.token into v_called;
      if v_next.process <> p_process then
        perform pg_notify('pawl_lock_' || v_next.process, 'turn ' || v_called);
        return '';
      end if;
      return v_called;
    end if;
  end if;
  select case when r.released then coalesce(array_to_string(r.called, ','), '') end into v_called
  from pawl.lock_release(p_space, array[p_name], p_token, p_process) r;
  return v_called;
end $$;

-- Gives up waiting, and whatever the nonce was granted in the last moment. Says who is in the way.
create function pawl.lock_leave(p_space text, p_names text[], p_nonce uuid, p_process text, out holder text, out called text[])
language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
declare
  v_name text;
begin
  perform pawl.lock_latch(p_space, p_names);
  delete from pawl.lock_waiter w where w.nonce = p_nonce;
  update pawl.lock_grant g set expires_at = '-infinity', outcome = 'released'
  where g.space = p_space and g.name = any (p_names) and g.nonce = p_nonce and g.token is not null and g.outcome is null;
  select format('%s (pid %s)', g.host, g.pid) into holder
  from pawl.lock_grant g
  where g.space = p_space and g.name = any (p_names) and g.token is not null and g.expires_at > clock_timestamp()
  order by g.token limit 1;
  foreach v_name in array p_names loop
    perform pawl.lock_evict(p_space, v_name);
    called := called || pawl.lock_call(p_space, v_name, p_process);
  end loop;
end $$;

-- Takes a name from all its holders. They learn it by notification if they listen, or else by their next heartbeat.
create function pawl.lock_break(p_space text, p_name text, p_reason text)
returns table (token bigint, host text, pid int, granted_at timestamptz)
language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
#variable_conflict use_column
begin
  perform pawl.lock_latch(p_space, array[p_name]);
  return query
  with broken as (
    update pawl.lock_grant g set expires_at = '-infinity', outcome = 'broken', reason = p_reason
    where g.space = p_space and g.name = p_name and g.token is not null and g.outcome is null and g.expires_at > clock_timestamp()
    returning g.token, g.host, g.pid, g.granted_at, g.process
  ), told as materialized (
    select b.token, pg_notify('pawl_lock_' || b.process, 'lost ' || b.token) from broken b
  )
  select b.token, b.host, b.pid, b.granted_at from broken b join told t using (token);
  perform pawl.lock_evict(p_space, p_name);
  perform pawl.lock_call(p_space, p_name, '');
end $$;

-- Removes what nobody asks for any more: holders and waiters that died long ago, slots free for an hour, and history
-- before p_keep. Bounded.
-- Passes over a name whose latch is taken: it comes to several, in no order, so it must not wait for any.
create function pawl.lock_sweep(p_keep interval) returns int
language plpgsql as $$
declare
  v_name record;
  v_count int := 0;
begin
  for v_name in
    select g.space, g.name from pawl.lock_grant g where g.expires_at < clock_timestamp() - interval '1 minute'
    union
    select w.space, w.name from pawl.lock_waiter w where w.expires_at < clock_timestamp() - interval '1 minute'
    limit 100
  loop
    continue when not pg_try_advisory_xact_lock(hashtextextended(v_name.name, hashtextextended(v_name.space, 1885435756)));
    perform pawl.lock_evict(v_name.space, v_name.name);
    perform pawl.lock_call(v_name.space, v_name.name, '');
    v_count := v_count + 1;
  end loop;
  -- Whoever acquires one of these meanwhile waits a moment, and makes it anew.
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
  return v_count;
end $$;

-- The processes whose open transactions guard a name. A row's share lock stands in its xmax, as one transaction or as the
-- number of a group of them, and SQL cannot see which of the two. What is no running transaction is looked up as a group:
-- the number of a transaction that has ended is refused, or names a group of long ago, whose members have ended, too.
create function pawl.lock_guards(p_space text, p_name text) returns setof int
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
