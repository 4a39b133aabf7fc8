-- Packs: one part of up to 32 watches of a flow. Each of these waits for a few jobs of the same bucket, and of the shard of its own jobs. The part has
-- the outstanding jobs of all of them. So a settlement touches one row for 32 jobs that it frees, and their delayed jobs are runs. If one of the jobs
-- fails that they wait for, the pack is split into the parts that its watches would have by themselves. An element whose parents are no longer
-- outstanding has been dealt with.

-- Which pack each group of a flow is in; null: in none. p_ids, p_nodes, p_shards: see queue_await_inside. A pack of one watch would only be a larger
-- part.
create or replace function pawl.queue_flow_packs(p_groups pawl.queue_flow_group[], p_ids bigint[], p_nodes bigint[], p_shards smallint[]) returns bigint[]
language sql /* planner: loop */ set plan_cache_mode = force_generic_plan as $$
  select array_agg(case when p.fits and p.size > 1 then p.pack end order by p.nth) from (
    select p.nth, p.fits, min(p.number) over pack as pack, count(*) over pack as size from (
      select g.nth, g.queue, g.shard, e.bucket, e.fits, nextval(pg_get_serial_sequence('pawl.queue_watch', 'id')) as number,
        (row_number() over (partition by e.fits, g.queue, g.shard, e.bucket order by g.nth) - 1) / 32 as slice
      from unnest(p_groups) g
      cross join lateral (
        select min(p_nodes[a.nth + 1]) / 256 as bucket,
          -- Their ids follow one another, unless another transaction enqueued meanwhile.
          coalesce(g.is_inside and count(*) <= 16 and p_ids[g.rests + g.n] - p_ids[g.rests + 1] = g.n - 1
            and max(p_nodes[a.nth + 1]) / 256 = min(p_nodes[a.nth + 1]) / 256 and bool_and(p_shards[a.nth + 1] = g.shard), false) as fits
        from unnest(g.after) a (nth)) e) p
    window pack as (partition by p.fits, p.queue, p.shard, p.bucket, p.slice)) p
$$;

-- Which of these parts are locked after this call: parts of single watches, which the caller has locked, and packs that no other transaction has
-- locked. It does not wait for a pack: a pack stands for 32 watches, and the other transaction needs few of these.
create or replace function pawl.queue_lock_packs(
  p_shard smallint, p_ended int8multirange, p_buckets bigint[], p_watches bigint[], p_firsts bigint[], out buckets bigint[], out watches bigint[], out firsts bigint[]
)
language sql /* planner: loop */ as $$
  select coalesce(array_agg(l.bucket), '{}'), coalesce(array_agg(l.watch), '{}'), coalesce(array_agg(l.first), '{}') from (
    select w.bucket, w.watch, w.first from unnest(p_buckets, p_watches, p_firsts) u (bucket, watch, first)
    join pawl.queue_watch_part w on w.shard = p_shard and w.bucket = u.bucket and w.watch = u.watch and w.first = u.first and w.outstanding && p_ended
    for update of w skip locked) l
$$;

-- Splits the packs that wait for one of these jobs, which have all ended in this transaction, in error or as cancelled. Only packs among the parts of
-- which all jobs have ended in it, and among the locked parts. Answers whether there is one.
create or replace function pawl.queue_unpack(p_shard smallint, p_failed int8multirange, p_wholes tid[], p_locked bigint[]) returns boolean
language plpgsql /* planner: loop */ as $$
begin
  with gone as (
    delete from pawl.queue_watch_part w where w.ctid = any (array(
      select w.tid from (
        select distinct b.bucket from unnest(p_failed) s (span)
        cross join lateral generate_series(lower(s.span) / 256, (upper(s.span) - 1) / 256) b (bucket)
      ) b
      cross join lateral (
        select w.ctid as tid, w.watch from pawl.queue_watch_part w
        where w.shard = p_shard and w.bucket = b.bucket and w.ns is not null and w.outstanding && p_failed offset 0) w
      where w.tid = any (p_wholes) or w.watch = any (p_locked)))
    returning w.*
  )
  insert into pawl.queue_watch_part (shard, bucket, watch, first, outstanding, only_of, parts)
  select g.shard, g.bucket, e.watch, lower(e.parents), e.parents * g.outstanding, g.only_of, 1
  from gone g cross join lateral unnest(g.watches, g.parents) e (watch, parents) where e.parents && g.outstanding;
  return found;
end $$;

-- As queue_ended, for a job that ends by hand. p_is_open: in a transaction that a user may leave open; then nothing of a watch is touched before the
-- commit, since settlements of other jobs need the same rows. A pack is never touched by hand: it would be split. The place of a group is given back at
-- once: a job that is retried or moved before its watches are dealt with would be admitted a second time, and two places cannot have one job.
create or replace function pawl.queue_ended_by_hand(p_shard smallint, p_id bigint, p_is_open boolean) returns void
language plpgsql /* planner: loop */ as $$
declare
  v_ids int8multirange := int8multirange(int8range(p_id, p_id + 1));
begin
  perform pawl.queue_wake(q.id) from unnest(pawl.queue_leave_places(p_shard, v_ids)) q (id);
  if exists (
    select 1 from pawl.queue_watch_part w
    where w.shard = p_shard and w.bucket = p_id / 256 and (p_is_open or w.ns is not null) and w.outstanding @> p_id) then
    perform pawl.queue_look_again(p_shard, v_ids);
  else
    perform pawl.queue_ended(p_shard, array[v_ids]);
  end if;
end $$;

-- What a watch of jobs that come after others still waits for: its own parts, or its share of its pack. A watch has one of the two, and is over when
-- it has neither.
create or replace function pawl.queue_outstanding(p_watch bigint) returns setof int8multirange
language sql stable /* planner: loop */ as $$
  select p.outstanding from pawl.queue_watch_part p where p.watch = p_watch
  union all
  select p.outstanding * w.parents from pawl.queue_watch w join pawl.queue_watch_part p on p.watch = w.pack and p.outstanding && w.parents where w.id = p_watch
$$;
