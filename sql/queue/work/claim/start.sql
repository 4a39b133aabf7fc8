-- Starting jobs without a key: their claims, and what the worker learns about them.

-- Claims jobs without a key that queue_claim_many has picked and locked: p_take of the p_n jobs of each row. p_losts and p_alones may be null:
-- no job was lost, and none has to start at once. Answers "runs", "processes" and "alone" as the claim does, with commas between, or null.
-- "runs" is null if some of the jobs are not in queue_job: see queue_drop_orphans. Runs under the planner settings of its caller.
create or replace function pawl.queue_start_runs(
  p_queue smallint, p_shard smallint, p_worker bigint, p_now timestamptz, p_tids tid[], p_lo bigint[], p_n int[], p_take int[],
  p_kinds smallint[], p_attempts smallint[], p_losts smallint[], p_alones boolean[], out runs text, out processes text, out alone text
)
language plpgsql as $$
begin
  if p_take = p_n then
    delete from pawl.queue_ready r where r.ctid = any (p_tids);
  else
    delete from pawl.queue_ready r where r.ctid = any (array(
      select u.tid from unnest(p_tids, p_n, p_take) u (tid, n, take) where u.take = u.n));
    update pawl.queue_ready r set id = r.id + u.take, n = r.n - u.take
    from unnest(p_tids, p_n, p_take) u (tid, n, take) where u.take < u.n and r.ctid = u.tid;
  end if;
  -- One claim for all jobs in the same attempt, and one for each job that was lost before, so that a crash tells these apart.
  with run as materialized (
    select u.lo, u.take, u.kind, u.attempt, coalesce(u.lost, 0::smallint) as lost, coalesce(u.alone, false) as alone, u.ord,
      case when u.lost > 0 then u.lo else 0 end as apart
    from unnest(p_lo, p_take, p_kinds, p_attempts, p_losts, p_alones) with ordinality u (lo, take, kind, attempt, lost, alone, ord)
  ), part as materialized (
    select nextval('pawl.queue_claim_id') as claim, gen_random_uuid() as process, p.* from (
      select r.attempt, r.lost, r.alone, r.apart, range_agg(int8range(r.lo, r.lo + r.take)) as ids from run r group by 1, 2, 3, 4 order by 1, 4
    ) p
  ), running as (
    insert into pawl.queue_running (id, worker, claimed_at, process_id, shard, queue, attempt, lost, unit, ids)
    select p.claim, p_worker, p_now, p.process, p_shard, p_queue, p.attempt + 1, p.lost, false, p.ids from part p
  )
  select
    -- format() takes half as long as concat() here: for concat() each piece of text is an argument, too.
    (select case when count(o.payloads) = count(*) then string_agg(format('{"claim":%s,"first":%s,"n":%s,"kind":%s,"attempt":%s,"origin":%s,"payloads":[%s]}',
        p.claim, r.lo, r.take, r.kind, r.attempt + 1,
        -- That of the first job: the jobs of a run have the same origin, and a job with options is never in a run.
        case when r.take = 1 or o.group_name is null then pawl.queue_origin(o.created_at, o.options, o.group_name)
          else pawl.queue_run_origin(p_shard, r.lo, r.take) end,
        o.payloads), ',' order by r.ord) end
      from run r
      join part p on p.attempt = r.attempt and p.lost = r.lost and p.alone = r.alone and p.apart = r.apart
      left join lateral (
        select o.created_at, o.options, o.group_name, case when r.take = 1 then o.payload::text else (
            select string_agg(j.payload::text, ',') from (
              select j.payload from pawl.queue_job j where j.shard = p_shard and j.id >= r.lo and j.id < r.lo + r.take order by j.id
            ) j having count(*) = r.take) end as payloads
        from pawl.queue_job o where o.shard = p_shard and o.id = r.lo offset 0) o on true),
    string_agg(format('"%s":"%s"', p.claim, p.process), ','), string_agg(p.claim::text, ',') filter (where p.alone)
  into runs, processes, alone
  from part p;
end $$;

-- The origin of a job, as claims answer it: when it was enqueued, in ms. For a job with options of its own, or of a group: {enqueuedAt, options,
-- expiresIn, group}.
create or replace function pawl.queue_origin(p_at timestamptz, p_options json, p_group text) returns text
language sql stable as $$
  select case when p_options is null and p_group is null then (date_part('epoch', p_at) * 1000)::bigint::text
    else pawl.queue_special_origin(p_at, p_options, p_group) end
$$;

-- A function of its own: with the clock in it, queue_origin() would cost a call for each job.
create or replace function pawl.queue_special_origin(p_at timestamptz, p_options json, p_group text) returns text
language plpgsql stable as $$
begin
  return concat('{"enqueuedAt":', (date_part('epoch', p_at) * 1000)::bigint, ',"options":' || p_options,
    ',"expiresIn":' || (extract(epoch from (p_options ->> 'expiresAt')::timestamptz - clock_timestamp()) * 1000)::bigint,
    ',"group":' || to_json(p_group), '}');
end $$;

-- The origin of a run of jobs that have groups, and no options of their own: {enqueuedAt, groups: [one for each job]}.
create or replace function pawl.queue_run_origin(p_shard smallint, p_first bigint, p_n int) returns text
language sql stable as $$
  select concat('{"enqueuedAt":', min((date_part('epoch', j.created_at) * 1000)::bigint), ',"groups":', json_agg(j.group_name order by j.id), '}')
  from pawl.queue_job j where j.shard = p_shard and j.id >= p_first and j.id < p_first + p_n
$$;
