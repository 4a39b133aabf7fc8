-- The watch: a row that says who waits for which jobs. A transaction that ends jobs probes for watches once, after its own writes. As a rule it
-- reads the index of an empty table. The same transaction deals with the watches that it finds.
--
-- A settlement that has probed and is not yet committed does not see a watch that is committed meanwhile, and the watch does not see the end of
-- the jobs. So new watches are checked again, until no transaction is left that could have missed them.
--
-- Rows are locked last, parts before watches; parts by bucket, watch and first job.

-- Deals with the watches of jobs of a shard that have ended, in this transaction: jobs of groups give their places back, and the waiters of jobs are
-- notified. Answers the queues in which there may be something to claim now. If jobs end because others did, a loop deals with them in the same
-- way: a chain of a thousand jobs would not fit on the stack. p_briefly: this transaction has locked watches before. Only a transaction that has
-- locked none waits for parts; otherwise two would wait for each other.
create or replace function pawl.queue_ended(p_shard smallint, p_ids int8multirange[], p_briefly boolean default false) returns smallint[]
language plpgsql /* planner: loop */ as $$
declare
  v_shards smallint[] := array[p_shard];
  v_sets int8multirange[] := array[(
    select range_agg(s.span) from unnest(p_ids) i (ids) cross join lateral unnest(i.ids) s (span))];
  v_queues smallint[] := '{}';
  v_done int := 0;
  v_step record;
begin
  if v_sets[1] is not null and exists (select 1 from pawl.queue_place p where p.shard = p_shard) then
    v_queues := pawl.queue_leave_places(p_shard, v_sets[1]);
  end if;
  while v_done < cardinality(v_sets) loop
    v_done := v_done + 1;
    continue when v_sets[v_done] is null;
    -- If there are places of groups, each settlement gets here, though no job may be watched.
    continue when not exists (select 1 from pawl.queue_watch_part w where w.shard = v_shards[v_done] and w.bucket >= 0);
    if current_setting('transaction_isolation') <> 'read committed' then
      -- The snapshot may be older than the ends of other jobs: it would not show that none is left.
      perform pawl.queue_look_again(v_shards[v_done], v_sets[v_done]);
      continue;
    elsif v_done > 1 or p_briefly then
      begin
        v_step := pawl.queue_ended_briefly(v_shards[v_done], v_sets[v_done]);
      exception when lock_not_available then
        perform pawl.queue_look_again(v_shards[v_done], v_sets[v_done]);
        continue;
      end;
    else
      v_step := pawl.queue_ended_step(v_shards[v_done], v_sets[v_done]);
    end if;
    v_queues := v_queues || v_step.queues;
    v_shards := v_shards || v_step.shards;
    v_sets := v_sets || v_step.sets;
  end loop;
  if v_queues <> '{}' then
    perform pawl.queue_wake(q.id) from (select distinct u.id from unnest(v_queues) u (id) order by u.id) q;
  end if;
  return v_queues;
end $$;

-- As queue_ended_step, unless that waits for a lock. A part is locked for the time of a commit; the server searches for deadlocks later.
create or replace function pawl.queue_ended_briefly(
  p_shard smallint, p_ended int8multirange, out queues smallint[], out shards smallint[], out sets int8multirange[]
)
language sql set lock_timeout = '20ms' as $$
  select s.queues, s.shards, s.sets from pawl.queue_ended_step(p_shard, p_ended) s
$$;

-- Takes these jobs out of the parts that wait for them. Answers the queues of jobs that may run now, and the jobs that end because of it, by shard.
create or replace function pawl.queue_ended_step(
  p_shard smallint, p_ended int8multirange, out queues smallint[], out shards smallint[], out sets int8multirange[]
)
language plpgsql /* planner: loop */ as $$
declare
  v_wholes tid[]; v_waits boolean;
  v_buckets bigint[]; v_watches bigint[]; v_firsts bigint[];
  v_packs boolean; v_asked int;
  v_errors int8multirange; v_cancels int8multirange;
  v_told bigint[]; v_told_jobs bigint[];
  v_free bigint[]; v_free_shards smallint[]; v_free_sets int8multirange[];
  v_set record;
  v_gone bigint[]; v_gone_errors bigint[]; v_gone_cancels bigint[];
