-- Removing a queue that no program uses any more, with everything in it. Each step is committed by itself, so that no other queue waits for it.
--
-- One row of queue_definition stays, and its kinds: a running program knows the queue by its id, and an enqueue does not look the id up. If such a
-- program enqueues a job, the queue comes back, and so it does if a program declares it; nothing gets lost.

-- Whether a queue was removed, and has not come back since.
create or replace function pawl.queue_is_gone(p_queue pawl.queue_definition) returns boolean
language sql stable set enable_seqscan = off as $$
  select p_queue.removed_at is not null
    and not exists (select 1 from pawl.queue_worker w where w.queue = p_queue.id and w.expires_at > clock_timestamp())
    and not pawl.queue_has_waiting(p_queue.id)
$$;

-- Whether a queue has a job that waits or is in progress.
create or replace function pawl.queue_has_waiting(p_queue smallint) returns boolean
language sql stable set enable_seqscan = off as $$
  select exists (
      select 1 from generate_series(0, 255) s where exists (select 1 from pawl.queue_ready r where r.shard = s::smallint and r.queue = p_queue)
        or exists (select 1 from pawl.queue_delayed d where d.shard = s::smallint and d.queue = p_queue))
    or exists (select 1 from pawl.queue_running r where r.queue = p_queue)
    or exists (select 1 from pawl.queue_parked p where p.queue = p_queue)
    or exists (select 1 from pawl.queue_grouped g where g.queue = p_queue)
$$;

-- Begins a removal, or continues after a process that has not finished it. Refused with PW003 while a worker lives, a job waits or runs, or a batch is
-- open; p_force pauses the queue instead. Answers {queue: its id, workers: the live ones, batches: the open ones}.
create or replace function pawl.queue_remove_begin(p_queue text, p_force boolean) returns json
language plpgsql as $$
declare
  v_queue smallint := pawl.queue_id(p_queue);
  v_workers bigint[];
  v_batches bigint[];
  v_jobs bigint;
begin
  perform from pawl.queue_definition d where d.id = v_queue for update;
  v_workers := array(select w.id from pawl.queue_worker w where w.queue = v_queue and w.expires_at > clock_timestamp() order by w.id);
  v_batches := array(select w.id from pawl.queue_watch w where w.queue = v_queue and w.sort = 'batch' and w.over_at is null order by w.id desc);
  if p_force then
    update pawl.queue_definition d set paused_at = coalesce(d.paused_at, clock_timestamp()) where d.id = v_queue;
  elsif pawl.queue_has_waiting(v_queue) or v_workers <> '{}' or v_batches <> '{}' then
    select least(10000, count(*)) into v_jobs from (
      select 1 from pawl.queue_ready r cross join generate_series(1, r.n) where r.queue = v_queue
      union all select 1 from pawl.queue_delayed d cross join generate_series(1, d.n) where d.queue = v_queue
      union all select 1 from pawl.queue_parked p where p.queue = v_queue
      union all select 1 from pawl.queue_grouped g where g.queue = v_queue
      union all select 1 from pawl.queue_running r cross join generate_series(1, pawl.queue_size(r.ids)) where r.queue = v_queue limit 10001) x;
    raise exception 'queue "%" is in use, so it was not removed: % jobs wait or are in progress, % workers live, % batches are open; drain it and stop its workers, or force the removal, which cancels these jobs',
      p_queue, case v_jobs when 10000 then '10,000 or more' else v_jobs::text end, cardinality(v_workers), cardinality(v_batches) using errcode = 'PW003';
  end if;
  return json_build_object('queue', v_queue, 'workers', v_workers::text[], 'batches', v_batches::text[]);
end $$;

-- Removes about p_limit ended jobs at most, and as many rows of history. p_force: cancels waiting jobs before that. A job that another transaction holds
-- is left to the next step. Answers {cancelled, jobs, moves}.
create or replace function pawl.queue_remove_step(p_queue smallint, p_force boolean, p_limit int) returns json
language plpgsql /* planner: loop */ as $$
declare
  v_cancelled int := 0;
  v_jobs int;
  v_moves int;
