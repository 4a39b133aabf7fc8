-- Settling: writing the outcome of claimed jobs. Every statement names the claim (the fencing token), so a worker whose lease ran out changes
-- nothing, and its answer says so. Rows are locked in the order running, key; both ascending.

-- Settles the jobs that a worker has finished, one shard a call.
--   p_whole   claims of which all jobs are complete except those of p_fail: one row out, one row in, however many jobs
--   p_part    complete jobs of other claims: [{claim, ids: [job, …]}]
--   p_fail    jobs that did not complete: [{claim, id, or ids: a multirange, to: retry | release | error | cancelled, wait: ms, reason, error,
--             like, behind}]: retry spends the attempt, release does not; like: the error is p_errors[like]; behind: the job is parked, since a
--             later statement brings the head of its key
--   p_result  [[id, claim, result], …]: arrays, since json_to_recordset() refuses U+0000 anywhere
--   p_keys, p_epochs  keys to give up
--   p_errors  errors of more than one job
--   p_shared  [[result, [[claim, job, …], …]], …]: results of more than one job
--   p_guarded jobs among these for which a handler has called guard()
-- Answers JSON, which costs 4 us less than columns:
--   stale: claims that no longer belonged to the worker: nothing was written for them
--   guarded: jobs that an open transaction guards. If there are any, nothing at all was written, for any job. The call does not wait for the
--     end of that transaction
--   hasNext: jobs of the queue became ready, or wait for a key that was given up: only then may there be more to claim
create or replace function pawl.queue_settle(
  p_queue smallint, p_shard smallint, p_worker bigint, p_whole bigint[], p_part json, p_fail json, p_result json,
  p_keys text[], p_epochs bigint[], p_errors text[] default null, p_shared json default null, p_guarded bigint[] default null
) returns text
language plpgsql /* planner: batch */ set plan_cache_mode = force_generic_plan as $$
declare
  v_now timestamptz := clock_timestamp();
  v_done bigint[];
  v_more bigint[];
  v_ended int8multirange[];
  v_more_ended int8multirange[];
  v_complete int8multirange;
  v_failed bigint[] := '{}';
  v_stale bigint[];
  v_guarded bigint[];
  v_has_next boolean := false;
  v_is_known boolean := p_part is null and p_fail is null;
