-- A claim of several types first counts how many of which type are among the first that are due. Actors whose bodies run with hold:
-- 'transaction' are among them, since only the lock of their row shows that they run; with as many of them as a worker had free
-- slots, it found nothing of its other types for as long as those bodies ran. They are left out of the count now, but for
-- those whose lock can be had: whoever had it is gone.
--
-- Older workers may keep running: they call the same function.

create or replace function pawl.actor_claim(p_worker bigint, p_types smallint[], p_limit int) returns text
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan as $$
declare
  v_now timestamptz;
  v_more integer;
  v_types smallint[];
  v_tids tid[] := '{}';
  v_part record;
  v_free tid[];
  v_rows text;
begin
  perform pawl.actor_require_worker(p_worker);
  v_more := pawl.actor_absorb(p_types, 1000);
  select array_agg(t.id) into v_types from pawl.actor_type t where t.id = any (p_types) and t.paused_at is null;
  if v_types is null then
    return '{"rows":[]}';
  end if;
  v_now := clock_timestamp();
  if cardinality(v_types) = 1 then
    v_tids := array(
      select a.ctid from pawl.actor_instance a
      where a.type = v_types[1] and a.wake_at <= v_now and a.wake_at is not null and a.worker is null and a.paused_at is null and a.held is null
      order by a.wake_at limit p_limit for no key update skip locked);
  else
    -- First how many of which type are among the first that are due, without a lock; then so many of each.
    loop
      select array_agg(x.type) as types, array_agg(x.n) as counts, bool_or(x.lent) as lent into v_part
      from (
        select d.type, count(*) as n, bool_or(d.lent) as lent from (
          select t.type, d.lent from unnest(v_types) t (type) cross join lateral (
            select a.wake_at, a.lent is not null as lent from pawl.actor_instance a
            where a.type = t.type and a.wake_at <= v_now and a.wake_at is not null and a.worker is null and a.paused_at is null and a.held is null
              and (v_free is null or a.lent is null or a.ctid = any (v_free))
            order by a.wake_at limit p_limit) d
          order by d.wake_at limit p_limit) d
        group by d.type) x;
      exit when v_free is not null or v_part.lent is not true;
      -- Each of them has a connection of its own: there are not many. Whose holder died became due early, and is not far behind.
      v_free := array(
        select a.ctid from pawl.actor_instance a
        where a.ctid = any (array(
            select d.tid from unnest(v_types) t (type) cross join lateral (
              select a.ctid as tid, a.lent from pawl.actor_instance a
              where a.type = t.type and a.wake_at <= v_now and a.wake_at is not null and a.worker is null and a.paused_at is null and a.held is null
              order by a.wake_at limit 1000 + p_limit) d
            where d.lent is not null))
          and a.lent is not null and a.worker is null and a.wake_at <= v_now
        order by a.wake_at limit p_limit for no key update skip locked);
    end loop;
    for v_at in 1..coalesce(cardinality(v_part.types), 0) loop
      v_tids := v_tids || array(
        select a.ctid from pawl.actor_instance a
        where a.type = v_part.types[v_at] and a.wake_at <= v_now and a.wake_at is not null and a.worker is null and a.paused_at is null and a.held is null
          and (v_free is null or a.lent is null or a.ctid = any (v_free))
        order by a.wake_at limit v_part.counts[v_at] for no key update skip locked);
    end loop;
  end if;
  if cardinality(v_tids) > 0 then
    if exists (select 1 from pawl.actor_paused_state p where p.type = any (v_types)) then
      v_tids := pawl.actor_hold_paused(v_tids);
    end if;
    v_rows := pawl.actor_take(p_worker, v_tids, v_now);
  end if;
  return concat('{"rows":[', v_rows, ']', case when v_more = 2 or cardinality(v_tids) >= p_limit then ',"again":true' end,
    ',"due":' || (
      -- greatest() would make 0 of null: due now, instead of never
      select case when v_more = 1 then 0 when min(d.wake_at) is not null then ceil(greatest(0, extract(epoch from min(d.wake_at) - clock_timestamp()) * 1000)) end
      from unnest(v_types) t (type) cross join lateral (
        select a.wake_at from pawl.actor_instance a
        where a.type = t.type and a.wake_at is not null and a.worker is null and a.paused_at is null and a.held is null
        order by a.wake_at limit 1) d), '}');
end $$;
