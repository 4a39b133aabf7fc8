-- Batches: jobs that are counted together, and callbacks that are enqueued when the last of them has ended. A batch is a watch. While it is open,
-- transactions that add to it and transactions that settle its jobs share its latch, and do not wait for each other; sealing takes the latch alone. So
-- a settlement that saw the batch open is committed when the seal checks which jobs are outstanding.

-- Makes a batch: {queue, callbacks, parent}. parent: the batch of which it is a member, and which waits for it.
create or replace function pawl.queue_batch_new(p_request jsonb) returns bigint
language plpgsql /* planner: probe */ as $$
declare
  v_id bigint;
  v_parent bigint := p_request ->> 'parent';
begin
  if v_parent is not null then
    perform pawl.queue_batch_join(v_parent);
  end if;
  insert into pawl.queue_watch (sort, queue, callbacks)
  values ('batch', pawl.queue_id(p_request ->> 'queue'), p_request -> 'callbacks') returning id into v_id;
  if v_parent is not null then
    insert into pawl.queue_watch_part (shard, bucket, watch, first, outstanding, members)
    values (-1, v_id / 256, v_parent, v_id, int8multirange(int8range(v_id, v_id + 1)), int8multirange(int8range(v_id, v_id + 1)));
  end if;
  return v_id;
end $$;

-- Fails unless a batch is open, and keeps it open until the caller's transaction ends. The lock of the row is for a transaction with an old snapshot:
-- if the batch was sealed meanwhile, the lock makes it fail.
create or replace function pawl.queue_batch_join(p_batch bigint) returns void
language plpgsql /* planner: probe */ as $$
declare
  v_sealed timestamptz;
begin
  perform pg_advisory_xact_lock_shared(hashtextextended('pawl.queue_batch', p_batch));
  select w.sealed_at into v_sealed from pawl.queue_watch w where w.id = p_batch and w.sort = 'batch' for key share;
  if not found then
    raise exception 'there is no batch %; it was never committed, or its history is over', p_batch using errcode = 'PW002';
  elsif v_sealed is not null then
    raise exception 'batch % was sealed at %, so no more jobs can be added; make another batch', p_batch, v_sealed using errcode = 'PW003';
  end if;
end $$;

-- Adds jobs, as queue_add_json does, to a batch: [batch, jobs].
create or replace function pawl.queue_batch_add(p_request json) returns bigint[]
language plpgsql /* planner: loop */ as $$
declare
  v_batch bigint := (p_request ->> 0)::bigint;
  v_shard smallint := (p_request -> 1 -> 0 ->> 'shard')::smallint;
  v_ids bigint[];
  v_is_divided boolean;
begin
  perform pawl.queue_batch_join(v_batch);
  v_ids := pawl.queue_add_json(p_request -> 1);
  -- Then queue_add has divided the jobs among shards anew.
  select pawl.queue_is_divided_otherwise(v_shard, (p_request -> 1 -> 0 ->> 'declared')::smallint, d.shards) into v_is_divided
  from pawl.queue_definition d where d.id = ((p_request -> 1 -> 0 ->> 'queue')::bigint % 65536)::smallint;
  insert into pawl.queue_watch_part (shard, bucket, watch, first, outstanding, members)
  select j.shard, j.id / 256, v_batch, min(j.id), range_agg(int8range(j.id, j.id + 1)), range_agg(int8range(j.id, j.id + 1))
  from (select u.id, case when v_is_divided then pawl.queue_shard_of(u.id) else v_shard end as shard from unnest(v_ids) u (id)) j
  group by j.shard, j.id / 256;
  return v_ids;
end $$;

-- Makes an open batch for a caller without the declaration of its queue: {queue, parent?, onComplete?, onError?, onDone?}. It checks a callback by
-- enqueuing it, and rolls that back.
create or replace function pawl.queue_batch_make(p_request jsonb) returns bigint
language plpgsql as $$
declare
  v_callbacks jsonb := '{}';
  v_name text;
  v_request jsonb;