begin
  if p_force then
    v_cancelled := pawl.queue_cancel_some(p_queue, p_limit);
  end if;
  v_jobs := pawl.queue_remove_some(p_queue, p_limit);
  delete from pawl.queue_transition t where t.ctid = any (array(
    select o.ctid from pawl.queue_transition o where o.queue = p_queue order by o.at limit p_limit));
  get diagnostics v_moves = row_count;
  return json_build_object('cancelled', v_cancelled, 'jobs', v_jobs, 'moves', v_moves);
end $$;

-- Cancels waiting jobs, of all keys at once, so that no key has a next job. Their waiters are notified. Once the watches of one shard are locked, it waits
-- for no lock of the next shard: see queue_ended.
create or replace function pawl.queue_cancel_some(p_queue smallint, p_limit int) returns int
language plpgsql /* planner: loop */ as $$
declare
  v_ended record;
  v_count int := 0;
  -- The head of a key goes last, and the key with it: if the removal ends before that, the key goes on when the queue is resumed.
  v_many_parked boolean := (
    select count(*) >= p_limit from (select 1 from pawl.queue_parked p where p.queue = p_queue limit p_limit) p);
begin
  for v_ended in
    with ready as (
      select r.ctid as tid, sum(r.n) over (order by r.id) - r.n as before from (
        select r.ctid, r.id, r.n from generate_series(0, 255) s cross join lateral (
          select r.ctid, r.id, r.n from pawl.queue_ready r where r.shard = s::smallint and r.queue = p_queue
            and (r.key is null or not v_many_parked and not exists (
              select 1 from pawl.queue_parked p where p.shard = r.shard and p.queue = p_queue and p.key = r.key))
          order by r.priority, r.id
          limit p_limit for update skip locked) r limit p_limit) r
    ), delayed as (
      select d.ctid as tid, sum(d.n) over (order by d.id) - d.n as before from (
        select d.ctid, d.id, d.n from generate_series(0, 255) s cross join lateral (
          select d.ctid, d.id, d.n from pawl.queue_delayed d where d.shard = s::smallint and d.queue = p_queue
            and (d.key is null or not v_many_parked and not exists (
              select 1 from pawl.queue_parked p where p.shard = d.shard and p.queue = p_queue and p.key = d.key))
          order by d.run_at, d.id
          limit p_limit for update skip locked) d limit p_limit) d
    ), gone_ready as (
      delete from pawl.queue_ready r where r.ctid = any (array(select x.tid from ready x where x.before < p_limit)) returning r.*
    ), gone_delayed as (
      delete from pawl.queue_delayed d where d.ctid = any (array(select x.tid from delayed x where x.before < p_limit)) returning d.*
    ), freed as (
      delete from pawl.queue_key k using (
        select g.shard, g.key, g.epoch from gone_ready g where g.epoch is not null
        union all select g.shard, g.key, g.epoch from gone_delayed g where g.epoch is not null) g
      where k.shard = g.shard and k.queue = p_queue and k.key = g.key and k.epoch = g.epoch and not k.held
    ), gone_parked as (
      -- With the row of its key, which a worker that gives the key up locks first: otherwise the key's next head could be a deleted job.
      delete from pawl.queue_parked p where p.ctid = any (array(
        select q.tid from (
          select q.ctid as tid, q.shard, q.key from pawl.queue_parked q where q.queue = p_queue limit p_limit for update skip locked) q
        left join lateral (
          select k.key from pawl.queue_key k where k.shard = q.shard and k.queue = p_queue and k.key = q.key limit 1 for update skip locked) k on true
        where k.key is not null or not exists (
          select 1 from pawl.queue_key o where o.shard = q.shard and o.queue = p_queue and o.key = q.key))) returning p.shard, p.id, 1 as n, p.kind, p.attempt
    ), gone_grouped as (
      delete from pawl.queue_grouped g where g.ctid = any (array(
        select q.ctid from pawl.queue_grouped q where q.queue = p_queue limit p_limit for update skip locked)) returning g.shard, g.id, 1 as n, g.kind, g.attempt
    ), job as (
      select g.shard, i.id, g.kind, g.attempt from (
        select g.shard, g.id, g.n, g.kind, g.attempt from gone_ready g union all select g.shard, g.id, g.n, g.kind, g.attempt from gone_delayed g union all select * from gone_parked union all select * from gone_grouped) g
      cross join lateral generate_series(g.id, g.id + g.n - 1) i (id)
    ), dead as (
      insert into pawl.queue_dead (id, at, shard, queue, kind, attempt, status, error)
      select j.id, clock_timestamp(), j.shard, p_queue, j.kind, j.attempt, 'cancelled', 'its queue was removed' from job j
    )
    select j.shard, range_agg(int8range(j.id, j.id + 1)) as ids, count(*)::int as n, row_number() over (order by j.shard) > 1 as is_next
    from job j group by j.shard order by j.shard
  loop
    perform pawl.queue_ended(v_ended.shard, array[v_ended.ids], v_ended.is_next);
    v_count := v_count + v_ended.n;
  end loop;
  return v_count;
