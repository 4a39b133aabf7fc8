-- Claiming. One call takes jobs of one shard, in order, up to the room that the worker has. Its answer says where the search ended, and the
-- next call of the same pass continues behind that place. So the search steps over deleted ready rows, which a long snapshot keeps alive,
-- once a pass and not once a claim. If a pass finds nothing from its very start, there is nothing to claim.

-- One claim under a lease. Parameters:
--   p_limit: how many jobs the worker has room for; p_slots: how many of these can start at once
--   p_rows: how many ready rows the search reads; p_chain: how many jobs of one key are taken together
--   p_priority, p_after: where the last call of this pass ended
--   p_offer, p_channel: the number and the channel of the offer to leave if nothing is ready, see handoff.sql
--   p_kinds, p_upto: for a worker that takes a part of the work, its kinds and the last priority that it takes, see pick.sql
-- Answers JSON:
--   runs: [{claim, first, n, kind, attempt, origin, payloads: [payload, …]}, …]: jobs without a key
--   keys: [{key, epoch, ids, claims, kinds, attempts, origins, units, brokenBy, payloads, latest}, …]: jobs of one key, an array each field.
--     units: numbers of coalesced units, and null for other jobs; latest: the units of which only the newest job comes with its payload;
--     brokenBy: the predecessor in error, or null. Of a key without units, these three are missing
--   chains: {claim, epoch, keys: [key, …], nth, ids, kinds, origins, payloads}: first attempts of keys, an array each field; nth counts the keys from 1
--   where an origin is the answer of queue_origin()
--   pausedParts: null, or the parts of the queue that are paused; the worker gives jobs of these parts back, see pause.sql
--   alone: [claim, …]: claims whose jobs should start at once, so the call takes p_slots of such jobs at most
--   processes: {claim: process id}; seen: how many rows the search read; last: {priority, id}: the pass has dealt with all rows up to here
--   busy: there are ready rows that this call could not take; due: ms until the next delayed job; offered: the call left the offer
create or replace function pawl.queue_claim(
  p_queue smallint, p_shard smallint, p_worker bigint, p_limit int, p_slots int, p_rows int, p_chain int,
  p_priority smallint, p_after bigint, p_offer bigint default null, p_channel text default null,
  p_kinds smallint[] default null, p_upto smallint default 32767
) returns text
language plpgsql /* planner: batch */ set plan_cache_mode = force_generic_plan as $$
declare
  v_now timestamptz := clock_timestamp();
  v_state text := pawl.queue_prepare(p_queue, p_shard, p_worker, p_after = 0 or p_kinds is not null);
  v_near record;
  v_one record;
  v_claim bigint;
  v_process uuid;
  v_answer text;