begin
  foreach v_name in array array['onComplete', 'onError', 'onDone'] loop
    continue when coalesce(jsonb_typeof(p_request -> v_name), 'null') = 'null';
    if jsonb_typeof(p_request -> v_name) <> 'object' then
      raise exception '% must be a job, such as {"kind": "report"}, got %', v_name, left(p_request ->> v_name, 100) using errcode = 'PW001', column = v_name;
    end if;
    v_request := jsonb_build_object('queue', p_request -> 'queue') || (p_request -> v_name);
    begin
      perform pawl.enqueue(v_request);
      raise exception 'it can be enqueued' using errcode = 'PWHTB';
    exception
      when sqlstate 'PWHTB' then
        null;
      when sqlstate 'PW001' or sqlstate 'PW002' then
        raise exception '%: %', v_name, sqlerrm using errcode = 'PW001', column = v_name;
    end;
    v_callbacks := v_callbacks || jsonb_build_object(v_name, v_request);
  end loop;
  return pawl.queue_batch_new(jsonb_build_object('queue', p_request -> 'queue', 'parent', p_request -> 'parent', 'callbacks', v_callbacks));
end $$;

-- Makes jobs members of an open batch, which the caller has joined. p_answer: what pawl.enqueue() answered. A unique job that existed already does not
-- become a member. A job that comes after one that had failed may have ended at once, so nothing else will take it out of its part.
create or replace function pawl.queue_batch_members(p_batch bigint, p_answer jsonb) returns void
language plpgsql /* planner: loop */ as $$
begin
  with member as materialized (
    select j.id, j.shard, (select d.status from pawl.queue_dead d where d.shard = j.shard and d.id = j.id) as ended
    from (
      select (a.value ->> 'id')::bigint as id, pawl.queue_shard_of((a.value ->> 'id')::bigint) as shard
      from jsonb_array_elements(case jsonb_typeof(p_answer) when 'array' then p_answer else jsonb_build_array(p_answer) end) a
      where not (a.value ->> 'duplicate')::boolean offset 0) j
  ), past as (
    insert into pawl.queue_batch_part (batch, shard, members, errors, cancels)
    select p_batch, m.shard, range_agg(int8range(m.id, m.id + 1)), count(*) filter (where m.ended = 'error'), count(*) filter (where m.ended = 'cancelled')
    from member m where m.ended is not null group by m.shard
  )
  insert into pawl.queue_watch_part (shard, bucket, watch, first, outstanding, members)
  select m.shard, m.id / 256, p_batch, min(m.id), range_agg(int8range(m.id, m.id + 1)), range_agg(int8range(m.id, m.id + 1))
  from member m where m.ended is null group by m.shard, m.id / 256;
end $$;

-- Seals a batch: from here on no job is added, so it waits for the outstanding jobs alone. Does nothing to a batch that is sealed.
create or replace function pawl.queue_batch_seal(p_batch bigint) returns void
language plpgsql /* planner: probe */ as $$
declare
  v_over record;
begin
  perform pg_advisory_xact_lock(hashtextextended('pawl.queue_batch', p_batch));
  update pawl.queue_watch w set sealed_at = clock_timestamp() where w.id = p_batch and w.sort = 'batch' and w.sealed_at is null;
  if not found then
    if not exists (select 1 from pawl.queue_watch w where w.id = p_batch and w.sort = 'batch') then
      raise exception 'there is no batch %; it was never committed, or its history is over', p_batch using errcode = 'PW002';
    end if;
    return;
  end if;
  v_over := pawl.queue_over(array[p_batch], array[0::bigint], array[0::bigint]);
  perform pawl.queue_ended(s.shard, array[s.ids], true) from unnest(v_over.shards, v_over.sets) s (shard, ids);
end $$;

-- Which of these batches are over now: sealed, and with nothing outstanding. Enqueues their callbacks. If one would have to wait for another
-- transaction, as for the job of a unique kind, the batch is left to queue_look, which tries again until that transaction has ended.
create or replace function pawl.queue_batches_over(p_watches bigint[]) returns bigint[]
language plpgsql /* planner: loop */ as $$
declare
  v_batch bigint;
  v_row pawl.queue_watch;
  v_sum record;
  v_over bigint[] := '{}';