end $$;

-- Removes ended jobs, however old they are, with all their rows. Answers how many. If jobs or batches that wait for a job are left to queue_look, the
-- job's row of queue_dead stays until then, as in queue_erase_job: without it the job would count as complete.
create or replace function pawl.queue_remove_some(p_queue smallint, p_limit int) returns int
language plpgsql /* planner: loop */ as $$
declare
  v_shards smallint[];
  v_ids bigint[];
begin
  perform pawl.queue_unblock_all(p_queue, p_limit);
  with receipt as (
    delete from pawl.queue_receipt r where r.ctid = any (array(
      select o.tid from (
        select o.ctid as tid, sum(pawl.queue_size(o.ids)) over (order by o.settled_at, o.ctid) - pawl.queue_size(o.ids) as before
        from (select o.ctid, o.settled_at, o.ids from pawl.queue_receipt o where o.queue = p_queue order by o.settled_at limit p_limit for update skip locked) o) o
      where o.before < p_limit)) returning r.shard, r.ids
  ), one as (
    delete from pawl.queue_receipt_one r where r.ctid = any (array(
      select o.ctid from pawl.queue_receipt_one o where o.queue = p_queue order by o.settled_at limit p_limit for update skip locked)) returning r.shard, r.id
  ), dead as materialized (
    select o.* from unnest(array['error', 'cancelled']) s (status) cross join lateral (
      select o.ctid as tid, o.shard, o.id from pawl.queue_dead o
      where o.queue = p_queue and o.status = s.status and not pawl.queue_is_blocker(o.shard, o.id)
        and (exists (select 1 from pawl.queue_job j where j.shard = o.shard and j.id = o.id) or not pawl.queue_is_awaited(o.shard, o.id))
      order by o.id limit p_limit for update skip locked) o
  ), gone as (
    delete from pawl.queue_dead d where d.ctid = any (array(select o.tid from dead o where not pawl.queue_is_awaited(o.shard, o.id)))
  ), ended as (
    select r.shard, i.id from receipt r cross join lateral unnest(r.ids) u (span)
    cross join lateral generate_series(lower(u.span), upper(u.span) - 1) i (id)
    union select o.shard, o.id from one o
    union select d.shard, d.id from dead d
  )
  select array_agg(e.shard order by e.shard, e.id), array_agg(e.id order by e.shard, e.id) into v_shards, v_ids from ended e;
  if v_ids is null then
    -- Jobs that are unique for ever outlive the receipts that say that they are complete.
    select array_agg(o.shard order by o.shard, o.id), array_agg(o.id order by o.shard, o.id) into v_shards, v_ids from (
      (select u.shard, u.job as id from pawl.queue_unique u where u.queue = p_queue and coalesce(pawl.queue_status(u.shard, u.job), 'complete') = 'complete' limit p_limit)
      union
      (select j.shard, j.id from pawl.queue_kind k cross join generate_series(0, 255) s cross join lateral (
        select j.shard, j.id from pawl.queue_job j
        where j.shard = s::smallint and j.queue = p_queue and j.kind = k.id and j.only_one and pawl.queue_status(j.shard, j.id) = 'complete' limit p_limit) j
      where k.queue = p_queue limit p_limit)) o;
  end if;
  return pawl.queue_remove_jobs(v_shards, v_ids);
