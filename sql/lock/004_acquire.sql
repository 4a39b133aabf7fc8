-- Acquiring: one function for the first attempt, for the repetition after a lost answer, and for a waiter's turn. It looks
-- at what its nonce has by now, so that calling it again is always right. Older processes may keep running.

-- What is decided is on disk before anybody hears of it, and no token is drawn twice after a crash, also where commits are
-- asynchronous by default.
create function pawl.lock_flush() returns void
language plpgsql as $$
begin
  if current_setting('synchronous_commit') = 'off' then
    perform set_config('synchronous_commit', 'on', true);
  end if;
end $$;

create function pawl.lock_latch(p_space text, p_names text[]) returns void
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
  -- In one order for everybody, or two sets would lock each other out.
  for v_key in
    select distinct hashtextextended(n, hashtextextended(p_space, 1885435756)) from unnest(p_names) n order by 1
  loop
    perform pg_advisory_xact_lock(v_key);
  end loop;
end $$;

-- Removes holders and waiters of a name that did not renew in time. Never waits: what a guard's open transaction
-- share-locks, or a heartbeat locks at this moment, stays, and still counts. Under the name's latch.
create function pawl.lock_evict(p_space text, p_name text) returns void
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
    case when outcome is null then expires_at else clock_timestamp() end, process, host, coalesce(outcome, 'expired'), reason
  from gone;

  delete from pawl.lock_waiter d
  where d.ctid = any (array(
    select w.ctid from pawl.lock_waiter w
    where w.space = p_space and w.name = p_name and w.expires_at <= clock_timestamp()
    for update skip locked
  ));
$$;

-- Grants to the waiters that fit now: to the first in line and, with it, to everybody who can hold beside it; or tells them
-- that it is their turn. Those of the calling process are given back instead of notified, as `nonce token` or `nonce`.
-- Under the name's latch.
create function pawl.lock_call(p_space text, p_name text, p_process text) returns text[]
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
  -- One that ran out but cannot be removed yet does not keep the next one from being told: it then looks often.
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
    -- Whoever comes later fits even less: it is counted on top.
    exit when v_count > v_least;
    v_word := v_waiter.nonce;
    if not v_is_late and v_waiter.expires_at <= v_now + v_waiter.lease_ms * interval '1 ms' then
      v_token := nextval('pawl.lock_token');
      insert into pawl.lock_grant as g (space, name, slot, token, nonce, capacity, pid, lease_ms, granted_at, expires_at, process, host)
      values (
        p_space, p_name, case when v_waiter.capacity = 1 then 0 else v_token end, v_token, v_waiter.nonce, v_waiter.capacity,
        v_waiter.pid, v_waiter.lease_ms, v_now, v_waiter.expires_at, v_waiter.process, v_waiter.host
      )
      on conflict (space, name, slot) do update
      set token = excluded.token, nonce = excluded.nonce, pid = excluded.pid, lease_ms = excluded.lease_ms,
        granted_at = excluded.granted_at, expires_at = excluded.expires_at, process = excluded.process, host = excluded.host;
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

-- Whether the waiter p_nonce waits, through others, for something that it keeps itself: who stands in that circle, from
-- the one that it waits for to the one that waits for it; null when there is none. It waits for the holders of its
-- names, and for those who wait before it; a holder is in turn kept from releasing by what it waits for meanwhile.
-- Looks at each waiter once. Waiters that keep nothing and wait behind the same holder are the bulk of it; only a
-- request nested in another one, and which has to wait, pays for this.
create function pawl.lock_cycle(p_nonce uuid, p_holds bigint[]) returns jsonb
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

