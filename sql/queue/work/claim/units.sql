-- Claiming the units of free keys, in a queue of which a kind coalesces or has predecessors.

-- The next unit of each of these free keys, in a queue of which a kind coalesces or has predecessors: as many as there is room for. "cut"
-- says that some are left. Under the planner settings of its caller.
create or replace function pawl.queue_claim_units(
  p_queue smallint, p_shard smallint, p_worker bigint, p_limit int, p_now timestamptz, p_epoch bigint, p_keys text[], p_parks boolean,
  out rest text, out processes text, out taken int, out cut boolean
)
language plpgsql as $$
declare
  v_got pawl.queue_unit_job[];
  v_kept text[];
  v_last int;
begin
  taken := 0;
  cut := true;
  -- 1. The next unit of each key.
  v_got := array(select row(g.*)::pawl.queue_unit_job from pawl.queue_next_units(p_queue, p_shard, p_keys) g);
  -- Asked after the jobs were read: among them may be some that were enqueued after a pause.
  if (select d.paused_at is not null from pawl.queue_definition d where d.id = p_queue) then
    return;
  end if;
  if p_parks then
    perform pawl.queue_await_predecessor(p_queue, p_shard, u.key)
    from unnest(p_keys) u (key) where u.key not in (select g.key from unnest(v_got) g);
  end if;
  if cardinality(v_got) > 8000 or pawl.queue_has_large_payloads() then
    v_got := pawl.queue_cut_units(p_queue, p_shard, v_got);
  end if;
  -- 2. Whole keys, in order: as many units as there is room for, however many jobs each has, but no more when there are two thousand
  -- jobs. The first one comes in any case.
  select array_agg(c.key order by c.nth), max(c.nth) into v_kept, v_last from (
    select g.nth, g.key, row_number() over (order by g.nth) as units, sum(g.n) over (order by g.nth) - g.n as before
    from (select g.nth, min(g.key) as key, count(*) as n from unnest(v_got) g group by g.nth) g
  ) c where c.units <= p_limit and c.before < 2000;
  if v_kept is null then
    cut := false;
    return;
  end if;
  cut := cardinality(v_kept) < cardinality(p_keys);
  if cut then
    v_got := array(select g from unnest(v_got) g where g.nth <= v_last);
  end if;
  taken := cardinality(v_got);

  -- 3. Their claims.
  insert into pawl.queue_key as k (shard, queue, key, epoch, held)
  select p_shard, p_queue, u.key, p_epoch, true from unnest(v_kept) u (key)
  on conflict (shard, queue, key) do update set epoch = excluded.epoch, held = true;
  delete from pawl.queue_ready r where r.ctid = any (array(select g.tid from unnest(v_got) g where not g.parked));
  delete from pawl.queue_parked p where p.ctid = any (array(select g.tid from unnest(v_got) g where g.parked));

  -- What belongs together is found by numbers: with the texts of keys this took twice as long (2,000 jobs of 100 units, 21 ms).
  with job as materialized (
    -- A unit's jobs of one attempt are one claim: a claim each is 10,000 rows, and was a join of 10,000 with 10,000. Of the other
    -- jobs those that begin for the first time are one.
    select x.*, dense_rank() over (order by x.unit, x.attempt, x.lost, x.again) as part, lead(x.nth) over (order by x.ord) is distinct from x.nth as is_newest
    from (
      select g.*, case when g.whole then g.nth else 0 end as unit, case when not g.whole and (g.attempt > 0 or g.lost > 0) then g.id else 0 end as again
      from unnest(v_got) with ordinality g (nth, key, id, kind, attempt, priority, tid, parked, broken_by, whole, lost, ord)) x
  ), unit as materialized (
    select j.unit, gen_random_uuid() as process from job j where j.whole group by j.unit
  ), part as materialized (
    select nextval('pawl.queue_claim_id') as claim, p.*, gen_random_uuid() as process from (
      select j.part, min(j.unit) as unit, min(j.attempt) as attempt, min(j.lost) as lost, bool_or(j.whole) as whole,
        -- As a rule its jobs were enqueued together. A range each costs 2 us.
        case when max(j.id) - min(j.id) = count(*) - 1 then int8multirange(int8range(min(j.id), max(j.id) + 1))
          else (select range_agg(int8range(u.id, u.id + 1)) from unnest(array_agg(j.id)) u (id)) end as ids
      from job j group by j.part
    ) p
  ), claim as materialized (
    select p.part, p.claim, p.attempt, p.lost, p.whole, p.ids, coalesce(u.process, p.process) as process
    from part p left join unit u on u.unit = p.unit
  ), running as (
    insert into pawl.queue_running (id, worker, claimed_at, process_id, shard, queue, attempt, lost, unit, ids)
    select c.claim, p_worker, p_now, c.process, p_shard, p_queue, c.attempt + 1, c.lost, c.whole, c.ids from claim c
  ), listed as materialized (  -- by place: a join compares each job with each claim, since the planner does not know how many there are
    select array_agg(c.claim order by c.part) as claims from claim c
  ), lean as materialized (
    select k.id from pawl.queue_kind k where k.queue = p_queue and k.coalesce = 'latest'
  )
  select
    (select string_agg('"' || c.claim || '":"' || c.process || '"', ',') from claim c),
    (select string_agg(k.object, ',' order by k.nth) from (
      select j.nth, concat(
        '{"key":', to_json(min(j.key))::text, ',"epoch":', p_epoch,
        ',"ids":[', string_agg(j.id::text, ','),
        '],"claims":[', string_agg(j.claim::text, ','),
        '],"kinds":[', string_agg(j.kind::text, ','),
        '],"attempts":[', string_agg((j.attempt + 1)::text, ','),
        '],"origins":[', string_agg(j.origin, ','),
        '],"units":[', string_agg(case when j.whole then j.nth::text else 'null' end, ','),
        '],"brokenBy":[', string_agg(coalesce(j.broken_by::text, 'null'), ','),
        '],"payloads":[', string_agg(j.payload, ','),
        '],"latest":[', case when bool_or(j.is_bare) then j.nth end, ']}') as object
      from (  -- sorted here, and not by each aggregate
        select j.*, l.claims[j.part] as claim, pawl.queue_origin(o.created_at, o.options, o.group_name) as origin, b.is_bare,
          case when b.is_bare then 'null' else o.payload::text end as payload
        from job j cross join listed l
        cross join lateral (select j.whole and not j.is_newest and j.kind in (select k.id from lean k) as is_bare offset 0) b
        cross join lateral (
          select o.created_at, o.options, o.group_name, o.payload from pawl.queue_job o where o.shard = p_shard and o.id = j.id limit 1) o
        order by j.nth, j.ord
      ) j
      group by j.nth) k)
  into processes, rest;
