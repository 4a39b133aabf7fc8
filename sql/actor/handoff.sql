-- Direct hand-off: if a semaphore or a message comes for an idle actor, and a worker sleeps, the sender makes the claim for the worker, and sends the
-- actor with the notification. This saves the worker a round trip and a commit, and the inbox a row. In no other way does a worker get an actor that it has
-- not asked for.
--
-- A worker that listens, has a free slot and found nothing to do leaves an offer: one actor may be handed to it. The process that uses the offer deletes
-- it in the transaction that writes the claim. So a rollback hands nothing over, and one offer is good for one actor. From then on the claim is like any
-- other: it is committed, fenced and rescued as others are.

-- actor_incr() in a transaction of its own. Answers {"counts": as actor_incr() does, "isSlow": as actor_hand_over() says}, as JSON, which
-- costs 4 us less than columns.
create or replace function pawl.actor_incr_alone(p_incr jsonb) returns text
language plpgsql as $$
declare
  v_handed record;
begin
  v_handed := pawl.actor_hand_over((p_incr ->> 'actor')::bigint, p_incr ->> 'semaphore', coalesce((p_incr ->> 'n')::integer, 1));
  return '{"counts":' || case when v_handed.is_handed_over then true else pawl.actor_incr(p_incr) end || ',"isSlow":' || v_handed.is_slow || '}';
end $$;

-- actor_send_json() in a transaction of its own, answering as actor_incr_alone().
create or replace function pawl.actor_send_alone(p_message json) returns text
language plpgsql as $$
declare
  v_part json[] := pawl.actor_elements(p_message);
  v_actor bigint := (v_part[1] ->> 'actor')::bigint;
  v_handed record;
  v_counts boolean := true;
begin
  v_handed := pawl.actor_hand_over(v_actor, null, 1);
  if v_handed.is_handed_over then
    insert into pawl.actor_message (actor, name, payload) values (v_actor, v_part[1] ->> 'name', v_part[2]);
  else
    v_counts := pawl.actor_send_json(p_message);
  end if;
  return '{"counts":' || v_counts || ',"isSlow":' || v_handed.is_slow || '}';
end $$;

-- Hands the actor over if a worker has an offer, with its semaphore p_name raised by p_n; p_name is null for a message. For a transaction of its own, which
-- nothing keeps open: its locks are gone in a moment, and it waits for none. The actor is not handed over if
--   it runs, is final, paused or held, or has just failed and must not wake yet
--   another one of its type is due, or has something in its inbox: that comes first
--   no sleeping worker knows its state, and its fields in this version
--   it does not fit into a notification
--   the commit is not flushed: a crash of the server could undo a claim of which a worker was notified
--   the isolation is above read committed: an offer that another process has just used would be an error
-- is_slow: the search took more than 20 ms, because old snapshots keep deleted rows. The caller should not try it again for a while.
-- If there are no offers, this costs one probe.
create or replace function pawl.actor_hand_over(p_actor bigint, p_name text, p_n int, out is_handed_over boolean, out is_slow boolean)
language plpgsql /* planner: batch */ set plan_cache_mode = force_generic_plan as $$
declare
  v_now timestamptz := clock_timestamp();
  v_actor record;
  v_offer record;
  v_row text;
begin
  is_handed_over := false;
  is_slow := false;
  if not exists (select 1 from pawl.actor_offer)
    or current_setting('synchronous_commit') = 'off' or current_setting('transaction_isolation') <> 'read committed' then
    return;
  end if;
  select a.type, a.state, a.version, t.backoff into v_actor
  from pawl.actor_instance a join pawl.actor_type t on t.id = a.type
  where a.id = p_actor and a.worker is null and a.tx_worker is null and a.finished_at is null and a.paused_at is null and a.held is null
    and t.paused_at is null and (p_name is null or p_name = any (t.semaphores)) and p_n > 0
    and (a.floor_at is null or a.floor_at <= v_now or p_name = any (t.always))
    and octet_length(a.fields::text) + octet_length(a.semaphores::text) + coalesce(octet_length(a.timers::text), 0)
      + coalesce(octet_length(to_json(a.error)::text), 0) + coalesce(octet_length(to_json(a.cause)::text), 0) <= 6000
    and not exists (select 1 from pawl.actor_paused_state p where p.type = a.type and p.state = a.state)
  for no key update of a skip locked;
  if found then
    -- A claim takes the same key share lock: a rescue of the worker passes over the worker's row, or has removed it.
    select o.worker, o.number, o.channel into v_offer
    from pawl.actor_offer o join pawl.actor_worker w on w.id = o.worker
    where w.types @> array[v_actor.type] and w.wants_notify and w.expires_at > v_now
      and w.knows -> v_actor.type::text ? v_actor.state and (w.knows -> v_actor.type::text ->> '$version')::int >= v_actor.version
      and not exists (select 1 from pawl.actor_inbox i where i.type = v_actor.type offset 0)
      and not exists (
        select 1 from pawl.actor_instance a
        where a.type = v_actor.type and a.wake_at <= v_now and a.wake_at is not null and a.worker is null and a.paused_at is null and a.held is null
        offset 0)
    limit 1 for update of o skip locked for key share of w skip locked;
    if found then
      delete from pawl.actor_offer o where o.worker = v_offer.worker and o.number = v_offer.number;
      -- If the listener's lock is free, the connection to be notified is gone, though its worker may live.
      if not pg_try_advisory_xact_lock(hashtextextended(v_offer.channel, 0)) then
        update pawl.actor_instance a set
          epoch = a.epoch + 1, worker = v_offer.worker, claimed_at = v_now, attempt = a.attempt + 1, signal_at = null,
          -- A running actor must be due, since a rescue searches among due actors.
          wake_at = least(a.wake_at, v_now),
          retry_at = v_now + pawl.actor_backoff(v_actor.backoff, a.attempt + 1) * interval '1 millisecond',
          semaphores = case when p_name is null then a.semaphores else pawl.actor_add(a.semaphores, array[p_name], array[p_n::bigint]) end
        where a.id = p_actor
        returning pawl.actor_claim_json(a) into v_row;
        perform pg_notify(v_offer.channel, concat('{"worker":', v_offer.worker, ',"offer":', v_offer.number, ',"now":', pawl.actor_ms(v_now), ',"row":', v_row, '}'));
      end if;
    end if;
  end if;
  is_handed_over := v_row is not null;
  is_slow := clock_timestamp() > v_now + interval '20 ms';
