-- Direct hand-off: an enqueue that meets a sleeping worker makes the claim for it, and sends the job with the notification. This saves the
-- worker a round trip and a commit. In no other way does a worker get a job that it has not asked for.
--
-- A worker that listens, has a free slot and found nothing to do leaves an offer: one job may be handed to it. An enqueue that uses the offer
-- deletes it in the transaction that writes the job and the claim. So a rollback hands nothing over, and one offer is good for one job. From
-- then on the claim is like any other: it is settled, cancelled and rescued as others are.

-- Enqueues one job, and hands it over if a worker has an offer. It runs in a transaction of its own, which nothing keeps open, so its locks are
-- gone in a moment. The job is not handed over if
--   something is ready that it would overtake, it has to wait for its turn in its key, or the queue or a part of it is paused
--   it is to run later, or has a priority other than 0
--   it has a key, and a kind of the queue coalesces or waits for another: one probe does not find the key's next job
--   it has a single attempt, which would be lost if the worker has just died
--   it does not fit into a notification
--   it has a group, to which it has to be admitted
--   the commit is not flushed: a crash of the server could undo an enqueue of which a worker was notified
--   the isolation is above read committed: an offer that another enqueue has just used would be an error
-- Answers {"id": the job's, "isSlow": the search for an offer took more than 20 ms, because old snapshots keep deleted rows, and the caller
-- should not try it again for a while}, as JSON, which costs 4 us less than columns. If no worker sleeps, this costs what queue_add_one() does:
-- one read of the workers, for both the offers and the notification. A worker that falls asleep after that read finds the job by its poll, as
-- with queue_wake().
--
-- One statement finds an offer and takes it. Each statement reads the definitions of its tables and indexes into caches, and a producer with
-- time between two jobs finds these cold. From the enqueue to the handler this takes 1.85 ms, and 1.92 with three statements; in another series
-- 1.74 both times (medians of 900 each, in turns). In a loop where no worker sleeps it takes 54 us instead of 61. Without the read of the
-- workers before it, a hand-off takes 1.48 ms instead of 1.57, but an enqueue takes 34 us more where no worker sleeps.
create or replace function pawl.queue_add_alone(
  p_queue smallint, p_shard smallint, p_kind smallint, p_priority smallint, p_payload json, p_key text, p_run_at timestamptz,
  p_options json default null, p_delay double precision default null
) returns text
language plpgsql as $$
declare
  v_now timestamptz := clock_timestamp();
  v_offer record;
  v_id bigint;
  v_is_slow boolean := false;
  v_claim bigint;
  v_process uuid;
  v_epoch bigint;
  v_sleeps boolean;
begin
  if p_run_at is not null or p_delay is not null or p_options ->> 'group' is not null then
    return '{"id":' || pawl.queue_add_one(p_queue, p_shard, p_kind, p_priority, p_payload, p_key, p_run_at, p_options, p_delay) || '}';
  end if;
  v_sleeps := exists (select 1 from pawl.queue_worker w where w.queue = p_queue and w.wants_notify);
  if v_sleeps and (p_key is not null or p_shard > 0) then
    lock table pawl.queue_job in row exclusive mode;  -- see shard.sql
  end if;
  if v_sleeps and p_priority = 0 and current_setting('synchronous_commit') <> 'off' and current_setting('transaction_isolation') = 'read committed'
    and (p_key is null or pawl.queue_is_key_free(p_queue, p_shard, p_key)) then
    delete from pawl.queue_offer o where o.ctid = (
      select o.ctid from pawl.queue_offer o
      where o.queue = p_queue
        -- Not "exists", which is planned as a hash join of tables that have a row or two.
        and (select w.wants_notify and w.expires_at > v_now from pawl.queue_worker w where w.id = o.worker)
        and exists (
          select 1 from pawl.queue_definition d join pawl.queue_kind k on k.queue = d.id
          where d.id = p_queue and k.id = p_kind and p_shard < d.shards and d.paused_at is null and d.paused_parts is null and coalesce((p_options ->> 'attempts')::smallint, k.attempts, d.attempts) > 1
            and octet_length(p_payload::text) + coalesce(octet_length(to_json(p_key)::text), 0) + coalesce(octet_length(p_options::text), 0) <= 7500
            and not exists (select 1 from pawl.queue_ready r where r.shard = p_shard and r.queue = p_queue offset 0))
      limit 1 for update of o skip locked)
    returning o.worker, o.number, o.channel into v_offer;
    v_is_slow := clock_timestamp() > v_now + interval '20 ms';
    -- If the listener's lock is free, the connection to be notified is gone, though its worker may live.
    if v_offer.worker is not null and not pg_try_advisory_xact_lock(hashtextextended(v_offer.channel, 0)) then
      perform pg_current_xact_id();  -- before the id: see search_index.sql
      v_id := nextval('pawl.queue_job_id');
      v_claim := nextval('pawl.queue_claim_id');
      v_process := gen_random_uuid();
      insert into pawl.queue_job (id, created_at, shard, queue, kind, priority, key, payload, options)
      values (v_id, v_now, p_shard, p_queue, p_kind, 0, p_key, p_payload, p_options);
      if p_options is not null then
        perform pawl.queue_note_options(p_shard, array[v_id]);
      end if;
      if p_key is not null then
        v_epoch := nextval('pawl.queue_claim_id');
        insert into pawl.queue_key (shard, queue, key, epoch, held) values (p_shard, p_queue, p_key, v_epoch, true);
      end if;
      insert into pawl.queue_running (id, worker, claimed_at, process_id, shard, queue, attempt, unit, ids)
      values (v_claim, v_offer.worker, v_now, v_process, p_shard, p_queue, 1, false, int8multirange(int8range(v_id, v_id + 1)));
      perform pg_notify(v_offer.channel, concat('{"worker":', v_offer.worker, ',"offer":', v_offer.number, ',"shard":', p_shard,
        case when p_key is null then concat(',"runs":[{"claim":', v_claim, ',"first":', v_id, ',"n":1,"kind":', p_kind, ',"attempt":1,"origin":',
          pawl.queue_origin(v_now, p_options, null), ',"payloads":[', p_payload, ']}],"keys":[]')
        else concat(',"runs":[],"keys":[{"key":', to_json(p_key), ',"epoch":', v_epoch, ',"ids":[', v_id, '],"claims":[', v_claim,
          '],"kinds":[', p_kind, '],"attempts":[1],"origins":[', pawl.queue_origin(v_now, p_options, null), '],"payloads":[', p_payload, ']}]') end,
        ',"seen":1,"processes":{"', v_claim, '":"', v_process, '"}}'));
    end if;
  end if;
  if v_id is null and p_key is not null then
    v_id := pawl.queue_add_one(p_queue, p_shard, p_kind, p_priority, p_payload, p_key, null, p_options);
  elsif v_id is null then
    perform pg_current_xact_id();
    v_id := nextval('pawl.queue_job_id');
    insert into pawl.queue_job (id, created_at, shard, queue, kind, priority, payload, options)
    values (v_id, v_now, p_shard, p_queue, p_kind, p_priority, p_payload, p_options);
    if p_shard > 0 then
      p_shard := pawl.queue_bring_home(p_queue, p_shard, v_id);
    end if;
    if p_options is not null then
      perform pawl.queue_note_options(p_shard, array[v_id]);
    end if;
    insert into pawl.queue_ready (id, shard, queue, priority, kind)
    values (v_id, p_shard, p_queue, p_priority, p_kind);
    if v_sleeps then
      perform pg_notify('pawl_queue', p_queue::text);
    end if;
  end if;
  return '{"id":' || v_id || ',"isSlow":' || v_is_slow || '}';
