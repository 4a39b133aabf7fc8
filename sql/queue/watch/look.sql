-- Checking again for ends that a watch may have missed, or that could not be dealt with at once without waiting for another transaction. See watch.sql.

-- Leaves these jobs to the next queue_look. It deals with the jobs that have ended by then, and lets jobs go that wait for a watch that is over.
create or replace function pawl.queue_look_again(p_shard smallint, p_ids int8multirange) returns void
language sql set search_path = pg_catalog, pg_temp as $$
  insert into pawl.queue_watch (sort, shard, parents, check_at) values ('again', p_shard, p_ids, clock_timestamp());
  select pg_notify('pawl_queue', 'look')
$$;

-- The same, 10 ms later, when the other transaction has likely ended.
create or replace function pawl.queue_look_later(p_shard smallint, p_ids int8multirange) returns void
language sql set search_path = pg_catalog, pg_temp as $$
  insert into pawl.queue_watch (sort, shard, parents, check_at) values ('again', p_shard, p_ids, clock_timestamp() + interval '10 milliseconds');
  select pg_notify('pawl_queue', 'look')
$$;

-- Checks whether jobs have ended that new watches wait for: their settlements may have probed before the watch was committed. Nothing can have been
-- missed once every transaction is over that ran while the watch was committed. Does the same for jobs that queue_look_again left to it, and returns
-- to watches that are over and of which a job was passed over, and to batches whose callbacks could not be enqueued yet. Answers how many ms to wait
-- before the next check; null if none is due. As a rule this reads an empty index.
create or replace function pawl.queue_look(p_limit int) returns double precision
language plpgsql /* planner: loop */ as $$
declare
  v_snapshot pg_snapshot := pg_current_snapshot();  -- taken before the reads: a later one would allow for more than they have seen
  v_watches bigint[];
  v_over bigint[];
  v_batches bigint[];
  v_none bigint[];  -- no errors and no cancellations to add
  v_ended record;