begin
  if p_guarded is not null then
    v_guarded := pawl.queue_guarded(p_shard, p_worker, p_guarded);
    if v_guarded <> '{}' then
      return concat('{"stale":[],"guarded":', array_to_json(v_guarded), ',"hasNext":false}');
    end if;
  end if;
  if p_fail is not null and cardinality(p_whole) > 0 then
    select r.done, r.failed, r.ended into v_done, v_failed, v_ended
    from pawl.queue_settle_retries(p_queue, p_shard, p_worker, p_whole, p_fail, p_errors, v_now) r;
    v_is_known := p_part is null and v_failed = v_done;
  end if;
  if p_fail is not null and v_done is null then  -- first: p_whole is complete only without these jobs
    v_failed := pawl.queue_fail(p_queue, p_shard, p_worker, p_fail, p_errors, v_now);
  end if;
  if cardinality(p_whole) > 0 and v_done is null then
    with gone as (
      delete from pawl.queue_running r where r.shard = p_shard and r.id = any (p_whole) and r.worker = p_worker returning r.*
    ), receipt as (
      insert into pawl.queue_receipt (claim, worker, claimed_at, settled_at, process_id, shard, queue, attempt, unit, ids, key_hash, first_id)
      select id, worker, claimed_at, v_now, process_id, shard, queue, attempt, unit, ids, h.key_hash, case when h.key_hash is not null then lower(ids) end
      from gone cross join lateral (select case when ids = int8multirange(range_merge(ids)) then 0 else gone.key_hash end as key_hash) h
    )
    select coalesce(array_agg(g.id), '{}'), array_agg(g.ids) into v_done, v_ended from gone g;
  end if;
  if p_part is not null then
    with asked as materialized (
      select a.claim, range_agg(int8range(i.id, i.id + 1)) as ids
      from json_to_recordset(p_part) a (claim bigint, ids bigint[]) cross join lateral unnest(a.ids) i (id) group by a.claim order by a.claim
    ), arrays as (
      select array_agg(a.claim order by a.claim) as claims, array_agg(a.ids order by a.claim) as ids from asked a
    ), mine as materialized (
      select m.* from arrays a cross join lateral pawl.queue_remove_running(p_shard, p_worker, a.claims, a.ids) m
    ), receipt as (
      insert into pawl.queue_receipt (claim, worker, claimed_at, settled_at, process_id, shard, queue, attempt, unit, ids, key_hash, first_id)
      select claim, worker, claimed_at, v_now, process_id, p_shard, p_queue, attempt, unit, ids, h.key_hash, case when h.key_hash is not null then lower(ids) end
      from mine cross join lateral (select case when ids = int8multirange(range_merge(ids)) then 0 else mine.key_hash end as key_hash) h
    )
    select coalesce(array_agg(m.claim), '{}'), array_agg(m.ids) into v_more, v_more_ended from mine m;
    v_done := coalesce(v_done, '{}') || v_more;
    v_ended := v_ended || v_more_ended;
  end if;
  -- Of jobs that have left their claims above: a rescue may take a job until then, and its next attempt may end without a result.
  if p_result is not null or p_shared is not null then
    v_complete := case when cardinality(v_ended) = 1 then v_ended[1] else (
      select range_agg(s.span) from unnest(v_ended) e (ids) cross join lateral unnest(e.ids) s (span)) end;
  end if;
  if p_result is not null then
    insert into pawl.queue_output as o (id, shard, result)
    select r.id, p_shard, r.result
    from (
      select x.field[1]::text::bigint as id, nullif(x.field[3]::text, 'null')::json as result
      from json_array_elements(p_result) e (value)
      cross join lateral (select array_agg(f.value order by f.ord) as field from json_array_elements(e.value) with ordinality f (value, ord)) x
    ) r
    where v_complete @> r.id
    on conflict (shard, id) do update set result = excluded.result;
  end if;
  if p_shared is not null then
    perform pawl.queue_settle_shared(p_shard, v_complete, p_shared);
  end if;
  if p_keys is not null then
    v_has_next := pawl.queue_release_keys(p_queue, p_shard, p_keys, p_epochs, p_fail is not null);
  end if;
  -- The last rows that are locked: see watch.sql. Rows that stand for the groups of other queues do not concern this queue.
  if exists (select 1 from pawl.queue_watch_part w where w.shard = p_shard and (w.bucket >= 0 or w.first = p_queue)) then
    if p_fail is not null then
      v_ended := array_append(v_ended, pawl.queue_failed(p_shard, p_fail, v_now));
      if p_queue = any (pawl.queue_leave_delayed(p_shard, p_fail)) then
        perform pawl.queue_wake(p_queue);
        v_has_next := true;
      end if;
    end if;
    v_has_next := p_queue = any (pawl.queue_ended(p_shard, v_ended)) or v_has_next;
  end if;
  if v_is_known is not true or cardinality(v_done) < cardinality(p_whole) then
    v_stale := array(
      select w.id from unnest(p_whole) w (id) where w.id <> all (v_done)
      union select a.claim from json_to_recordset(p_part) a (claim bigint) where a.claim <> all (v_done)
      union select a.claim from json_to_recordset(p_fail) a (claim bigint) where a.claim <> all (v_failed));
  end if;
  return '{"stale":' || coalesce(array_to_json(v_stale)::text, '[]') || ',"guarded":[],"hasNext":' || v_has_next || '}';
end $$;

-- Which of these jobs an open transaction guards: see queue_guard. The other jobs stay locked until this transaction ends, so that no guard
-- that is under way can pass any more.
create or replace function pawl.queue_guarded(p_shard smallint, p_worker bigint, p_ids bigint[]) returns bigint[]
language plpgsql /* planner: probe */ as $$
declare
  v_free bigint[];
begin
  v_free := array(
    select j.id from pawl.queue_job j where j.shard = p_shard and j.id = any (p_ids) order by j.id for update skip locked);
  if cardinality(v_free) >= cardinality(p_ids) then
    return '{}';
  end if;
  return array(
    select j.id from pawl.queue_job j
    where j.shard = p_shard and j.id = any (p_ids) and j.id <> all (v_free)
      and exists (select 1 from pawl.queue_running r where r.shard = p_shard and r.worker = p_worker and r.ids @> j.id));
end $$;

-- Writes the result of a unit of several jobs once: with the first of them that has just completed (p_complete). The other jobs refer to that one.
-- 10,000 jobs with a result of 60 kB are 1 MB then, and 600 MB otherwise.
create or replace function pawl.queue_settle_shared(p_shard smallint, p_complete int8multirange, p_shared json) returns void
language sql /* planner: batch */ set plan_cache_mode = force_generic_plan as $$
  with unit as materialized (
    select s.nth, nullif((s.value -> 0)::text, 'null')::json as result, s.value -> 1 as jobs
    from json_array_elements(p_shared) with ordinality s (value, nth)
  ), claim as materialized (
    select u.nth, translate(c.value::text, '[]', '{}')::bigint[] as ids
    from unit u cross join lateral json_array_elements(u.jobs) c (value)
  ), job as materialized (
    select c.nth, i.id from claim c cross join lateral unnest(c.ids[2:]) i (id) where p_complete @> i.id
  ), first as materialized (
    select j.nth, min(j.id) as id from job j group by j.nth
  )
  insert into pawl.queue_output as o (id, shard, result, result_of)
  select j.id, p_shard, u.result, case when j.id <> f.id then f.id end
  from job j join first f on f.nth = j.nth left join unit u on u.nth = j.nth and j.id = f.id
  on conflict (shard, id) do update set result = excluded.result, result_of = excluded.result_of
