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
  v_got pawl.queue_unit[];
  v_ids bigint[]; v_units int[]; v_bare boolean[]; v_heads text[];
  v_read int;
begin
  taken := 0;
  cut := true;
  -- 1. The next unit of each key: as many units as there is room for, however many jobs each has, but none after two thousand jobs.
  v_got := array(select row(g.*)::pawl.queue_unit from pawl.queue_next_units(p_queue, p_shard, p_keys, p_limit) g);
  -- Asked after the jobs were read, since some of them may have been enqueued after a pause.
  if (select d.paused_at is not null from pawl.queue_definition d where d.id = p_queue) then
    return;
  end if;
  if p_waits then
    perform pawl.queue_await_predecessor(p_queue, p_shard, u.key)
    from unnest(p_keys) u (key) where u.key not in (select g.key from unnest(v_got) g);
  end if;
  if cardinality(v_got) = 0 then
    cut := false;
    return;
  end if;
  if (select sum(cardinality(g.ids)) from unnest(v_got) g) > 8000 or pawl.queue_has_large_payloads() then
    v_got := pawl.queue_cut_units(p_queue, p_shard, v_got);
  end if;

  -- 2. The claims of these units, one for each as a rule. What is done for each job costs most, so this goes through the jobs twice only: it deletes
  -- their rows, and lists them by their ids. It joins by numbers, since it took twice as long by the texts of keys.
  with got as materialized (
    select row_number() over (order by g.nth)::int as unit, cardinality(g.ids) as n, g.*,
      -- The jobs of a unit in one attempt are one claim: a claim each would be 10,000 rows, and was a join of 10,000 with 10,000. Of the other jobs,
      -- all that begin for the first time are one claim, that of unit 0.
      (g.whole or g.attempts[1] > 0 or g.losts[1] > 0) and array_fill(g.attempts[1], array[cardinality(g.ids)]) = g.attempts
        and array_fill(g.losts[1], array[cardinality(g.ids)]) = g.losts as is_one
    from unnest(v_got) g where g.ids is not null
  ), held as (
    insert into pawl.queue_key as k (shard, queue, key, epoch, held)
    select p_shard, p_queue, g.key, p_epoch, true from got g
    on conflict (shard, queue, key) do update set epoch = excluded.epoch, held = true
  ), from_ready as (
    delete from pawl.queue_ready r where r.ctid = any (array(
      select j.tid from (select unnest(g.tids) as tid, unnest(g.parked) as parked from got g) j where not j.parked))
  ), from_parked as (
    delete from pawl.queue_parked p where p.ctid = any (array(
      select j.tid from (select unnest(g.tids) as tid, unnest(g.parked) as parked from got g where true = any (g.parked)) j where j.parked))
  ), claim as materialized (
    select nextval('pawl.queue_claim_id') as claim, row_number() over (order by p.unit, p.attempt, p.lost)::int as place,
      p.unit, p.attempt, p.lost, p.whole, first_value(p.process) over (partition by p.unit order by p.attempt, p.lost) as process,
      -- As a rule the jobs of a claim were enqueued together. A range for each job costs 2 us.
      case when p.ids[p.n] - p.ids[1] = p.n - 1 then int8multirange(int8range(p.ids[1], p.ids[p.n] + 1))
        else (select range_agg(int8range(u.id, u.id + 1)) from unnest(p.ids) u (id)) end as ids,
      case when p.whole then pawl.queue_key_hash(p_queue, p_keys[p.nth]) end as key_hash
    from (
      select g.unit, g.attempts[1] as attempt, g.losts[1] as lost, g.nth, g.whole, g.n, g.ids, gen_random_uuid() as process from got g where g.is_one
      union all
      select j.unit, j.attempt, j.lost, min(j.nth), bool_or(j.whole), count(*)::int, array_agg(j.id order by j.id), gen_random_uuid()
      from (
        select case when g.whole or u.attempt > 0 or u.lost > 0 then g.unit else 0 end as unit, g.nth, g.whole, u.*
        from got g cross join lateral unnest(g.ids, g.attempts, g.losts) u (id, attempt, lost) where not g.is_one
      ) j
      group by j.unit, j.attempt, j.lost
    ) p
  ), running as (
    insert into pawl.queue_running (id, worker, claimed_at, process_id, shard, queue, attempt, lost, unit, ids, key_hash)
    select c.claim, p_worker, p_now, c.process, p_shard, p_queue, c.attempt + 1, c.lost, c.whole, c.ids, c.key_hash from claim c
  ), listed as materialized (  -- found by place: a join compares each job with each claim, since the planner does not know how many there are
    select array_agg(c.claim order by c.place) as claims, array_agg(c.attempt order by c.place) as attempts, array_agg(c.lost order by c.place) as losts
    from claim c
  ), head as materialized (  -- as a rule, the jobs of a unit are of one claim
    select g.unit, concat('{"key":', to_json(g.key)::text, ',"epoch":', p_epoch,
      ',"claims":[', case when c.first = c.last then rtrim(repeat(concat(l.claims[c.first], ','), g.n), ',') else (
        select string_agg(l.claims[s.place]::text, ',' order by u.place)
        from unnest(g.attempts, g.losts) with ordinality u (attempt, lost, place)
        join generate_series(c.first, c.last) s (place) on l.attempts[s.place] = u.attempt and l.losts[s.place] = u.lost) end,
      '],"kinds":[', rtrim(repeat(concat(g.kind, ','), g.n), ','),
      '],"attempts":[', case when c.first = c.last then rtrim(repeat(concat(g.attempts[1] + 1, ','), g.n), ',')
        else (select string_agg((u.attempt + 1)::text, ',' order by u.place) from unnest(g.attempts) with ordinality u (attempt, place)) end,
      '],"units":[', rtrim(repeat(concat(case when g.whole then g.nth::text else 'null' end, ','), g.n), ','),
      '],"brokenBy":[', rtrim(repeat(concat(coalesce(g.broken_by::text, 'null'), ','), g.n), ','),
      '],"latest":[', case when g.whole and g.n > 1 and g.kind = any (p_lean) then g.nth end, ']') as text
    from got g
    join (select c.unit, min(c.place) as first, max(c.place) as last from claim c group by c.unit) c
      on c.unit = case when g.whole or g.attempts[1] > 0 or g.losts[1] > 0 then g.unit else 0 end
    cross join listed l
  )
  select s.n, (select count(*) from got) < cardinality(p_keys), s.ids, s.units, s.bare,
    (select string_agg('"' || c.claim || '":"' || c.process || '"', ',') from claim c), (select array_agg(h.text order by h.unit) from head h)
  from (
    select count(*) as n, array_agg(j.id) as ids, array_agg(j.unit) as units, array_agg(j.id < j.newest) as bare
    from (
      select unnest(g.ids) as id, g.unit, case when g.whole and g.kind = any (p_lean) then g.ids[g.n] end as newest from got g order by 1
    ) j
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
-- Runs under the planner settings of its caller.
create or replace function pawl.queue_cut_units(p_queue smallint, p_shard smallint, p_units pawl.queue_unit[]) returns pawl.queue_unit[]
language sql as $$
  select array_agg(
    case when c.most is null then g.*::pawl.queue_unit
      else row(g.nth, g.key, g.kind, g.whole, g.broken_by, g.ids[:c.most], g.attempts[:c.most], g.losts[:c.most], g.tids[:c.most], g.parked[:c.most])::pawl.queue_unit
    end order by g.nth)
  from unnest(p_units) g
  left join lateral (
    select max(s.place) filter (where s.place = 1 or s.upto <= 16777216) as most from (
      select u.place, sum(pg_column_size(o.payload)) over (order by u.place) as upto
      from unnest(g.ids) with ordinality u (id, place)
      cross join lateral (select o.payload from pawl.queue_job o where o.shard = p_shard and o.id = u.id offset 0) o
    ) s
    where g.whole and g.kind in (select k.id from pawl.queue_kind k where k.queue = p_queue and k.coalesce = 'all')
  ) c on true
$$;
