-- Which shard a job is of. A producer computes it from the number of shards that its program declares, without a round trip. If another program has
-- declared another number since, the job goes to the shard that it has by that number: workers no longer claim from its former one, or other jobs of its
-- key are elsewhere.
--
-- The number changes only under a lock of queue_job that no insert shares (queue_register). A transaction that has inserted a job, or has the lock of an insert,
-- reads a number that stays until it ends. One with an older snapshot may still read the former number.
--
-- One job is checked by its own key, in a read of the queue's row that has to find out anyway whether keys have an order. Many jobs would need a hash for
-- each key, so their producer sends the number that it knows (p_declared). A job without a key or a group in shard 0 is right with any number, and is not
-- checked at all.

-- The shard of a key. Stable over versions and machines, unlike hashtext().
create or replace function pawl.queue_shard(p_key text, p_shards smallint) returns smallint
language sql immutable strict parallel safe as $$
  select (('x' || substr(md5(p_key), 1, 7))::bit(28)::int % p_shards)::smallint
$$;

-- The shard of a job whose producer has chosen p_shard. p_name: its group or its key.
create or replace function pawl.queue_home(p_shard smallint, p_name text, p_shards smallint) returns smallint
language sql immutable parallel safe as $$
  select case when p_shards = 1 then 0::smallint when p_name is null then (p_shard % p_shards)::smallint else pawl.queue_shard(p_name, p_shards) end
$$;

-- Whether a producer has divided jobs among its shards by another number than p_shards. p_declared is null if it does not say by which.
create or replace function pawl.queue_is_divided_otherwise(p_shard smallint, p_declared smallint, p_shards smallint) returns boolean
language sql immutable parallel safe as $$
  select p_shard >= p_shards or coalesce(p_declared <> p_shards, false)
$$;

-- For a job without a key that this transaction has just inserted: moves it, if its shard is not one of the queue any more. Answers its shard.
create or replace function pawl.queue_bring_home(p_queue smallint, p_shard smallint, p_id bigint) returns smallint
language plpgsql /* planner: probe */ as $$
declare
  v_home smallint := (select pawl.queue_home(p_shard, null, d.shards) from pawl.queue_definition d where d.id = p_queue);
begin
  if v_home <> p_shard then
    update pawl.queue_job j set shard = v_home where j.shard = p_shard and j.id = p_id;
  end if;
  return coalesce(v_home, p_shard);
end $$;

-- As queue_add, for jobs that were divided by another number of shards than p_shards.
create or replace function pawl.queue_add_divided(
  p_queue smallint, p_shard smallint, p_n int, p_kinds smallint[], p_priorities smallint[], p_payloads json, p_keys text[], p_run_at timestamptz[],
  p_options json, p_delays double precision[], p_shards smallint
) returns bigint[]
language plpgsql as $$
declare
  v_ids bigint[] := array_fill(null::bigint, array[p_n]);
  v_added bigint[];
  v_part record;
begin
  for v_part in
    select h.shard, count(*)::int as n, array_agg(e.nth order by e.nth) as nths, array_agg(coalesce(e.kind, p_kinds[1]) order by e.nth) as kinds,
      array_agg(coalesce(e.priority, p_priorities[1]) order by e.nth) as priorities, json_agg(e.payload order by e.nth) as payloads,
      case when p_keys is not null then array_agg(e.key order by e.nth) end as keys,
      case when p_run_at is not null then array_agg(e.run_at order by e.nth) end as run_at,
      case when p_options is not null then json_agg(e.options order by e.nth) end as options,
      case when p_delays is not null then array_agg(e.delay order by e.nth) end as delays
    from rows from (
      json_array_elements(p_payloads), unnest(p_kinds), unnest(p_priorities), unnest(p_keys), unnest(p_run_at), json_array_elements(p_options), unnest(p_delays)
    ) with ordinality e (payload, kind, priority, key, run_at, options, delay, nth)
    cross join lateral (select pawl.queue_home(p_shard, coalesce(e.options ->> 'group', e.key), p_shards) as shard) h
    group by h.shard order by h.shard
  loop
    v_added := pawl.queue_add(p_queue, v_part.shard, v_part.n, v_part.kinds, v_part.priorities, v_part.payloads, v_part.keys, v_part.run_at, v_part.options,
      v_part.delays, p_shards);
    for v_nth in 1..v_part.n loop
      v_ids[v_part.nths[v_nth]] := v_added[v_nth];
    end loop;
  end loop;
  return v_ids;
end $$;