end $$;

-- Whether a job or a batch waits for an end of this job that has not been dealt with.
create or replace function pawl.queue_is_awaited(p_shard smallint, p_id bigint) returns boolean
language sql stable /* planner: probe */ as $$
  select exists (
    select 1 from pawl.queue_watch_part w where w.shard = p_shard and w.bucket = p_id / 256 and w.outstanding @> p_id)
$$;

-- Lets keys continue that jobs in error block, since these jobs are about to be removed. A key that another transaction has locked stays blocked, and its
-- jobs stay.
create or replace function pawl.queue_unblock_all(p_queue smallint, p_limit int) returns void
language plpgsql /* planner: loop */ as $$
declare
  v_key record;
begin
  for v_key in
    select b.shard, b.key from pawl.queue_blocked b where b.queue = p_queue order by b.shard, b.key limit p_limit
  loop
    continue when not pawl.queue_try_key(p_queue, v_key.shard, v_key.key);
    delete from pawl.queue_blocked b where b.queue = p_queue and b.shard = v_key.shard and b.key = v_key.key;
    perform pawl.queue_release_keys(p_queue, v_key.shard, array[v_key.key], array[k.epoch]) from pawl.queue_key k
    where found and k.shard = v_key.shard and k.queue = p_queue and k.key = v_key.key;
  end loop;
end $$;

-- Removes these jobs, which no table says the place of any more. Answers how many: a job that was retried by hand counts once.
create or replace function pawl.queue_remove_jobs(p_shards smallint[], p_ids bigint[]) returns int
language sql /* planner: loop */ as $$
  with gone as materialized (
    select u.shard, u.id from unnest(p_shards, p_ids) u (shard, id)
  ), output as (
    delete from pawl.queue_output o using gone g where o.shard = g.shard and o.id = g.id
  ), tag as (
    delete from pawl.queue_tag t using gone g where t.id = g.id
  ), trace as (
    delete from pawl.queue_trace t using gone g where t.id = g.id
  ), wish as (
    delete from pawl.queue_cancel c using gone g where c.shard = g.shard and c.id = g.id
  ), digest as (
    delete from pawl.queue_unique u using gone g where u.job = g.id
  ), job as (
    delete from pawl.queue_job j using gone g where j.shard = g.shard and j.id = g.id returning j.id
  )
  select count(*)::int from job
$$;

-- Ends a removal when no job is left: removes schedules, subscriptions, batches, and the rows of dead workers. Answers {schedules, subscriptions,
-- batches}. If jobs are left: null with p_force, since these jobs go, too, and PW003 without. The lock keeps new workers out until this is committed.
-- Enqueues are not kept out: what is removed here may belong to a job that was enqueued after the first check. Then nothing is removed.
create or replace function pawl.queue_remove_end(p_queue smallint, p_force boolean) returns json
language plpgsql /* planner: probe */ as $$
declare
  v_name text;
  v_lives boolean;
  v_schedules int;
  v_subscriptions int;
  v_batches int;
  v_used boolean;