begin
  if v_state in ('due', 'places') then
    if v_state = 'due' and pawl.queue_leaves_due(p_queue, p_shard, p_priority, p_after, p_upto) then
      v_state := 'left';
    else
      v_state := pawl.queue_prepare(p_queue, p_shard, p_worker);
    end if;
  end if;
  if v_state = 'paused' then
    return '{"paused":true,"runs":[],"keys":[],"seen":0}';
  elsif v_state = 'rated' then
    v_now := clock_timestamp();  -- later than the admission of the jobs that this call takes
  end if;

  -- The usual case of an idle worker: nothing, or one row without a key. For these the long way costs five times as much.
  select count(*) as rows, count(r.key) as keyed into v_near from (
    select r.key from pawl.queue_ready r
    where r.shard = p_shard and r.queue = p_queue and (r.priority, r.id) > (p_priority, p_after) and r.priority <= p_upto
    order by r.priority, r.id limit 2
  ) r;
  if v_near.rows = 1 and v_near.keyed = 0 and p_kinds is null then
    select r.ctid as tid, r.id, r.priority, r.n, r.kind, r.attempt into v_one from pawl.queue_ready r
    where r.shard = p_shard and r.queue = p_queue and (r.priority, r.id) > (p_priority, p_after) and r.key is null and r.n <= p_limit
      and r.lost = 0 and (select d.paused_at is null and d.paused_parts is null from pawl.queue_definition d where d.id = p_queue)
    order by r.priority, r.id limit 1 for update skip locked;
    if found and (v_one.attempt = 0 or not pawl.queue_is_last(p_shard, v_one.id, v_one.kind, v_one.attempt))
      and (v_one.n = 1 or pawl.queue_count_fitting(p_shard, array[v_one.id], array[v_one.n]) >= v_one.n) then
      perform pawl.queue_require_worker(p_worker);
      delete from pawl.queue_ready r where r.ctid = v_one.tid;
      v_claim := nextval('pawl.queue_claim_id');
      v_process := gen_random_uuid();
      insert into pawl.queue_running (id, worker, claimed_at, process_id, shard, queue, attempt, unit, ids)
      values (v_claim, p_worker, v_now, v_process, p_shard, p_queue, v_one.attempt + 1, false, int8multirange(int8range(v_one.id, v_one.id + v_one.n)));
      if v_state = 'rated' then
        perform pawl.queue_use_permits(p_shard, array[v_one.id], array[v_one.n], v_now);
      end if;
      select format('{"runs":[{"claim":%s,"first":%s,"n":%s,"kind":%s,"attempt":%s,"origin":%s,"payloads":[%s]}],"keys":[],'
        '"processes":{"%s":"%s"},"seen":1,"last":{"priority":%s,"id":%s}}',
        v_claim, v_one.id, v_one.n, v_one.kind, v_one.attempt + 1,
        case when v_one.n = 1 or min(j.group_name) is null then pawl.queue_origin(min(j.created_at), min(j.options::text)::json, min(j.group_name))
          else pawl.queue_run_origin(p_shard, v_one.id, v_one.n) end,
        string_agg(j.payload::text, ',' order by j.id), v_claim, v_process, v_one.priority, v_one.id)
      into v_answer
      from pawl.queue_job j where j.shard = p_shard and j.id >= v_one.id and j.id < v_one.id + v_one.n having count(*) = v_one.n;
      if v_answer is null then
        perform pawl.queue_drop_orphans(p_queue, p_shard, p_worker, v_claim - 1, v_now, '{}');
        return pawl.queue_claim(p_queue, p_shard, p_worker, p_limit, p_slots, p_rows, p_chain, p_priority, p_after, p_offer, p_channel, p_kinds, p_upto);
      end if;
      return v_answer;
    end if;
  elsif v_near.rows = 0 then
    if p_offer is not null then
      perform pawl.queue_offer_add(p_queue, p_worker, p_offer, p_channel);
    end if;
    return concat('{"runs":[],"keys":[],"seen":0,"last":{"priority":', p_priority, ',"id":', p_after, '}', case when p_offer is not null then ',"offered":true' end,
      case when p_after > 0 and p_kinds is null and exists (select 1 from pawl.queue_ready r where r.shard = p_shard and r.queue = p_queue) then ',"busy":true' end,
      ',"due":' || case when v_state = 'rated' then pawl.queue_next_due(p_queue, p_shard) else (
        select greatest(0, ceil(extract(epoch from d.run_at - clock_timestamp()) * 1000)) from pawl.queue_delayed d
        where d.shard = p_shard and d.queue = p_queue order by d.run_at limit 1) end, '}');
  end if;
  return pawl.queue_claim_many(p_queue, p_shard, p_worker, p_limit, p_slots, p_rows, p_chain, p_priority, p_after, p_kinds, p_upto, v_state,
    v_now, v_near.keyed::int);
end $$;

-- Whether a claim leaves due jobs to the next pass. A claim that continues a pass does so if two jobs without a key come next. Due jobs have
-- low ids as a rule, so this pass would not meet them. The next pass begins within 100 ms, so no job is left that has been due for longer.
-- If each claim finds due jobs, a retried job costs a quarter less this way. Jobs with a key never overtake due jobs, and neither do jobs of
-- a queue with a rate.
create or replace function pawl.queue_leaves_due(p_queue smallint, p_shard smallint, p_priority smallint, p_after bigint, p_upto smallint) returns boolean
language plpgsql as $$
begin
  return (
    select count(*) = 2 and count(r.key) = 0 from (
      select r.key from pawl.queue_ready r
      where r.shard = p_shard and r.queue = p_queue and (r.priority, r.id) > (p_priority, p_after) and r.priority <= p_upto
      order by r.priority, r.id limit 2) r)
    and (select d.rate_limit is null from pawl.queue_definition d where d.id = p_queue)
    and not exists (
      select from pawl.queue_delayed d
      where d.shard = p_shard and d.queue = p_queue and d.run_at <= clock_timestamp() - interval '100 milliseconds');
end $$;

-- The long way of queue_claim, with the same parameters and answer: for two rows or more, or for one row that queue_claim does not simply take.
-- p_state: the answer of queue_prepare(); p_keyed: how many of the first two rows have a key. Runs under the planner settings of its caller:
-- settings of its own would cost a microsecond each.
create or replace function pawl.queue_claim_many(
  p_queue smallint, p_shard smallint, p_worker bigint, p_limit int, p_slots int, p_rows int, p_chain int,
  p_priority smallint, p_after bigint, p_kinds smallint[], p_upto smallint, p_state text, p_now timestamptz, p_keyed int
) returns text
language plpgsql as $$
declare
  v_pick record;
  v_seen bigint;
  v_fit bigint;
  v_taken int := 0;
  v_keyed int;
  v_keys text[]; v_epochs bigint[]; v_clear text[];
  v_is_past boolean := true;
  v_runs text;
  v_rest text;
  v_chains text;
  v_processes text;
  v_alone text;
  v_end text;
