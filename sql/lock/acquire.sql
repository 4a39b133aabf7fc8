-- Acquiring: one function for the first attempt, for the repetition after a lost answer, and for a waiter's turn. It first checks what its nonce has by
-- now, so calling it again is always right.

-- The short way to hold one name alone: writes the row in place if the name is free and has no waiter; otherwise does all that lock_acquire does. Answers
-- the columns of lock_acquire as one JSON object, in which null columns may be missing; token and ticket are text. Cost, uncontended: one latch, two
-- probes, one row written in place; waiting: one row, whatever the length of the queue.
-- Columns in place of one value, and more parameters, were a fifth of the time. Each setting of a function costs 6 us a call; generic plans come by
-- themselves where the planner has nothing to choose.
create or replace function pawl.lock_acquire_one(
  p_space text, p_name text, p_nonce uuid, p_lease_ms bigint, p_process text, p_host text, p_pid int, p_waiter_ms int,
  p_job bigint default null
) returns text
language plpgsql
set enable_seqscan = off as $$
declare
  v_token bigint;
  v_nonce uuid;
  v_now timestamptz;
  v_end timestamptz;
  v_ahead int;
  v_answer text;
begin
  if current_setting('transaction_isolation') = 'read committed' then
    -- As an expression of its own, at a tenth of the price of a call. The next statements see all earlier decisions.
    if pg_advisory_xact_lock(hashtextextended(p_name, hashtextextended(p_space, 1885435756))) is null then end if;
    if current_setting('synchronous_commit') = 'off' then
      perform pawl.lock_flush();
    end if;
    -- The name is free since its last holder, and has no waiter. Only a row that no transaction has locked since: the transaction of a guard may
    -- still be open.
    update pawl.lock_grant g
    set token = nextval('pawl.lock_token'), nonce = p_nonce, pid = p_pid, lease_ms = p_lease_ms, granted_at = clock_timestamp(),
      expires_at = case when p_lease_ms is null then 'infinity' else clock_timestamp() + p_lease_ms * interval '1 ms' end,
      process = p_process, host = p_host, job = p_job
    where g.space = p_space and g.name = p_name and g.slot = 0 and g.token is null and g.xmax = 0
      and not exists (select from pawl.lock_grant o where o.space = p_space and o.name = p_name and o.slot > 0)
      and not exists (select from pawl.lock_waiter w where w.space = p_space and w.name = p_name)
    returning g.token into v_token;
    if found then
      return '{"token":"' || v_token || '"}';
    end if;
    v_now := clock_timestamp();
    select g.expires_at, g.nonce into v_end, v_nonce from pawl.lock_grant g
    where g.space = p_space and g.name = p_name and g.token is not null limit 1;
    if v_end > v_now and p_waiter_ms is not null and v_nonce <> p_nonce
      and not exists (select from pawl.lock_waiter w where w.nonce = p_nonce) then
      -- The lock is certainly held, nothing fits together with this request, and no repetition of it came first: the request takes a place at the
      -- end, as in lock_acquire.
      insert into pawl.lock_waiter (space, name, ticket, nonce, capacity, pid, lease_ms, enqueued_at, expires_at, process, host, holds, job)
      values (
        p_space, p_name,
        1 + coalesce((
          select w.ticket from pawl.lock_waiter w where w.space = p_space and w.name = p_name order by w.ticket desc limit 1
        ), 0),
        p_nonce, 1, p_pid, p_lease_ms, v_now, v_now + p_waiter_ms * interval '1 ms', p_process, p_host, '{}', p_job
      )
      returning ticket into v_token;
      select count(*), least(v_end, min(l.expires_at)) into v_ahead, v_end
      from (
        select w.expires_at from pawl.lock_waiter w
        where w.space = p_space and w.name = p_name and w.ticket < v_token limit 8
      ) l;
      perform set_config('synchronous_commit', 'off', true);
      return json_build_object(
        'ticket', v_token::text, 'ahead', v_ahead, 'is_new', true, 'place_ms', p_waiter_ms - 1,
        'retry_ms', ceil(extract(epoch from nullif(greatest(v_end, v_now), 'infinity') - v_now) * 1000)
      );
    end if;
    -- The name was not held for a while, and has no row.
    insert into pawl.lock_grant (space, name, slot, token, nonce, capacity, pid, lease_ms, granted_at, expires_at, process, host, job)
    select p_space, p_name, 0, nextval('pawl.lock_token'), p_nonce, 1, p_pid, p_lease_ms, clock_timestamp(),
      case when p_lease_ms is null then 'infinity' else clock_timestamp() + p_lease_ms * interval '1 ms' end, p_process, p_host, p_job
    where not exists (select from pawl.lock_grant g where g.space = p_space and g.name = p_name)
      and not exists (select from pawl.lock_waiter w where w.space = p_space and w.name = p_name)
    on conflict do nothing
    returning token into v_token;
    if found then
      return '{"token":"' || v_token || '"}';
    end if;
  end if;
  select to_json(r) into v_answer from (
    select a.token::text, a.ticket::text, a.ahead, a.retry_ms, a.place_ms, a.is_new, a.cycle, a.holder
    from pawl.lock_acquire(p_space, array[p_name], p_nonce, 1, p_lease_ms, p_process, p_host, p_pid, p_waiter_ms, p_job => p_job) a
  ) r;
  return v_answer;
