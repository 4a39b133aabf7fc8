-- What the HTTP API shows of all locks: how many there are, and what happened.

-- {held, waiting}; counts stop at p_most.
create or replace function pawl.lock_live(p_most int) returns json
language sql stable set search_path = pg_catalog, pg_temp as $$
  select json_build_object(
    'held', (select count(*) from (select 1 from pawl.lock_grant g where g.token is not null and g.expires_at > clock_timestamp() limit p_most) x),
    'waiting', (select count(*) from (select 1 from pawl.lock_waiter w where w.expires_at > clock_timestamp() limit p_most) x))
$$;

-- Grants and ends of locks, newest first within each: the newest p_most that fit. p_subject: the only name; p_word: a part of the name,
-- the reason or the process. Each moment is answered whole, as by queue_events: the locks of a set are granted at the same time.
create or replace function pawl.lock_events(p_since timestamptz, p_until timestamptz, p_most int, p_subject text, p_word text)
returns table (at timestamptz, part text, event text, subject text, id text, detail text, error text, process text, namespace text)
language plpgsql stable set plan_cache_mode = force_custom_plan as $$
declare
  v_most bigint := p_most;
begin
  if p_until <= clock_timestamp() then
    v_most := p_most + (select count(*) from pawl.lock_past p where p.ended_at = p_until) + (select count(*) from pawl.lock_grant g where g.granted_at = p_until);
  end if;
  return query
  (select p.ended_at, 'lock', p.outcome, p.name, p.token::text,
    coalesce(p.reason, 'held ' || round(extract(epoch from p.ended_at - p.granted_at)::numeric, 3) || ' s'), null::text, p.host || ':' || p.pid, p.space
  from pawl.lock_past p
  where p.ended_at >= p_since and p.ended_at <= p_until and (p_subject is null or p.name = p_subject)
    and (p_word is null or strpos(lower(p.name || ' ' || coalesce(p.reason, '') || ' ' || p.host || ':' || p.pid), lower(p_word)) > 0)
  order by p.ended_at desc fetch first (v_most) rows with ties)
  union all
  (select g.granted_at, 'lock', 'granted', g.name, g.token::text, null, null, g.host || ':' || g.pid, g.space
  from pawl.lock_grant g
  where g.token is not null and g.granted_at >= p_since and g.granted_at <= p_until and (p_subject is null or g.name = p_subject)
    and (p_word is null or strpos(lower(g.name || ' ' || g.host || ':' || g.pid), lower(p_word)) > 0)
  order by g.granted_at desc fetch first (v_most) rows with ties);
end $$;
