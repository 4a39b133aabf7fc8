-- Claiming for a transaction that stays open: what a lane takes of a stretch. How it looks is in 020_look.sql.

-- The next job of a stretch: rows that a claim saw a moment ago, each one job without a key, from after (p_priority, p_after)
-- up to (p_to_priority, p_to). A fraction of what queue_claim_one costs, which has to look at what is due, who has registered and
-- which sort of row comes first. Whoever pauses the queue still counts from now on. Answers [claim, id, kind, attempt, enqueued at
-- ms, priority, claimed at, process id, payload], or null: nothing is left there, it is held by others, or the queue is paused.
create function pawl.queue_take(
  p_queue smallint, p_shard smallint, p_priority smallint, p_after bigint, p_to_priority smallint, p_to bigint
) returns text
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $$
declare
  v_answer text;
begin
  delete from pawl.queue_ready r where r.ctid = (
    select r.ctid from pawl.queue_ready r
    where r.shard = p_shard and r.queue = p_queue and (r.priority, r.id) > (p_priority, p_after) and (r.priority, r.id) <= (p_to_priority, p_to)
      and r.key is null and r.n = 1 and (select d.paused_at is null from pawl.queue_definition d where d.id = p_queue)
    order by r.priority, r.id limit 1 for update skip locked)
  returning (
    select concat('[', nextval('pawl.queue_claim_id'), ',', j.id, ',', j.kind, ',', r.attempt + 1, ',', (date_part('epoch', j.created_at) * 1000)::bigint,
      ',', j.priority, ',"', clock_timestamp(), '","', gen_random_uuid(), '",', j.payload::text, ']')
    from pawl.queue_job j where j.shard = r.shard and j.id = r.id)
  into v_answer;
  return v_answer;
end $$;
