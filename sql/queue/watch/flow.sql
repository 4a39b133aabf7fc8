-- A graph of jobs in one call.

-- Adds the jobs of a flow: {groups: [{queue, shard, declared, n, kinds, priorities, keys, runAt, delays, after, jobs, batches, afterError, afterCancel}, …]},
-- then the payloads and the options of each group, in arrays: [flow, [[payload, …], …], [[options, …] or null, …]]. The jobs of a group come
-- after the same others: nodes of the groups before it, by their places (after), other jobs and batches. kinds are names. Answers the ids.
create or replace function pawl.queue_add_flow(p_flow json) returns bigint[]
language plpgsql /* planner: loop */ set plan_cache_mode = force_generic_plan as $$
declare
  v_now timestamptz := clock_timestamp();  -- one for all jobs: those that become ready together are one run
  v_first bigint[] := '{}';  -- the ids of the jobs that come after nothing
  v_rest bigint[];
  v_ids bigint[];
  v_shards smallint[];
  v_fresh int8multirange;
  v_packs bigint[];
  v_groups pawl.queue_flow_group[];
  v_group record;
begin
  lock table pawl.queue_job in row exclusive mode;  -- see shard.sql
  v_groups := pawl.queue_flow_groups(p_flow);
  perform pawl.queue_check_flow(p_flow, v_groups);
  for v_group in select g.* from unnest(v_groups) g where g.is_first order by g.nth loop
    v_first := v_first || pawl.queue_add(v_group.queue, v_group.shard, v_group.n, array(
        select k.id from unnest(v_group.kinds) with ordinality u (name, ord) join pawl.queue_kind k on k.queue = v_group.queue and k.name = u.name order by u.ord),
      v_group.priorities, v_group.payloads, v_group.keys, v_group.run_at, v_group.options, v_group.delays);
  end loop;
  perform pg_current_xact_id();  -- before the ids: see search_index.sql
  v_rest := array(
    select nextval('pawl.queue_job_id')
    from generate_series(1, (select sum(g.n) from unnest(v_groups) g) - cardinality(v_first)));
  select array_agg(s.id order by s.group_nth, s.nth), array_agg(s.shard order by s.group_nth, s.nth) into v_ids, v_shards from (
    select g.nth as group_nth, s.nth, g.shard, case when g.is_first then v_first[g.firsts + s.nth] else v_rest[g.rests + s.nth] end as id
    from unnest(v_groups) g cross join lateral generate_series(1, g.n) s (nth)) s;
  if v_rest = '{}' then
    return v_ids;
  end if;
  v_packs := pawl.queue_flow_packs(v_groups, v_rest, v_ids, v_shards);
  perform pawl.queue_add_waiting(v_groups, v_rest, v_now, v_packs);
  perform pawl.queue_await_inside(v_groups, v_rest, v_ids, v_shards, v_packs);
  for v_group in select g.* from unnest(v_groups) g where not g.is_first and not g.is_inside order by g.nth loop
    v_fresh := coalesce(v_fresh, (select range_agg(int8range(u.id, u.id + 1)) from unnest(v_ids) u (id)));
    perform pawl.queue_await(v_group.queue, v_group.shard, array_agg(i.first order by i.first), array_agg(i.n order by i.first),
      array(select v_ids[a.nth + 1] from unnest(v_group.after) a (nth)) || v_group.jobs, v_group.batches,
      v_group.after_error, v_group.after_cancel, v_fresh)
    from (
      select min(u.id) as first, count(*)::int as n
      from (
        select a.id, a.id - row_number() over (order by a.id) as island from unnest(v_rest[v_group.rests + 1 : v_group.rests + v_group.n]) a (id)) u
      group by u.island) i;
  end loop;
  return v_ids;
end $$;

-- Raises PW002 unless all queues and kinds of a flow exist, and PW003 if a group would have to be divided among shards.
create or replace function pawl.queue_check_flow(p_flow json, p_groups pawl.queue_flow_group[]) returns void
language plpgsql stable as $$
declare
  v_missing record;