end $$;

-- Whether a job of this key could run at once: the key is of this shard and not held, and none of its jobs waits. Takes the key's lock, without waiting.
create or replace function pawl.queue_is_key_free(p_queue smallint, p_shard smallint, p_key text) returns boolean
language plpgsql as $$
begin
  if not (select d.keyed and pawl.queue_home(p_shard, p_key, d.shards) = p_shard from pawl.queue_definition d where d.id = p_queue)
    or exists (select 1 from pawl.queue_kind k where k.queue = p_queue and (k.coalesce <> 'none' or cardinality(k.after) > 0))
    or not pawl.queue_try_key(p_queue, p_shard, p_key) then
    return false;
  end if;
  -- A new statement, which sees what was committed before the lock was granted.
  return not exists (select 1 from pawl.queue_key k where k.shard = p_shard and k.queue = p_queue and k.key = p_key);
end $$;

-- Leaves an offer.
create or replace function pawl.queue_offer_add(p_queue smallint, p_worker bigint, p_number bigint, p_channel text) returns void
language plpgsql as $$
begin
  -- A crash empties both tables, so a worker that is handed a job has left its offer after the crash.
  if not exists (select 1 from pawl.queue_uncrashed) then
    perform pawl.queue_raise_tokens();
  end if;
  insert into pawl.queue_offer (queue, worker, number, channel) values (p_queue, p_worker, p_number, p_channel);
end $$;

-- Takes a worker's offers back, and answers their numbers. Passes over offers that an enqueue is using at the moment.
create or replace function pawl.queue_withdraw(p_queue smallint, p_worker bigint) returns bigint[]
language sql set search_path = pg_catalog, pg_temp as $$
  with open as materialized (
    select o.number from pawl.queue_offer o where o.queue = p_queue and o.worker = p_worker for update skip locked
  ), gone as (
    delete from pawl.queue_offer o where o.queue = p_queue and o.worker = p_worker and o.number in (select open.number from open)
    returning o.number
  )
  select coalesce(array_agg(g.number), '{}') from gone g
$$;

-- Gives back, uncharged, the claims that a worker holds and does not know: those whose notification it did not receive, and those whose answer
-- was lost. Answers how many jobs these were, and which of the worker's offers are still open. The claims are read before the offers: if an offer
-- is used in between, the next call finds its job. In the other order, an offer could be answered as open whose job is given back, and the worker
-- would accept the notification that comes later.
create or replace function pawl.queue_recall(p_queue smallint, p_worker bigint, p_known bigint[]) returns json
language plpgsql /* planner: batch */ set plan_cache_mode = force_generic_plan as $$
declare
  v_jobs integer := 0;
begin
  if exists (select 1 from pawl.queue_running r where r.worker = p_worker and r.id <> all (p_known)) then
    v_jobs := (pawl.queue_give_back(p_worker, p_known, false)).jobs;
  end if;
  return json_build_object('jobs', v_jobs, 'offers', (
    select coalesce(json_agg(o.number), '[]') from pawl.queue_offer o where o.queue = p_queue and o.worker = p_worker));
end $$;

-- A worker stops: takes back its offers, and gives back jobs whose notification it did not receive. Waits for an enqueue that is using an offer,
-- so that it finds that job.
create or replace function pawl.queue_leave(p_queue smallint, p_worker bigint, p_known bigint[]) returns void
language plpgsql /* planner: probe */ as $$
begin
  delete from pawl.queue_offer o where o.queue = p_queue and o.worker = p_worker;
  if (pawl.queue_give_back(p_worker, p_known, false)).jobs > 0 then
    perform pawl.queue_wake(p_queue);
  end if;
end $$;
