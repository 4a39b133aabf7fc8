-- Taking back the turns of dead workers, and isolating the actors that may have killed their workers.

-- Frees the actors of lost workers. The attempt is spent, and the wake-up that the claim wrote stands. Any number of processes may run this at once.
--
-- Each of these actors may have killed the worker, and its row says so: lost counts such turns in a row. If one had been lost before, it is the
-- suspect, and the others are innocent: they are due again at once, uncharged.
create or replace function pawl.actor_rescue() returns integer
language plpgsql /* planner: batch */ set plan_cache_mode = force_generic_plan as $$
declare
  v_worker bigint;
  v_now timestamptz;
  v_tids tid[];
  v_suspected boolean;
  v_freed integer;
  v_actors integer := 0;
begin
  for v_worker in
    select w.id from pawl.actor_worker w where w.expires_at < clock_timestamp() order by w.id for update skip locked
  loop
    v_now := clock_timestamp();
    v_tids := pawl.actor_running(v_worker);
    v_suspected := exists (select 1 from pawl.actor_instance a where a.ctid = any (v_tids) and a.worker = v_worker and a.lost > 0);
    with lost as materialized (
      select a.ctid as tid from pawl.actor_instance a where a.ctid = any (v_tids) and a.worker = v_worker
      for no key update skip locked
    ), freed as (
      update pawl.actor_instance a set
        worker = null, epoch = a.epoch + 1, floor_at = null, signal_at = null,
        error = 'the worker was lost during the turn',
        attempt = case when v_suspected and a.lost = 0 then greatest(a.attempt - 1, 0) else a.attempt end,
        lost = case when v_suspected and a.lost = 0 then 0 else a.lost + 1 end,
        held = case when a.lost > 0 then pawl.actor_isolation_reason(a.lost + 1) end,
        wake_at = case
          -- If the clock was set back since the claim, the written times are too far ahead: the wait counts from now instead.
          when v_suspected and a.lost = 0 then least(a.wake_at, v_now)
          when a.signal_at is null then least(a.retry_at, v_now + (a.retry_at - a.claimed_at))
          else least(a.retry_at, v_now)
        end
      where a.ctid = any (array(select l.tid from lost l)) returning a.*
    ), moved as (
      insert into pawl.actor_transition (at, actor, epoch, worker, attempt, type, from_state, to_state, reason, error)
      select v_now, f.id, f.epoch, v_worker, f.attempt, f.type, f.state, f.state, 'worker lost', f.error from freed f
    )
    select count(*) into v_freed from freed;
    v_actors := v_actors + v_freed;
    -- If a row is locked at the moment, the worker's row stays, for the next rescue.
    delete from pawl.actor_worker w where w.id = v_worker and cardinality(pawl.actor_running(v_worker)) = 0;
    perform pawl.actor_end_transactions(v_worker);
  end loop;
  perform pawl.actor_hold_poison();
  return v_actors;
end $$;

-- Ends a worker. Its row stays while it has an actor, for the rescue to find.
create or replace function pawl.actor_end_worker(p_worker bigint) returns boolean
language plpgsql as $$
begin
  update pawl.actor_worker w set expires_at = clock_timestamp(), latest_at = greatest(w.latest_at, w.expires_at), wants_notify = false, types = '{}', knows = '{}' where w.id = p_worker;
  -- A claim that was given up may still be under way: it keeps the worker's row until it commits, and only the next statement sees it.
  perform 1 from pawl.actor_worker w where w.id = p_worker for update;
  delete from pawl.actor_worker w where w.id = p_worker and cardinality(pawl.actor_running(p_worker)) = 0;
  return found;
end $$;

-- The actors that a worker runs: all of them are due, or were paused since. Where the database's clock was set back while the worker
-- lived, they may be due by the older time alone.
create or replace function pawl.actor_running(p_worker bigint) returns tid[]
language sql stable
set enable_seqscan = off set enable_bitmapscan = off as $$
  select array(
    select d.tid from pawl.actor_type t cross join lateral (
      select a.ctid as tid, a.worker from pawl.actor_instance a
      where a.type = t.id
        and a.wake_at <= (select greatest(clock_timestamp(), (
          select w.latest_at from pawl.actor_worker w where w.id = p_worker and w.latest_at > clock_timestamp() + w.lease)))
        and a.wake_at is not null and a.paused_at is null and a.held is null
      union all
      select a.ctid, a.worker from pawl.actor_instance a
      where a.type = t.id and (a.paused_at is not null or a.held is not null)) d
    where d.worker = p_worker)
$$;

-- Ends the open transactions of bodies with hold: 'transaction' whose worker is gone: its process stands still, or its network is silent. These
-- transactions wait for the process to go on, and no other worker can run their actors, so the database ends them. A row that is locked for a statement
-- is not idle. They are found by the advisory lock that they share: the row of an actor names the transaction that locks it only while that is the
-- only one, and a client that gives the actor a child locks it, too.
create or replace function pawl.actor_end_transactions(p_worker bigint) returns void
language plpgsql
set enable_seqscan = off as $$
declare
  v_key bigint := pawl.actor_transactions_key(p_worker);
begin
  perform pg_terminate_backend(s.pid)
  from pg_locks l
  join pg_stat_activity s on s.pid = l.pid and s.datname = current_database() and s.state like 'idle in transaction%'
  where l.locktype = 'advisory' and l.granted and l.objsubid = 1 and l.database = s.datid
    and (l.classid::bigint << 32) + l.objid::bigint = v_key
    and exists (select 1 from pawl.actor_instance a where a.tx_worker = p_worker);