begin
  queues := '{}';
  shards := '{}';
  sets := '{}';
  loop
    select array_agg(h.tid order by h.bucket, h.watch, h.first) filter (where h.is_whole),
      array_agg(h.bucket) filter (where not h.is_whole), array_agg(h.watch) filter (where not h.is_whole), array_agg(h.first) filter (where not h.is_whole),
      bool_or(h.is_pack), bool_and(h.is_wait)
    into v_wholes, v_buckets, v_watches, v_firsts, v_packs, v_waits
    from (
      select distinct b.bucket from unnest(p_ended) s (span)
      cross join lateral generate_series(lower(s.span) / 256, (upper(s.span) - 1) / 256) b (bucket)
    ) b
    cross join lateral (
      select w.ctid as tid, w.bucket, w.watch, w.first, w.outstanding <@ p_ended as is_whole, w.ns is not null as is_pack,
        w.parts is null and w.members is null and w.ns is null as is_wait from pawl.queue_watch_part w
      where w.shard = p_shard and w.bucket = b.bucket and w.outstanding && p_ended offset 0) h;
    if v_wholes is null and v_watches is null then
      return;
    elsif v_waits and v_watches is null then
      perform pawl.queue_tell_whole(p_shard, p_ended, v_wholes);
      return;
    elsif v_watches is not null then
      perform from (
        select w.watch from unnest(v_buckets, v_watches, v_firsts) u (bucket, watch, first)
        join pawl.queue_watch_part w on w.shard = p_shard and w.bucket = u.bucket and w.watch = u.watch and w.first = u.first and w.outstanding && p_ended
        where w.ns is null order by w.bucket, w.watch, w.first for update of w) w;
      if v_packs then
        v_asked := cardinality(v_watches);
        select l.* into v_buckets, v_watches, v_firsts from pawl.queue_lock_packs(p_shard, p_ended, v_buckets, v_watches, v_firsts) l;
        if cardinality(v_watches) < v_asked then
          perform pawl.queue_look_later(p_shard, p_ended);
        end if;
      end if;
    end if;
    select e.errors, e.cancels into v_errors, v_cancels from pawl.queue_ended_badly(p_shard, p_ended) e;
    exit when not v_packs or isempty(v_errors) and isempty(v_cancels) or not pawl.queue_unpack(p_shard, v_errors + v_cancels, v_wholes, v_watches);
  end loop;
  -- A new statement: it sees the rows as they were when they were locked. If all jobs of a part have ended now, no other settlement needs the part
  -- any more, so it is removed without such a lock, in the order in which all parts are locked.
  with whole as (
    delete from pawl.queue_watch_part w using unnest(v_wholes) with ordinality u (tid, ord) where w.ctid = u.tid and w.outstanding <@ p_ended
    returning w.*
  ), hit as materialized (
    select w.*, isempty(w.outstanding - p_ended) as is_gone,
      -- The call takes 5 us, and as a rule there is nothing to count.
      w.errors + case when isempty(v_errors) then 0 else coalesce(pawl.queue_size(w.outstanding * v_errors), 0) end as now_errors,
      w.cancels + case when isempty(v_cancels) then 0 else coalesce(pawl.queue_size(w.outstanding * v_cancels), 0) end as now_cancels
    from unnest(v_buckets, v_watches, v_firsts) u (bucket, watch, first)
    cross join lateral (
      select w.*, w.ctid as tid from pawl.queue_watch_part w
      where w.shard = p_shard and w.bucket = u.bucket and w.watch = u.watch and w.first = u.first offset 0) w
  ), gone as (
    delete from pawl.queue_watch_part w where w.ctid = any (array(select h.tid from hit h where h.is_gone))
  ), kept as (
    update pawl.queue_watch_part w set outstanding = w.outstanding - p_ended, errors = h.now_errors, cancels = h.now_cancels from hit h
    where not h.is_gone and w.ctid = h.tid
  ), past as materialized (
    select w.watch, w.first, w.only_of, w.parts, w.shard, w.members,
      w.errors + case when isempty(v_errors) then 0 else coalesce(pawl.queue_size(w.outstanding * v_errors), 0) end as errors,
      w.cancels + case when isempty(v_cancels) then 0 else coalesce(pawl.queue_size(w.outstanding * v_cancels), 0) end as cancels
    from whole w where w.ns is null
    union all
    select h.watch, h.first, h.only_of, h.parts, h.shard, h.members, h.now_errors, h.now_cancels from hit h where h.is_gone and h.ns is null
  ), done as (
    insert into pawl.queue_batch_part (batch, shard, members, errors, cancels)
    select p.watch, p.shard, p.members, p.errors, p.cancels from past p where p.members is not null
  ), watch as materialized (
    -- Free: all parts that the watch ever had are removed here, so no other settlement needs the watch, either.
    select p.watch, min(p.only_of) as only_of, sum(p.errors) as errors, sum(p.cancels) as cancels,
      min(p.only_of) is not null and count(*) = min(p.parts) and sum(p.errors) = 0 and sum(p.cancels) = 0 as is_free
    from past p group by p.watch
  ), free as materialized (
    select k.only_of, e.watch, p_shard as shard, e.first, e.n from (
      select w.only_of, w.outstanding, '{}'::int8multirange as rest, w.watches, w.parents, w.firsts, w.ns from whole w where w.ns is not null
      union all
      select h.only_of, h.outstanding, h.outstanding - p_ended, h.watches, h.parents, h.firsts, h.ns from hit h where h.ns is not null) k
    cross join lateral unnest(k.watches, k.parents, k.firsts, k.ns) e (watch, parents, first, n)
    where e.parents && k.outstanding and not e.parents && k.rest
    union all
    select w.only_of, w.watch, c.shard, c.first, c.n from watch w
    cross join lateral (select c.* from pawl.queue_child c where c.watch = w.watch offset 0) c where w.is_free
  ), over as (
    insert into pawl.queue_watch_over (over_at, queue, watches)
    select clock_timestamp(), f.only_of, array_agg(distinct f.watch) from (select f.*, row_number() over () / 256 as nth from free f) f group by f.only_of, f.nth
  )
  select t.*, g.*, f.*, s.* into v_told, v_told_jobs, v_gone, v_gone_errors, v_gone_cancels, v_free, v_free_shards, v_free_sets
  from (select array_agg(p.watch), array_agg(p.first) from past p where p.only_of is null and p.members is null) t
  cross join (select array_agg(w.watch), array_agg(w.errors), array_agg(w.cancels) from watch w where not w.is_free) g
  cross join (select array_agg(f.watch) from free f) f
  cross join (
    select array_agg(s.shard), array_agg(s.ids) from (
      select f.shard, range_agg(int8range(f.first, f.first + f.n)) as ids from free f group by f.shard order by f.shard) s) s;
  if v_told is not null then
    perform pawl.queue_tell(p_shard, v_told, v_told_jobs);
  end if;
  if v_gone is not null then
    select o.queues, o.shards, o.sets into queues, shards, sets from pawl.queue_over(v_gone, v_gone_errors, v_gone_cancels) o;
  end if;
  for v_set in select s.shard, s.ids from unnest(v_free_shards, v_free_sets) s (shard, ids) loop
    queues := queues || pawl.queue_free_jobs(v_set.shard, v_set.ids, v_free);
  end loop;
