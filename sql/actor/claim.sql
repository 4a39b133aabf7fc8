-- A turn is claimed in one short transaction and committed in another; in between it holds neither a connection nor a lock.

-- Claims up to p_limit due actors of these types, the longest due first. Each is charged an attempt, and its next try is written as if the turn had
-- failed: if its worker dies, there is nothing to undo.
--
-- Answers {"rows":[[id,type,state,visit,epoch,attempt,version,children,entered ms,parent,{semaphores},{fields}],…]}, with rows also "now": the
-- database's clock in ms, and "due": ms until the next actor is due, or "again": true if there is more to do at once. A row has three more values if
-- it has timers, an error of its last turn, or a failure that led to its state. p_offer, p_channel: the number and the channel of the offer to leave if
-- there is nothing, see handoff.sql; "offered": true says that the offer was left.
--
-- A claim of several types first counts how many actors of each type are among the first that are due. Actors whose bodies run with hold:
-- 'transaction' are among them, since only the lock of their row shows that they run. With as many of these as the worker has free slots, it would find
-- nothing of its other types while those bodies run. So they are left out of the count, unless their row is not locked: then the transaction that ran
-- them is gone.
create or replace function pawl.actor_claim(
  p_worker bigint, p_types smallint[], p_limit int, p_offer bigint default null, p_channel text default null
) returns text
language plpgsql /* planner: batch */ set plan_cache_mode = force_generic_plan as $$
declare
  v_now timestamptz;
  v_inbox text;
  v_again boolean;
  v_types smallint[];
  v_tids tid[] := '{}';
  v_part record;
  v_free tid[];
  v_rows text;
  v_offered text;
begin
  perform pawl.actor_require_worker(p_worker);
  v_inbox := pawl.actor_absorb(p_types, 1000);
  select array_agg(t.id) into v_types from pawl.actor_type t where t.id = any (p_types) and t.paused_at is null;
  if v_types is null then
    if p_offer is not null then
      perform pawl.actor_offer_add(p_worker, p_offer, p_channel);
    end if;
    return concat('{"rows":[]', case when p_offer is not null then ',"offered":true' end, '}');
  end if;
  v_now := clock_timestamp();
  if cardinality(v_types) = 1 then
    v_tids := array(
      select a.ctid from pawl.actor_instance a
      where a.type = v_types[1] and a.wake_at <= v_now and a.wake_at is not null and a.worker is null and a.paused_at is null and a.held is null
      order by a.wake_at limit p_limit for no key update skip locked);
  else
    -- First, without a lock, how many actors of each type are among the first that are due; then that many of each.
    loop
      select array_agg(x.type) as types, array_agg(x.n) as counts, bool_or(x.tx_worker) as tx_worker into v_part
      from (
        select d.type, count(*) as n, bool_or(d.tx_worker) as tx_worker from (
          select t.type, d.tx_worker from unnest(v_types) t (type) cross join lateral (
            select a.wake_at, a.tx_worker is not null as tx_worker from pawl.actor_instance a
            where a.type = t.type and a.wake_at <= v_now and a.wake_at is not null and a.worker is null and a.paused_at is null and a.held is null
              and (v_free is null or a.tx_worker is null or a.ctid = any (v_free))
            order by a.wake_at limit p_limit) d
          order by d.wake_at limit p_limit) d
        group by d.type) x;
      exit when v_free is not null or v_part.tx_worker is not true;
      -- Each of these has a connection of its own, so there are few. An actor whose holder died became due early, and is not far behind.
      v_free := array(
        select a.ctid from pawl.actor_instance a
        where a.ctid = any (array(
            select d.tid from unnest(v_types) t (type) cross join lateral (
              select a.ctid as tid, a.tx_worker from pawl.actor_instance a
              where a.type = t.type and a.wake_at <= v_now and a.wake_at is not null and a.worker is null and a.paused_at is null and a.held is null
              order by a.wake_at limit 1000 + p_limit) d
            where d.tx_worker is not null))
          and a.tx_worker is not null and a.worker is null and a.wake_at <= v_now
        order by a.wake_at limit p_limit for no key update skip locked);
    end loop;
    for v_at in 1..coalesce(cardinality(v_part.types), 0) loop
      v_tids := v_tids || array(
        select a.ctid from pawl.actor_instance a
        where a.type = v_part.types[v_at] and a.wake_at <= v_now and a.wake_at is not null and a.worker is null and a.paused_at is null and a.held is null
          and (v_free is null or a.tx_worker is null or a.ctid = any (v_free))
        order by a.wake_at limit v_part.counts[v_at] for no key update skip locked);
    end loop;
  end if;
  if cardinality(v_tids) > 0 then
    if v_inbox <> 'none' then
      v_tids := pawl.actor_absorb_taken(v_tids);
    end if;
    if exists (select 1 from pawl.actor_paused_state p where p.type = any (v_types)) then
      v_tids := pawl.actor_hold_paused(v_tids);
    end if;
    v_rows := pawl.actor_take(p_worker, v_tids, v_now);
  end if;
  v_again := v_inbox = 'more' or cardinality(v_tids) >= p_limit;
  if p_offer is not null and v_rows is null and not v_again then
    perform pawl.actor_offer_add(p_worker, p_offer, p_channel);
    v_offered := ',"offered":true';
  end if;
  return concat('{"rows":[', v_rows, ']', ',"now":' || case when v_rows is not null then pawl.actor_ms(v_now) end, v_offered, case when v_again then ',"again":true' end,
    ',"due":' || (
      -- greatest() would turn null into 0: due now, instead of never
      select case when v_inbox = 'locked' then 0 when min(d.wake_at) is not null then ceil(greatest(0, extract(epoch from min(d.wake_at) - clock_timestamp()) * 1000)) end
      from unnest(v_types) t (type) cross join lateral (
        select a.wake_at from pawl.actor_instance a
        where a.type = t.type and a.wake_at is not null and a.worker is null and a.paused_at is null and a.held is null
        order by a.wake_at limit 1) d), '}');