begin
  for v_batch in
    select n.id from unnest(p_watches) u (id)
    cross join lateral (select n.id from pawl.queue_watch n where n.id = u.id and n.sort = 'batch' limit 1) n order by n.id desc
  loop
    perform pg_advisory_xact_lock_shared(hashtextextended('pawl.queue_batch', v_batch));
    continue when not exists (select 1 from pawl.queue_watch w where w.id = v_batch and w.sealed_at is not null);
    select w.* into v_row from pawl.queue_watch w where w.id = v_batch and w.over_at is null for update;
    continue when not found or exists (select 1 from pawl.queue_watch_part p where p.watch = v_batch);
    select coalesce(sum(b.errors), 0) as errors, coalesce(sum(b.cancels), 0) as cancels, coalesce(sum(pawl.queue_size(b.members)), 0) as total
    into v_sum from pawl.queue_batch_part b where b.batch = v_batch;
    begin
      update pawl.queue_watch w set over_at = clock_timestamp(), errors = v_sum.errors, cancels = v_sum.cancels, check_at = null,
        problem = pawl.queue_batch_call(v_row, v_sum.total::bigint, v_sum.errors::bigint, v_sum.cancels::bigint)
      where w.id = v_batch;
    exception when lock_not_available or deadlock_detected then
      perform pawl.queue_come_back(array[v_batch]);
      continue;
    end;
    v_over := array_append(v_over, v_batch);
  end loop;
  return v_over;
end $$;

-- Enqueues the callbacks of a batch that is over. Answers why that failed, if it did: a failure must not keep the batch's last job from being settled.
-- Raises lock_not_available, or deadlock_detected, if another transaction is in the way for the moment.
create or replace function pawl.queue_batch_call(p_batch pawl.queue_watch, p_total bigint, p_errors bigint, p_cancels bigint) returns text
language plpgsql set lock_timeout = '50ms' as $$
declare
  v_name text;
  v_request jsonb;
begin
  foreach v_name in array array[case when p_errors + p_cancels > 0 then 'onError' else 'onComplete' end, 'onDone'] loop
    v_request := p_batch.callbacks -> v_name;
    continue when v_request is null;
    perform pawl.enqueue(v_request || jsonb_build_object('meta', coalesce(v_request -> 'meta', '{}') || jsonb_build_object('batch', jsonb_build_object(
      'id', p_batch.id::text, 'total', p_total, 'errors', p_errors, 'cancelled', p_cancels))));
  end loop;
  return null;
exception
  when lock_not_available or deadlock_detected then
    raise;
  when others then
    return format('%s was not enqueued: %s', v_name, sqlerrm);
end $$;

-- The progress of a batch: {queue, total, outstanding, errors, cancelled, sealedAt, doneAt, problem}; null if it does not exist. Members are jobs and
-- batches; errors and cancelled count members that have ended.
create or replace function pawl.queue_batch_progress(p_batch bigint) returns json
language sql stable /* planner: loop */ as $$
  select json_build_object('queue', d.name, 'total', coalesce(p.total, 0) + coalesce(b.total, 0), 'outstanding', coalesce(p.outstanding, 0),
    'errors', coalesce(p.errors, 0) + coalesce(b.errors, 0), 'cancelled', coalesce(p.cancels, 0) + coalesce(b.cancels, 0),
    'sealedAt', w.sealed_at, 'doneAt', w.over_at, 'problem', w.problem)
  from pawl.queue_watch w join pawl.queue_definition d on d.id = w.queue
  cross join lateral (
    select sum(pawl.queue_size(p.members)) as total, sum(pawl.queue_size(p.outstanding)) as outstanding, sum(p.errors) as errors, sum(p.cancels) as cancels
    from pawl.queue_watch_part p where p.watch = w.id) p
  cross join lateral (
    select sum(pawl.queue_size(b.members)) as total, sum(b.errors) as errors, sum(b.cancels) as cancels from pawl.queue_batch_part b where b.batch = w.id) b
  where w.id = p_batch and w.sort = 'batch'
$$;
