-- Looking ahead for the lanes of the transaction hold: one look reads the next ready jobs, payloads included, for all lanes of a
-- process.

-- What a worker's lanes may take without looking any further: jobs without a key that stand in a row, one a row, from after
-- (p_priority, p_after) on, about p_rows of them. It claims nothing; it brings back what is due and takes runs apart, and so
-- has to be a transaction of its own. Answers {n, until: [priority, id], jobs: [id, kind, enqueued at ms, payload, …], tids: where the
-- row of each job stands}; n is 0 where nothing is ready, a job with a key comes first, or the queue is paused. Without jobs: a payload
-- is too large to be read before somebody has it.
create or replace function pawl.queue_peek_ready(
  p_queue smallint, p_shard smallint, p_worker bigint, p_rows int, p_priority smallint, p_after bigint
) returns text
language plpgsql /* planner: probe */ set plan_cache_mode = force_generic_plan as $$
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
    select r.priority, r.id, r.kind, r.attempt, case when r.key is null and r.id <> all (d.suspects) then r.n else 0 end as n
    from pawl.queue_definition d cross join pawl.queue_ready r
    where d.id = p_queue and r.shard = p_shard and r.queue = p_queue and (r.priority, r.id) > (p_priority, p_after)
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

-- What a look of a lane left undone, in a transaction that ends in the same message: brings back what is due, takes the first run
-- apart, so that its other jobs are not locked with one of it, or moves jobs whose keys are busy, or that wait for a delayed
-- predecessor, out of the way; of what that look saw. Answers how many jobs it moved: 0 when others have done it, or are at it.
create or replace function pawl.queue_tidy(p_queue smallint, p_shard smallint, p_what text, p_rows int, p_priority smallint, p_after bigint) returns bigint
language plpgsql /* planner: probe */ set plan_cache_mode = force_generic_plan as $$
declare
  v_run record;
  v_keys text[];
  v_heads bigint[];
begin
  if p_what = 'due' then
    perform pg_advisory_xact_lock(hashtextextended('', p_queue * 65536 + p_shard));
    return pawl.queue_promote(p_queue, p_shard, 1000);
  elsif p_what = 'run' then
    select r.ctid as tid, r.id, r.priority, r.n, r.kind, r.attempt into v_run from pawl.queue_ready r
    where r.shard = p_shard and r.queue = p_queue and (r.priority, r.id) > (p_priority, p_after) and r.key is null
    order by r.priority, r.id limit 1 for update skip locked;
    if v_run.n > 1 then
      delete from pawl.queue_ready r where r.ctid = v_run.tid;
      insert into pawl.queue_ready (id, shard, queue, priority, kind, attempt)
      select v_run.id + i, p_shard, p_queue, v_run.priority, v_run.kind, v_run.attempt from generate_series(0, v_run.n - 1) i;
      return v_run.n;
    end if;
    return 0;
  end if;
  select array_agg(p.key), array_agg(p.epoch) into v_keys, v_heads from (
    select r.key, r.epoch from pawl.queue_ready r
    where r.shard = p_shard and r.queue = p_queue and (r.priority, r.id) > (p_priority, p_after)
    order by r.priority, r.id limit p_rows
  ) p where p.key is not null;
  return pawl.queue_make_way(p_queue, p_shard, v_keys, v_heads);
end $$;

-- Moves what cannot be claimed of these keys out of the way: see queue_claim_keys, which does so itself under a lease.
create or replace function pawl.queue_make_way(p_queue smallint, p_shard smallint, p_keys text[], p_epochs bigint[]) returns bigint
language plpgsql /* planner: batch */ set plan_cache_mode = force_generic_plan as $$
declare
  v_related boolean;
  v_tried text[];
  v_heads bigint[];
  v_free text[];
  v_busy text[];
  v_moved bigint := 0;
begin
  select coalesce(bool_or(k.coalesce <> 'none' or cardinality(k.after) > 0), false) into v_related
  from pawl.queue_kind k where k.queue = p_queue;
  -- 256 at most, as there; 16 where the next unit of each has to be found.
  with first as materialized (
    select u.key, min(u.ord) as ord, max(u.epoch) as head from unnest(p_keys, p_epochs) with ordinality u (key, epoch, ord) group by u.key
  ), near as materialized (
    select f.* from first f order by f.ord limit case when v_related then 16 else 256 end
  )
  select array_agg(n.key order by n.ord), array_agg(n.head order by n.ord) into v_tried, v_heads
  from near n where pawl.queue_try_key(p_queue, p_shard, n.key);
  -- A new statement, which sees what was committed before the locks were had.
  select
    array_agg(t.key order by t.ord) filter (where k.epoch is null or (not k.held and k.epoch = t.head)),
    array_agg(t.key order by t.ord) filter (where k.epoch is not null and (k.held or k.epoch is distinct from t.head))
  into v_free, v_busy
  from unnest(v_tried, v_heads) with ordinality t (key, head, ord)
  left join lateral (
    select k.epoch, k.held from pawl.queue_key k where k.shard = p_shard and k.queue = p_queue and k.key = t.key limit 1
  ) k on true;
  if v_busy is not null then
    v_moved := pawl.queue_park(p_queue, p_shard, v_busy);
  end if;
  if v_related and v_free is not null then
    perform pawl.queue_await_predecessor(p_queue, p_shard, u.key)
    from unnest(v_free) u (key) where u.key not in (select g.key from pawl.queue_gather(p_queue, p_shard, v_free) g);
  end if;
  return v_moved;
end $$;