end $$;

-- Which of these jobs, or batches (shard -1), ended in error, and which as cancelled. It becomes a part of the caller's plan.
create or replace function pawl.queue_ended_badly(p_shard smallint, p_ended int8multirange) returns table (errors int8multirange, cancels int8multirange)
language sql stable as $$
  select coalesce(range_agg(int8range(d.id, d.id + 1)) filter (where d.status = 'error'), '{}'),
    coalesce(range_agg(int8range(d.id, d.id + 1)) filter (where d.status = 'cancelled'), '{}')
  from unnest(p_ended) s (span) cross join lateral (
    select d.id, d.status from pawl.queue_dead d where d.shard = p_shard and d.id >= lower(s.span) and d.id < upper(s.span)
    union all
    select w.id, case when w.errors > 0 then 'error' when w.cancels > 0 then 'cancelled' end from pawl.queue_watch w
    where p_shard = -1 and w.id >= lower(s.span) and w.id < upper(s.span) offset 0) d
$$;

-- For jobs that only processes wait for, as with run(): removes their parts, and notifies the processes. The statement of queue_ended_step does
-- that, too, but has five tables: with it, a settlement of one such job took 615 us, and takes 335 us this way (180 us if no process waits for the
-- job). Runs under the planner settings of its caller.
create or replace function pawl.queue_tell_whole(p_shard smallint, p_ended int8multirange, p_parts tid[]) returns void
language plpgsql as $$
declare
  v_watches bigint[];
  v_jobs bigint[];
