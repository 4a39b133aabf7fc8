-- Settling failures in the usual case: a few jobs of a claim that is settled whole have failed, and are retried later.

-- Settles claims of which all jobs are complete except those of p_fail, as queue_settle() does: one statement deletes the claims, one writes the
-- delayed jobs, and one the receipts. Answers
--   done: the claims that were the worker's; failed: the claims among them that still had a failed job, or all; ended: their complete jobs
-- Answers nulls, and writes nothing, if one of the failed jobs does not simply wait for its next attempt: if it ends, begins at once, has a key
-- or a group, is adjacent to another one (both are a run), or is of a claim that is not settled whole.
-- In queue_fail(), which knows all sorts of failures, ten jobs cost a millisecond. Two thirds of that are the start of its statement, and it
-- writes the claim's row before that row is deleted. Runs under the planner settings of its caller.
create or replace function pawl.queue_settle_retries(
  p_queue smallint, p_shard smallint, p_worker bigint, p_whole bigint[], p_fail json, p_errors text[], p_now timestamptz,
  out done bigint[], out failed bigint[], out ended int8multirange[]
)
language plpgsql as $$
declare
  v_is_plain boolean;
  v_moved int;
  v_of bigint[]; v_ids bigint[]; v_kinds smallint[]; v_priorities smallint[]; v_waits double precision[]; v_reasons text[]; v_errors text[];
  v_attempts smallint[]; v_ats timestamptz[]; v_processes uuid[]; v_units boolean[]; v_hashes bigint[]; v_held int8multirange[];
begin
  select bool_and(coalesce(f."to" = 'retry' and f.wait > 0 and f.behind is not true and f.reason <> 'worker lost' and f.claim = any (p_whole)
      and upper(s.span) - lower(s.span) = 1 and j.key is null and j.group_name is null and j.kind is not null, false)),
    array_agg(f.claim), array_agg(lower(s.span)), array_agg(j.kind), array_agg(j.priority), array_agg(f.wait), array_agg(f.reason),
    array_agg(coalesce(f.error, p_errors[f."like"]))
  into v_is_plain, v_of, v_ids, v_kinds, v_priorities, v_waits, v_reasons, v_errors
  from json_to_recordset(p_fail) f (
    claim bigint, id bigint, ids int8multirange, "to" text, wait double precision, reason text, error text, "like" int, behind boolean)
  cross join lateral unnest(coalesce(f.ids, int8multirange(int8range(f.id, f.id + 1)))) s (span)
  left join lateral (
    select j.key, j.group_name, j.kind, j.priority from pawl.queue_job j where j.shard = p_shard and j.id = lower(s.span) limit 1) j on true;
  if v_is_plain is not true then
    return;
  end if;
  with gone as (
    delete from pawl.queue_running r where r.shard = p_shard and r.id = any (p_whole) and r.worker = p_worker returning r.*
  )
  select coalesce(array_agg(g.id), '{}'), array_agg(g.attempt), array_agg(g.claimed_at), array_agg(g.process_id), array_agg(g.unit),
    array_agg(g.key_hash), array_agg(g.ids)
  into done, v_attempts, v_ats, v_processes, v_units, v_hashes, v_held
  from gone g;
  with job as materialized (
    select u.*, c.attempt, c.at, c.process, min(u.id) over (partition by u.error collate "C") as first
    from unnest(v_of, v_ids, v_kinds, v_priorities, v_waits, v_reasons, v_errors) u (claim, id, kind, priority, wait, reason, error)
    join unnest(done, v_attempts, v_ats, v_processes, v_held) c (claim, attempt, at, process, ids) on c.claim = u.claim and c.ids @> u.id
  ), delayed as (
    insert into pawl.queue_delayed (run_at, id, shard, queue, priority, kind, attempt)
    select p_now + j.wait * interval '1 millisecond', j.id, p_shard, p_queue, j.priority, j.kind, j.attempt from job j
  )
  insert into pawl.queue_transition (at, claimed_at, id, worker, process_id, shard, queue, attempt, from_status, to_status, reason, error, error_of)
  select p_now, j.at, j.id, p_worker, j.process, p_shard, p_queue, j.attempt, 'in-progress', 'new', j.reason,
    case when j.id = j.first then j.error end, case when j.id <> j.first and j.error is not null then j.first end
  from job j;
  get diagnostics v_moved = row_count;
  failed := case when v_moved = cardinality(v_ids) then done else array(
    select distinct c.claim from unnest(done, v_held) c (claim, ids) join unnest(v_of, v_ids) u (claim, id) on u.claim = c.claim and c.ids @> u.id) end;
  with complete as (
    select c.*, c.held - coalesce(f.ids, '{}') as ids from unnest(done, v_attempts, v_ats, v_processes, v_units, v_hashes, v_held) c (claim, attempt, at, process, unit, key_hash, held)
    left join (
      select u.claim, range_agg(int8range(u.id, u.id + 1)) as ids from unnest(v_of, v_ids) u (claim, id) group by u.claim) f on f.claim = c.claim
  ), receipt as (
    insert into pawl.queue_receipt (claim, worker, claimed_at, settled_at, process_id, shard, queue, attempt, unit, ids, key_hash, first_id)
    select c.claim, p_worker, c.at, p_now, c.process, p_shard, p_queue, c.attempt, c.unit, c.ids, h.key_hash, case when h.key_hash is not null then lower(c.ids) end
    from complete c cross join lateral (select case when c.ids = int8multirange(range_merge(c.ids)) then 0 else c.key_hash end as key_hash) h
    where not isempty(c.ids)
  )
  select array_agg(c.ids) into ended from complete c;
end $$;