exception when insufficient_privilege then
  -- The transaction of another role stays: it ends when its body's time is up.
  null;
end $$;

-- The advisory lock that all transactions of a worker share in which bodies run.
create or replace function pawl.actor_transactions_key(p_worker bigint) returns bigint
language sql immutable as $$
  select hashtextextended('actor ' || p_worker, 1885435756)
$$;

-- For a claim whose answer was lost: gives back, uncharged, the worker's actors except p_known.
create or replace function pawl.actor_give_back_except(p_worker bigint, p_known bigint[]) returns integer
language sql
set enable_seqscan = off as $$
  with freed as (
    update pawl.actor_instance a set
      worker = null, epoch = a.epoch + 1, attempt = greatest(a.attempt - 1, 0), signal_at = null, held = pawl.actor_isolation_reason(a.lost)
    where a.ctid = any (pawl.actor_running(p_worker)) and a.worker = p_worker and a.id <> all (p_known) returning a.id
  )
  select count(*)::int from freed
$$;

-- The types of which an actor that is to be run alone is due.
create or replace function pawl.actor_suspects() returns smallint[]
language sql
set enable_seqscan = off set enable_bitmapscan = off as $$
  select array(
    select t.id from pawl.actor_type t
    where t.paused_at is null and exists (
      select 1 from pawl.actor_instance a
      where a.type = t.id and a.lost >= 2 and a.lost = 2 and a.wake_at <= clock_timestamp() and a.held = pawl.actor_isolation_reason(2)
        and a.worker is null and a.paused_at is null))
$$;

-- Claims an actor that is to be run alone, the longest due first, for a worker that runs nothing else (p_idle). If every process is always busy, the
-- actor would wait for ever, so once it has waited a minute, any worker takes it. Answers as a claim does.
create or replace function pawl.actor_claim_alone(p_worker bigint, p_types smallint[], p_idle boolean) returns text
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_until timestamptz := clock_timestamp() - case when p_idle then interval '0' else interval '1 minute' end;
  v_actor bigint;
  v_now timestamptz;
begin
  perform pawl.actor_require_worker(p_worker);
  v_actor := (
    select s.id from pawl.actor_type t
    cross join lateral (
      select a.id, a.wake_at from pawl.actor_instance a
      where a.type = t.id and a.lost >= 2 and a.lost = 2 and a.wake_at <= v_until and a.held = pawl.actor_isolation_reason(2)
        and a.worker is null and a.paused_at is null
        and not exists (select 1 from pawl.actor_paused_state p where p.type = a.type and p.state = a.state)) d
    join pawl.actor_instance s on s.id = d.id
    where t.id = any (p_types) and t.paused_at is null
    order by d.wake_at limit 1 for no key update of s skip locked);
  -- The turn begins with the semaphores that were raised before, as in the claims of due actors.
  perform pawl.actor_absorb_of(array[v_actor]) where v_actor is not null;
  update pawl.actor_instance a set held = null where a.id = v_actor and a.held = pawl.actor_isolation_reason(2) and a.worker is null;
  v_now := clock_timestamp();
  return concat('{"rows":[', pawl.actor_take(p_worker, array(
    select a.ctid from pawl.actor_instance a where a.id = v_actor and a.held is null and a.worker is null), v_now), '],"now":', pawl.actor_ms(v_now), '}');
end $$;

-- Why an actor that was lost p_lost times is kept from claims of due actors. An actor that is held for this reason is claimed alone.
create or replace function pawl.actor_isolation_reason(p_lost int) returns text
language sql immutable as $$
  select case when p_lost >= 2 then 'it is run alone' end
$$;

-- Holds actors that were lost three times in a row, the last time alone, and opens a page for each: their processes die of them. It does not wait for a
-- page that another transaction has locked: the next rescue tries that actor again.
create or replace function pawl.actor_hold_poison() returns void
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set lock_timeout = '20ms' as $$
declare
  v_id bigint;
  v_poison record;
begin
  for v_id in
    select p.id from pawl.actor_type t
    cross join lateral (
      select a.id from pawl.actor_instance a
      where a.type = t.id and a.lost >= 2 and a.lost >= 3 and a.held = pawl.actor_isolation_reason(3) and a.worker is null limit 100) p
    order by random()
  loop begin
    -- The epoch has the row of the loss in the history already, and pages of it begin at an epoch.
    update pawl.actor_instance a set held = 'its process died or was suspended three times in a row', epoch = a.epoch + 1
    where a.id = v_id and a.lost >= 3 and a.held = pawl.actor_isolation_reason(3)
    returning a.id, a.epoch, a.type, a.attempt, a.state, a.held into v_poison;
    continue when not found;
    insert into pawl.actor_transition (at, actor, epoch, attempt, type, from_state, to_state, reason, error)
    values (clock_timestamp(), v_poison.id, v_poison.epoch, v_poison.attempt, v_poison.type, v_poison.state, v_poison.state, 'held', v_poison.held);
    perform pawl.page_open(json_build_object(
      'tag', 'actor-lost:' || v_poison.id, 'severity', 3, 'actor', v_poison.id,
      'summary', (select t.name from pawl.actor_type t where t.id = v_poison.type) || ' ' || v_poison.id || ' is held in "' || v_poison.state
        || '": ' || v_poison.held));
  exception when lock_not_available then
    null;
  end; end loop;
end $$;
