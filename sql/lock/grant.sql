-- Granting, under the latch of a name: which holders are gone, and which waiters fit next.

create or replace function pawl.lock_latch(p_space text, p_names text[]) returns void
language plpgsql as $$
declare
  v_key bigint;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'locks are decided under read committed, not %', current_setting('transaction_isolation')
      using errcode = 'PW005';
  end if;
  perform pawl.lock_flush();
  if cardinality(p_names) = 1 then
    perform pg_advisory_xact_lock(hashtextextended(p_names[1], hashtextextended(p_space, 1885435756)));
    return;
  end if;
  -- In one order for all callers: otherwise two sets would lock each other out.
  for v_key in
    select distinct hashtextextended(n, hashtextextended(p_space, 1885435756)) from unnest(p_names) n order by 1
  loop
    perform pg_advisory_xact_lock(v_key);
  end loop;
end $$;

-- Removes holders and waiters of a name that did not renew in time. It never waits: a row that a guard's open transaction has share-locked, or that a
-- heartbeat locks at this moment, stays, and still counts. The caller has the name's latch.
create or replace function pawl.lock_evict(p_space text, p_name text) returns void
language sql
set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
  with late as materialized (
    select g.ctid as tid from pawl.lock_grant g
    where g.space = p_space and g.name = p_name and g.expires_at <= clock_timestamp()
    for update skip locked
  ), gone as (
    delete from pawl.lock_grant g where g.ctid = any (array(select l.tid from late l)) returning g.*
  )
  insert into pawl.lock_past
  select space, name, token, capacity, pid, lease_ms, granted_at,
    case when outcome is null then expires_at else clock_timestamp() end, process, host, coalesce(outcome, 'expired'), reason, job
  from gone;

  delete from pawl.lock_waiter d
  where d.ctid = any (array(
    select w.ctid from pawl.lock_waiter w
    where w.space = p_space and w.name = p_name and w.expires_at <= clock_timestamp()
    for update skip locked
  ));
$$;

-- Grants the lock to the waiters that fit now: to the first in line, and to all that can hold it together with the first; or notifies them that it is
-- their turn. Waiters of the calling process are answered instead of notified, as `nonce token` or `nonce`. The caller has the name's latch.
create or replace function pawl.lock_grant_next(p_space text, p_name text, p_process text) returns text[]
language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
declare
  v_called text[] := '{}';
  v_count bigint;
  v_least int;
  v_is_late boolean;
  v_now timestamptz := clock_timestamp();
  v_waiter record;
  v_token bigint;
  v_word text;
begin
  -- A holder that ran out but cannot be removed yet does not keep the next waiter from being notified: that waiter then polls often.
  select
    count(*) filter (where g.expires_at > v_now),
    coalesce(min(g.capacity) filter (where g.expires_at > v_now), 2147483647),
    coalesce(bool_or(g.expires_at <= v_now), false)
  into v_count, v_least, v_is_late
  from pawl.lock_grant g
  where g.space = p_space and g.name = p_name and g.token is not null;
  for v_waiter in
    select w.* from pawl.lock_waiter w
    where w.space = p_space and w.name = p_name and w.expires_at > v_now
    order by w.ticket
  loop
    v_least := least(v_least, v_waiter.capacity);
    v_count := v_count + 1;
    -- Every later waiter fits even less, since this one counts, too.
    exit when v_count > v_least;
    v_word := v_waiter.nonce;
    if not v_is_late and v_waiter.expires_at <= v_now + v_waiter.lease_ms * interval '1 ms' then
      v_token := nextval('pawl.lock_token');
      insert into pawl.lock_grant as g (space, name, slot, token, nonce, capacity, pid, lease_ms, granted_at, expires_at, process, host, job)
      values (
        p_space, p_name, case when v_waiter.capacity = 1 then 0 else v_token end, v_token, v_waiter.nonce, v_waiter.capacity,
        v_waiter.pid, v_waiter.lease_ms, v_now, v_waiter.expires_at, v_waiter.process, v_waiter.host, v_waiter.job
      )
      on conflict (space, name, slot) do update
      set token = excluded.token, nonce = excluded.nonce, pid = excluded.pid, lease_ms = excluded.lease_ms,
        granted_at = excluded.granted_at, expires_at = excluded.expires_at, process = excluded.process, host = excluded.host,
        job = excluded.job;
      delete from pawl.lock_waiter w where w.space = p_space and w.name = p_name and w.ticket = v_waiter.ticket;
      v_word := v_word || ' ' || v_token;
    end if;
    if v_waiter.process = p_process then
      v_called := v_called || v_word;
    else
      perform pg_notify('pawl_lock_' || v_waiter.process, 'turn ' || v_word);
    end if;
  end loop;
  return v_called;
end $$;

-- Makes the commit wait for the disk. A decision is on disk before any process learns of it, and no token is drawn twice after a crash, also where
-- commits are asynchronous by default.
create or replace function pawl.lock_flush() returns void
language plpgsql as $$
begin
  if current_setting('synchronous_commit') = 'off' then
    perform set_config('synchronous_commit', 'on', true);
  end if;
end $$;

create or replace function pawl.lock_mode(p_capacity int) returns text
language sql immutable parallel safe as $$
  select case p_capacity when 1 then 'exclusive' when 2147483647 then 'shared' else 'permit' end
$$;
