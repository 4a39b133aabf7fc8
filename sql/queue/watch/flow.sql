-- A graph of jobs in one call.

-- Adds the jobs of a flow: {groups: [{queue, shard, n, kinds, priorities, keys, runAt, delays, after, jobs, batches, afterError, afterCancel}, …]},
-- then the payloads and the options of each group, in arrays: [flow, [[payload, …], …], [[options, …] or null, …]]. The jobs of a group come
-- after the same others: the places of nodes of the groups before it (after), other jobs and batches. kinds are names. Answers the ids.
create or replace function pawl.queue_add_flow(p_flow json) returns bigint[]
language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan as $$
declare
  v_group record;
  v_queue smallint;
  v_kinds smallint[];
  v_ids bigint[] := '{}';
  v_added bigint[];
  v_fresh int8multirange := '{}';
  v_now timestamptz := clock_timestamp();  -- of all jobs: those that become ready together are one run
begin
  for v_group in
    select g.*, p.value as payloads, nullif(o.value::text, 'null')::json as options
    from rows from (json_array_elements(p_flow -> 0), json_array_elements(p_flow -> 1), json_array_elements(p_flow -> 2))
      with ordinality e ("group", payloads, options, ord)
    cross join lateral json_to_record(e."group") g (
      queue text, shard smallint, n int, kinds text[], priorities smallint[], keys text[], "runAt" timestamptz[], delays double precision[],
      after int[], jobs bigint[], batches bigint[], "afterError" text, "afterCancel" text)
    cross join lateral (select e.payloads as value) p cross join lateral (select e.options as value) o
    order by e.ord
  loop
    v_queue := pawl.queue_id(v_group.queue);
    v_kinds := array(
      select k.id from unnest(v_group.kinds) with ordinality u (name, ord) join pawl.queue_kind k on k.queue = v_queue and k.name = u.name order by u.ord);
    if cardinality(v_kinds) <> cardinality(v_group.kinds) then
      raise exception 'queue "%" has not all kinds of %', v_group.queue, v_group.kinds using errcode = 'PW002';
    end if;
    if v_group.after = '{}' and v_group.jobs = '{}' and v_group.batches = '{}' then
      v_added := pawl.queue_add(v_queue, v_group.shard, v_group.n, v_kinds, v_group.priorities, v_group.payloads, v_group.keys, v_group."runAt", v_group.options, v_group.delays);
    else
      v_added := pawl.queue_add_waiting(v_queue, v_group.shard, v_group.n, v_kinds, v_group.priorities, v_group.payloads, v_group.keys, v_group."runAt", v_group.options, v_group.delays, v_now);
      perform pawl.queue_await(v_queue, v_group.shard, array_agg(i.first order by i.first), array_agg(i.n order by i.first),
        array(select v_ids[a.nth + 1] from unnest(v_group.after) a (nth)) || v_group.jobs, v_group.batches,
        v_group."afterError", v_group."afterCancel", v_fresh)
      from (
        select min(u.id) as first, count(*)::int as n
        from (select a.id, a.id - row_number() over (order by a.id) as island from unnest(v_added) a (id)) u group by u.island) i;
    end if;
    v_ids := v_ids || v_added;
    v_fresh := v_fresh + (select range_agg(int8range(a.id, a.id + 1)) from unnest(v_added) a (id));
  end loop;
  return v_ids;
end $$;

-- Writes jobs that wait until what they come after has ended: runs where they are plain, as when they are ready.
create or replace function pawl.queue_add_waiting(
  p_queue smallint, p_shard smallint, p_n int, p_kinds smallint[], p_priorities smallint[], p_payloads json,
  p_keys text[], p_run_at timestamptz[], p_options json, p_delays double precision[], p_now timestamptz
) returns bigint[]
language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan as $$
declare
  v_ids bigint[];
  v_keyed boolean := (select d.keyed from pawl.queue_definition d where d.id = p_queue);
begin
  perform pg_current_xact_id();  -- before the ids: see search_index.sql
  v_ids := array(select nextval('pawl.queue_job_id') from generate_series(1, p_n));
  with job as (
    insert into pawl.queue_job (id, created_at, shard, queue, kind, priority, run_at, key, payload, options, group_name)
    select v_ids[e.ord], p_now, p_shard, p_queue, coalesce(e.kind, p_kinds[1]), coalesce(e.priority, p_priorities[1]),
      coalesce(e.run_at, p_now + e.delay * interval '1 millisecond'), e.key, e.value, pawl.queue_without_group(e.options), e.options ->> 'group'
    from rows from (
      json_array_elements(p_payloads), unnest(p_kinds), unnest(p_priorities), unnest(p_run_at), unnest(p_keys), json_array_elements(p_options),
      unnest(p_delays)) with ordinality e (value, kind, priority, run_at, key, options, delay, ord)
    returning id, kind, priority, case when v_keyed then key end as key, group_name, run_at is not null or options is not null or group_name is not null or (key is not null and v_keyed) as is_single
  ), placed as (
    select j.*, j.id - row_number() over w as island, row_number() over w as nth from job j
    window w as (partition by j.kind, j.priority, j.is_single order by j.id)
  )
  insert into pawl.queue_delayed (run_at, id, shard, queue, priority, kind, n, key, group_name)
  select pawl.queue_never(), min(p.id), p_shard, p_queue, p.priority, p.kind, count(*), min(p.key), min(p.group_name)
  from placed p group by p.kind, p.priority, p.island, (p.nth - 1) / 256, case when p.is_single then p.id end;
  if p_options is not null then
    perform pawl.queue_note_options(p_shard, v_ids);
  end if;
  return v_ids;
end $$;
