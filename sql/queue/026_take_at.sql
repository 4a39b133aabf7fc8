-- Lanes of the transaction hold take the very row that a look has read, instead of searching for it. Older workers may keep
-- running: they pass over what the look's answer has more.

-- As it was, with "tids": where the row of each of its jobs stands.
create or replace function pawl.queue_look(
  p_queue smallint, p_shard smallint, p_worker bigint, p_rows int, p_priority smallint, p_after bigint
) returns text
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $$
declare
  v_seen record;
  v_tid tid;
  v_n int := 0;
  v_priority smallint := p_priority;
  v_id bigint := p_after;
  v_jobs text;
  v_tids text;
begin
  if pawl.queue_prepare(p_queue, p_shard, p_worker) = 'paused' then
    return '{"n":0}';
  end if;
  select array_agg(r.priority) as priorities, array_agg(r.id) as ids, array_agg(r.kind) as kinds, array_agg(r.attempt) as attempts, array_agg(r.n) as ns into v_seen
  from (
    select r.priority, r.id, r.kind, r.attempt, case when r.key is null then r.n else 0 end as n from pawl.queue_ready r
    where r.shard = p_shard and r.queue = p_queue and (r.priority, r.id) > (p_priority, p_after)
    order by r.priority, r.id limit p_rows) r;
  for v_at in 1..coalesce(cardinality(v_seen.ids), 0) loop
    exit when v_seen.ns[v_at] = 0 or v_n >= p_rows;
    if v_seen.ns[v_at] > 1 then
      -- Whoever else takes it apart is not waited for: it is his, and what comes behind it is nobody's yet.
      select r.ctid into v_tid from pawl.queue_ready r
      where r.shard = p_shard and r.queue = p_queue and r.priority = v_seen.priorities[v_at] and r.id = v_seen.ids[v_at]
        and r.n = v_seen.ns[v_at] and r.key is null
      for update skip locked;
      exit when not found;
      delete from pawl.queue_ready r where r.ctid = v_tid;
      insert into pawl.queue_ready (id, shard, queue, priority, kind, attempt)
      select v_seen.ids[v_at] + i, p_shard, p_queue, v_seen.priorities[v_at], v_seen.kinds[v_at], v_seen.attempts[v_at]
      from generate_series(0, v_seen.ns[v_at] - 1) i;
    end if;
    v_n := v_n + v_seen.ns[v_at];
    v_priority := v_seen.priorities[v_at];
    v_id := v_seen.ids[v_at] + v_seen.ns[v_at] - 1;
  end loop;
  if v_n = 0 then
    return '{"n":0}';
  end if;
  -- Large payloads, compressed or not, are told from the others without reading them.
  select case when bool_and(j.is_small) then string_agg(concat(
    j.id, ',', j.kind, ',', (date_part('epoch', j.created_at) * 1000)::bigint, ',', case when j.is_small then j.payload end), ',') end,
    string_agg(concat('"', r.tid, '"'), ',')
  into v_jobs, v_tids
  from (  -- "limit": before Postgres 18 the upper bound alone ends no scan, but for rows of another priority
    select r.ctid as tid, r.priority, r.id, r.key, r.n from pawl.queue_ready r
    where r.shard = p_shard and r.queue = p_queue and (r.priority, r.id) > (p_priority, p_after)
    order by r.priority, r.id limit v_n
  ) r cross join lateral (
    select j.id, j.kind, j.created_at, j.payload, pg_column_size(j.payload) <= 2000 and pg_column_compression(j.payload) is null as is_small
    from pawl.queue_job j where j.shard = p_shard and j.id = r.id limit 1) j
  where (r.priority, r.id) <= (v_priority, v_id) and r.key is null and r.n = 1;
  return concat('{"n":', v_n, ',"until":[', v_priority, ',', v_id, ']', ',"jobs":[' || v_jobs || '],"tids":[' || v_tids || ']', '}');
end $$;

-- Takes one job that a look has read, from where its row stood: a quarter less than to search for the first row that is free.
-- Answers as queue_take_seen does; null where the row is gone, has moved, or is held by somebody else, and while the queue is
-- paused. Vacuum gives a place to others: hence the id.
--
-- The same statement without a function, prepared by the worker, would take an eighth less. But its plan would be made without
-- these settings, while the table may be empty, and then scan all of what it is full of until the next analyze.
create function pawl.queue_take_at(p_queue smallint, p_shard smallint, p_id bigint, p_tid tid) returns text
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $$
declare
  v_answer text;
begin
  delete from pawl.queue_ready r where r.ctid = (
    select r.ctid from pawl.queue_ready r
    where r.ctid = p_tid and r.id = p_id and r.shard = p_shard and r.queue = p_queue and r.key is null and r.n = 1
      and (select d.paused_at is null from pawl.queue_definition d where d.id = p_queue)
    for update skip locked)
  returning concat_ws(',', nextval('pawl.queue_claim_id'), r.id, r.attempt + 1, r.priority, to_json(clock_timestamp()))
  into v_answer;
  return v_answer;
end $$;