end $$;

-- A unit ends where its payloads pass 16 MB, as they are stored, and never before its first job: what is left of it is the next
-- unit. Its answer could not come in time, however often it was asked for. Eight thousand payloads that stand in their rows have less.
-- Answers the jobs that stay. Under the planner settings of its caller.
create or replace function pawl.queue_cut_units(p_queue smallint, p_shard smallint, p_jobs pawl.queue_unit_job[]) returns pawl.queue_unit_job[]
language plpgsql as $$
declare
  v_large int[];
  v_lasts bigint[];
begin
  select array_agg(c.nth), array_agg(c.last) into v_large, v_lasts from (
    select s.nth, max(s.id) filter (where s.place = 1 or s.upto <= 16777216) as last, max(s.id) as id from (
      select g.nth, g.id, row_number() over w as place, sum(pg_column_size(o.payload)) over w as upto
      from unnest(p_jobs) g
      cross join lateral (select o.payload from pawl.queue_job o where o.shard = p_shard and o.id = g.id offset 0) o
      where g.whole and g.kind in (select k.id from pawl.queue_kind k where k.queue = p_queue and k.coalesce = 'all')
      window w as (partition by g.nth order by g.id)
    ) s
    group by s.nth
  ) c where c.last < c.id;
  if v_large is null then
    return p_jobs;
  end if;
  return array(
    select g from unnest(p_jobs) g
    where not exists (select from unnest(v_large, v_lasts) c (nth, last) where c.nth = g.nth and g.id > c.last));
end $$;