end $$;

-- Takes all of p_names, or none and a place in their queues.
--   p_waiter_ms  how long the place lasts without a renewal; null takes no place
--   p_ticket     the place, once the caller knows it
--   p_again      an earlier call of this nonce may have arrived
--   p_holds      tokens that the caller keeps meanwhile; waiting is refused if it closes a circle
--   p_period_ms  the lock is taken only if the last run that lock_release counted began that long ago (one name)
-- Answers the token, and for how many ms the lock is held; or the ticket, how many waiters (up to 8) are ahead, in how many ms a lease may have run out,
-- for how many ms the place lasts, and whether it is new; or the circle. Without waiting, `holder` says which process is in the way. A shared request
-- reads every reader.
--
-- A waiter's call may wait here for its turn, and be carried out after its process has died. So a grant to a waiter, or to the repetition of its call,
-- lasts as long as the waiter's place would have lasted, as after a direct hand-off. The first heartbeat brings the whole lease. A call that takes no
-- place asks for the whole lease.
--
-- This function has what each call does. Functions of their own have what few calls do, and pure reads, which the server writes into the calling
-- statement: see docs/decisions/009-planner-settings.md.
create or replace function pawl.lock_acquire(
  p_space text, p_names text[], p_nonce uuid, p_capacity int, p_lease_ms bigint, p_process text, p_host text, p_pid int,
  p_waiter_ms int default null, p_ticket bigint default null, p_again boolean default false,
  p_holds bigint[] default '{}', p_period_ms bigint default null, p_job bigint default null,
  out token bigint, out ticket bigint, out ahead int, out retry_ms bigint, out place_ms bigint, out is_new boolean,
  out cycle jsonb, out holder text
)
language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
declare
  v_name text;
  v_count bigint; v_least int; v_first timestamptz;
  v_place timestamptz;
  v_now timestamptz;
  v_fits boolean := true;
  v_evicted text[];
  v_term_ms bigint := p_lease_ms;