$$;

-- Takes jobs out of running claims. Answers for each claim which of p_ids were really still in it. If other jobs are left in a claim, a guard of
-- one of those is not waited for: "no key update" and the guard's "key share" go together.
create or replace function pawl.queue_remove_running(p_shard smallint, p_worker bigint, p_claims bigint[], p_ids int8multirange[])
returns table (
  claim bigint, worker bigint, claimed_at timestamptz, process_id uuid, attempt smallint, lost smallint, unit boolean, ids int8multirange,
  key_hash bigint
)
language plpgsql /* planner: probe */ set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
begin
  return query
  with mine as materialized (
    select r.*, u.ids * r.ids as out from unnest(p_claims, p_ids) u (claim, ids)
    join lateral (
      select r.* from pawl.queue_running r where r.shard = p_shard and r.id = u.claim and r.worker = p_worker for no key update
    ) r on true
    order by r.id
  ), gone as (
    delete from pawl.queue_running r where r.shard = p_shard and r.id = any (array(select m.id from mine m where isempty(m.ids - m.out)))
  ), kept as (
    update pawl.queue_running r set ids = r.ids - m.out from mine m
    where r.shard = p_shard and r.id = m.id and not isempty(m.ids - m.out)
  )
  select m.id, m.worker, m.claimed_at, m.process_id, m.attempt, m.lost, m.unit, m.out, m.key_hash from mine m where not isempty(m.out);
end $$;

-- Settles jobs that did not complete, and answers their claims. Of the jobs of one key that wait for a retry, the first becomes the key's head,
-- delayed. All other jobs of the key are parked behind it, until the key is given up. A job of a group without such a key gives its place back
-- while it waits; if its group has a rate, it waits in any case, to be admitted again. Jobs without a key that are alike in everything stay
-- together, as runs: a thousand that fail cost hardly more than a thousand that complete. A job with options of its own stands alone, since the
-- jobs of a run share their origin.
create or replace function pawl.queue_fail(
  p_queue smallint, p_shard smallint, p_worker bigint, p_fail json, p_errors text[], p_now timestamptz
) returns bigint[]
language plpgsql /* planner: batch */ set plan_cache_mode = force_generic_plan as $$
declare
  v_done bigint[];
  v_dead bigint[];