end $$;

-- Moves the contents of the inboxes into the rows of the actors, and wakes the actors. Passes over actors whose row is locked: the next call finds them.
-- Answers what is left: none, locked (only those), or more.
--
-- A request that comes while a turn runs is marked (signal_at), under the lock of the row, which the commit of that turn takes, too. Either the commit
-- sees the mark and makes the actor due at once, or this function finds the row as the commit left it, and makes the actor due itself. In both cases the
-- actor runs once more.
create or replace function pawl.actor_absorb(p_types smallint[], p_limit int) returns text
language plpgsql /* planner: batch */ set plan_cache_mode = force_generic_plan as $$
declare
  v_rows bigint;
  v_actors bigint[];
  v_seen bigint[] := '{}';
  v_locked bigint[] := '{}';
begin
  -- The inbox may hold more for one locked actor than one read takes. Then the next read leaves that actor out, and finds the rows of others
  -- behind it.
  loop
    select array_agg(distinct x.actor), max(x.nth) into v_actors, v_rows
    from unnest(p_types) t (type)
    cross join lateral (
      select i.actor, row_number() over () as nth from (
        select i.actor from pawl.actor_inbox i where i.type = t.type and i.actor <> all (v_locked) order by i.id limit p_limit) i) x;
    exit when v_actors is null;
    v_seen := pawl.actor_absorb_of(v_actors);
    if cardinality(v_seen) < cardinality(v_actors) then
      -- The rows of actors that no longer exist.
      delete from pawl.actor_inbox i where i.actor = any (v_actors)
        and not exists (select 1 from pawl.actor_instance a where a.id = i.actor);
    end if;
    exit when v_seen <> '{}' or v_rows < p_limit;
    v_locked := v_locked || v_actors;
  end loop;
  if v_actors is null and v_locked = '{}' then
    return 'none';
  end if;
  return case
    when not exists (select 1 from unnest(p_types) t (type) cross join lateral (select 1 from pawl.actor_inbox i where i.type = t.type limit 1) x) then 'none'
    when v_seen = '{}' then 'locked'
    else 'more'
  end;
end $$;

-- The same for these actors. Answers the actors whose row was not locked.
create or replace function pawl.actor_absorb_of(p_actors bigint[]) returns bigint[]
language plpgsql /* planner: batch */ set plan_cache_mode = force_generic_plan as $$
declare
  v_seen bigint[];
  v_now timestamptz := clock_timestamp();
