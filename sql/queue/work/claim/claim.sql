-- Claiming. One call takes what a worker has room for from one shard, in order, and says where it looked last, so that
-- the next call of the same pass goes on from there: deleted ready rows that a long snapshot keeps alive are stepped
-- over once a pass, not once a claim. A pass that found nothing from the very start means that there is nothing.

-- One claim under a lease. p_limit: jobs there is room for; p_slots: of these, how many start at once; p_rows: how many ready rows
-- to look at; p_chain: how many jobs of one key to take together; p_priority, p_after: where the last call of this pass
-- stopped; p_offer: the number of the offer to leave when nothing is ready, and its channel, see handoff.sql; p_kinds: for a worker that takes
-- a part of the work, the kinds that it takes, and p_upto: the last priority of it, see below. Answers JSON:
--   runs: [{claim, first, n, kind, attempt, origin, payloads: [payload, …]}, …]: jobs without a key
--   keys: [{key, epoch, ids, claims, kinds, attempts, origins, units, brokenBy, payloads, latest}, …]: jobs of one key, an array each field.
--     units: numbers of coalesced units, and null for other jobs; latest: those of which only the newest job comes with its payload;
--     brokenBy: the predecessor in error, or null. Of a key without units, these three are missing
--   chains: {claim, epoch, keys: [key, …], nth, ids, kinds, origins, payloads}: first attempts of keys, an array each field; nth counts the keys from 1
--   where an origin is what queue_origin() tells
--   pausedParts: null, or the parts of the queue that are paused: jobs of theirs are to be given back, see pause.sql
--   alone: [claim, …]: of these jobs no more are taken than p_slots, since they should start at once
--   processes: {claim: process id}, seen, last: {priority, id} (all up to here is dealt with), busy (rows are there, but locked),
--   due: ms until the next, offered: the offer was left
create or replace function pawl.queue_claim(
  p_queue smallint, p_shard smallint, p_worker bigint, p_limit int, p_slots int, p_rows int, p_chain int,
  p_priority smallint, p_after bigint, p_offer bigint default null, p_channel text default null,
  p_kinds smallint[] default null, p_upto smallint default 32767
) returns text
language plpgsql /* planner: batch */ set plan_cache_mode = force_generic_plan as $$
declare
  v_now timestamptz := clock_timestamp();
  v_state text := pawl.queue_prepare(p_queue, p_shard, p_worker);
  v_near record;
  v_one record;
  v_claim bigint;
  v_process uuid;
begin
  if v_state = 'paused' then
    return '{"paused":true,"runs":[],"keys":[],"seen":0}';
  end if;

  -- Nothing, or one row without a key: what an idle worker finds. The long way costs five times as much.
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
      return (
        select format('{"runs":[{"claim":%s,"first":%s,"n":%s,"kind":%s,"attempt":%s,"origin":%s,"payloads":[%s]}],"keys":[],'
          '"processes":{"%s":"%s"},"seen":1,"last":{"priority":%s,"id":%s}}',
          v_claim, v_one.id, v_one.n, v_one.kind, v_one.attempt + 1,
          case when v_one.n = 1 or min(j.group_name) is null then pawl.queue_origin(min(j.created_at), min(j.options::text)::json, min(j.group_name))
            else pawl.queue_run_origin(p_shard, v_one.id, v_one.n) end,
          string_agg(j.payload::text, ',' order by j.id), v_claim, v_process, v_one.priority, v_one.id)
        from pawl.queue_job j where j.shard = p_shard and j.id >= v_one.id and j.id < v_one.id + v_one.n);
    end if;
  elsif v_near.rows = 0 then
    if p_offer is not null then
      perform pawl.queue_offer_add(p_queue, p_worker, p_offer, p_channel);
    end if;
    return concat('{"runs":[],"keys":[],"seen":0,"last":{"priority":', p_priority, ',"id":', p_after, '}', case when p_offer is not null then ',"offered":true' end,
      case when p_after > 0 and p_kinds is null and exists (select 1 from pawl.queue_ready r where r.shard = p_shard and r.queue = p_queue) then ',"busy":true' end,
      ',"due":' || (
        select greatest(0, ceil(extract(epoch from d.run_at - clock_timestamp()) * 1000)) from pawl.queue_delayed d
        where d.shard = p_shard and d.queue = p_queue order by d.run_at limit 1), '}');
  end if;
  return pawl.queue_claim_many(p_queue, p_shard, p_worker, p_limit, p_slots, p_rows, p_chain, p_priority, p_after, p_kinds, p_upto, v_state,
    v_now, v_near.keyed = 2);
end $$;

