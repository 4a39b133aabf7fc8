-- Handing over: an enqueue that meets a sleeping worker makes the claim for it, and sends the job with the notification. It
-- saves the worker a round trip and a commit, and it is the only time that a worker gets a job it has not asked for.
--
-- A worker that listens, has a free slot and found nothing to do leaves an offer: one job may be handed to it. Whoever uses
-- the offer deletes it in the transaction that writes the job and the claim: what is rolled back was not handed over, and one
-- offer is good for one job. From then on the claim is like any other: it is settled, cancelled and rescued as they are.
--
-- Older workers may keep running: they make no offers.

-- Unlogged, since no offer outlives a crash of the server: nobody listens then.
create unlogged table pawl.queue_offer (
  worker   bigint not null,
  number   bigint not null,  -- rises with each offer of a worker; the notification names it
  queue    smallint not null,
  channel  text not null,    -- a secret: the payloads of jobs are sent to it, and any role may LISTEN
  primary key (queue, worker, number)
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- One job in a transaction of its own, which nothing keeps open: a lock that is taken here is gone in a moment. Hands the job
-- over if somebody is there for it. What keeps a job from that:
--   something is ready that it would overtake, it has a key's turn to wait for, or the queue is paused
--   it has a single attempt, which would be lost if the worker has just died
--   it does not fit into a notification
--   the commit is not flushed: a crash of the server could undo an enqueue that was heard of
--   the isolation is above read committed: an offer that somebody else has just used would be an error
-- Answers the job's id; negative when looking took longer than it should, because old snapshots keep deleted rows: better not
-- tried again for a while. Where nobody offers anything it costs one probe.
create function pawl.queue_add_alone(
  p_queue smallint, p_shard smallint, p_kind smallint, p_priority smallint, p_payload json, p_key text, p_run_at timestamptz
) returns bigint
language plpgsql as $$
declare
  v_now timestamptz := clock_timestamp();
  v_offer record;
  v_id bigint;
  v_claim bigint;
  v_process uuid;
  v_may boolean := false;
  v_slow boolean := false;
begin
  if p_key is null and p_run_at is null and p_priority = 0
    and exists (select 1 from pawl.queue_offer o where o.queue = p_queue)
    and current_setting('synchronous_commit') <> 'off' and current_setting('transaction_isolation') = 'read committed' then
    select o.worker, o.number, o.channel into v_offer from pawl.queue_offer o
    where o.queue = p_queue and exists (
      select 1 from pawl.queue_worker w where w.id = o.worker and w.wants_notify and w.expires_at > v_now)
    limit 1 for update of o skip locked;
    if found then
      perform 1 from pawl.queue_definition d join pawl.queue_kind k on k.queue = d.id
      where d.id = p_queue and k.id = p_kind and d.paused_at is null and coalesce(k.attempts, d.attempts) > 1
        and octet_length(p_payload::text) <= 7500
        and not exists (select 1 from pawl.queue_ready r where r.shard = p_shard and r.queue = p_queue offset 0);
      v_may := found;
    end if;
    v_slow := clock_timestamp() > v_now + interval '20 ms';
    if v_may then
      delete from pawl.queue_offer o where o.queue = p_queue and o.worker = v_offer.worker and o.number = v_offer.number;
      -- Nobody has the listener's lock: the connection that would be notified is gone, though its worker may live.
      if not pg_try_advisory_xact_lock(hashtextextended(v_offer.channel, 0)) then
        perform pg_current_xact_id();  -- before the id: see 014_search.sql
        v_id := nextval('pawl.queue_job_id');
        v_claim := nextval('pawl.queue_claim_id');
        v_process := gen_random_uuid();
        insert into pawl.queue_job (id, created_at, shard, queue, kind, priority, payload)
        values (v_id, v_now, p_shard, p_queue, p_kind, 0, p_payload);
        insert into pawl.queue_running (id, worker, claimed_at, process_id, shard, queue, attempt, unit, ids)
        values (v_claim, v_offer.worker, v_now, v_process, p_shard, p_queue, 1, false, int8multirange(int8range(v_id, v_id + 1)));
        perform pg_notify(v_offer.channel, concat('{"worker":', v_offer.worker, ',"offer":', v_offer.number, ',"shard":', p_shard,
          ',"rows":[[', v_claim, ',', v_id, ',1,', p_kind, ',1,', (date_part('epoch', v_now) * 1000)::bigint, ',[', p_payload,
          ']]],"keys":[],"seen":1,"processes":{"', v_claim, '":"', v_process, '"}}'));
      end if;
    end if;
  end if;
  if v_id is null then
    v_id := pawl.queue_add_one(p_queue, p_shard, p_kind, p_priority, p_payload, p_key, p_run_at);
  end if;
  return case when v_slow then -v_id else v_id end;
end $$;

-- Leaves an offer.
create function pawl.queue_offer_add(p_queue smallint, p_worker bigint, p_number bigint, p_channel text) returns void
language plpgsql as $$
begin
  -- A crash has emptied both tables: whoever is handed a job has offered since.
  if not exists (select 1 from pawl.queue_uncrashed) then
    perform pawl.queue_raise_tokens();
  end if;
  insert into pawl.queue_offer (queue, worker, number, channel) values (p_queue, p_worker, p_number, p_channel);
end $$;

-- queue_claim(), which leaves an offer when there was nothing to claim: "offered" says so.
create function pawl.queue_claim_or_offer(
  p_queue smallint, p_shard smallint, p_worker bigint, p_limit int, p_slots int, p_rows int, p_chain int,
  p_priority smallint, p_after bigint, p_number bigint, p_channel text
) returns text
language plpgsql as $$
declare
  v_answer text := pawl.queue_claim(p_queue, p_shard, p_worker, p_limit, p_slots, p_rows, p_chain, p_priority, p_after);
begin
  if not starts_with(v_answer, '{"rows":[],"keys":[],"seen":0,') then
    return v_answer;
  end if;
  perform pawl.queue_offer_add(p_queue, p_worker, p_number, p_channel);
  return '{"offered":true,' || substr(v_answer, 2);
end $$;

-- Takes a worker's offers back, but for those that somebody is just using. Answers their numbers.
create function pawl.queue_withdraw(p_queue smallint, p_worker bigint) returns bigint[]
language sql set search_path = pg_catalog, pg_temp as $$
  with open as materialized (
    select o.number from pawl.queue_offer o where o.queue = p_queue and o.worker = p_worker for update skip locked
  ), gone as (
    delete from pawl.queue_offer o where o.queue = p_queue and o.worker = p_worker and o.number in (select open.number from open)
    returning o.number
  )
  select coalesce(array_agg(g.number), '{}') from gone g
$$;

-- What a worker holds and does not know of is given back, uncharged: what it was handed and has not heard of, and claims whose
-- answers were lost. Answers how many jobs that were, and which of its offers are still open. In this order: of an offer that
-- is used in between the job is found the next time; the other way round it would be believed when it is heard of later.
create function pawl.queue_recall(p_queue smallint, p_worker bigint, p_known bigint[]) returns json
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan as $$
declare
  v_jobs integer := 0;
begin
  if exists (select 1 from pawl.queue_running r where r.worker = p_worker and r.id <> all (p_known)) then
    v_jobs := (pawl.queue_lost(p_worker, p_known, false)).jobs;
  end if;
  return json_build_object('jobs', v_jobs, 'offers', (
    select coalesce(json_agg(o.number), '[]') from pawl.queue_offer o where o.queue = p_queue and o.worker = p_worker));
end $$;

-- A worker stops: nobody uses its offers from here on, and what it was handed without hearing of it is given back. Waits for an
-- enqueue that is just using one, so that the job is found.
create function pawl.queue_leave(p_queue smallint, p_worker bigint, p_known bigint[]) returns void
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
begin
  delete from pawl.queue_offer o where o.queue = p_queue and o.worker = p_worker;
  if (pawl.queue_lost(p_worker, p_known, false)).jobs > 0 then
    perform pawl.queue_wake(p_queue);
  end if;
end $$;