begin
  perform pawl.lock_latch(p_space, p_names);
  v_now := clock_timestamp();

  -- 1. What this request has by now: a lock, a place, or neither. The first call may arrive after its repetition: then it finds what the repetition
  -- got, and takes nothing twice.
  if not p_again and p_ticket is null then
    p_again := exists (select from pawl.lock_waiter w where w.nonce = p_nonce)
      or exists (
        select from pawl.lock_grant g
        where g.space = p_space and g.name = any (p_names) and g.nonce = p_nonce and g.token is not null
      );
  end if;
  if p_again or p_ticket is not null then
    v_term_ms := least(p_lease_ms, p_waiter_ms);
    select min(w.ticket), count(*), min(w.expires_at) into p_ticket, v_count, v_place
    from pawl.lock_waiter w where w.nonce = p_nonce;
    if v_count < cardinality(p_names) then
      select o.token, o.held_ms, o.evicted into token, place_ms, v_evicted from pawl.lock_find_own(p_space, p_names, p_nonce, v_term_ms, v_now) o;
      if token is not null then
        return;
      end if;
      p_ticket := null;
    elsif v_place < v_now + p_waiter_ms * interval '0.8 ms' then
      -- Each attempt of a waiter comes by here: a place that was renewed just before is not written again.
      v_place := v_now + p_waiter_ms * interval '1 ms';
      update pawl.lock_waiter w set expires_at = v_place where w.nonce = p_nonce;
    end if;
  end if;

  -- 2. Whether the last run of oncePer was long enough ago.
  if p_period_ms is not null then
    select ceil(extract(epoch from p.started_at - v_now) * 1000 + p_period_ms) into retry_ms
    from pawl.lock_period p where p.space = p_space and p.name = p_names[1];
    if retry_ms > 0 then
      return;
    end if;
    retry_ms := null;
  end if;

  -- 3. Whether the request fits together with the holders, and with the waiters before it. The dead ones go.
  foreach v_name in array p_names loop
    loop
      select o.n, o.capacity, o.ends_at into v_count, v_least, v_first from pawl.lock_others(p_space, v_name, p_capacity, p_ticket) o;
      exit when v_count = 0 or v_first > v_now or v_name = any (v_evicted);
      perform pawl.lock_evict(p_space, v_name);
      v_evicted := v_evicted || v_name;
    end loop;
    if v_count > 0 and v_count >= least(v_least, p_capacity) then
      v_fits := false;
      exit;
    end if;
  end loop;

  -- 4. The lock; or, without waiting, the holder that is in the way; or a place.
  if v_fits then
    token := nextval('pawl.lock_token');
    place_ms := v_term_ms;
    insert into pawl.lock_grant as g (space, name, slot, token, nonce, capacity, pid, lease_ms, granted_at, expires_at, process, host, job)
    select p_space, n, case when p_capacity = 1 then 0 else lock_acquire.token end, lock_acquire.token, p_nonce, p_capacity, p_pid, p_lease_ms, v_now,
      case when v_term_ms is null then 'infinity' else clock_timestamp() + v_term_ms * interval '1 ms' end, p_process, p_host, p_job
    from unnest(p_names) n order by n
    -- The row of a free slot: if the slot were held, the request would not fit.
    on conflict (space, name, slot) do update
    set token = excluded.token, nonce = excluded.nonce, pid = excluded.pid, lease_ms = excluded.lease_ms,
      granted_at = excluded.granted_at, expires_at = excluded.expires_at, process = excluded.process, host = excluded.host,
      job = excluded.job;
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
      select w.ticket, w.cycle into ticket, cycle
      from pawl.lock_wait(p_space, p_names, p_nonce, p_capacity, p_lease_ms, p_process, p_host, p_pid, p_holds, p_job, v_now, v_place) w;
    end if;
    if cycle is null then
      -- Only a place was written, so the commit does not wait for the disk, and the latch is free sooner. Other processes that read the place may
      -- rely on it anyway: their own later writes are on disk only together with it.
      if v_evicted is null then
        perform set_config('synchronous_commit', 'off', true);
      end if;
      place_ms := floor(extract(epoch from v_place - clock_timestamp()) * 1000);
      select a.n into ahead from pawl.lock_ahead(p_space, p_names, ticket) a;
      select r.ms into retry_ms from pawl.lock_retry(p_space, p_names, ticket, v_now) r;
    end if;
  end if;

  -- 5. Waiters that fit now that dead holders are gone.
  foreach v_name in array coalesce(v_evicted, '{}') loop
    perform pawl.lock_grant_next(p_space, v_name, '');
  end loop;
end $$;

-- For a request that has no place any more. If its lock was granted meanwhile, and the answer or the notification was lost, the lock is prolonged. If the
-- request was given up as dead, it takes a new place, at the end. "evicted": the names of which something was given up here.
create or replace function pawl.lock_find_own(
  p_space text, p_names text[], p_nonce uuid, p_term_ms bigint, p_now timestamptz, out token bigint, out held_ms bigint, out evicted text[]
)
language plpgsql as $$
declare
  v_count bigint;
  v_end timestamptz;
  v_name text;
begin
  with own as (  -- one row for each name, all with the same token
    update pawl.lock_grant g
    -- Never shortened: a late call may find a lock that its process has renewed meanwhile.
    set expires_at = greatest(
      g.expires_at, case when p_term_ms is null then 'infinity' else p_now + p_term_ms * interval '1 ms' end
    )
    where g.space = p_space and g.name = any (p_names) and g.nonce = p_nonce and g.token is not null and g.outcome is null
    returning g.token, g.expires_at
  )
  select min(own.token), count(*), min(own.expires_at) into token, v_count, v_end from own;
  if v_count = cardinality(p_names) then
    held_ms := floor(extract(epoch from nullif(v_end, 'infinity') - p_now) * 1000);
    return;
  end if;
  if v_count > 0 then
    -- Of a set, some names ran out and went to others: the rest is no lock.
    token := null;
    update pawl.lock_grant g set expires_at = '-infinity', outcome = 'released'
    where g.space = p_space and g.name = any (p_names) and g.nonce = p_nonce and g.token is not null and g.outcome is null;
    evicted := p_names;
    foreach v_name in array p_names loop
      perform pawl.lock_evict(p_space, v_name);
    end loop;
  end if;
  delete from pawl.lock_waiter w where w.nonce = p_nonce;
