-- Claiming the jobs of many free keys at once, in a queue without a kind that coalesces or has predecessors. No statement compares an array with
-- each of its elements, and ranges are made of stretches of ids, not of single ids.

-- Claims up to p_chain jobs of each of these free keys, oldest first, p_limit in all. p_waiting: the keys among them that have a row in queue_key.
-- The first attempts are one claim (chains). A job that failed or was lost before comes alone, under a claim of its own (rest), so that a crash
-- charges no other job.
-- The statement that reads the jobs asks whether the queue is paused: if this claim waited after it found the key, it would otherwise take jobs
-- that were enqueued after the pause. Arrays between the steps, and columns in the answer, cost half of what rows cost.
create or replace function pawl.queue_claim_chains(
  p_queue smallint, p_shard smallint, p_worker bigint, p_limit int, p_chain int, p_now timestamptz, p_epoch bigint, p_keys text[],
  p_waiting text[], out chains text, out rest text, out processes text, out taken int, out cut boolean
)
language plpgsql /* planner: batch */ set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
declare
  v_nths int[]; v_ids bigint[]; v_kinds smallint[]; v_attempts smallint[]; v_losts smallint[]; v_tids tid[]; v_parked boolean[];
  v_claim bigint;
  v_process uuid;
  v_read int;
  v_last int;
  v_again int;
  v_fit bigint;
  v_missing boolean := false;