begin
  with told as (
    delete from pawl.queue_watch_part w using unnest(p_parts) u (tid) where w.ctid = u.tid and w.outstanding <@ p_ended returning w.watch, w.first
  )
  select array_agg(t.watch), array_agg(t.first) into v_watches, v_jobs from told t;
  if v_watches is not null then
    perform pawl.queue_tell(p_shard, v_watches, v_jobs);
  end if;
end $$;

-- These watches have lost parts, with so many jobs in error and cancelled. A watch of which no part is left is over: one transaction finds that,
-- since it has the lock of the watch's row when it checks. The jobs that waited for the watch run, or end in error or as cancelled. Watches are
-- locked last to first. If a settlement removes all parts of a watch, and no job failed, it does not call this: it neither locks nor writes the
-- watch, which were 12 of the 42 us that a freed job took. Answers as queue_ended_step.
create or replace function pawl.queue_over(
  p_watches bigint[], p_errors bigint[], p_cancels bigint[], out queues smallint[], out shards smallint[], out sets int8multirange[]
)
language plpgsql /* planner: loop */ as $$
declare
  v_mine bigint[];
  v_over bigint[];
  v_over_queues smallint[];
  v_batches bigint[];
begin
  queues := '{}';
  shards := '{}';
  sets := '{}';
  v_batches := pawl.queue_batches_over(p_watches);
  if v_batches <> '{}' then
    shards := array[-1::smallint];
    sets := array[(select range_agg(int8range(b.id, b.id + 1)) from unnest(v_batches) b (id))];
  end if;
  select array_agg(w.id) into v_mine from (
    select w.id from unnest(p_watches) u (id)
    cross join lateral (select n.id from pawl.queue_watch n where n.id = u.id limit 1) n join pawl.queue_watch w on w.id = n.id
    where w.sort = 'after' order by w.id desc for update of w) w;
  if v_mine is null then
    return;
  end if;
  update pawl.queue_watch w set errors = w.errors + u.errors, cancels = w.cancels + u.cancels
  from unnest(p_watches, p_errors, p_cancels) u (id, errors, cancels)
  where w.id = u.id and w.id = any (v_mine) and (u.errors > 0 or u.cancels > 0);
  select array_agg(w.id), array_agg(w.queue) into v_over, v_over_queues from pawl.queue_watch w
  where w.id = any (v_mine) and not exists (select 1 from pawl.queue_watch_part p where p.watch = w.id offset 0);
  if v_over is not null then
    update pawl.queue_watch w set check_at = null where w.id = any (v_over) and w.check_at is not null;
    perform pawl.queue_note_over(v_over, v_over_queues);
    select l.queues, queue_over.shards || l.shards, queue_over.sets || l.sets into queues, shards, sets from pawl.queue_let_go(v_over) l;
  end if;
end $$;

-- Notes that watches of jobs that come after others are over: from now on their history ages. p_queues: the queues of the jobs that waited.
create or replace function pawl.queue_note_over(p_watches bigint[], p_queues smallint[]) returns void
language sql set search_path = pg_catalog, pg_temp as $$
  insert into pawl.queue_watch_over (over_at, queue, watches)
  select clock_timestamp(), u.queue, array_agg(u.watch) from (
    select u.*, (row_number() over (partition by u.queue) - 1) / 256 as pack from unnest(p_watches, p_queues) u (watch, queue)) u
  group by u.queue, u.pack
$$;

-- These watches are over, and the caller has locked their rows: lets the jobs run that waited for them, or ends them in error or as cancelled.
-- Answers as queue_ended_step.
create or replace function pawl.queue_let_go(
  p_watches bigint[], out queues smallint[], out shards smallint[], out sets int8multirange[]
)
language plpgsql /* planner: loop */ as $$
declare
  v_fate record;
  v_ended record;
