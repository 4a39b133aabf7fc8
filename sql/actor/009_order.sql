-- A claim gives its actors in the order in which they became due, and not in that of their rows on disk: those that wait for a
-- free slot begin in that order.
--
-- Older workers may keep running: they call the same function.

create or replace function pawl.actor_take(p_worker bigint, p_tids tid[], p_now timestamptz) returns text
language sql
set enable_seqscan = off set enable_mergejoin = off set jit = off as $$
  with taken as (
    update pawl.actor_instance a set
      epoch = a.epoch + 1, worker = p_worker, lent = null, claimed_at = p_now, attempt = a.attempt + 1, signal_at = null,
      retry_at = p_now + pawl.actor_backoff(t.backoff, a.attempt + 1) * interval '1 millisecond'
    from pawl.actor_type t
    where a.ctid = any (p_tids) and t.id = a.type
    returning pawl.actor_claimed(a) as row, a.wake_at
  )
  select string_agg(t.row, ',' order by t.wake_at) from taken t
$$;
