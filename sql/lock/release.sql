-- Releasing and breaking locks. Every statement of a holder names its token, and changes nothing when the token is not the current one.
--
-- A release counts before it is on disk. The price: a crash of the server within three times wal_writer_delay (0.6 s) may lose the release. The lock then
-- stays held for the rest of its lease, as if its process had died just before; its history says `expired`. The next holder of the name learns of its
-- grant only when that grant is on disk, and then everything committed before it is on disk, too, this release included. So a name never has two
-- holders, and no token goes back.
-- A release is flushed nevertheless if it grants the lock to a waiter, counts a run of oncePer, is held up by a guard's open transaction, or if its loss
-- would keep the lock for more than a minute, or for ever.

-- The short way to release one name that is held alone; otherwise does all that lock_release does. Answers the columns of lock_release as one JSON
-- object, in which `called` may be missing. Cost: one latch, one row written in place, one row of history, one probe for waiters.
create or replace function pawl.lock_release_one(p_space text, p_name text, p_token bigint, p_process text) returns text
language plpgsql
set enable_seqscan = off as $$
declare
  v_pid int;
  v_lease_ms bigint;
  v_granted_at timestamptz;
  v_process text;
  v_host text;
  v_job bigint;
  v_now timestamptz;
  v_is_awaited boolean;
  v_next pawl.lock_waiter;
  v_called text;
  v_answer text;
begin
  if current_setting('transaction_isolation') = 'read committed' then
    if pg_advisory_xact_lock(hashtextextended(p_name, hashtextextended(p_space, 1885435756))) is null then end if;
    -- A row that was not locked since its last renewal has no guard; only a locked row needs a search for the guard.
    update pawl.lock_grant g set token = null, expires_at = 'infinity'
    where g.space = p_space and g.name = p_name and g.slot = 0 and g.token = p_token and g.outcome is null and g.xmax = 0
    returning g.pid, g.lease_ms, g.granted_at, g.process, g.host, g.job
    into v_pid, v_lease_ms, v_granted_at, v_process, v_host, v_job;
    if found then
      v_now := clock_timestamp();
      insert into pawl.lock_past
      values (p_space, p_name, p_token, 1, v_pid, v_lease_ms, v_granted_at, v_now, v_process, v_host, 'released', null, v_job)
      returning exists (select from pawl.lock_waiter w where w.space = p_space and w.name = p_name) into v_is_awaited;
      if not v_is_awaited then
        perform pawl.lock_flush_unless_short(v_lease_ms);
        return '{"released":true}';
      end if;
      if current_setting('synchronous_commit') = 'off' then
        perform pawl.lock_flush();
      end if;
      -- Granted to the first in line, if it will hold the lock alone, as lock_grant_next does.
      delete from pawl.lock_waiter w
      where w.space = p_space and w.name = p_name
        and w.ticket = (
          select f.ticket from pawl.lock_waiter f where f.space = p_space and f.name = p_name order by f.ticket limit 1
        )
        and w.capacity = 1 and w.expires_at > v_now and w.expires_at <= v_now + w.lease_ms * interval '1 ms'
      returning w.* into v_next;
      if not found then
        return json_build_object('released', true, 'called', pawl.lock_grant_next(p_space, p_name, p_process));
      end if;
      update pawl.lock_grant g
      set token = nextval('pawl.lock_token'), nonce = v_next.nonce, pid = v_next.pid, lease_ms = v_next.lease_ms, granted_at = v_now,
        expires_at = v_next.expires_at, process = v_next.process, host = v_next.host, job = v_next.job
      where g.space = p_space and g.name = p_name and g.slot = 0
      returning v_next.nonce || ' ' || g.token into v_called;
      if v_next.process <> p_process then
        perform pg_notify('pawl_lock_' || v_next.process, 'turn ' || v_called);
        return '{"released":true}';
      end if;
      return json_build_object('released', true, 'called', array[v_called]);
    end if;
  end if;
  select to_json(r) into v_answer from pawl.lock_release(p_space, array[p_name], p_token, p_process) r;
  return v_answer;
end $$;

-- Releases those of the names that are held with p_token, and grants them to waiters. released: false if not all of them were held. p_finish counts the
-- run for oncePer: true as a success, false as a failure that is kept. It does not wait for a guard's open transaction: the row is marked, and the next
-- decision about the name removes it.
create or replace function pawl.lock_release(
  p_space text, p_names text[], p_token bigint, p_process text, p_finish boolean default null, p_period_ms bigint default null,
  out released boolean, out called text[]
)
language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
declare
  v_name text;
  v_gone int;
  v_lease_ms bigint;
  v_marked int := 0;
  v_is_awaited boolean := false;
begin
  perform pawl.lock_latch(p_space, p_names);
  if p_finish is not null then
    insert into pawl.lock_period as p (space, name, started_at, token, failed, period_ms)
    select g.space, g.name, g.granted_at, g.token, not p_finish, p_period_ms
    from pawl.lock_grant g
    where g.space = p_space and g.name = p_names[1] and g.token = p_token and g.outcome is null
    on conflict (space, name) do update
    set started_at = excluded.started_at, token = excluded.token, failed = excluded.failed,
      period_ms = greatest(p.period_ms, excluded.period_ms);
  end if;
  with mine as materialized (
    select g.ctid as tid from pawl.lock_grant g
    where g.space = p_space and g.name = any (p_names) and g.slot in (0, p_token) and g.token = p_token and g.outcome is null
    for update skip locked
  ), gone as (
    delete from pawl.lock_grant g where g.ctid = any (array(select m.tid from mine m)) returning g.*
  ), past as (
    insert into pawl.lock_past
    select space, name, token, capacity, pid, lease_ms, granted_at, clock_timestamp(), process, host, 'released', null, job
    from gone
    returning lease_ms
  )
  select count(*), max(coalesce(lease_ms, 9223372036854775807)) into v_gone, v_lease_ms from past;
  if v_gone < cardinality(p_names) then
    update pawl.lock_grant g set expires_at = '-infinity', outcome = 'released'
    where g.space = p_space and g.name = any (p_names) and g.slot in (0, p_token) and g.token = p_token and g.outcome is null;
    get diagnostics v_marked = row_count;
  end if;
  released := v_gone + v_marked = cardinality(p_names);
  foreach v_name in array p_names loop
    if exists (select from pawl.lock_waiter w where w.space = p_space and w.name = v_name) then
      v_is_awaited := true;
      called := called || pawl.lock_grant_next(p_space, v_name, p_process);
    end if;
  end loop;
  if v_marked = 0 and not v_is_awaited and p_finish is null then
    perform pawl.lock_flush_unless_short(v_lease_ms);
  end if;
end $$;

-- Decides whether the commit of a release waits for the disk, for this transaction alone. The limit of a minute is twice the default lease, and no more
-- than a server may take to come back from a crash.
create or replace function pawl.lock_flush_unless_short(p_lease_ms bigint) returns void
language plpgsql as $$
begin
  if p_lease_ms <= 60000 then
    perform set_config('synchronous_commit', 'off', true);
  else
    perform pawl.lock_flush();
  end if;
end $$;

-- Takes a name from all its holders, and answers who they were. If they listen, they learn it by a notification, otherwise by their next heartbeat.
create or replace function pawl.lock_break(p_space text, p_name text, p_reason text)
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
  perform pawl.lock_grant_next(p_space, p_name, '');
end $$;