-- Takes p_names, all or none, or a place in their queues.
--   p_waiter_ms  how long the place is kept without a renewal; null takes no place
--   p_ticket     the place, once it is known
--   p_again      an earlier call of this nonce may have come through
--   p_holds      tokens kept meanwhile; waiting is refused when it closes a circle
--   p_period_ms  taken only when the last run counted by lock_finish began that long ago (one name)
-- Gives the token; or the ticket with how many (up to 8) are ahead, in how many milliseconds somebody's lease may have run
-- out, for how many the place is kept, and whether it was taken just now; or the circle. Without waiting, `holder` says who
-- is in the way. A shared request looks at every reader.
create function pawl.lock_acquire(
  p_space text, p_names text[], p_nonce uuid, p_capacity int, p_lease_ms bigint, p_process text, p_host text, p_pid int,
  p_waiter_ms int default null, p_ticket bigint default null, p_again boolean default false,
  p_holds bigint[] default '{}', p_period_ms bigint default null,
  out token bigint, out ticket bigint, out ahead int, out retry_ms bigint, out place_ms bigint, out is_new boolean,
  out cycle jsonb, out holder text
)
language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
declare
  v_name text;
  v_count bigint;
  v_least int;
  v_first timestamptz;
  v_place timestamptz;
  v_now timestamptz;
  v_fits boolean := true;
  v_evicted text[];