end $$;

-- Leaves an offer, unless the worker was declared dead.
create or replace function pawl.actor_offer_add(p_worker bigint, p_number bigint, p_channel text) returns void
language sql set search_path = pg_catalog, pg_temp as $$
  insert into pawl.actor_offer (worker, number, channel)
  select w.id, p_number, p_channel from pawl.actor_worker w where w.id = p_worker for key share
$$;

-- Takes a worker's offers back, and answers their numbers. Passes over offers that another process is using at the moment.
create or replace function pawl.actor_withdraw(p_worker bigint) returns bigint[]
language sql set search_path = pg_catalog, pg_temp as $$
  with open as materialized (
    select o.number from pawl.actor_offer o where o.worker = p_worker for update skip locked
  ), gone as (
    delete from pawl.actor_offer o where o.worker = p_worker and o.number in (select open.number from open)
    returning o.number
  )
  select coalesce(array_agg(g.number), '{}') from gone g
$$;

-- Gives back, uncharged, the actors that a worker holds and does not know: those whose notification it did not receive, and those of claims whose answer
-- was lost. p_actors and p_epochs, by position: the actors that it knows. It searches the due actors of the worker's types, which costs as much as turns of
-- these types run; an actor that was paused meanwhile is found there when the pause ends. p_all: it also searches the paused actors, which may be many:
-- for a caller that asks only once. Answers how many actors it gave back, and which of the worker's offers are open. The actors are read before the offers:
-- if an offer is used in between, the next call finds its actor. In the other order, an offer could be answered as open whose actor is given back, and the
-- worker would accept the notification that comes later.
create or replace function pawl.actor_recall(p_worker bigint, p_actors bigint[], p_epochs bigint[], p_all boolean) returns json
language plpgsql /* planner: batch */ set plan_cache_mode = force_generic_plan as $$
declare
  v_now timestamptz := clock_timestamp();
  v_tids tid[];
  v_actors integer;
begin
  if p_all then
    v_tids := pawl.actor_running(p_worker);
  else
    v_tids := array(
      select d.tid
      from pawl.actor_worker w cross join unnest(w.types) u (type) join pawl.actor_type t on t.id = u.type and t.paused_at is null
      cross join lateral (
        select a.ctid as tid, a.worker from pawl.actor_instance a
        where a.type = t.id and a.wake_at <= v_now and a.wake_at is not null and a.paused_at is null and a.held is null) d
      where w.id = p_worker and d.worker = p_worker);
  end if;
  -- If a commit of this worker hangs on a dead connection, its row is locked until the server ends the connection: the next call finds it.
  v_tids := array(
    select a.ctid from pawl.actor_instance a
    where a.ctid = any (v_tids) and a.worker = p_worker
      and not exists (select 1 from unnest(p_actors, p_epochs) k (actor, epoch) where k.actor = a.id and k.epoch = a.epoch)
    for no key update skip locked);
  update pawl.actor_instance a set
    worker = null, epoch = a.epoch + 1, attempt = greatest(a.attempt - 1, 0), signal_at = null, held = pawl.actor_isolation_reason(a.lost)
  where a.ctid = any (v_tids);
  get diagnostics v_actors = row_count;
  return json_build_object('actors', v_actors, 'offers', (
    select coalesce(json_agg(o.number), '[]') from pawl.actor_offer o where o.worker = p_worker));
end $$;

-- A worker stops: takes back its offers, and gives back an actor whose notification it did not receive. Waits for a process that is using an offer, so that
-- it finds that actor.
create or replace function pawl.actor_leave(p_worker bigint, p_actors bigint[], p_epochs bigint[]) returns void
language plpgsql as $$
begin
  delete from pawl.actor_offer o where o.worker = p_worker;
  if (pawl.actor_recall(p_worker, p_actors, p_epochs, true) ->> 'actors')::int > 0 then
    perform pawl.actor_wake(w.types) from pawl.actor_worker w where w.id = p_worker;
  end if;
end $$;