begin
  if exists (select 1 from unnest(p_groups) g where g.queue is null) then
    perform pawl.queue_id(g.queue) from (select distinct e.value ->> 'queue' as queue from json_array_elements(p_flow -> 0) e (value)) g;
  end if;
  select d.name, u.kind into v_missing from (
    select distinct g.queue, k.name as kind from unnest(p_groups) g cross join lateral unnest(g.kinds) k (name)) u
  join pawl.queue_definition d on d.id = u.queue
  where not exists (select 1 from pawl.queue_kind k where k.queue = u.queue and k.name = u.kind) limit 1;
  if found then
    raise exception 'queue "%" has no kind "%"%', v_missing.name, v_missing.kind, pawl.queue_snapshot() using errcode = 'PW002';
  end if;
  select d.name, d.shards into v_missing from unnest(p_groups) g join pawl.queue_definition d on d.id = g.queue where g.shard is null limit 1;
  if found then
    raise exception 'queue "%" has % shards since another process declared it, and keys of this flow are in several of them; restart this process with that declaration',
      v_missing.name, v_missing.shards using errcode = 'PW003';
  end if;
end $$;

-- The groups of a flow, parsed once: 10,000 take 230 ms. The queue is null if it does not exist; the shard is null if the jobs of the group, which were
-- divided by another number of shards, are of several.
create or replace function pawl.queue_flow_groups(p_flow json) returns pawl.queue_flow_group[]
language sql stable /* planner: loop */ as $$
  select array_agg(row(g.ord, g.queue, g.is_keyed, g.shard, g.n, g.kinds, g.priorities, g.keys, g."runAt", g.delays, g.after, g.jobs, g.batches,
    g."afterError", g."afterCancel", g.payloads, g.options, g.is_first, g.is_inside, g.firsts, g.rests)::pawl.queue_flow_group order by g.ord) from (
    select e.ord, d.id as queue, d.keyed as is_keyed, case when d.id is null or not pawl.queue_is_divided_otherwise(g.shard, g.declared, d.shards) then g.shard else (
        select case when min(h.shard) = max(h.shard) then min(h.shard) end from generate_series(0, g.n - 1) i (nth)
        cross join lateral (
          select pawl.queue_home(g.shard, coalesce(e.options -> i.nth ->> 'group', g.keys[i.nth + 1]), d.shards) as shard) h) end as shard,
      g.n, g.kinds, g.priorities, g.keys, g."runAt", g.delays, g.after, g.jobs, g.batches,
      g."afterError", g."afterCancel", e.payloads, nullif(e.options::text, 'null')::json as options, s.is_first, s.is_inside,
      coalesce(sum(g.n) filter (where s.is_first) over w, 0) - case when s.is_first then g.n else 0 end as firsts,
      coalesce(sum(g.n) filter (where not s.is_first) over w, 0) - case when s.is_first then 0 else g.n end as rests
    from rows from (json_array_elements(p_flow -> 0), json_array_elements(p_flow -> 1), json_array_elements(p_flow -> 2))
      with ordinality e ("group", payloads, options, ord)
    cross join lateral json_to_record(e."group") g (
      queue text, shard smallint, declared smallint, n int, kinds text[], priorities smallint[], keys text[], "runAt" timestamptz[], delays double precision[],
      after int[], jobs bigint[], batches bigint[], "afterError" text, "afterCancel" text)
    cross join lateral (
      select g.after = '{}' and g.jobs = '{}' and g.batches = '{}' as is_first, g.after <> '{}' and g.jobs = '{}' and g.batches = '{}' as is_inside) s
    left join lateral (
      select d.id, d.keyed, d.shards from pawl.queue_definition d where d.name = g.queue and (d.removed_at is null or not pawl.queue_is_gone(d)) limit 1) d on true
    window w as (order by e.ord rows unbounded preceding)) g
$$;