end $$;

-- The others that come before a request for this name: holders, and waiters before its place. Answers how many, the least of their capacities, and when the
-- first of them may have run out. It reads no more rows than decide: if there are as many others as the capacity, the request does not fit.
create or replace function pawl.lock_others(p_space text, p_name text, p_capacity int, p_ticket bigint)
returns table (n bigint, capacity int, ends_at timestamptz)
language sql stable as $$
  select count(*), min(o.capacity), min(o.expires_at)
  from (
    (select g.capacity, g.expires_at from pawl.lock_grant g
      where g.space = p_space and g.name = p_name and g.token is not null limit p_capacity)
    union all
    (select w.capacity, w.expires_at from pawl.lock_waiter w
      where w.space = p_space and w.name = p_name and w.ticket < coalesce(p_ticket, 9223372036854775807)
      order by w.ticket limit p_capacity)
  ) o
$$;

-- Takes a place at the end of the queue of each name, until p_until; if that closes a circle of waiters, answers the circle and takes no place.
create or replace function pawl.lock_wait(
  p_space text, p_names text[], p_nonce uuid, p_capacity int, p_lease_ms bigint, p_process text, p_host text, p_pid int,
  p_holds bigint[], p_job bigint, p_now timestamptz, p_until timestamptz, out ticket bigint, out cycle jsonb
)
language plpgsql as $$
begin
  ticket := 1 + coalesce((
    select max(last.ticket) from unnest(p_names) n
    cross join lateral (
      select w.ticket from pawl.lock_waiter w where w.space = p_space and w.name = n order by w.ticket desc limit 1
    ) last
  ), 0);
  insert into pawl.lock_waiter (space, name, ticket, nonce, capacity, pid, lease_ms, enqueued_at, expires_at, process, host, holds, job)
  select p_space, n, lock_wait.ticket, p_nonce, p_capacity, p_pid, case when cardinality(p_names) = 1 then p_lease_ms end,
    p_now, p_until, p_process, p_host, p_holds, p_job
  from unnest(p_names) n;
  if p_holds <> '{}' then
    -- Two waiters that close one circle at the same time must see each other. This lock is taken after the latches, and only here.
    perform pg_advisory_xact_lock(hashtextextended('cycle', 1885435756));
    cycle := pawl.lock_cycle(p_nonce, p_holds);
    if cycle is not null then
      delete from pawl.lock_waiter w where w.nonce = p_nonce;
      ticket := null;
    end if;
  end if;
end $$;

-- How many waiters (up to 8 for each name) are ahead of this place.
create or replace function pawl.lock_ahead(p_space text, p_names text[], p_ticket bigint) returns table (n numeric)
language sql stable as $$
  select sum(f.n) from unnest(p_names) n
  cross join lateral (
    select count(*) as n from (
      select from pawl.lock_waiter w where w.space = p_space and w.name = n and w.ticket < p_ticket limit 8
    ) l
  ) f
$$;

-- In how many milliseconds the lease of a holder, or the place of the next waiter, may have run out. A statement of its own: one for this and
-- lock_ahead costs 45 us more.
create or replace function pawl.lock_retry(p_space text, p_names text[], p_ticket bigint, p_now timestamptz) returns table (ms numeric)
language sql stable as $$
  select ceil(extract(epoch from nullif(min(greatest(o.expires_at, p_now)), 'infinity') - p_now) * 1000)
  from unnest(p_names) n
  cross join lateral (
    (select g.expires_at from pawl.lock_grant g where g.space = p_space and g.name = n and g.token is not null limit 100)
    union all
    (select w.expires_at from pawl.lock_waiter w
      where w.space = p_space and w.name = n and w.ticket < p_ticket order by w.ticket limit 1)
  ) o
$$;