begin
  queues := '{}';
  shards := '{}';
  sets := '{}';
  for v_fate in
    select f.fate, array_agg(f.id order by f.id) as ids from (
      select w.id, case when w.errors > 0 and w.after_error <> 'run' then w.after_error
        when w.cancels > 0 and w.after_cancel <> 'run' then w.after_cancel else 'run' end as fate
      from pawl.queue_watch w where w.id = any (p_watches)) f
    group by f.fate order by f.fate
  loop
    if v_fate.fate = 'run' then
      queues := pawl.queue_free(v_fate.ids);
    else
      v_ended := pawl.queue_end_children(v_fate.ids, case v_fate.fate when 'cancel' then 'cancelled' else 'error' end);
      shards := shards || v_ended.shards;
      sets := sets || v_ended.sets;
      if v_ended.passed then
        perform pawl.queue_come_back(v_fate.ids);
      end if;
    end if;
  end loop;
end $$;

-- Reads and checks the jobs and batches that a request to pawl.enqueue() comes after: ids, and {"batch": id}.
create or replace function pawl.queue_after(request jsonb, out ids bigint[], out batches bigint[])
language plpgsql stable as $$
declare
  v_name text;
begin
  foreach v_name in array array['afterError', 'afterCancel'] loop
    if request ->> v_name not in ('run', 'error', 'cancel') then
      raise exception '% must be run, error or cancel, got %', v_name, left(request ->> v_name, 100) using errcode = 'PW001', column = v_name;
    end if;
  end loop;
  ids := '{}';
  batches := '{}';
  if jsonb_typeof(request -> 'after') is null or jsonb_typeof(request -> 'after') = 'null' then
    return;
  end if;
  begin
    ids := array(select (a.value #>> '{}')::bigint from jsonb_array_elements(request -> 'after') a (value) where jsonb_typeof(a.value) <> 'object');
    batches := array(select (a.value ->> 'batch')::bigint from jsonb_array_elements(request -> 'after') a (value) where jsonb_typeof(a.value) = 'object');
  exception when others then
    ids := null;
  end;
  if ids is null or cardinality(ids || batches) > 10000 or array_position(ids || batches, null) is not null then
    raise exception 'after must be an array of at most 10000 ids of jobs and batches, got %', left(request ->> 'after', 100)
      using errcode = 'PW001', column = 'after';
  end if;
end $$;

-- The run_at of a job that waits for others: the end of the times that a caller may name.
create or replace function pawl.queue_never() returns timestamptz
language sql immutable as $$ select timestamptz '10000-01-01 00:00:00+00' $$;

-- Makes jobs of this transaction, which are delayed until pawl.queue_never(), come after others. p_firsts, p_ns: the jobs, as runs of consecutive
-- ids; p_fresh: the others that are of this transaction, too, so that none of these can have begun. Such a job can only have ended because a job
-- that it comes after had failed before. Others that have ended count at once. Answers the queues of the jobs that may run now.
create or replace function pawl.queue_await(
  p_queue smallint, p_shard smallint, p_firsts bigint[], p_ns int[], p_parents bigint[], p_batches bigint[], p_after_error text, p_after_cancel text, p_fresh int8multirange
) returns smallint[]
language plpgsql /* planner: loop */ as $$
declare
  v_watch bigint := nextval(pg_get_serial_sequence('pawl.queue_watch', 'id'));
  v_ids bigint[];
  v_shards smallint[];
  v_statuses text[];
  v_unsure boolean;
  v_over record;
begin
  select array_agg(p.id order by p.id), array_agg(p.shard order by p.id),
    array_agg(case when p_fresh @> p.id and p.shard is not null
      then coalesce((select d.status from pawl.queue_dead d where d.shard = p.shard and d.id = p.id), 'new')
      else pawl.queue_status(p.shard, p.id) end order by p.id)
  into v_ids, v_shards, v_statuses
  from (select distinct u.id from unnest(p_parents) u (id)) u
  cross join lateral (
    select u.id, coalesce((select 0::smallint from pawl.queue_job j where j.shard = 0 and j.id = u.id), pawl.queue_shard_of(u.id)) as shard offset 0) p;
  if array_position(v_statuses, null) is not null then
    raise exception 'there is no job % to come after; it was never committed, or its history is over', v_ids[array_position(v_statuses, null)]
      using errcode = 'PW002';
  end if;
  if p_batches <> '{}' then
    if exists (select 1 from unnest(p_batches) b (id) where not exists (select 1 from pawl.queue_watch w where w.id = b.id and w.sort = 'batch')) then
      raise exception 'there is no batch of % to come after; it was never committed, or its history is over', p_batches using errcode = 'PW002';
    end if;
    select v_ids || array_agg(w.id), v_shards || array_agg(-1::smallint), v_statuses || array_agg(
      case when w.over_at is null then 'new' when w.errors > 0 then 'error' when w.cancels > 0 then 'cancelled' else 'complete' end)
    into v_ids, v_shards, v_statuses from pawl.queue_watch w where w.id = any (p_batches);
  end if;
  insert into pawl.queue_child (shard, first, n, watch)
  select p_shard, u.first, u.n, v_watch from unnest(p_firsts, p_ns) u (first, n);
  with parent as materialized (
    select u.id, u.shard, u.status from unnest(v_ids, v_shards, v_statuses) u (id, shard, status)
  ), part as (
    insert into pawl.queue_watch_part (shard, bucket, watch, first, outstanding, only_of, parts)
    select p.shard, p.id / 256, v_watch, min(p.id), range_agg(int8range(p.id, p.id + 1)),
      case when not v_statuses && '{error,cancelled}' then p_queue end, count(*) over ()
    from parent p where p.status in ('new', 'in-progress') group by p.shard, p.id / 256
  )
  insert into pawl.queue_watch (id, sort, queue, shard, parents, batches, after_error, after_cancel, errors, cancels, check_at)
  select v_watch, 'after', p_queue, p_shard, range_agg(int8range(p.id, p.id + 1)) filter (where p.shard >= 0), p_batches, p_after_error, p_after_cancel,
    count(*) filter (where p.status = 'error'), count(*) filter (where p.status = 'cancelled'),
    case when bool_or(p.status in ('new', 'in-progress') and not (p.shard >= 0 and p_fresh @> p.id)) then clock_timestamp() end
  from parent p;
  if not 'new' = any (v_statuses) and not 'in-progress' = any (v_statuses) then
    v_over := pawl.queue_over(array[v_watch], array[0::bigint], array[0::bigint]);
    perform pawl.queue_ended(s.shard, array[s.ids], true) from unnest(v_over.shards, v_over.sets) s (shard, ids);
    return v_over.queues;
  end if;
  -- Sent with the commit: a settlement that has probed before does not see this watch.
  if exists (select 1 from pawl.queue_watch w where w.id = v_watch and w.check_at is not null) then
    perform pg_notify('pawl_queue', 'look');
  end if;
  return '{}';
end $$;

-- As queue_ended, for one job that completes in a transaction of its own, as each job with hold 'transaction' does. It has one setting: more would
-- cost more than the probe. It answers the id, so that it can be among the values of the receipt. As a column that the statement returns, it cost 20 us
-- more, since Postgres keeps a returned row before it sends it.
create or replace function pawl.queue_ended_alone(p_shard smallint, p_id bigint, p_queue smallint) returns bigint
language plpgsql set enable_seqscan = off as $$
begin
  if exists (select 1 from pawl.queue_watch_part w where w.shard = p_shard and (w.bucket >= 0 or w.first = p_queue)) then
    perform pawl.queue_ended(p_shard, array[int8multirange(int8range(p_id, p_id + 1))]);
  end if;
  return p_id;
end $$;

-- False if no process has waited for a job since the last vacuum: then no probe is needed. The size of the file shows a row before its commit. It is
-- volatile, as the function that it calls, so that Postgres inlines it. Declared stable, it is a call that is planned with each statement.
create or replace function pawl.queue_has_watches() returns boolean
language sql volatile as $$
  select pg_catalog.pg_relation_size('pawl.queue_watch_part'::pg_catalog.regclass) operator(pg_catalog.>) 0::bigint
$$;

-- Notifies the processes that wait for jobs which have just ended: [[id, status, result], …]. A result that would make the notification too long is
-- left out, and the waiter reads it. The waiter also reads everything about a job that is not complete.
create or replace function pawl.queue_tell(p_shard smallint, p_watches bigint[], p_ids bigint[]) returns void
language sql /* planner: loop */ as $$
  with line as materialized (
    select w.channel, u.id, case
      when d.status is not null then concat('[', u.id, ',"', d.status, '"]')
      when octet_length(r.result) <= 3500 then concat('[', u.id, ',"complete",', r.result, ']')
      else concat('[', u.id, ',"complete"]') end as text
    from unnest(p_watches, p_ids) u (watch, id)
    cross join lateral (select w.channel from pawl.queue_watch w where w.id = u.watch and w.sort = 'process' limit 1) w
    left join lateral (select d.status from pawl.queue_dead d where d.shard = p_shard and d.id = u.id limit 1) d on true
    cross join lateral (
      select coalesce((
        select coalesce(o.result, s.result)::text from pawl.queue_output o
        left join pawl.queue_output s on s.shard = o.shard and s.id = o.result_of
        where o.shard = p_shard and o.id = u.id), 'null') as result offset 0) r
  ), packed as (  -- 8,000 bytes are the limit; a line has up to 3,600, so a pack that begins below 3,700 fits
    select l.channel, string_agg(l.text, ',' order by l.id) as texts from (
      select l.*, (sum(octet_length(l.text) + 1) over (partition by l.channel order by l.id)) / 3700 as pack from line l) l
    group by l.channel, l.pack
  )
  select pg_notify(p.channel, '[' || p.texts || ']') from packed p
$$;

-- A process waits for jobs. p_new: from now on; p_old: it waits for these already; p_gone: it no longer waits for these. Answers [[id, queue, status],
-- …]: all of p_new, and those of p_old that have ended. The status is null until a job has ended; of a job that does not exist, the queue is null,
-- too. This call may miss a settlement that is under way, so the process names p_new again a moment later, as p_old. Nothing of it is flushed: a
-- crash also ends the connection that listens.
create or replace function pawl.queue_wait(
  p_channel text, p_lease double precision, p_new bigint[], p_old bigint[], p_gone bigint[]
) returns json
language plpgsql /* planner: loop */ as $$
declare
  v_watch bigint;
  v_new bigint[] := p_new;
  v_answer json;
  v_over bigint[];
begin
  if current_setting('synchronous_commit') <> 'off' then
    perform set_config('synchronous_commit', 'off', true);
  end if;
  update pawl.queue_watch w set expires_at = clock_timestamp() + p_lease * interval '1 millisecond' where w.channel = p_channel returning w.id into v_watch;
  if v_watch is null then  -- the first call of the process, or it was declared dead
    insert into pawl.queue_watch as w (sort, channel, expires_at)
    values ('process', p_channel, clock_timestamp() + p_lease * interval '1 millisecond')
    on conflict (channel) where channel is not null do update set expires_at = excluded.expires_at returning w.id into v_watch;
    v_new := p_new || p_old;
  end if;
  delete from pawl.queue_watch_part w where w.watch = v_watch and w.first = any (p_gone);
  insert into pawl.queue_watch_part (shard, bucket, watch, first, outstanding)
  select s.shard, u.id / 256, v_watch, u.id, int8multirange(int8range(u.id, u.id + 1))
  from unnest(v_new) u (id) cross join lateral (select pawl.queue_shard_of(u.id) as shard offset 0) s
  where s.shard is not null
  on conflict do nothing;
  -- A new statement: it sees the jobs that ended before the parts were written.
  select json_agg(json_build_array(j.id, j.queue, j.status)) filter (where j.is_new or j.queue is null or j.status is not null),
    array_agg(j.id) filter (where j.queue is null or j.status is not null)
  into v_answer, v_over
  from (
    select u.id, u.is_new, q.name as queue, nullif(nullif(pawl.queue_status(s.shard, u.id), 'new'), 'in-progress') as status
    from (select n.id, true as is_new from unnest(p_new) n (id) union all select o.id, false from unnest(p_old) o (id)) u
    cross join lateral (select pawl.queue_shard_of(u.id) as shard offset 0) s
    left join lateral (select j.queue from pawl.queue_job j where j.shard = s.shard and j.id = u.id limit 1) j on true
    left join pawl.queue_definition q on q.id = j.queue
  ) j;
  if v_over is not null then
    delete from pawl.queue_watch_part w where w.watch = v_watch and w.first = any (v_over);
  end if;
  return coalesce(v_answer, '[]');
end $$;

-- As queue_add_alone, for a job that the process of this channel waits for. The wait is committed together with the job, so no settlement misses
-- it, and the process need not ask again. Also answers isAwaited: false if the process has no watch any more, so that it has to wait as for any
-- other job.
create or replace function pawl.queue_add_awaited(
  p_queue smallint, p_shard smallint, p_kind smallint, p_priority smallint, p_payload json, p_key text, p_run_at timestamptz,
  p_options json, p_delay double precision, p_channel text
) returns text
language plpgsql /* planner: probe */ as $$
declare
  v_answer text := pawl.queue_add_alone(p_queue, p_shard, p_kind, p_priority, p_payload, p_key, p_run_at, p_options, p_delay);
  v_id bigint := v_answer::json ->> 'id';
begin
  if (p_key is not null or p_shard > 0 or p_options is not null) and not exists (select 1 from pawl.queue_job j where j.shard = p_shard and j.id = v_id) then
    p_shard := pawl.queue_shard_of(v_id);  -- see shard.sql
  end if;
  -- If the watch is just being removed, the part stays until its job ends.
  insert into pawl.queue_watch_part (shard, bucket, watch, first, outstanding)
  select p_shard, v_id / 256, w.id, v_id, int8multirange(int8range(v_id, v_id + 1)) from pawl.queue_watch w where w.channel = p_channel;
  return left(v_answer, -1) || ',"isAwaited":' || found || '}';
end $$;

-- Ends all waits of a process.
create or replace function pawl.queue_wait_end(p_channel text) returns void
language plpgsql /* planner: probe */ as $$
begin
  delete from pawl.queue_watch_part p where p.watch in (select w.id from pawl.queue_watch w where w.channel = p_channel);
  delete from pawl.queue_watch w where w.channel = p_channel;
end $$;

-- Removes the watches of processes that died. As a rule this reads an empty table.
create or replace function pawl.queue_sweep_watches() returns integer
language plpgsql /* planner: probe */ as $$
declare
  v_watches bigint[];
begin
  v_watches := array(
    select w.id from pawl.queue_watch w where w.expires_at < clock_timestamp() order by w.id for update skip locked);
  if v_watches <> '{}' then
    delete from pawl.queue_watch_part p where p.watch = any (v_watches);
    delete from pawl.queue_watch w where w.id = any (v_watches);
  end if;
  return cardinality(v_watches);
end $$;

-- The watch of a job that comes after others; null for any other job.
create or replace function pawl.queue_watch_of(p_shard smallint, p_id bigint) returns bigint
language sql stable as $$
  select c.watch from (
    select c.watch, c.first + c.n as past from pawl.queue_child c where c.shard = p_shard and c.first <= p_id order by c.first desc limit 1) c
  where c.past > p_id
$$;

-- What a waiting job still waits for: {jobs, first: an id}.
create or replace function pawl.queue_parents_left(p_shard smallint, p_id bigint) returns json
language sql stable /* planner: loop */ as $$
  select json_build_object('jobs', coalesce(sum(pawl.queue_size(p.outstanding)), 0), 'first', min(lower(p.outstanding))::text)
  from (select pawl.queue_watch_of(p_shard, p_id) as id offset 0) w cross join lateral pawl.queue_outstanding(w.id) p (outstanding)
$$;

-- The jobs that a job comes after, by id: [{id, queue, kind, status, result, error}, …]. Jobs whose history is over are left out.
create or replace function pawl.queue_parents(p_shard smallint, p_id bigint) returns json
language sql stable /* planner: loop */ as $$
  select coalesce(json_agg(json_build_object('id', v.id::text, 'queue', v.queue, 'kind', v.kind, 'key', v.key, 'status', v.status,
    'payload', v.payload, 'result', v.result, 'error', v.error) order by v.id), '[]')
  from pawl.queue_watch w cross join lateral unnest(w.parents) s (span)
  cross join lateral generate_series(lower(s.span), upper(s.span) - 1) i (id)
  cross join lateral (select pawl.queue_shard_of(i.id) as shard offset 0) h
  cross join lateral (select v.* from pawl.job v where v.shard = h.shard and v.id = i.id) v
  where w.id = pawl.queue_watch_of(p_shard, p_id)
$$;
