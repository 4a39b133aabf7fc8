-- The watch: a row that says who waits for which jobs. What ends jobs probes it once, after its own writes: as a rule that is an
-- index of an empty table. What is found is dealt with in the same transaction.
--
-- A settlement that has probed and is not yet committed does not see a watch that is committed meanwhile, and the watch does not see
-- the end. So a watch is looked at again, until no transaction is left that could have missed it.
--
-- Rows are locked last, parts before watches; parts by bucket, watch and first job.

-- Jobs of a shard have ended, in this transaction. Answers the queues in which there may be something to claim now.
create or replace function pawl.queue_ended(p_shard smallint, p_ids int8multirange[]) returns smallint[]
language plpgsql /* planner: loop */ as $$
declare
  v_ended int8multirange := (
    select range_agg(s.span) from unnest(p_ids) i (ids) cross join lateral unnest(i.ids) s (span));
  v_buckets bigint[];
  v_watches bigint[];
  v_firsts bigint[];
begin
  if v_ended is null then
    return '{}';
  end if;
  select array_agg(h.bucket), array_agg(h.watch), array_agg(h.first) into v_buckets, v_watches, v_firsts
  from (
    select w.bucket, w.watch, w.first
    from (
      select distinct b.bucket from unnest(v_ended) s (span)
      cross join lateral generate_series(lower(s.span) / 1024, (upper(s.span) - 1) / 1024) b (bucket)
    ) b
    join pawl.queue_watch_part w on w.shard = p_shard and w.bucket = b.bucket and w.outstanding && v_ended
    order by w.bucket, w.watch, w.first for update of w
  ) h;
  if v_watches is null then
    return '{}';
  end if;
  perform pawl.queue_tell(p_shard, v_watches, v_firsts);
  delete from pawl.queue_watch_part w using unnest(v_buckets, v_watches, v_firsts) u (bucket, watch, first)
  where w.shard = p_shard and w.bucket = u.bucket and w.watch = u.watch and w.first = u.first;
  return '{}';
end $$;

-- The same for one job that completes in a transaction of its own, as each job does under the hold 'transaction'. One setting: more
-- of them would cost more than the probe.
create or replace function pawl.queue_ended_alone(p_shard smallint, p_id bigint) returns void
language plpgsql set enable_seqscan = off as $$
begin
  if exists (select 1 from pawl.queue_watch_part w where w.shard = p_shard) then
    perform pawl.queue_ended(p_shard, array[int8multirange(int8range(p_id, p_id + 1))]);
  end if;
end $$;

-- Notifies the processes that wait for jobs which have just ended: [[id, status, result], …]. A result that makes the notification
-- longer than it may be is left out, and then read by who waits for it; so is everything of a job that is not complete.
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
  ), packed as (  -- 8,000 bytes are the most; a line has 3,600, so a pack that begins below 3,700 fits
    select l.channel, string_agg(l.text, ',' order by l.id) as texts from (
      select l.*, (sum(octet_length(l.text) + 1) over (partition by l.channel order by l.id)) / 3700 as pack from line l) l
    group by l.channel, l.pack
  )
  select pg_notify(p.channel, '[' || p.texts || ']') from packed p
$$;

-- A process waits for jobs. p_new: from now on; p_old: it has been waiting for them; p_gone: not any more. Answers [[id, queue, status],
-- …]: all of p_new, and those of p_old that have ended. The status is null until then; a job that there is not has a null queue, too. A
-- settlement that is under way may be missed by this look, so p_new is asked for as p_old a moment later. Nothing of it is flushed: a
-- crash ends the connection that listens, too.
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
  if v_watch is null then  -- the first time, or it was taken for dead
    insert into pawl.queue_watch (sort, channel, expires_at)
    values ('process', p_channel, clock_timestamp() + p_lease * interval '1 millisecond') returning id into v_watch;
    v_new := p_new || p_old;
  end if;
  delete from pawl.queue_watch_part w where w.watch = v_watch and w.first = any (p_gone);
  insert into pawl.queue_watch_part (shard, bucket, watch, first, outstanding)
  select s.shard, u.id / 1024, v_watch, u.id, int8multirange(int8range(u.id, u.id + 1))
  from unnest(v_new) u (id) cross join lateral (select pawl.queue_shard_of(u.id) as shard offset 0) s
  where s.shard is not null
  on conflict do nothing;
  -- A new statement: what ended before the parts were written is seen by it.
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

-- A process does not wait any more.
create or replace function pawl.queue_wait_end(p_channel text) returns void
language plpgsql /* planner: probe */ as $$
begin
  delete from pawl.queue_watch_part p where p.watch in (select w.id from pawl.queue_watch w where w.channel = p_channel);
  delete from pawl.queue_watch w where w.channel = p_channel;
end $$;

-- Removes what processes that died have left. As a rule this reads an empty table.
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
