-- Which jobs of a key come next, in a queue with a kind that coalesces or has predecessors.

-- The next unit of each of the given keys, in a queue with a kind that coalesces or has predecessors. Of the kinds that do not wait for a
-- predecessor (ready, parked or delayed), the kind with the oldest job comes: that job, or all jobs of the kind if it coalesces. There is one
-- unit a key, so that a crash charges no job that had not begun. nth: the place of the unit's key among the given keys, which tells its jobs
-- from those of other units. The caller has the locks of the keys.
-- Without sorts, the planner finds a key's rows by the index of keys. Otherwise, while the last ANALYZE saw few rows, it expects one row in a
-- whole shard, and reads the shard for each key: 40,000 updates of live producers took 25 s.
create or replace function pawl.queue_next_units(p_queue smallint, p_shard smallint, p_keys text[]) returns setof pawl.queue_unit_job
language sql /* planner: batch */ set enable_sort = off set plan_cache_mode = force_generic_plan as $$
  with kinds as materialized (
    select k.id, k.coalesce <> 'none' as whole, k.after, k.after_error from pawl.queue_kind k where k.queue = p_queue
  ), oldest as materialized (
    select u.key, u.ord, k.*, x.first
    from unnest(p_keys) with ordinality u (key, ord) cross join kinds k cross join lateral (
      select least(
        (select r.id from pawl.queue_ready r
          where r.shard = p_shard and r.queue = p_queue and r.key = u.key and r.kind = k.id order by r.id limit 1),
        (select p.id from pawl.queue_parked p
          where p.shard = p_shard and p.queue = p_queue and p.key = u.key and p.kind = k.id order by p.id limit 1)) as first offset 0  -- else each runs twice
    ) x
    where x.first is not null
  ), next as materialized (
    select distinct on (o.key) o.* from oldest o
    where cardinality(o.after) = 0 or not (
      exists (select 1 from oldest b where b.key = o.key and b.id = any (o.after))
      or exists (select 1 from pawl.queue_delayed d
        where d.shard = p_shard and d.queue = p_queue and d.key = o.key and d.kind = any (o.after)))
    order by o.key, o.first
  )
  select n.ord::int, n.key, x.id, n.id, x.attempt, x.priority, x.tid, x.parked,
    case when n.after_error = 'error' and cardinality(n.after) > 0 then pawl.queue_failed_predecessor(p_queue, p_shard, n.key, n.after) end,
    n.whole, x.lost
  from next n cross join lateral (
    (select r.id, r.attempt, r.lost, r.priority, r.ctid as tid, false as parked from pawl.queue_ready r
      where r.shard = p_shard and r.queue = p_queue and r.key = n.key and r.kind = n.id order by r.id
      limit case when n.whole then 10000 else 1 end)
    union all
    (select p.id, p.attempt, p.lost, p.priority, p.ctid, true from pawl.queue_parked p
      where p.shard = p_shard and p.queue = p_queue and p.key = n.key and p.kind = n.id order by p.id
      limit case when n.whole then 10000 else 1 end)
    order by id limit case when n.whole then 10000 else 1 end
  ) x
  order by n.ord, x.id
$$;

-- The predecessor that makes a job with afterError 'error' fail: the last job of the key and the kinds p_after that was settled, if it ended in
-- error. All of them are settled. As a rule none is in error, and the first probe is all. A unique kind has no later job of the key, so none is
-- searched for. A job before the one in error that was retried by hand and completed after it does not count.
create or replace function pawl.queue_failed_predecessor(p_queue smallint, p_shard smallint, p_key text, p_after smallint[]) returns bigint
language sql stable /* planner: loop */ as $$
  select d.id from (
    select d.id, d.at, d.status from pawl.queue_dead d
    where d.shard = p_shard and d.queue = p_queue and d.key = p_key and d.kind = any (p_after)
    order by d.at desc, d.id desc limit 1
  ) d
  where d.status = 'error' and not exists (
    select 1 from pawl.queue_job j
    cross join lateral (
      select 1 from pawl.queue_receipt_of(p_queue, p_key, j.id) r where r.settled_at > d.at limit 1) r
    where j.shard = p_shard and j.queue = p_queue and j.key = p_key and j.id > d.id and j.kind in (
      select k.id from pawl.queue_kind k where k.id = any (p_after) and not k.unique_key))
$$;
