-- Counts the jobs of a batch without a function call. Older programs may keep running: the answer is as before.

-- How many jobs wait in each place; every count stops at p_most rows, so the answer costs the same however deep the queue is.
create or replace function pawl.queue_stats(p_name text, p_most int) returns json
language plpgsql stable
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off as $$
declare
  v_queue smallint := pawl.queue_id(p_name);
  v_paused timestamptz;
  v_shards int;
  v_ready bigint; v_delayed bigint; v_parked bigint; v_running bigint; v_error bigint; v_cancelled bigint; v_workers int; v_slots bigint;
  v_rate record;
begin
  select d.paused_at, d.shards - 1 into v_paused, v_shards from pawl.queue_definition d where d.id = v_queue;
  select coalesce(sum(x.n), 0) into v_ready from (
    select r.n from generate_series(0, v_shards) s cross join lateral (
      select r.n from pawl.queue_ready r where r.shard = s::smallint and r.queue = v_queue limit p_most) r limit p_most) x;
  select count(*) into v_delayed from (
    select from generate_series(0, v_shards) s cross join lateral (
      select from pawl.queue_delayed r where r.shard = s::smallint and r.queue = v_queue limit p_most) r limit p_most) x;
  select count(*) into v_parked from (
    select from generate_series(0, v_shards) s cross join lateral (
      select from pawl.queue_parked r where r.shard = s::smallint and r.queue = v_queue limit p_most) r limit p_most) x;
  select coalesce(sum(upper(u.span) - lower(u.span)), 0) into v_running from (
    select r.ids from generate_series(0, v_shards) s cross join lateral (
      select r.ids from pawl.queue_running r where r.shard = s::smallint and r.queue = v_queue limit p_most) r limit p_most) x
  cross join lateral unnest(x.ids) u (span);
  select count(*) into v_error from (
    select from pawl.queue_dead d where d.queue = v_queue and d.status = 'error' limit p_most) x;
  select count(*) into v_cancelled from (
    select from pawl.queue_dead d where d.queue = v_queue and d.status = 'cancelled' limit p_most) x;
  select count(*), coalesce(sum(w.concurrency), 0) into v_workers, v_slots
  from pawl.queue_worker w where w.queue = v_queue and w.expires_at > clock_timestamp();
  -- Of a very busy minute only the last batches are looked at, and what they show is scaled to the minute.
  -- Counted here and not by queue_size(), which takes 15 µs a batch.
  select coalesce(sum((select sum(upper(u.span) - lower(u.span)) from unnest(x.ids) u (span))), 0) as jobs,
    count(*) as batches, min(x.settled_at) as since into v_rate from (
    select r.ids, r.settled_at from pawl.queue_receipt r
    where r.queue = v_queue and r.settled_at > clock_timestamp() - interval '1 minute' order by r.settled_at desc limit 1000) x;
  return json_build_object(
    'new', least(p_most, v_ready + v_delayed + v_parked), 'in-progress', least(p_most, v_running),
    'error', v_error, 'cancelled', v_cancelled,
    'ready', least(p_most, v_ready), 'delayed', v_delayed, 'parked', v_parked, 'inProgress', least(p_most, v_running),
    'completePerMinute', case when v_rate.batches < 1000 then v_rate.jobs
      else round(v_rate.jobs * 60 / greatest(0.001, extract(epoch from clock_timestamp() - v_rate.since))) end,
    'oldestReadyMs', pawl.queue_oldest_ready(v_queue, v_shards),
    'pausedAt', v_paused, 'workers', v_workers, 'slots', v_slots);
end $$;