-- The long way of queue_claim, whose parameters and answer it has: two rows or more, or one that is not simply taken. p_state is what
-- queue_prepare() has answered; p_keyed: the first two rows have a key. Under the planner settings of its caller: its own would cost a
-- microsecond each.
create or replace function pawl.queue_claim_many(
  p_queue smallint, p_shard smallint, p_worker bigint, p_limit int, p_slots int, p_rows int, p_chain int,
  p_priority smallint, p_after bigint, p_kinds smallint[], p_upto smallint, p_state text, p_now timestamptz, p_keyed boolean
) returns text
language plpgsql as $$
declare
  v_seen int;
  v_priorities smallint[];
  v_ids bigint[];
  v_keyed int;
  v_taken int;
  v_mixed boolean := true;
  v_tids tid[]; v_lo bigint[]; v_n int[]; v_take int[]; v_kinds smallint[]; v_attempts smallint[]; v_losts smallint[]; v_alones boolean[];
  v_kkeys text[]; v_kepochs bigint[]; v_clear text[];
  v_runs text := '';
  v_keys text := '';
  v_chains text;
  v_processes text := '';
  v_alone text := '';
  v_fit bigint;
  v_locked boolean;
begin
  -- 1. What to take. Whether the queue is paused is asked in the statements that see jobs, too: where the preparation waited, it may have
  -- been paused since, and what was enqueued then would be taken.
  --
  -- Where the first two rows have a key, all usually have, and nothing is to be locked or shared here: a fifth of the cost of the pick
  -- below (2,100 rows).
  if p_keyed then
    select count(*), array_agg(r.priority), array_agg(r.id), count(r.key), array_agg(r.key), array_agg(r.epoch), bool_or(r.key is null or r.lost > 1)
    into v_seen, v_priorities, v_ids, v_keyed, v_kkeys, v_kepochs, v_mixed from (
      select r.priority, r.id, r.key, r.epoch, r.lost from pawl.queue_ready r
      where r.shard = p_shard and r.queue = p_queue and (r.priority, r.id) > (p_priority, p_after) and (select d.paused_at is null from pawl.queue_definition d where d.id = p_queue)
      order by r.priority, r.id limit p_rows
    ) r;
    v_taken := 0;
  end if;
  if v_mixed then
    -- A worker that takes some kinds only (p_kinds) looks at p_rows rows, too, and passes over those of others: there is no index by kinds,
    -- which each job would pay for. So one claim reads no more than that, however many of them there are, and the next one of the pass
    -- goes on behind them. Queues with such workers have no keys in order. A range of priorities is a range of the index.
    --
    -- queue.pick. What is looked at is fenced by "materialized": without it a nested loop may lock more rows than asked for.
    -- Only rows without a key are locked, one by one until there are enough, so that two claimers at once share them.
    with picked as materialized (
      select r.ctid as tid, r.id, r.priority, r.n, r.kind, r.attempt, f.lost, r.epoch, r.key, f.fits,
        f.fits and (r.lost > 0 or (r.attempt > 0 and r.key is null and pawl.queue_is_last(p_shard, r.id, r.kind, r.attempt))) as alone,
        f.lost > 1 and exists (select 1 from pawl.queue_running o where o.worker = p_worker and o.lost > 1) as barred
      from pawl.queue_ready r
      cross join lateral (select p_kinds is null or r.kind = any (p_kinds) as fits, case when p_kinds is null or r.kind = any (p_kinds) then r.lost else 0 end as lost) f
      where r.shard = p_shard and r.queue = p_queue and (r.priority, r.id) > (p_priority, p_after) and r.priority <= p_upto
        and (select d.paused_at is null from pawl.queue_definition d where d.id = p_queue)
      order by r.priority, r.id limit p_rows
    ), locked as materialized (
      select r.ctid as tid from picked p join pawl.queue_ready r on r.ctid = p.tid
      where p.key is null and p.fits limit p_limit for update of r skip locked
    ), counted as (
      select p.*, l.tid is not null as mine,
        coalesce(sum(p.n) filter (where l.tid is not null and p.alone) over w, 0) as alones,
        count(*) filter (where p.lost > 1) over w as twice,
        count(l.tid) over () as locks, count(l.tid) over w as nth
      from picked p left join locked l on l.tid = p.tid window w as (order by p.priority, p.id rows unbounded preceding)
    ), wanted as (
      select c.*, c.lost > 1 and (c.barred or c.twice > 1) as waits,
        case when not c.mine or (c.lost > 1 and (c.barred or c.twice > 1)) then 0
          else greatest(0, least(c.n, case when c.alone then p_slots - (c.alones - c.n) end)) end as want
      from counted c
    ), chosen as (
      select w.*, greatest(0, least(w.want, p_limit - (sum(w.want) over (order by w.priority, w.id rows unbounded preceding) - w.want)))::int as take
      from wanted w
    ), marked as (
      -- past: something was left here, so this pass has to come by again. A row that another claim has locked belongs to that claim. The
      -- rest of a run comes behind its first job, where this pass goes on.
      select c.*, bool_or((c.mine and c.take = 0) or c.waits or (c.key is null and not c.mine and c.locks >= p_limit and c.nth >= c.locks))
        over w or coalesce(bool_or(c.take > 0 and c.take < c.n) over (w rows between unbounded preceding and 1 preceding), false) as past
      from chosen c window w as (order by c.priority, c.id)
    )
    select count(*), array_agg(c.priority) filter (where not c.past), array_agg(c.id) filter (where not c.past),
      count(c.key) filter (where not c.waits), coalesce(sum(c.take), 0),
      array_agg(c.tid) filter (where c.take > 0), array_agg(c.id) filter (where c.take > 0), array_agg(c.n) filter (where c.take > 0),
      array_agg(c.take) filter (where c.take > 0), array_agg(c.kind) filter (where c.take > 0), array_agg(c.attempt) filter (where c.take > 0),
      array_agg(c.lost) filter (where c.take > 0), array_agg(c.alone) filter (where c.take > 0),
      array_agg(c.key) filter (where c.key is not null and not c.waits), array_agg(c.epoch) filter (where c.key is not null and not c.waits),
      p_kinds is not null and bool_or(c.fits and not c.mine)
    into v_seen, v_priorities, v_ids, v_keyed, v_taken, v_tids, v_lo, v_n, v_take, v_kinds, v_attempts, v_losts, v_alones, v_kkeys, v_kepochs, v_locked
    from marked c;
  end if;
  if v_taken > 1 then
    v_fit := pawl.queue_count_fitting(p_shard, v_lo, v_take);
    if v_fit < v_taken then  -- nothing is written yet
      return pawl.queue_claim(p_queue, p_shard, p_worker, v_fit::int, p_slots, p_rows, p_chain, p_priority, p_after, null, null, p_kinds, p_upto);
    end if;
  end if;

  -- 2. Jobs without a key.
  if v_taken > 0 or v_keyed > 0 then
    perform pawl.queue_require_worker(p_worker);
  end if;
  if v_taken > 0 then
    select r.runs, r.processes, r.alone into v_runs, v_processes, v_alone
    from pawl.queue_start_runs(p_queue, p_shard, p_worker, p_now, v_tids, v_lo, v_n, v_take, v_kinds, v_attempts, v_losts, v_alones) r;
  end if;

  -- 3. Jobs with a key.
  if v_keyed > 0 and p_state = 'promoted' and exists (
    select 1 from pawl.queue_delayed d where d.shard = p_shard and d.queue = p_queue and d.run_at <= p_now
  ) then
    v_clear := pawl.queue_promote_keys(p_queue, p_shard, v_kkeys, 1000);
    if not v_kkeys <@ v_clear then
      select array_agg(u.key order by u.ord), array_agg(u.epoch order by u.ord), count(*) into v_kkeys, v_kepochs, v_keyed
      from unnest(v_kkeys, v_kepochs) with ordinality u (key, epoch, ord) where u.key = any (v_clear);
      v_ids := null;  -- the pass comes by here again
    end if;
  end if;
  if v_keyed > 0 then
    select k.chains, k.rest, v_processes || k.processes, v_taken + k.taken, case when k.complete then v_ids end
    into v_chains, v_keys, v_processes, v_taken, v_ids
    from pawl.queue_claim_keys(p_queue, p_shard, p_worker, p_limit - v_taken, p_chain, p_now, v_kkeys, v_kepochs, true) k;
  end if;

  -- 4. The answer.
  return '{"runs":[' || substr(v_runs, 2) || '],"keys":[' || substr(v_keys, 2) || ']' || coalesce(',"chains":' || v_chains, '') || ',"alone":[' || substr(v_alone, 2) || '],"processes":{' || substr(v_processes, 2) || '},"seen":' || v_seen
    || ',"last":{"priority":' || coalesce(v_priorities[cardinality(v_ids)], p_priority) || ',"id":' || coalesce(v_ids[cardinality(v_ids)], p_after) || '}'
    || case when v_taken > 0 then
      -- Read after the jobs: a part that was paused before one of them was enqueued is among them.
      coalesce(',"pausedParts":' || (select d.paused_parts from pawl.queue_definition d where d.id = p_queue), '')
    else
      case when v_locked or (p_kinds is null and exists (select 1 from pawl.queue_ready r where r.shard = p_shard and r.queue = p_queue)) then ',"busy":true' else '' end
      || coalesce(',"due":' || (
        select greatest(0, ceil(extract(epoch from d.run_at - clock_timestamp()) * 1000)) from pawl.queue_delayed d
        where d.shard = p_shard and d.queue = p_queue order by d.run_at limit 1), '') end
    || '}';
end $$;
