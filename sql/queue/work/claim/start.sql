-- Starting jobs without a key: their claims, and what the worker is told of them.

-- Takes jobs without a key, which queue_claim_many has picked and locked: p_take jobs of the p_n of each row. "runs", "processes" and
-- "alone" are what the claim answers, each piece behind a comma. Under the planner settings of its caller.
create or replace function pawl.queue_start_runs(
  p_queue smallint, p_shard smallint, p_worker bigint, p_now timestamptz, p_tids tid[], p_lo bigint[], p_n int[], p_take int[],
  p_kinds smallint[], p_attempts smallint[], p_losts smallint[], p_alones boolean[], out runs text, out processes text, out alone text
)
language plpgsql as $$
declare
  v_claim bigint;
  v_process uuid;
  v_part record;
begin
  runs := '';
  processes := '';
  alone := '';
  delete from pawl.queue_ready r where r.ctid = any (array(
    select u.tid from unnest(p_tids, p_n, p_take) u (tid, n, take) where u.take = u.n));
  if p_take <> p_n then
    update pawl.queue_ready r set id = r.id + u.take, n = r.n - u.take
    from unnest(p_tids, p_n, p_take) u (tid, n, take) where u.take < u.n and r.ctid = u.tid;
  end if;
  -- One claim for all jobs in the same attempt; one each for those that were lost, so that a crash tells them apart.
  for v_part in
    select case when u.lost > 0 then u.lo end as lo, u.attempt, u.lost, u.alone, range_agg(int8range(u.lo, u.lo + u.take)) as ids
    from unnest(p_lo, p_take, p_attempts, p_losts, p_alones) u (lo, take, attempt, lost, alone) group by 1, 2, 3, 4 order by 2, 1
  loop
    v_claim := nextval('pawl.queue_claim_id');
    v_process := gen_random_uuid();
    insert into pawl.queue_running (id, worker, claimed_at, process_id, shard, queue, attempt, lost, unit, ids)
    values (v_claim, p_worker, p_now, v_process, p_shard, p_queue, v_part.attempt + 1, v_part.lost, false, v_part.ids);
    if v_part.alone then
      alone := alone || ',' || v_claim;
    end if;
    processes := processes || ',"' || v_claim || '":"' || v_process || '"';
    runs := runs || (
      -- format() takes half as long as concat() here: each piece of text is an argument of that, too.
      select string_agg(format(',{"claim":%s,"first":%s,"n":%s,"kind":%s,"attempt":%s,"origin":%s,"payloads":[%s]}',
        v_claim, u.lo, u.take, u.kind, u.attempt + 1,
        -- Of the first: the jobs of a run have the same, and a job with options is no run.
        (select case when u.take = 1 or o.group_name is null then pawl.queue_origin(o.created_at, o.options, o.group_name)
          else pawl.queue_run_origin(p_shard, u.lo, u.take) end from pawl.queue_job o where o.shard = p_shard and o.id = u.lo), j.payloads),
        '' order by u.ord)
      from unnest(p_lo, p_take, p_kinds, p_attempts, p_losts, p_alones) with ordinality u (lo, take, kind, attempt, lost, alone, ord)
      cross join lateral (
        select string_agg(j.payload::text, ',') as payloads from (
          select j.payload from pawl.queue_job j where j.shard = p_shard and j.id >= u.lo and j.id < u.lo + u.take order by j.id
        ) j
      ) j
      where case when v_part.lo is null then u.attempt = v_part.attempt and u.lost = 0 and u.alone = v_part.alone else u.lo = v_part.lo end);
  end loop;
end $$;

-- Where a job comes from, as claims tell it: when it was enqueued, in ms; of a job with options of its own, or of a group, {enqueuedAt, options,
-- expiresIn, group}.
create or replace function pawl.queue_origin(p_at timestamptz, p_options json, p_group text) returns text
language sql stable as $$
  select case when p_options is null and p_group is null then (date_part('epoch', p_at) * 1000)::bigint::text
    else pawl.queue_special_origin(p_at, p_options, p_group) end
$$;

-- A function of its own, so that the other one costs no call: with the clock in it, it would.
create or replace function pawl.queue_special_origin(p_at timestamptz, p_options json, p_group text) returns text
language plpgsql stable as $$
begin
  return concat('{"enqueuedAt":', (date_part('epoch', p_at) * 1000)::bigint, ',"options":' || p_options,
    ',"expiresIn":' || (extract(epoch from (p_options ->> 'expiresAt')::timestamptz - clock_timestamp()) * 1000)::bigint,
    ',"group":' || to_json(p_group), '}');
end $$;

-- The same of a run of jobs of groups, which have nothing else of their own: {enqueuedAt, groups: [one for each]}.
create or replace function pawl.queue_run_origin(p_shard smallint, p_first bigint, p_n int) returns text
language sql stable as $$
  select concat('{"enqueuedAt":', min((date_part('epoch', j.created_at) * 1000)::bigint), ',"groups":', json_agg(j.group_name order by j.id), '}')
  from pawl.queue_job j where j.shard = p_shard and j.id >= p_first and j.id < p_first + p_n
$$;
