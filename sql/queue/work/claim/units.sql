-- Claiming the units of free keys, in a queue with a kind that coalesces or has predecessors.

-- Claims the next unit of each of these free keys, as many units as there is room for, in a queue with a kind that coalesces or has predecessors.
-- p_waits: a kind may have to wait for one of its predecessors; p_lean: the kinds of which only the newest job of a unit brings its payload.
-- "cut": units are left. Runs under the planner settings of its caller.
create or replace function pawl.queue_claim_units(
  p_queue smallint, p_shard smallint, p_worker bigint, p_limit int, p_now timestamptz, p_epoch bigint, p_keys text[], p_waits boolean, p_lean smallint[],
  out rest text, out processes text, out taken int, out cut boolean
)
language plpgsql as $$
declare
  v_got pawl.queue_unit_job[];
  v_ids bigint[]; v_units int[]; v_bare boolean[]; v_heads text[];
  v_read int;
begin
  taken := 0;
  cut := true;
  -- 1. The next unit of each key.
  v_got := array(select row(g.*)::pawl.queue_unit_job from pawl.queue_next_units(p_queue, p_shard, p_keys) g);
  -- Asked after the jobs were read, since some of them may have been enqueued after a pause.
  if (select d.paused_at is not null from pawl.queue_definition d where d.id = p_queue) then
    return;
  end if;
  if p_waits then
    perform pawl.queue_await_predecessor(p_queue, p_shard, u.key)
    from unnest(p_keys) u (key) where u.key not in (select g.key from unnest(v_got) g);
  end if;
  if cardinality(v_got) > 8000 or pawl.queue_has_large_payloads() then
    v_got := pawl.queue_cut_units(p_queue, p_shard, v_got);
  end if;
  if cardinality(v_got) = 0 then
    cut := false;
    return;
  end if;

  -- 2. The claims of these units. Each reading of the array takes half a millisecond with 2,000 jobs, so the statement reads it once. It joins by
  -- numbers: by the texts of keys it took twice as long.
  with got as materialized (
    select g.*, case when g.whole then g.nth else 0 end as unit, case when not g.whole and (g.attempt > 0 or g.lost > 0) then g.id else 0 end as again
    from unnest(v_got) with ordinality g (nth, key, id, kind, attempt, priority, tid, parked, broken_by, whole, lost, ord)
  ), kept as materialized (
    -- Whole units, in the order of their keys: as many as there is room for, however many jobs each has, but no more after two thousand jobs.
    -- The first unit comes in any case.
    select c.nth from (
      select g.nth, row_number() over (order by g.nth) as units, sum(g.n) over (order by g.nth) - g.n as before
      from (select g.nth, count(*) as n from got g group by g.nth) g
    ) c where c.units <= p_limit and c.before < 2000
  ), job as materialized (
    -- The jobs of a unit in one attempt are one claim: a claim each would be 10,000 rows, and was a join of 10,000 with 10,000. Of the other
    -- jobs, all that begin for the first time are one claim.
    select g.*, dense_rank() over (order by g.unit, g.attempt, g.lost, g.again) as part,
      g.whole and lead(g.nth) over (order by g.ord) is not distinct from g.nth and g.kind = any (p_lean) as is_bare
    from got g where g.nth <= (select max(k.nth) from kept k)
  ), held as (
    insert into pawl.queue_key as k (shard, queue, key, epoch, held)
    select p_shard, p_queue, p_keys[u.nth], p_epoch, true from kept u
    on conflict (shard, queue, key) do update set epoch = excluded.epoch, held = true
  ), from_ready as (
    delete from pawl.queue_ready r where r.ctid = any (array(select j.tid from job j where not j.parked))
  ), from_parked as (
    delete from pawl.queue_parked p where p.ctid = any (array(select j.tid from job j where j.parked))
  ), unit as materialized (
    select j.unit, gen_random_uuid() as process from job j where j.whole group by j.unit
  ), part as materialized (
    select nextval('pawl.queue_claim_id') as claim, p.*, gen_random_uuid() as process from (
      select j.part, min(j.unit) as unit, min(j.attempt) as attempt, min(j.lost) as lost, bool_or(j.whole) as whole,
        -- As a rule the jobs of a claim were enqueued together. A range for each job costs 2 us.
        case when max(j.id) - min(j.id) = count(*) - 1 then int8multirange(int8range(min(j.id), max(j.id) + 1))
          else (select range_agg(int8range(u.id, u.id + 1)) from unnest(array_agg(j.id)) u (id)) end as ids
      from job j group by j.part
    ) p
  ), claim as materialized (
    select p.part, p.claim, p.attempt, p.lost, p.whole, p.ids, coalesce(u.process, p.process) as process,
      case when p.whole then pawl.queue_key_hash(p_queue, p_keys[p.unit]) end as key_hash
    from part p left join unit u on u.unit = p.unit
  ), running as (
    insert into pawl.queue_running (id, worker, claimed_at, process_id, shard, queue, attempt, lost, unit, ids, key_hash)
    select c.claim, p_worker, p_now, c.process, p_shard, p_queue, c.attempt + 1, c.lost, c.whole, c.ids, c.key_hash from claim c
  ), listed as materialized (  -- found by place: a join compares each job with each claim, since the planner does not know how many there are
    select array_agg(c.claim order by c.part) as claims from claim c
  ), head as materialized (  -- a key has one unit, and a unit has one kind; as a rule its jobs are of one claim
    select row_number() over (order by j.nth) as nth, concat('{"key":', to_json(p_keys[j.nth])::text, ',"epoch":', p_epoch,
      ',"claims":[', case when j.first = j.last then rtrim(repeat(concat(l.claims[j.last], ','), j.n), ',')
        else (select string_agg(l.claims[u.part]::text, ',' order by u.ord) from unnest(j.parts) with ordinality u (part, ord)) end,
      '],"kinds":[', rtrim(repeat(concat(j.kind, ','), j.n), ','),
      '],"attempts":[', case when j.first = j.last then rtrim(repeat(concat(j.attempts[1] + 1, ','), j.n), ',')
        else (select string_agg((u.attempt + 1)::text, ',' order by u.ord) from unnest(j.attempts) with ordinality u (attempt, ord)) end,
      '],"units":[', rtrim(repeat(concat(case when j.whole then j.nth::text else 'null' end, ','), j.n), ','),
      '],"brokenBy":[', rtrim(repeat(concat(coalesce(j.broken_by::text, 'null'), ','), j.n), ','),
      '],"latest":[', case when j.is_bare then j.nth end, ']') as text
    from (
      select j.nth, count(*)::int as n, min(j.part) as first, max(j.part) as last, array_agg(j.part) as parts, array_agg(j.attempt) as attempts,
        min(j.kind) as kind, bool_or(j.whole) as whole, max(j.broken_by) as broken_by, bool_or(j.is_bare) as is_bare
      from (select j.* from job j order by j.nth, j.ord) j group by j.nth
    ) j cross join listed l
  )
  select s.n, (select count(*) from kept) < cardinality(p_keys), s.ids, s.units, s.bare,
    (select string_agg('"' || c.claim || '":"' || c.process || '"', ',') from claim c), (select array_agg(h.text order by h.nth) from head h)
  from (
    select count(*) as n, array_agg(j.id) as ids, array_agg(j.unit) as units, array_agg(j.is_bare) as bare
    from (select j.id, dense_rank() over (order by j.nth) as unit, j.is_bare from job j order by j.id) j
  ) s
  into taken, cut, v_ids, v_units, v_bare, processes, v_heads;

  -- 3. The payloads, by one scan: an index search for each job takes twice as long.
  select sum(k.n), string_agg(k.object, ',' order by k.unit) into v_read, rest from (
    select o.unit, count(*) as n, concat(v_heads[o.unit], ',"ids":[', string_agg(o.id::text, ','),
      '],"origins":[', string_agg(pawl.queue_origin(o.created_at, o.options, o.group_name), ','),
      '],"payloads":[', string_agg(case when o.is_bare then 'null' else o.payload::text end, ','), ']}') as object
    from (  -- sorted once here, and not by each aggregate
      select v_units[o.place] as unit, v_bare[o.place] as is_bare, o.* from (
        select row_number() over () as place, o.* from (
          select o.id, o.created_at, o.options, o.group_name, o.payload from pawl.queue_job o
          where o.shard = p_shard and o.id = any (v_ids) and o.id between v_ids[1] and v_ids[taken] order by o.id
        ) o
      ) o
      order by 1, o.place
    ) o
    group by o.unit
  ) k;
  if v_read is distinct from taken then
    select true, 0, null, null into cut, taken, rest, processes
    from pawl.queue_drop_orphans(p_queue, p_shard, p_worker, p_epoch, p_now, p_keys);
  end if;
end $$;

-- Ends each unit where its payloads pass 16 MB, as they are stored, but never before its first job. The rest is the next unit. An answer with
-- more could not come in time, however often the worker asks. Eight thousand payloads that are stored in their rows have less than that.
-- Answers the jobs that stay. Runs under the planner settings of its caller.
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