begin
  perform pawl.lock_latch(p_space, p_names);
  v_now := clock_timestamp();

  if p_again or p_ticket is not null then
    select min(w.ticket), count(*), min(w.expires_at) into p_ticket, v_count, v_place
    from pawl.lock_waiter w where w.nonce = p_nonce;
    if v_count < cardinality(p_names) then
      -- It was granted meanwhile, and the answer or the notification lost; or given up as dead, and its place is taken anew,
      -- at the end.
      with own as (  -- one row for each name, all with the same token
        update pawl.lock_grant g
        set expires_at = case when g.lease_ms is null then 'infinity' else v_now + g.lease_ms * interval '1 ms' end
        where g.space = p_space and g.name = any (p_names) and g.nonce = p_nonce and g.token is not null and g.outcome is null
        returning g.token
      )
      select min(own.token), count(*) into token, v_count from own;
      if v_count = cardinality(p_names) then
        return;
      end if;
      if v_count > 0 then
        -- Of a set, some ran out and went to others: what is left of it is no lock.
        token := null;
        update pawl.lock_grant g set expires_at = '-infinity', outcome = 'released'
        where g.space = p_space and g.name = any (p_names) and g.nonce = p_nonce and g.token is not null and g.outcome is null;
        v_evicted := p_names;
        foreach v_name in array p_names loop
          perform pawl.lock_evict(p_space, v_name);
        end loop;
      end if;
      delete from pawl.lock_waiter w where w.nonce = p_nonce;
      p_ticket := null;
    elsif v_place < v_now + p_waiter_ms * interval '0.8 ms' then
      -- Renewed with two thirds left at the latest.
      v_place := v_now + p_waiter_ms * interval '1 ms';
      update pawl.lock_waiter w set expires_at = v_place where w.nonce = p_nonce;
    end if;
  end if;

  if p_period_ms is not null then
    select ceil(extract(epoch from p.started_at - v_now) * 1000 + p_period_ms) into retry_ms
    from pawl.lock_period p where p.space = p_space and p.name = p_names[1];
    if retry_ms > 0 then
      return;
    end if;
    retry_ms := null;
  end if;

  foreach v_name in array p_names loop
    loop
      -- No more rows than decide: as many others as the capacity, and it does not fit.
      select count(*), min(o.capacity), min(o.expires_at) into v_count, v_least, v_first
      from (
        (select g.capacity, g.expires_at from pawl.lock_grant g
          where g.space = p_space and g.name = v_name and g.token is not null limit p_capacity)
        union all
        (select w.capacity, w.expires_at from pawl.lock_waiter w
          where w.space = p_space and w.name = v_name and w.ticket < coalesce(p_ticket, 9223372036854775807)
          order by w.ticket limit p_capacity)
      ) o;
      exit when v_count = 0 or v_first > v_now or v_name = any (v_evicted);
      perform pawl.lock_evict(p_space, v_name);
      v_evicted := v_evicted || v_name;
    end loop;
    if v_count > 0 and v_count >= least(v_least, p_capacity) then
      v_fits := false;
      exit;
    end if;
  end loop;

  if v_fits then
    token := nextval('pawl.lock_token');
    insert into pawl.lock_grant as g (space, name, slot, token, nonce, capacity, pid, lease_ms, granted_at, expires_at, process, host)
    select p_space, n, case when p_capacity = 1 then 0 else lock_acquire.token end, lock_acquire.token, p_nonce, p_capacity, p_pid, p_lease_ms, v_now,
      case when p_lease_ms is null then 'infinity' else clock_timestamp() + p_lease_ms * interval '1 ms' end, p_process, p_host
    from unnest(p_names) n order by n
    -- The free slot. What is not free does not fit.
    on conflict (space, name, slot) do update
    set token = excluded.token, nonce = excluded.nonce, pid = excluded.pid, lease_ms = excluded.lease_ms,
      granted_at = excluded.granted_at, expires_at = excluded.expires_at, process = excluded.process, host = excluded.host;
    if p_ticket is not null then
      delete from pawl.lock_waiter w where w.nonce = p_nonce;
    end if;
  elsif p_waiter_ms is null then
    select format('%s (pid %s)', g.host, g.pid) into holder
    from pawl.lock_grant g
    where g.space = p_space and g.name = any (p_names) and g.token is not null and g.expires_at > v_now
    order by g.token limit 1;
  else
    ticket := p_ticket;
    is_new := ticket is null;
    if is_new then
      v_place := v_now + p_waiter_ms * interval '1 ms';
      ticket := 1 + coalesce((
        select max(last.ticket) from unnest(p_names) n
        cross join lateral (
          select w.ticket from pawl.lock_waiter w where w.space = p_space and w.name = n order by w.ticket desc limit 1
        ) last
      ), 0);
      insert into pawl.lock_waiter (space, name, ticket, nonce, capacity, pid, lease_ms, enqueued_at, expires_at, process, host, holds)
      select p_space, n, lock_acquire.ticket, p_nonce, p_capacity, p_pid, case when cardinality(p_names) = 1 then p_lease_ms end,
        v_now, v_place, p_process, p_host, p_holds
      from unnest(p_names) n;
      if p_holds <> '{}' then
        -- Two who close one circle at once must see each other. Taken after the latches, by nobody else.
        perform pg_advisory_xact_lock(hashtextextended('cycle', 1885435756));
        cycle := pawl.lock_cycle(p_nonce, p_holds);
        if cycle is not null then
          delete from pawl.lock_waiter w where w.nonce = p_nonce;
          ticket := null;
        end if;
      end if;
    end if;
    if cycle is null then
      -- Nothing but a place was written: nobody waits for the disk, and the latch is free sooner. Whoever reads it may rely on
      -- it all the same, since what they write after it is on disk only together with it.
      if v_evicted is null then
        perform set_config('synchronous_commit', 'off', true);
      end if;
      place_ms := floor(extract(epoch from v_place - clock_timestamp()) * 1000);
      select sum(f.n) into ahead from unnest(p_names) n
      cross join lateral (
        select count(*) as n from (
          select from pawl.lock_waiter w
          where w.space = p_space and w.name = n and w.ticket < lock_acquire.ticket limit 8
        ) l
      ) f;
      select ceil(extract(epoch from nullif(min(greatest(o.expires_at, v_now)), 'infinity') - v_now) * 1000) into retry_ms
      from unnest(p_names) n
      cross join lateral (
        (select g.expires_at from pawl.lock_grant g where g.space = p_space and g.name = n and g.token is not null limit 100)
        union all
        (select w.expires_at from pawl.lock_waiter w
          where w.space = p_space and w.name = n and w.ticket < lock_acquire.ticket order by w.ticket limit 1)
      ) o;
    end if;
  end if;

  foreach v_name in array coalesce(v_evicted, '{}') loop
    perform pawl.lock_call(p_space, v_name, '');
  end loop;
end $$;

-- The short way to hold one name alone: in place, when it is free and nobody waits; else all that lock_acquire does. Gives the
-- token, or what else lock_acquire says, as JSON. Cost, uncontended: one latch, two probes, one row written in place; waiting:
-- one row, whatever the length of the queue. One value instead of columns and few parameters: they were a fifth of the time.
-- Each setting of a function costs 6 us a call; generic plans come by themselves where there is nothing to choose.
create function pawl.lock_take(
  p_space text, p_name text, p_nonce uuid, p_lease_ms bigint, p_process text, p_host text, p_pid int, p_waiter_ms int
) returns text
language plpgsql
set enable_seqscan = off as $$
declare
  v_token bigint;
  v_now timestamptz;
  v_end timestamptz;
  v_ahead int;
  v_answer text;
