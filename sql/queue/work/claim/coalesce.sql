-- Which jobs of a key come next, in a queue with a kind that coalesces or has predecessors.

-- The next unit of each of the given keys, in a queue with a kind that coalesces or has predecessors. Of the kinds that do not wait for a
-- predecessor (ready, parked or delayed), the kind with the oldest job comes: that job, or all jobs of the kind if it coalesces. There is one
-- unit a key, so that a crash charges no job that had not begun. nth: the place of the unit's key among the given keys. The caller has the
-- locks of the keys.
-- p_most: of how many units the jobs are read. The others come without jobs, as do all units after two thousand jobs. When the jobs of all
-- units were read first, 100 keys with 2,000 jobs each cost 250 us a job, because each claim read all that was left.
-- Without sorts, the planner finds a key's rows by the index of keys. Otherwise, while the last ANALYZE saw few rows, it expects one row in a
-- whole shard, and reads the shard for each key: 40,000 updates of live producers took 25 s.
create or replace function pawl.queue_next_units(p_queue smallint, p_shard smallint, p_keys text[], p_most int) returns setof pawl.queue_unit
language sql /* planner: batch */ set enable_sort = off set plan_cache_mode = force_generic_plan as $$
  with recursive kinds as materialized (
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
  ), free as materialized (
    select distinct on (o.key) o.* from oldest o
    where cardinality(o.after) = 0 or not (
      exists (select 1 from oldest b where b.key = o.key and b.id = any (o.after))
      or exists (select 1 from pawl.queue_delayed d
        where d.shard = p_shard and d.queue = p_queue and d.key = o.key and d.kind = any (o.after)))
    order by o.key, o.first
  ), next as materialized (
    select row_number() over (order by f.ord)::int as place, f.* from free f
  ), listed as materialized (  -- found by place
    select array_agg(n.key order by n.place) as keys, array_agg(n.id order by n.place) as kinds, array_agg(n.whole order by n.place) as wholes from next n
  ), unit as (  -- one after the other, until there are enough
    select 0 as place, 0 as jobs, null::bigint[] as ids, null::smallint[] as attempts, null::smallint[] as losts, null::tid[] as tids, null::boolean[] as parked
    union all
    select u.place + 1, u.jobs + cardinality(x.ids), x.*
    from unit u cross join listed l cross join lateral (
      select array_agg(x.id), array_agg(x.attempt), array_agg(x.lost), array_agg(x.tid), array_agg(x.parked) from (
        (select r.id, r.attempt, r.lost, r.ctid as tid, false as parked from pawl.queue_ready r
          where r.shard = p_shard and r.queue = p_queue and r.key = l.keys[u.place + 1] and r.kind = l.kinds[u.place + 1] order by r.id
          limit case when l.wholes[u.place + 1] then 10000 else 1 end)
        union all
        (select p.id, p.attempt, p.lost, p.ctid, true from pawl.queue_parked p
          where p.shard = p_shard and p.queue = p_queue and p.key = l.keys[u.place + 1] and p.kind = l.kinds[u.place + 1] order by p.id
          limit case when l.wholes[u.place + 1] then 10000 else 1 end)
        order by id limit case when l.wholes[u.place + 1] then 10000 else 1 end
      ) x
    ) x (ids, attempts, losts, tids, parked)
    where u.place < least(p_most, cardinality(l.keys)) and u.jobs < 2000
  )
  select n.ord::int, n.key, n.id, n.whole,
    case when u.place is not null and n.after_error = 'error' and cardinality(n.after) > 0 then pawl.queue_failed_predecessor(p_queue, p_shard, n.key, n.after) end,
    u.ids, u.attempts, u.losts, u.tids, u.parked
  from next n left join unit u on u.place = n.place
  order by n.place
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