begin
  v_seen := array(
    select a.id from pawl.actor_instance a where a.id = any (p_actors) order by a.id for no key update skip locked);
  -- A new statement: for each of these actors it sees everything that was committed before the actor's row was locked.
  with gone as (
    delete from pawl.actor_inbox i where i.actor = any (v_seen) returning i.actor, i.name, i.n, i.at
  ), change as materialized (
    select g.actor, array_agg(g.name) filter (where g.name !~ '^[$]') as names, array_agg(g.n::bigint) filter (where g.name !~ '^[$]') as counts,
      min(g.at) filter (where g.name <> '$child') as at, coalesce(sum(g.n) filter (where g.name = '$child'), 0) as children,
      coalesce(bool_or(g.n < 0), false) as final
    from (select g.actor, g.name, sum(g.n) as n, min(g.at) as at from gone g group by g.actor, g.name, g.n < 0) g
    group by g.actor
  ), wake as materialized (
    select c.*, t.always && c.names as at_once,
      case
        when a.finished_at is not null then null
        when c.at is not null then c.at
        -- The last child is final, or was final before the row of its birth was absorbed.
        when a.children + c.children = 0 and (c.final or a.children < 0) then v_now
        -- The machine is read only if a child has ended.
        when c.final and t.machine -> 'states' -> a.state ->> 'children' = 'each' then v_now
      end as wake_at
    from change c join pawl.actor_instance a on a.id = c.actor join pawl.actor_type t on t.id = a.type
  )
  update pawl.actor_instance a set
    semaphores = case when w.names is null or a.finished_at is not null then a.semaphores else pawl.actor_add(a.semaphores, w.names, w.counts) end,
    children = a.children + w.children,
    signal_at = case when coalesce(a.worker, a.tx_worker) is not null then least(w.wake_at, a.signal_at) else a.signal_at end,
    -- A failing actor that is nudged again and again must not run in a loop; but its destruction need not wait.
    wake_at = case
      when coalesce(a.worker, a.tx_worker) is not null or w.wake_at is null then a.wake_at
      when w.at_once then least(a.wake_at, w.wake_at)
      else least(a.wake_at, greatest(w.wake_at, a.floor_at))
    end
  from wake w where a.id = w.actor;
  return v_seen;
end $$;

-- For rows that are locked to be claimed: absorbs the inboxes of actors whose rows others had locked when the inboxes were read, and that are free by now.
-- Otherwise a turn begins without a semaphore that was raised long before, and as if nothing could interrupt it.
create or replace function pawl.actor_absorb_taken(p_tids tid[]) returns tid[]
language plpgsql as $$
declare
  v_ids bigint[] := array(select a.id from pawl.actor_instance a where a.ctid = any (p_tids));
  v_late bigint[] := array(select distinct i.actor from pawl.actor_inbox i where i.actor = any (v_ids));
begin
  if v_late = '{}' then
    return p_tids;
  end if;
  perform pawl.actor_absorb_of(v_late);
  -- The rows have moved to new versions.
  return array(select a.ctid from pawl.actor_instance a where a.id = any (v_ids));
end $$;

-- Adds changes to semaphores. A semaphore that has nothing left is removed, so none is ever below 0.
create or replace function pawl.actor_add(p_semaphores jsonb, p_names text[], p_counts bigint[]) returns jsonb
language sql immutable as $$
  select coalesce(jsonb_object_agg(s.name, s.n) filter (where s.n > 0), '{}')
  from (
    select x.name, sum(x.n) as n
    from (select e.key as name, e.value::bigint as n from jsonb_each_text(p_semaphores) e union all select * from unnest(p_names, p_counts)) x
    group by x.name
  ) s
$$;

-- Claims one actor by hand, due or not, paused or not. Answers as a claim does; without a row if another worker has the actor.
create or replace function pawl.actor_claim_one(p_worker bigint, p_actor bigint) returns text
language plpgsql
set enable_seqscan = off as $$
declare
  v_tids tid[];
  v_now timestamptz;
begin
  perform pawl.actor_require_worker(p_worker);
  perform pawl.actor_absorb(array[a.type], 1000) from pawl.actor_instance a where a.id = p_actor;
  v_tids := array(
    select a.ctid from pawl.actor_instance a where a.id = p_actor and a.worker is null and a.finished_at is null
    for no key update skip locked);
  v_tids := pawl.actor_absorb_taken(v_tids);
  -- A running actor must be due, since a rescue searches among due actors.
  if cardinality(v_tids) > 0 then
    update pawl.actor_instance a set wake_at = clock_timestamp(), held = null, lost = 0
    where a.id = p_actor and (a.wake_at is null or a.wake_at > clock_timestamp() or a.held is not null or a.lost > 0);
    perform pawl.page_resolve_free('actor-lost:' || p_actor);
    v_tids := array(select a.ctid from pawl.actor_instance a where a.id = p_actor);
  end if;
  v_now := clock_timestamp();
  return concat('{"rows":[', pawl.actor_take(p_worker, v_tids, v_now), '],"now":', pawl.actor_ms(v_now), '}');
end $$;

-- Holds those of these locked rows that are in a paused state: they leave the index of due actors. Answers the others. The share lock makes a resume wait,
-- and then see the held rows; a state that was resumed meanwhile has no row to be locked.
create or replace function pawl.actor_hold_paused(p_tids tid[]) returns tid[]
language plpgsql
set enable_seqscan = off as $$
declare
  v_paused text[];