begin
  if current_setting('transaction_isolation') = 'read committed' then
    -- In an expression of its own, which costs a tenth of a call. What comes next sees all earlier decisions.
    if pg_advisory_xact_lock(hashtextextended(p_name, hashtextextended(p_space, 1885435756))) is null then end if;
    if current_setting('synchronous_commit') = 'off' then
      perform pawl.lock_flush();
    end if;
    -- Free since it was held last, and nobody came before. Only a row that nobody has locked since: a guard's transaction may
    -- still be open.
    update pawl.lock_grant g
    set token = nextval('pawl.lock_token'), nonce = p_nonce, pid = p_pid, lease_ms = p_lease_ms, granted_at = clock_timestamp(),
      expires_at = case when p_lease_ms is null then 'infinity' else clock_timestamp() + p_lease_ms * interval '1 ms' end,
      process = p_process, host = p_host
    where g.space = p_space and g.name = p_name and g.slot = 0 and g.token is null and g.xmax = 0
      and not exists (select from pawl.lock_grant o where o.space = p_space and o.name = p_name and o.slot > 0)
      and not exists (select from pawl.lock_waiter w where w.space = p_space and w.name = p_name)
    returning g.token into v_token;
    if found then
      return v_token;
    end if;
    v_now := clock_timestamp();
    select g.expires_at into v_end from pawl.lock_grant g
    where g.space = p_space and g.name = p_name and g.token is not null limit 1;
    if v_end > v_now and p_waiter_ms is not null then
      -- Somebody holds it for certain, and nothing fits beside us: a place at the end, as in lock_acquire.
      insert into pawl.lock_waiter (space, name, ticket, nonce, capacity, pid, lease_ms, enqueued_at, expires_at, process, host, holds)
      values (
        p_space, p_name,
        1 + coalesce((
          select w.ticket from pawl.lock_waiter w where w.space = p_space and w.name = p_name order by w.ticket desc limit 1
        ), 0),
        p_nonce, 1, p_pid, p_lease_ms, v_now, v_now + p_waiter_ms * interval '1 ms', p_process, p_host, '{}'
      )
      returning ticket into v_token;
      select count(*), least(v_end, min(l.expires_at)) into v_ahead, v_end
      from (
        select w.expires_at from pawl.lock_waiter w
        where w.space = p_space and w.name = p_name and w.ticket < v_token limit 8
      ) l;
      perform set_config('synchronous_commit', 'off', true);
      return json_build_object(
        'ticket', v_token, 'ahead', v_ahead, 'is_new', true, 'place_ms', p_waiter_ms - 1,
        'retry_ms', ceil(extract(epoch from nullif(greatest(v_end, v_now), 'infinity') - v_now) * 1000)
      );
    end if;
    -- Not held for a while.
    insert into pawl.lock_grant (space, name, slot, token, nonce, capacity, pid, lease_ms, granted_at, expires_at, process, host)
    select p_space, p_name, 0, nextval('pawl.lock_token'), p_nonce, 1, p_pid, p_lease_ms, clock_timestamp(),
      case when p_lease_ms is null then 'infinity' else clock_timestamp() + p_lease_ms * interval '1 ms' end, p_process, p_host
    where not exists (select from pawl.lock_grant g where g.space = p_space and g.name = p_name)
      and not exists (select from pawl.lock_waiter w where w.space = p_space and w.name = p_name)
    on conflict do nothing
    returning token into v_token;
    if found then
      return v_token;
    end if;
  end if;
  select coalesce(a.token::text, to_json(a)::text) into v_answer
  from pawl.lock_acquire(p_space, array[p_name], p_nonce, 1, p_lease_ms, p_process, p_host, p_pid, p_waiter_ms) a;
  return v_answer;
end $$;