begin
  v_watches := array(select w.id from pawl.queue_watch w where w.check_at <= clock_timestamp() order by w.check_at limit p_limit);
  if v_watches <> '{}' then
    for v_ended in
      select i.shard, range_agg(int8range(i.id, i.id + 1)) as ids, row_number() over (order by i.shard) > 1 as is_next from (
        select p.shard, i.id from (
          select p.shard, p.outstanding as ids from unnest(v_watches) u (id) join pawl.queue_watch_part p on p.watch = u.id
          union all
          select w.shard, w.parents from unnest(v_watches) u (id) join pawl.queue_watch w on w.id = u.id and w.sort = 'again') p
        cross join lateral unnest(p.ids) s (span)
        cross join lateral generate_series(lower(s.span), upper(s.span) - 1) i (id)) i
      where case when i.shard = -1 then exists (select 1 from pawl.queue_watch b where b.id = i.id and b.over_at is not null)
        else coalesce(pawl.queue_status(i.shard, i.id), case when pawl.queue_follow_moved(i.shard, i.id) then 'new' else 'gone' end)
          not in ('new', 'in-progress') end
      group by i.shard order by i.shard
    loop
      perform pawl.queue_ended(v_ended.shard, array[v_ended.ids], v_ended.is_next);
      -- What queue_erase_job has left of erased jobs, once nothing waits for them any more.
      delete from pawl.queue_dead d using unnest(v_ended.ids) s (span)
      where d.shard = v_ended.shard and d.id >= lower(s.span) and d.id < upper(s.span)
        and not exists (select 1 from pawl.queue_job j where j.shard = d.shard and j.id = d.id)
        and not exists (
          select 1 from pawl.queue_watch_part w where w.shard = d.shard and w.bucket = d.id / 256 and w.outstanding @> d.id);
    end loop;
    v_over := array(
      select m.id from (
        select u.id from unnest(v_watches) u (id)
        union
        select c.watch from unnest(v_watches) u (id) join pawl.queue_watch w on w.id = u.id and w.sort = 'again' and w.shard >= 0
        cross join lateral unnest(w.parents) s (span)
        cross join lateral generate_series(lower(s.span), upper(s.span) - 1) i (id)
        cross join lateral (select pawl.queue_watch_of(w.shard, i.id) as watch offset 0) c) u
      join pawl.queue_watch m on m.id = u.id
      where m.sort = 'after' and not exists (select 1 from pawl.queue_outstanding(m.id) offset 0)
      order by m.id desc for update of m skip locked);
    if v_over <> '{}' then
      update pawl.queue_watch w set check_at = null where w.id = any (v_over) and w.check_at is not null;
      for v_ended in select s.shard, s.ids from pawl.queue_let_go(v_over) l cross join lateral unnest(l.shards, l.sets) s (shard, ids) loop
        perform pawl.queue_ended(v_ended.shard, array[v_ended.ids], true);
      end loop;
    end if;
    v_batches := array(
      select m.id from unnest(v_watches) u (id) join pawl.queue_watch m on m.id = u.id where m.sort = 'batch' and m.over_at is null);
    if v_batches <> '{}' then
      v_none := array_fill(0::bigint, array[cardinality(v_batches)]);
      perform pawl.queue_ended(s.shard, array[s.ids], true)
      from pawl.queue_over(v_batches, v_none, v_none) o cross join lateral unnest(o.shards, o.sets) s (shard, ids);
    end if;
    with mine as (
      select m.id from unnest(v_watches) u (id) join pawl.queue_watch m on m.id = u.id
      where m.check_at is not null and m.over_at is null and m.sort <> 'batch'
        and (m.sort <> 'after' or exists (select 1 from pawl.queue_watch_part p where p.watch = m.id offset 0))
      order by m.id desc for update of m skip locked
    ), done as (
      delete from pawl.queue_watch w using mine m where w.id = m.id and w.sort = 'again' and w.check_xid <= pg_snapshot_xmin(v_snapshot)
    )
    update pawl.queue_watch w set checks = least(w.checks + 1, 100), check_xid = coalesce(w.check_xid, pg_snapshot_xmax(pg_current_snapshot())),
      check_at = case when w.check_xid <= pg_snapshot_xmin(v_snapshot) then null
        else clock_timestamp() + least(5000, 10 * 3 ^ least(w.checks, 10)) * interval '1 millisecond' end
    from mine m
    where w.id = m.id and not (w.sort = 'again' and w.check_xid is not null and w.check_xid <= pg_snapshot_xmin(v_snapshot));
  end if;
  return (
    select greatest(0, extract(epoch from w.check_at - clock_timestamp()) * 1000) from pawl.queue_watch w
    where w.check_at is not null order by w.check_at limit 1);
end $$;

-- If a job was moved to another shard while a watch of it was being committed, lets the parts of that watch follow it, and answers true. The job may
-- have ended in its new shard, so the next queue_look checks it there. No settlement may take the watch for free by the number of its parts any more.
-- If another transaction has locked a part, a later call does all of this.
create or replace function pawl.queue_follow_moved(p_shard smallint, p_id bigint) returns boolean
language plpgsql /* planner: probe */ set lock_timeout = '20ms' as $$
declare
  v_home smallint := pawl.queue_shard_of(p_id);
  v_ids int8multirange := int8multirange(int8range(p_id, p_id + 1));
  v_part record;
begin
  if v_home is null or v_home = p_shard then
    return false;
  end if;
  for v_part in
    select w.* from pawl.queue_watch_part w
    where w.shard = p_shard and w.bucket = p_id / 256 and w.outstanding @> p_id and w.members is null and w.ns is null
    order by w.bucket, w.watch, w.first for update
  loop
    update pawl.queue_watch_part w set only_of = null where w.watch = v_part.watch and w.only_of is not null;
    if v_part.outstanding = v_ids then
      update pawl.queue_watch_part w set shard = v_home
      where w.shard = p_shard and w.bucket = v_part.bucket and w.watch = v_part.watch and w.first = v_part.first;
    else
      update pawl.queue_watch_part w set outstanding = w.outstanding - v_ids
      where w.shard = p_shard and w.bucket = v_part.bucket and w.watch = v_part.watch and w.first = v_part.first;
      insert into pawl.queue_watch_part (shard, bucket, watch, first, outstanding, parts)
      values (v_home, v_part.bucket, v_part.watch, p_id, v_ids, v_part.parts);
    end if;
  end loop;
  perform pawl.queue_look_again(v_home, v_ids);
  return true;
exception when lock_not_available then
  perform pawl.queue_look_later(p_shard, v_ids);
  return true;
end $$;