begin
  v_paused := array(
    select p.type || ':' || p.state from pawl.actor_paused_state p
    where (p.type, p.state) in (select a.type, a.state from pawl.actor_instance a where a.ctid = any (p_tids)) for share);
  update pawl.actor_instance a set held = 'the state is paused'
  where a.ctid = any (p_tids) and a.type || ':' || a.state = any (v_paused);
  -- The held rows have moved to new versions: the rows that are left at these places may run.
  return array(select a.ctid from pawl.actor_instance a where a.ctid = any (p_tids) and a.worker is null and a.held is null);
end $$;

-- Makes actors whose rows are locked the worker's. Answers them in the order in which they became due, and not in that of their rows on disk: actors that
-- wait for a free slot begin in that order. If an actor has a tx_worker, that transaction is gone, and wrote nothing: the turn is lost, and the history
-- says so. If it had been lost before, too, it is not taken, but left to be claimed alone.
create or replace function pawl.actor_take(p_worker bigint, p_tids tid[], p_now timestamptz) returns text
language sql
set enable_seqscan = off set enable_mergejoin = off set jit = off as $$
  with lost as (
    insert into pawl.actor_transition (at, actor, epoch, worker, attempt, type, from_state, to_state, reason, error)
    select p_now, a.id, a.epoch, a.tx_worker, a.attempt, a.type, a.state, a.state, 'worker lost', 'the worker was lost during the turn'
    from pawl.actor_instance a where a.ctid = any (p_tids) and a.tx_worker is not null
  ), taken as (
    update pawl.actor_instance a set
      worker = case when a.tx_worker is null or a.lost = 0 then p_worker end,
      held = case when a.tx_worker is null or a.lost = 0 then a.held else pawl.actor_isolation_reason(a.lost + 1) end,
      lost = case when a.tx_worker is null then a.lost else a.lost + 1 end,
      error = case when a.tx_worker is null then a.error else 'the worker was lost during the turn' end,
      epoch = a.epoch + 1, tx_worker = null, claimed_at = p_now, signal_at = null,
      attempt = a.attempt + case when a.tx_worker is null or a.lost = 0 then 1 else 0 end,
      retry_at = p_now + pawl.actor_backoff(t.backoff, a.attempt + 1) * interval '1 millisecond'
    from pawl.actor_type t
    where a.ctid = any (p_tids) and t.id = a.type
    returning pawl.actor_claim_json(a) as row, a.wake_at, a.worker
  )
  select string_agg(t.row, ',' order by t.wake_at) from taken t where t.worker is not null
$$;

-- A claimed actor, as its worker reads it.
create or replace function pawl.actor_claim_json(a pawl.actor_instance) returns text
language sql stable as $$
  select concat('[', a.id, ',', a.type, ',', to_json(a.state), ',', a.visit, ',', a.epoch, ',', a.attempt, ',', a.version, ',', a.children, ',',
    (extract(epoch from a.entered_at) * 1000)::bigint, ',', coalesce(a.parent, 0), ',', a.semaphores, ',', a.fields,
    case when a.timers is not null or a.error is not null or a.cause is not null then
      concat(',', coalesce(a.timers::text, 'null'), ',', coalesce(to_json(a.error)::text, 'null'), ',', coalesce(to_json(a.cause)::text, 'null'))
    end, ']')
$$;

-- Whole milliseconds since 1970, never ahead of that moment: a timer that is due then has passed.
create or replace function pawl.actor_ms(p_at timestamptz) returns bigint
language sql immutable as $$
  select floor(extract(epoch from p_at) * 1000)::bigint
$$;

-- Fails if the worker was declared dead. Such a worker must not claim any more: no rescue would find its actors. The lock keeps the worker's row until
-- the claim is committed, for a rescue to find. Heartbeats do not wait for this lock.
create or replace function pawl.actor_require_worker(p_worker bigint) returns void
language plpgsql as $$
begin
  perform 1 from pawl.actor_worker w where w.id = p_worker for key share;
  if not found then
    raise exception 'worker % was declared dead: its heartbeat came after the end of its lease; stop working', p_worker using errcode = 'PW004';
  end if;
end $$;

-- The wait before the next try, in ms, after p_attempt tries that failed.
create or replace function pawl.actor_backoff(p_backoff double precision[], p_attempt int) returns double precision
language sql volatile as $$
  select least(p_backoff[2], case when p_backoff[3] = 0 then p_backoff[1] * p_attempt else p_backoff[1] * p_backoff[3] ^ least(p_attempt - 1, 100) end)
    * (1 - p_backoff[4] * random())
$$;