-- Writes the jobs of a flow that wait until the jobs before them have ended: plain jobs as runs, as when they are ready. A run is of one group, or of
-- one pack. p_ids: the ids of these jobs; p_packs: see queue_flow_packs.
create or replace function pawl.queue_add_waiting(p_groups pawl.queue_flow_group[], p_ids bigint[], p_now timestamptz, p_packs bigint[]) returns void
language sql /* planner: loop */ set plan_cache_mode = force_generic_plan as $$
  with node as materialized (
    select coalesce(p_packs[g.nth], -g.nth) as lot, g.queue, g.shard, p_ids[g.rests + e.ord] as id, k.id as kind, coalesce(e.priority, g.priorities[1]) as priority,
      coalesce(e.run_at, p_now + e.delay * interval '1 millisecond') as run_at, e.key, case when g.is_keyed then e.key end as line, e.value as payload,
      pawl.queue_without_group(e.options) as options, e.options ->> 'group' as group_name
    from unnest(p_groups) g
    cross join lateral rows from (
      json_array_elements(g.payloads), unnest(g.kinds), unnest(g.priorities), unnest(g.run_at), unnest(g.keys), json_array_elements(g.options),
      unnest(g.delays)) with ordinality e (value, kind, priority, run_at, key, options, delay, ord)
    cross join lateral (select k.id from pawl.queue_kind k where k.queue = g.queue and k.name = coalesce(e.kind, g.kinds[1]) limit 1) k
    where not g.is_first
  ), job as (
    insert into pawl.queue_job (id, created_at, shard, queue, kind, priority, run_at, key, payload, options, group_name)
    select n.id, p_now, n.shard, n.queue, n.kind, n.priority, n.run_at, n.key, n.payload, n.options, n.group_name from node n
  ), placed as (
    select n.*, n.id - row_number() over w as island, row_number() over w as nth
    from (
      select n.*, n.run_at is not null or n.options is not null or n.group_name is not null or n.line is not null as is_single from node n) n
    window w as (partition by n.lot, n.kind, n.priority, n.is_single order by n.id)
  )
  insert into pawl.queue_delayed (run_at, id, shard, queue, priority, kind, n, key, group_name)
  select pawl.queue_never(), min(p.id), p.shard, p.queue, p.priority, p.kind, count(*), min(p.line), min(p.group_name)
  from placed p
  group by p.lot, p.shard, p.queue, p.kind, p.priority, p.island, (p.nth - 1) / 256, case when p.is_single then p.id end
  order by min(p.id);
  select pawl.queue_note_options(g.shard, array_agg(p_ids[g.rests + s.nth]))
  from unnest(p_groups) g cross join lateral generate_series(1, g.n) s (nth)
  where g.options is not null and not g.is_first group by g.shard
$$;

-- Writes the watches of the groups of a flow that only come after nodes of the same flow: none of those can have ended, and no settlement can have
-- missed these watches. All at once: one by one, 9,500 groups of one job took 2.5 s. p_ids: of all jobs that wait; p_nodes and p_shards: of all nodes;
-- p_packs: see queue_flow_packs.
create or replace function pawl.queue_await_inside(
  p_groups pawl.queue_flow_group[], p_ids bigint[], p_nodes bigint[], p_shards smallint[], p_packs bigint[]
) returns void
language sql /* planner: loop */ set plan_cache_mode = force_generic_plan as $$
  with waiting as materialized (
    select g.*, nextval(pg_get_serial_sequence('pawl.queue_watch', 'id')) as watch, p_packs[g.nth] as pack from unnest(p_groups) g where g.is_inside
  ), job as (
    select w.watch, w.shard, j.id, j.id - row_number() over (partition by w.watch order by j.id) as island
    from waiting w cross join lateral (select p_ids[w.rests + s.nth] as id from generate_series(1, w.n) s (nth)) j
  ), child as (
    insert into pawl.queue_child (shard, first, n, watch) select j.shard, min(j.id), count(*), j.watch from job j group by j.watch, j.shard, j.island
  ), edge as materialized (
    select w.watch, w.pack, w.queue, p_nodes[a.nth + 1] as parent, p_shards[a.nth + 1] as parent_shard
    from waiting w cross join lateral unnest(w.after) a (nth)
  ), part as (
    insert into pawl.queue_watch_part (shard, bucket, watch, first, outstanding, only_of, parts)
    select e.parent_shard, e.parent / 256, e.watch, min(e.parent), range_agg(int8range(e.parent, e.parent + 1)),
      e.queue, count(*) over (partition by e.watch)
    from edge e where e.pack is null group by e.parent_shard, e.parent / 256, e.watch, e.queue
  ), watch as materialized (
    select w.*, e.parents from waiting w
    cross join lateral (select range_agg(int8range(p_nodes[a.nth + 1], p_nodes[a.nth + 1] + 1)) as parents from unnest(w.after) a (nth)) e
  ), pack as (
    insert into pawl.queue_watch_part (shard, bucket, watch, first, outstanding, only_of, watches, parents, firsts, ns)
    select w.shard, min(lower(w.parents)) / 256, w.pack, min(lower(w.parents)), range_agg(s.span), w.queue,
      array_agg(w.watch order by w.nth) filter (where s.nth = 1), array_agg(w.parents order by w.nth) filter (where s.nth = 1),
      array_agg(p_ids[w.rests + 1] order by w.nth) filter (where s.nth = 1), array_agg(w.n order by w.nth) filter (where s.nth = 1)
    from watch w cross join lateral unnest(w.parents) with ordinality s (span, nth) where w.pack is not null group by w.pack, w.shard, w.queue
  )
  insert into pawl.queue_watch (id, sort, queue, shard, parents, batches, after_error, after_cancel, pack)
  select w.watch, 'after', w.queue, w.shard, w.parents, '{}', w.after_error, w.after_cancel, w.pack from watch w
$$;
