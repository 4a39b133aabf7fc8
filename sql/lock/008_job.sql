-- For which job of a queue a lock is held: the one whose handler asked for it, where the queue is in this database. Older
-- processes may keep running: they do not say for which, so what they take is for none.
--
-- What it costs: one more value in a call; nothing in a row that is for no job, and an entry of an index in the history of one
-- that is. What is held now has no such index, or no row would be written in place any more.

alter table pawl.lock_grant add column job bigint;
alter table pawl.lock_waiter add column job bigint;
alter table pawl.lock_past add column job bigint;
create index lock_past_job on pawl.lock_past (job) where job is not null;

-- As in 004, but for the job.
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

-- As in 004, but for the job: the waiter's.
create or replace function pawl.lock_call(p_space text, p_name text, p_process text) returns text[]
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

-- As in 004, but for the job.
drop function pawl.lock_acquire(text, text[], uuid, int, bigint, text, text, int, int, bigint, boolean, bigint[], bigint);
create function pawl.lock_acquire(
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
    insert into pawl.lock_grant as g (space, name, slot, token, nonce, capacity, pid, lease_ms, granted_at, expires_at, process, host, job)
    select p_space, n, case when p_capacity = 1 then 0 else lock_acquire.token end, lock_acquire.token, p_nonce, p_capacity, p_pid, p_lease_ms, v_now,
      case when p_lease_ms is null then 'infinity' else clock_timestamp() + p_lease_ms * interval '1 ms' end, p_process, p_host, p_job
    from unnest(p_names) n order by n
    -- The free slot. What is not free does not fit.
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
      ticket := 1 + coalesce((
        select max(last.ticket) from unnest(p_names) n
        cross join lateral (
          select w.ticket from pawl.lock_waiter w where w.space = p_space and w.name = n order by w.ticket desc limit 1
        ) last
      ), 0);
      insert into pawl.lock_waiter (space, name, ticket, nonce, capacity, pid, lease_ms, enqueued_at, expires_at, process, host, holds, job)
      select p_space, n, lock_acquire.ticket, p_nonce, p_capacity, p_pid, case when cardinality(p_names) = 1 then p_lease_ms end,
        v_now, v_place, p_process, p_host, p_holds, p_job
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

-- As in 004, but for the job.
drop function pawl.lock_take(text, text, uuid, bigint, text, text, int, int);
create function pawl.lock_take(
  p_space text, p_name text, p_nonce uuid, p_lease_ms bigint, p_process text, p_host text, p_pid int, p_waiter_ms int,
  p_job bigint default null
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
      process = p_process, host = p_host, job = p_job
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
        'ticket', v_token, 'ahead', v_ahead, 'is_new', true, 'place_ms', p_waiter_ms - 1,
        'retry_ms', ceil(extract(epoch from nullif(greatest(v_end, v_now), 'infinity') - v_now) * 1000)
      );
    end if;
    -- Not held for a while.
    insert into pawl.lock_grant (space, name, slot, token, nonce, capacity, pid, lease_ms, granted_at, expires_at, process, host, job)
    select p_space, p_name, 0, nextval('pawl.lock_token'), p_nonce, 1, p_pid, p_lease_ms, clock_timestamp(),
      case when p_lease_ms is null then 'infinity' else clock_timestamp() + p_lease_ms * interval '1 ms' end, p_process, p_host, p_job
    where not exists (select from pawl.lock_grant g where g.space = p_space and g.name = p_name)
      and not exists (select from pawl.lock_waiter w where w.space = p_space and w.name = p_name)
    on conflict do nothing
    returning token into v_token;
    if found then
      return v_token;
    end if;
  end if;
  select coalesce(a.token::text, to_json(a)::text) into v_answer
  from pawl.lock_acquire(p_space, array[p_name], p_nonce, 1, p_lease_ms, p_process, p_host, p_pid, p_waiter_ms, p_job => p_job) a;
  return v_answer;
end $$;

-- As in 007, but for the job.
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
      called := called || pawl.lock_call(p_space, v_name, p_process);
    end if;
  end loop;
  if v_marked = 0 and not v_is_awaited and p_finish is null then
    perform pawl.lock_flush_unless_short(v_lease_ms);
  end if;
end $$;

-- As in 007, but for the job: its own goes to the history, the next one's in its place.
create or replace function pawl.lock_free(p_space text, p_name text, p_token bigint, p_process text) returns text
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
begin
  if current_setting('transaction_isolation') = 'read committed' then
    if pg_advisory_xact_lock(hashtextextended(p_name, hashtextextended(p_space, 1885435756))) is null then end if;
    -- A row that nobody has locked since its last renewal is free without a look at who may have.
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
        return '';
      end if;
      if current_setting('synchronous_commit') = 'off' then
        perform pawl.lock_flush();
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
        expires_at = v_next.expires_at, process = v_next.process, host = v_next.host, job = v_next.job
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

-- What is held and waited for now. A holder whose lease has run out is no holder any more, though its row may linger.
create or replace view pawl.lock as
select
  g.space as namespace, g.name, 'held' as state, pawl.lock_mode(g.capacity) as mode,
  case when g.capacity between 2 and 2147483646 then g.capacity end as permits,
  g.token, null::bigint as ticket, g.host, g.pid, g.process, g.granted_at as since,
  case when g.lease_ms is not null then g.expires_at end as expires_at,
  case when g.lease_ms is not null then g.expires_at - g.lease_ms * interval '1 ms' end as last_heartbeat_at, g.job
from pawl.lock_grant g
where g.token is not null and g.expires_at > clock_timestamp()
union all
select
  w.space, w.name, 'waiting', pawl.lock_mode(w.capacity),
  case when w.capacity between 2 and 2147483646 then w.capacity end,
  null, w.ticket, w.host, w.pid, w.process, w.enqueued_at, w.expires_at, null, w.job
from pawl.lock_waiter w
where w.expires_at > clock_timestamp();

-- What was held. outcome: released by its owner, broken by an operator, expired without a heartbeat.
create or replace view pawl.lock_history as
select
  p.space as namespace, p.name, p.token, pawl.lock_mode(p.capacity) as mode,
  case when p.capacity between 2 and 2147483646 then p.capacity end as permits,
  p.host, p.pid, p.process, p.granted_at, p.ended_at, p.outcome, p.reason, p.job
from pawl.lock_past p;