begin
  -- 1. What to take. The first two rows choose the search. If that search meets rows of another sort, the general search follows.
  if p_keyed = 2 then
    select p.* into v_pick from pawl.queue_pick_keyed(p_queue, p_shard, p_rows, p_priority, p_after) p;
    v_seen := v_pick.seen;
  elsif p_keyed = 0 and p_kinds is null then
    select p.* into v_pick from pawl.queue_pick_plain(p_queue, p_shard, p_limit, p_rows, p_priority, p_after) p;
    v_seen := v_pick.seen;
  end if;
  if v_seen is null then
    if p_state = 'left' then  -- the rows may have keys, which must not overtake due jobs
      p_state := pawl.queue_prepare(p_queue, p_shard, p_worker);
      if p_state = 'paused' then
        return '{"paused":true,"runs":[],"keys":[],"seen":0}';
      end if;
    end if;
    select p.* into v_pick from pawl.queue_pick_mixed(p_queue, p_shard, p_worker, p_limit, p_slots, p_rows, p_priority, p_after, p_kinds, p_upto) p;
  end if;
  if v_pick.taken > 1 then
    v_fit := pawl.queue_count_fitting(p_shard, v_pick.firsts, v_pick.takes);
    if v_fit < v_pick.taken then  -- nothing is written yet
      return pawl.queue_claim(p_queue, p_shard, p_worker, v_fit::int, p_slots, p_rows, p_chain, p_priority, p_after, null, null, p_kinds, p_upto);
    end if;
  end if;
  v_taken := v_pick.taken;
  v_keyed := v_pick.keyed;

  -- 2. Jobs without a key.
  if v_taken > 0 or v_keyed > 0 then
    perform pawl.queue_require_worker(p_worker);
  end if;
  if v_taken > 0 then
    select r.runs, r.processes, r.alone into v_runs, v_processes, v_alone from pawl.queue_start_runs(p_queue, p_shard, p_worker, p_now,
      v_pick.tids, v_pick.firsts, v_pick.ns, v_pick.takes, v_pick.kinds, v_pick.attempts, v_pick.losts, v_pick.alones) r;
    if v_runs is null then
      perform pawl.queue_drop_orphans(p_queue, p_shard, p_worker, 0, p_now, '{}');
      return pawl.queue_claim(p_queue, p_shard, p_worker, p_limit, p_slots, p_rows, p_chain, p_priority, p_after, null, null, p_kinds, p_upto);
    elsif p_state = 'rated' then
      perform pawl.queue_use_permits(p_shard, v_pick.firsts, v_pick.takes, p_now);
    end if;
  end if;

  -- 3. Jobs with a key.
  if v_keyed > 0 then
    v_keys := v_pick.keys;
    v_epochs := v_pick.epochs;
    if p_state in ('promoted', 'rated') and exists (
      select 1 from pawl.queue_delayed d where d.shard = p_shard and d.queue = p_queue and d.run_at <= p_now
    ) then
      v_clear := pawl.queue_promote_keys(p_queue, p_shard, v_keys, 1000);
      if not v_keys <@ v_clear then
        select array_agg(u.key order by u.ord), array_agg(u.epoch order by u.ord), count(*) into v_keys, v_epochs, v_keyed
        from unnest(v_keys, v_epochs) with ordinality u (key, epoch, ord) where u.key = any (v_clear);
        v_is_past := false;  -- the pass reads these rows again
      end if;
    end if;
  end if;
  if v_keyed > 0 then
    select k.chains, k.rest, concat_ws(',', v_processes, k.processes), v_taken + k.taken, v_is_past and k.complete
    into v_chains, v_rest, v_processes, v_taken, v_is_past
    from pawl.queue_claim_keys(p_queue, p_shard, p_worker, p_limit - v_taken, p_chain, p_now, v_keys, v_epochs, true) k;
  end if;

  -- 4. The answer. Its first parts are the largest, and each "||" would copy them.
  if v_taken > 0 then
    -- Read after the jobs: so it has each part that was paused before one of these jobs was enqueued.
    v_end := ',"pausedParts":' || (select d.paused_parts from pawl.queue_definition d where d.id = p_queue);
  else
    v_end := concat(
      case when v_pick.locked or (p_kinds is null and exists (select 1 from pawl.queue_ready r where r.shard = p_shard and r.queue = p_queue)) then ',"busy":true' end,
      ',"due":' || case when p_state = 'rated' then pawl.queue_next_due(p_queue, p_shard) else (
        select greatest(0, ceil(extract(epoch from d.run_at - clock_timestamp()) * 1000)) from pawl.queue_delayed d
        where d.shard = p_shard and d.queue = p_queue order by d.run_at limit 1) end);
  end if;
  v_is_past := v_is_past and v_pick.last_id is not null;
  return concat('{"runs":[', v_runs, '],"keys":[', v_rest, ']', case when v_chains is not null then ',"chains":' end, v_chains,
    ',"alone":[', v_alone, '],"processes":{', v_processes, '},"seen":', v_pick.seen,
    ',"last":{"priority":', case when v_is_past then v_pick.last_priority else p_priority end,
    ',"id":', case when v_is_past then v_pick.last_id else p_after end, '}', v_end, '}');
end $$;
