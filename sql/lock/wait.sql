-- Waiting: places in the queue of a name, and circles of processes that wait for each other.

-- Keeps places of one name each, and answers which of them still have two living places before them; the others have to poll. It takes no latch, and
-- passes over rows about which another process decides at the moment, so it does not wait. A decision about one of the rows waits for the end of this
-- statement. A place need not last, so the commit does not wait for the disk.
create or replace function pawl.lock_renew_places(p_nonces uuid[], p_waiter_ms int[]) returns setof uuid
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

-- Stops waiting, and gives up any lock that the nonce was granted in the last moment. Answers the holder that is in the way, and the waiters called.
create or replace function pawl.lock_stop_waiting(p_space text, p_names text[], p_nonce uuid, p_process text, out holder text, out called text[])
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
    called := called || pawl.lock_grant_next(p_space, v_name, p_process);
  end loop;
end $$;

-- Whether the waiter p_nonce waits, through others, for a lock that it keeps itself. Answers the processes of that circle, from the one that it waits for
-- to the one that waits for it; null if there is none. A waiter waits for the holders of its names, and for the waiters before it; a holder that waits
-- for another lock meanwhile does not release before it has got that. Reads each waiter once. Most waiters keep nothing and wait behind the same holder;
-- only a request that is nested in another one, and has to wait, pays for this.
create or replace function pawl.lock_cycle(p_nonce uuid, p_holds bigint[]) returns jsonb
language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
declare
  v_seen uuid[] := array[p_nonce];
  v_parent int[] := array[0];
  v_step jsonb[] := array[null::jsonb];
  v_at int := 1;
  v_next record;
  v_path jsonb;
begin
  while v_at <= cardinality(v_seen) and v_at <= 10000 loop
    for v_next in
      select distinct on (blocker.nonce, blocker.is_mine) blocker.* from pawl.lock_waiter me
      cross join lateral (
        select null::uuid as nonce, true as is_mine, me.name, g.token::text as token, g.host, g.pid
        from pawl.lock_grant g
        where g.space = me.space and g.name = me.name and g.token = any (p_holds) and g.expires_at > clock_timestamp()
        union all
        select w.nonce, false, me.name, g.token::text, g.host, g.pid
        from pawl.lock_grant g join pawl.lock_waiter w on w.holds @> array[g.token] and w.holds <> '{}'
        where g.space = me.space and g.name = me.name and w.expires_at > clock_timestamp()
        union all
        select w.nonce, false, me.name, null, w.host, w.pid
        from pawl.lock_waiter w
        where w.space = me.space and w.name = me.name and w.ticket < me.ticket and w.expires_at > clock_timestamp()
      ) blocker
      where me.nonce = v_seen[v_at]
      order by blocker.nonce, blocker.is_mine
    loop
      if v_next.is_mine then
        v_path := jsonb_build_array(to_jsonb(v_next) - 'nonce' - 'is_mine');
        while v_at > 1 loop
          v_path := v_step[v_at] || v_path;
          v_at := v_parent[v_at];
        end loop;
        return v_path;
      end if;
      if v_next.nonce <> all (v_seen) then
        v_seen := v_seen || v_next.nonce;
        v_parent := v_parent || v_at;
        v_step := v_step || (to_jsonb(v_next) - 'nonce' - 'is_mine');
      end if;
    end loop;
    v_at := v_at + 1;
  end loop;
  return null;
end $$;
