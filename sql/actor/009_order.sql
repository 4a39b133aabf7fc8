-- A claim gives its actors in the order in which they became due, and not in that of their rows on disk: those that wait for a
-- free slot begin in that order.
--
-- Older workers may keep running: they call the same function.

-- Of those that were lent, whoever had the row is gone, and wrote nothing: that turn is lost. What was lost before as well is not
-- taken, but left to be claimed alone.
create or replace function pawl.actor_take(p_worker bigint, p_tids tid[], p_now timestamptz) returns text
language sql
set enable_seqscan = off set enable_mergejoin = off set jit = off as $$
  with taken as (
    update pawl.actor_instance a set
      worker = case when a.lent is null or a.lost = 0 then p_worker end,
      held = case when a.lent is null or a.lost = 0 then a.held else pawl.actor_alone(a.lost + 1) end,
      lost = case when a.lent is null then a.lost else a.lost + 1 end,
      epoch = a.epoch + 1, lent = null, claimed_at = p_now, attempt = a.attempt + 1, signal_at = null,
      retry_at = p_now + pawl.actor_backoff(t.backoff, a.attempt + 1) * interval '1 millisecond'
    from pawl.actor_type t
    where a.ctid = any (p_tids) and t.id = a.type
    returning pawl.actor_claimed(a) as row, a.wake_at, a.worker
  )
  select string_agg(t.row, ',' order by t.wake_at) from taken t where t.worker is not null
$$;