begin
  select d.name into v_name from pawl.queue_definition d where d.id = p_queue for update;
  v_lives := exists (select 1 from pawl.queue_worker w where w.queue = p_queue and w.expires_at > clock_timestamp());
  v_used := pawl.queue_has_waiting(p_queue) or exists (select 1 from pawl.queue_blocked b where b.queue = p_queue) or (v_lives and not p_force);
  if not v_used then
    begin
      delete from pawl.queue_schedule s where s.queue = p_queue;
      get diagnostics v_schedules = row_count;
      delete from pawl.queue_schedule_run r where r.queue = p_queue;
      delete from pawl.queue_subscription s where s.queue = p_queue;
      get diagnostics v_subscriptions = row_count;
      -- The queue's jobs that came after others have been cancelled, so nothing waits by these watches any more. Parts first, in the order of watch.sql.
      perform from pawl.queue_watch_part p
      where p.watch in (select unnest(array[w.id, w.pack]) from pawl.queue_watch w where w.queue = p_queue and w.sort = 'after')
      order by p.bucket, p.watch, p.first for update;
      with over as (
        delete from pawl.queue_watch w where w.queue = p_queue and (w.over_at is not null or w.sort = 'after') returning w.id, w.sort, w.pack
      ), outstanding as (
        delete from pawl.queue_watch_part p where p.watch in (select unnest(array[o.id, o.pack]) from over o)
      ), part as (
        delete from pawl.queue_batch_part b using over o where b.batch = o.id
      ), child as (
        delete from pawl.queue_child c using over o where c.watch = o.id
      )
      select count(*) filter (where o.sort = 'batch') into v_batches from over o;
      -- What was left of jobs for these watches alone.
      delete from pawl.queue_dead d where d.queue = p_queue and not pawl.queue_is_awaited(d.shard, d.id)
        and not exists (select 1 from pawl.queue_job j where j.shard = d.shard and j.id = d.id);
      delete from pawl.queue_watch_over o where o.queue = p_queue;
      delete from pawl.queue_expiry e where e.queue = p_queue;
      delete from pawl.queue_untold u where u.queue = p_queue;
      delete from pawl.queue_key k where k.queue = p_queue and not (v_lives and k.held);
      delete from pawl.queue_group_note n where n.queue = p_queue and not exists (
        select 1 from pawl.queue_grouped g where g.shard = n.shard and g.queue = n.queue and g.group_name = n.group_name);
      delete from pawl.queue_permit t where t.queue = p_queue;
      delete from pawl.queue_rate r where r.queue = p_queue;
      delete from pawl.queue_worker w where w.queue = p_queue and w.expires_at < clock_timestamp();
      -- The offers of dead workers: no rescue of this queue removes them any more.
      delete from pawl.queue_offer o where o.queue = p_queue and not exists (select 1 from pawl.queue_worker w where w.id = o.worker);
      update pawl.queue_definition d set removed_at = clock_timestamp(), paused_at = null, paused_parts = null, schedules_version = null, suspects = '{}',
        -- An enqueue that is under way may have read the rows that go here, and may bring the queue back.
        own_letters = d.own_letters or exists (select 1 from pawl.queue_own_letter o where o.queue = p_queue)
      where d.id = p_queue;
      delete from pawl.queue_own_letter o where o.queue = p_queue;
      if pawl.queue_has_waiting(p_queue) then
        raise exception 'it is in use' using errcode = 'PWAGN';
      end if;
    exception when sqlstate 'PWAGN' then
      v_used := true;
    end;
  end if;
  if v_used and p_force then
    return null;
  elsif v_used then
    raise exception 'queue "%" is in use again, so it was not removed: its jobs that had ended are gone, its other jobs are unchanged', v_name
      using errcode = 'PW003';
  end if;
  return json_build_object('schedules', v_schedules, 'subscriptions', v_subscriptions, 'batches', v_batches);
end $$;