begin
  -- 1. The oldest jobs of each key, as many as one answer can carry.
  select array_agg(s.nth), array_agg(s.id), array_agg(s.kind), array_agg(s.attempt), array_agg(s.lost), array_agg(s.tid), array_agg(s.parked), count(*), max(s.nth), max(greatest(s.attempt, s.lost))
  into v_nths, v_ids, v_kinds, v_attempts, v_losts, v_tids, v_parked, taken, v_last, v_again
  from (
    select s.* from (
      select u.ord::int as nth, x.* from unnest(p_keys) with ordinality u (key, ord) cross join lateral (
        select r.* from (
          (select r.id, r.kind, r.attempt, r.lost, r.ctid as tid, false as parked from pawl.queue_ready r
            where r.shard = p_shard and r.queue = p_queue and r.key = u.key order by r.id limit p_chain)
          union all
          select p.* from pawl.queue_kind k cross join lateral (
            select p.id, p.kind, p.attempt, p.lost, p.ctid, true from pawl.queue_parked p
            where p.shard = p_shard and p.queue = p_queue and p.key = u.key and p.kind = k.id order by p.id limit p_chain) p
          where k.queue = p_queue and exists (
            select 1 from pawl.queue_parked p where p.shard = p_shard and p.queue = p_queue and p.key = u.key)
        ) r order by r.id limit p_chain
      ) x
      where (select d.paused_at is null from pawl.queue_definition d where d.id = p_queue)
      limit p_limit
    ) s order by s.id
  ) s;
  cut := taken = 0 or v_last < cardinality(p_keys);
  if taken = 0 then
    return;
  end if;
  if taken > 1 then
    v_fit := pawl.queue_count_fitting(p_shard, v_ids, null);
    if v_fit < taken then  -- nothing is written yet
      select c.chains, c.rest, c.processes, c.taken, true into chains, rest, processes, taken, cut
      from pawl.queue_claim_chains(p_queue, p_shard, p_worker, greatest(v_fit, 1)::int, p_chain, p_now, p_epoch, p_keys, p_waiting) c;
      return;
    end if;
  end if;

  -- 2. Jobs that failed or were lost before. Of a key comes such a job alone, or the jobs before the first such job.
  if v_again > 0 then
    select array_agg(s.nth), array_agg(s.id), array_agg(s.kind), array_agg(s.attempt), array_agg(s.lost), array_agg(s.tid), array_agg(s.parked), count(*)
    into v_nths, v_ids, v_kinds, v_attempts, v_losts, v_tids, v_parked, taken
    from (
      select u.*, min(u.id) over w as first, min(u.id) filter (where u.attempt > 0 or u.lost > 0) over w as again
      from unnest(v_nths, v_ids, v_kinds, v_attempts, v_losts, v_tids, v_parked) u (nth, id, kind, attempt, lost, tid, parked)
      window w as (partition by u.nth) order by u.id
    ) s
    where s.again is null or s.id < s.again or (s.id = s.again and s.again = s.first);
    select a.rest, a.processes, a.is_missing into rest, processes, v_missing
    from pawl.queue_start_again(p_queue, p_shard, p_worker, p_now, p_epoch, p_keys, v_nths, v_ids, v_kinds, v_attempts, v_losts) a;
  end if;

  -- 3. The keys become held, and the jobs leave the tables in which they waited. Not "on conflict", which costs half as much again: only the owner
  -- of a key's lock adds a row for the key, and this claim has the lock.
  if p_waiting is not null then
    update pawl.queue_key k set epoch = p_epoch, held = true
    where k.shard = p_shard and k.queue = p_queue and k.key = any (p_waiting) and k.key = any (array(select p_keys[u.nth] from unnest(v_nths) u (nth)));
  end if;
  insert into pawl.queue_key (shard, queue, key, epoch, held)
  select p_shard, p_queue, u.key, p_epoch, true from unnest(p_keys) with ordinality u (key, ord)
  where u.ord in (select n.nth from unnest(v_nths) n (nth)) and (p_waiting is null or u.key <> all (p_waiting));
  if true <> all (v_parked) then
    delete from pawl.queue_ready r where r.ctid = any (v_tids);
  else
    delete from pawl.queue_ready r where r.ctid = any (array(select u.tid from unnest(v_tids, v_parked) u (tid, parked) where not u.parked));
    delete from pawl.queue_parked p where p.ctid = any (array(select u.tid from unnest(v_tids, v_parked) u (tid, parked) where u.parked));
  end if;

  -- 4. One claim for all first attempts.
  if rest is not null or v_missing then
    select array_agg(u.nth order by u.id), array_agg(u.id order by u.id), array_agg(u.kind order by u.id) into v_nths, v_ids, v_kinds
    from unnest(v_nths, v_ids, v_kinds, v_attempts, v_losts) u (nth, id, kind, attempt, lost) where u.attempt = 0 and u.lost = 0;
  end if;
  if v_ids is null and not v_missing then
    return;
  end if;
  v_claim := nextval('pawl.queue_claim_id');
  v_process := gen_random_uuid();
  -- The ids are in order: in a stretch without gaps, each id has the same distance to its place in the array.
  insert into pawl.queue_running (id, worker, claimed_at, process_id, shard, queue, attempt, unit, ids)
  select v_claim, p_worker, p_now, v_process, p_shard, p_queue, 1, false, range_agg(int8range(s.first, s.last + 1)) from (
    select min(u.id) as first, max(u.id) as last
    from (select u.id, u.id - u.ord as gap from unnest(v_ids) with ordinality u (id, ord)) u group by u.gap) s
  having count(*) > 0;
  processes := concat_ws(',', concat('"', v_claim, '":"', v_process, '"'), processes);
  select count(*), concat('{"claim":', v_claim, ',"epoch":', p_epoch, ',"keys":', to_json(p_keys[1:v_last]), ',"nth":[', array_to_string(v_nths, ','),
    '],"ids":[', array_to_string(v_ids, ','), '],"kinds":[', array_to_string(v_kinds, ','),
    '],"origins":[', string_agg(pawl.queue_origin(o.created_at, o.options, o.group_name), ','),
    '],"payloads":[', string_agg(o.payload::text, ','), ']}')
  into v_read, chains
  from (
    -- With the statistics of an empty table, Postgres before 17 reads the shard in its order and filters. The bounds keep it from reading the rest
    -- of the shard. A join that finds one id after the other takes twice as long.
    select o.created_at, o.options, o.group_name, o.payload from pawl.queue_job o
    where o.shard = p_shard and o.id = any (v_ids) and o.id between v_ids[1] and v_ids[cardinality(v_ids)] order by o.id
  ) o;
  if v_missing or v_read <> cardinality(v_ids) then
    select true, 0, null, null, null into cut, taken, chains, rest, processes
    from pawl.queue_drop_orphans(p_queue, p_shard, p_worker, p_epoch, p_now, p_keys);
  end if;
