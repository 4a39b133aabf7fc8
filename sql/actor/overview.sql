-- What the HTTP API shows of all actors and pages: their figures, and what happened.

-- {actors: [{type, paused, states, workers}], pages: {open, acked, worst}}; counts of pages stop at p_most, those of actors at 1,000.
create or replace function pawl.actor_live(p_most int) returns json
language sql stable set search_path = pg_catalog, pg_temp as $$
  select json_build_object(
    'actors', coalesce((
      select json_agg(json_build_object('type', t.name, 'paused', t.paused_at is not null, 'states', pawl.actor_counts(t.id, 1000),
        'workers', (select count(*) from pawl.actor_worker w where t.id = any (w.types) and w.expires_at > clock_timestamp())) order by t.name)
      from pawl.actor_type t), '[]'),
    'pages', (
      select json_build_object('open', count(*) filter (where x.acked_at is null), 'acked', count(*) filter (where x.acked_at is not null),
        'worst', (array['info', 'warning', 'error', 'critical'])[max(x.severity)])
      from (select p.acked_at, p.severity from pawl.actor_page p where p.resolved_at is null limit p_most) x))
$$;

-- Moves of actors, newest first within each type: of each the newest p_most that fit. p_subject: the only type; p_word: an id, or a part of a state or a
-- reason, or with p_errors of an error. Each moment is answered whole, as by queue_events.
create or replace function pawl.actor_events(p_since timestamptz, p_until timestamptz, p_most int, p_subject text, p_word text, p_errors boolean)
returns table (at timestamptz, part text, event text, subject text, id text, detail text, error text, process text, namespace text)
language plpgsql stable set plan_cache_mode = force_custom_plan as $$
declare
  v_most bigint := p_most;
begin
  if p_until <= clock_timestamp() then
    select p_most + coalesce(max(x.n), 0) into v_most from pawl.actor_type t cross join lateral (
      select count(*) as n from pawl.actor_transition h where h.type = t.id and h.at = p_until) x
    where p_subject is null or t.name = p_subject;
  end if;
  return query
  select h.at, 'actor', h.reason, t.name, h.actor::text, coalesce(h.from_state || ' → ', '') || h.to_state, left(h.error, 300), h.worker::text, null::text
  from pawl.actor_type t cross join lateral (
    select h.* from pawl.actor_transition h
    where h.type = t.id and h.at >= p_since and h.at <= p_until
      and (p_word is null or h.actor::text = p_word
        or strpos(lower(h.to_state || ' ' || h.reason || ' ' || coalesce(case when p_errors then h.error end, '')), lower(p_word)) > 0)
    order by h.at desc fetch first (v_most) rows with ties) h
  where p_subject is null or t.name = p_subject;
end $$;

-- Pages that were opened or resolved, newest first within each: the newest p_most that fit. p_subject: the only tag; p_word: a part of
-- the tag or the summary.
create or replace function pawl.page_events(p_since timestamptz, p_until timestamptz, p_most int, p_subject text, p_word text)
returns table (at timestamptz, part text, event text, subject text, id text, detail text, error text, process text, namespace text)
language plpgsql stable set plan_cache_mode = force_custom_plan as $$
begin
  return query
  (select p.opened_at, 'page', 'opened', p.tag, p.id::text, p.summary, null::text, null::text, null::text
  from pawl.actor_page p
  where p.opened_at >= p_since and p.opened_at <= p_until and (p_subject is null or p.tag = p_subject)
    and (p_word is null or strpos(lower(p.tag || ' ' || p.summary), lower(p_word)) > 0)
  order by p.id desc limit p_most)
  union all
  (select p.resolved_at, 'page', 'resolved', p.tag, p.id::text, p.summary, null, null, null
  from pawl.actor_page p
  where p.resolved_at >= p_since and p.resolved_at <= p_until and (p_subject is null or p.tag = p_subject)
    and (p_word is null or strpos(lower(p.tag || ' ' || p.summary), lower(p_word)) > 0)
  order by p.resolved_at desc limit p_most);
end $$;