begin
  with asked as materialized (
    select row_number() over () as part, f.claim, f."to", f.wait, f.reason, coalesce(f.error, p_errors[f."like"]) as error,
      coalesce(f.behind, false) as behind, coalesce(f.ids, int8multirange(int8range(f.id, f.id + 1))) as ids
    from json_to_recordset(p_fail) f (
      claim bigint, id bigint, ids int8multirange, "to" text, wait double precision, reason text, error text, "like" int, behind boolean)
  ), arrays as (
    select array_agg(c.claim order by c.claim) as claims, array_agg(c.ids order by c.claim) as ids
    from (select a.claim, range_agg(u.span) as ids from asked a cross join lateral unnest(a.ids) u (span) group by a.claim) c
  ), mine as materialized (
    select m.* from arrays a cross join lateral pawl.queue_remove_running(p_shard, p_worker, a.claims, a.ids) m
  ), move as materialized (
    select a.part, a.ids * m.ids as ids, a."to", coalesce(a.wait, 0) as wait, a.reason, a.error, m.claim, m.claimed_at, m.process_id,
      -- The last attempt was lost with its worker: this one did not begin.
      case when a.reason = 'worker lost' then m.attempt - 1 else m.attempt end::smallint as attempt,
      case when a."to" = 'release' then m.attempt - 1 else m.attempt end::smallint as spent,
      case when a."to" = 'release' then m.lost else 0 end::smallint as lost,
      a."to" in ('retry', 'release') as lives, not a.behind and (a."to" = 'retry' or coalesce(a.wait, 0) > 0) as waits
    from asked a join mine m on m.claim = a.claim
  ), job as materialized (
    select v.*, j.id, j.kind, j.priority, j.group_name, j.is_special, k.key, k.epoch, j.key as own_key,
      row_number() over (partition by v.part order by j.id) as nth,
      row_number() over (partition by v.part, j.kind, j.priority, k.key is null, j.is_special order by j.id) as nth_alike
    from move v cross join lateral unnest(v.ids) u (span)
    cross join lateral (  -- "offset" keeps the planner from reading all jobs once and filtering them for each span
      select j.id, j.kind, j.priority, j.key, j.group_name, j.options is not null or j.group_name is not null as is_special from pawl.queue_job j
      where j.shard = p_shard and j.id >= lower(u.span) and j.id < upper(u.span) offset 0) j
    left join lateral (
      select k.key, k.epoch from pawl.queue_key k
      where k.shard = p_shard and k.queue = p_queue and k.key = j.key and k.held limit 1) k on j.key is not null
  ), dead as (
    insert into pawl.queue_dead (id, at, shard, queue, kind, attempt, status, key, error)
    select j.id, p_now, p_shard, p_queue, j.kind, j.attempt, j."to", j.own_key, coalesce(j.error, j.reason)
    from job j where not j.lives
  ), plain as materialized (
    select min(j.id) as id, count(*) as n, j.kind, j.priority, min(j.spent) as spent, min(j.lost) as lost, min(j.wait) as wait, min(j.group_name) as group_name,
      min(j.wait) > 0 or (min(j.group_name) is not null and (select d.rate_limit is not null from pawl.queue_definition d where d.id = p_queue)) as waits
    from job j where j.lives and j.key is null
    group by j.part, j.kind, j.priority, j.id - j.nth_alike, (j.nth_alike - 1) / 256, case when j.lost > 0 or j.is_special then j.id end
  ), line as materialized (
    select j.*, row_number() over (partition by j.key, j.waits order by j.id) = 1 and j.waits as is_head from job j where j.lives and j.key is not null
  ), delayed as (
    insert into pawl.queue_delayed (run_at, id, shard, queue, priority, kind, n, attempt, lost, epoch, key, group_name)
    select p_now + p.wait * interval '1 millisecond', p.id, p_shard, p_queue, p.priority, p.kind, p.n, p.spent, p.lost, null, null, p.group_name
    from plain p where p.waits
    union all
    select p_now + l.wait * interval '1 millisecond', l.id, p_shard, p_queue, l.priority, l.kind, 1, l.spent, l.lost, l.epoch, l.key, null
    from line l where l.is_head
  ), ready as (
    insert into pawl.queue_ready (id, shard, queue, priority, kind, n, attempt, lost)
    select p.id, p_shard, p_queue, p.priority, p.kind, p.n, p.spent, p.lost from plain p where not p.waits
  ), parked as (
    insert into pawl.queue_parked (id, shard, queue, priority, kind, attempt, lost, key)
    select l.id, p_shard, p_queue, l.priority, l.kind, l.spent, l.lost, l.key from line l where not l.is_head
  ), moved as (
    insert into pawl.queue_transition (at, claimed_at, id, n, worker, process_id, shard, queue, attempt, from_status, to_status, reason, error, error_of)
    select p_now, m.claimed_at, m.id, m.n, p_worker, m.process_id, p_shard, p_queue, m.attempt, 'in-progress',
      case when m.lives then 'new' else m."to" end, coalesce(m.reason, m."to"),
      case when m.id = m.first then m.error end, case when m.id <> m.first and m.error is not null then m.first end
    from (
      -- Bytes tell whether texts are equal. The order of a language would take long for many long texts.
      select v.*, j.id, j.n, min(j.id) over (partition by v.error collate "C") as first
      from (select j.part, min(j.id) as id, count(*) as n from job j group by j.part, j.id - j.nth, (j.nth - 1) / 256) j
      join move v on v.part = j.part) m
  )
  select coalesce(array_agg(distinct v.claim), '{}'), (select array_agg(j.id) from job j where j."to" = 'error') into v_done, v_dead
  from move v where not isempty(v.ids);
  if v_dead is not null then
    perform pawl.queue_dead_letters(p_shard, v_dead);
    perform pawl.queue_block_keys(p_shard, v_dead);
  end if;
  return v_done;
end $$;

-- The jobs of p_fail that have just ended.
create or replace function pawl.queue_failed(p_shard smallint, p_fail json, p_now timestamptz) returns int8multirange
language sql /* planner: loop */ as $$
  select range_agg(int8range(d.id, d.id + 1))
  from json_to_recordset(p_fail) f (id bigint, ids int8multirange, "to" text)
  cross join lateral unnest(coalesce(f.ids, int8multirange(int8range(f.id, f.id + 1)))) s (span)
  cross join lateral (
    select d.id from pawl.queue_dead d
    where d.shard = p_shard and d.id >= lower(s.span) and d.id < upper(s.span) and d.at = p_now offset 0) d
  where f."to" not in ('retry', 'release')
$$;