end $$;

-- Claims each of these jobs that failed or was lost before, one claim for each job. Answers "rest" and "processes" as the claim does, with commas
-- between; "is_missing": some of the jobs are not in queue_job. Runs under the planner settings of its caller.
create or replace function pawl.queue_start_again(
  p_queue smallint, p_shard smallint, p_worker bigint, p_now timestamptz, p_epoch bigint, p_keys text[],
  p_nths int[], p_ids bigint[], p_kinds smallint[], p_attempts smallint[], p_losts smallint[],
  out rest text, out processes text, out is_missing boolean
)
language plpgsql as $$
begin
  with again as materialized (
    select u.*, nextval('pawl.queue_claim_id') as claim, gen_random_uuid() as process
    from unnest(p_nths, p_ids, p_kinds, p_attempts, p_losts) u (nth, id, kind, attempt, lost) where u.attempt > 0 or u.lost > 0
  ), running as (
    insert into pawl.queue_running (id, worker, claimed_at, process_id, shard, queue, attempt, lost, unit, ids)
    select a.claim, p_worker, p_now, a.process, p_shard, p_queue, a.attempt + 1, a.lost, false, int8multirange(int8range(a.id, a.id + 1)) from again a
  )
  select
    string_agg(concat('{"key":', to_json(p_keys[a.nth])::text, ',"epoch":', p_epoch, ',"ids":[', a.id, '],"claims":[', a.claim,
      '],"kinds":[', a.kind, '],"attempts":[', a.attempt + 1, '],"origins":[', pawl.queue_origin(o.created_at, o.options, o.group_name),
      '],"payloads":[', o.payload::text, ']}'), ',' order by a.id),
    string_agg(concat('"', a.claim, '":"', a.process, '"'), ','), count(*) < (select count(*) from again)
  into rest, processes, is_missing
  from again a cross join lateral (
    select o.created_at, o.options, o.group_name, o.payload from pawl.queue_job o where o.shard = p_shard and o.id = a.id limit 1) o;
end $$;

-- Repairs a claim of which some jobs are not in queue_job: something other than Pawl has deleted rows. The claims of the missing jobs go, the
-- other jobs are given back as they were, and the keys continue, so no claim meets the missing jobs again. The claims in question were made at
-- p_now, with numbers above p_epoch; the keys are held under p_epoch. A warning in the server's log says so.
create or replace function pawl.queue_drop_orphans(
  p_queue smallint, p_shard smallint, p_worker bigint, p_epoch bigint, p_now timestamptz, p_keys text[]
) returns void
language plpgsql /* planner: probe */ as $$
declare
  v_keys text[];
begin
  raise warning 'jobs of queue % that were to be claimed are not in queue_job: something other than Pawl has deleted rows; what was left of them is removed', p_queue;
  perform pawl.queue_give_back(p_worker, array(
    select r.id from pawl.queue_running r where r.worker = p_worker and not (r.id > p_epoch and r.claimed_at = p_now)), false);
  -- The keys of which no job was left to be given back.
  v_keys := array(
    select k.key from pawl.queue_key k
    where k.shard = p_shard and k.queue = p_queue and k.key = any (p_keys) and k.held and k.epoch = p_epoch);
  if v_keys <> '{}' then
    perform pawl.queue_release_keys(p_queue, p_shard, v_keys, array_fill(p_epoch, array[cardinality(v_keys)]));
  end if;
end $$;
