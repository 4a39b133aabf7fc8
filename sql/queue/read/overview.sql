-- What the HTTP API shows of all queues: their figures, and what happened.

-- [{name, stats}], by name; counts stop at p_most.
create or replace function pawl.queue_live(p_most int) returns json
language sql stable set search_path = pg_catalog, pg_temp as $$
  select coalesce(json_agg(json_build_object('name', d.name, 'stats', f.stats) order by d.name), '[]')
  from pawl.queue_figures(null, p_most) f join pawl.queue_definition d on d.id = f.queue
$$;

-- Moves of jobs, newest first within each queue and table: of each the newest p_most that fit. p_subject: the only queue; p_word: an id, or a part of
-- a reason, or with p_errors of an error. Each call has a plan of its own, so a filter that is not asked for costs nothing. One settlement dates all
-- moves that it writes alike, so each moment is answered whole: all events of p_until, at which the page before may have ended, p_most more, and all
-- those of the last moment.
create or replace function pawl.queue_events(p_since timestamptz, p_until timestamptz, p_most int, p_subject text, p_word text, p_errors boolean)
returns table (at timestamptz, part text, event text, subject text, id text, detail text, error text, process text, namespace text)
language plpgsql stable set plan_cache_mode = force_custom_plan as $$
declare
  v_id bigint := case when p_word ~ '^[0-9]{1,18}$' then p_word::bigint end;
  v_most bigint := p_most;
begin
  if p_until <= clock_timestamp() then
    select p_most + coalesce(max(x.n), 0) into v_most from pawl.queue_definition q cross join lateral (
      select (select count(*) from pawl.queue_transition t where t.queue = q.id and t.at = p_until)
        + (select count(*) from pawl.queue_receipt r where r.queue = q.id and r.settled_at = p_until)
        + (select count(*) from pawl.queue_receipt_one r where r.queue = q.id and r.settled_at = p_until) as n) x
    where p_subject is null or q.name = p_subject;
  end if;
  return query
  (select t.at, 'job', t.reason, q.name, t.id::text, case when t.n > 1 then t.n || ' jobs in a row' end,
    left(pawl.queue_error(t.shard, t.at, t.error, t.error_of), 300), t.worker::text, null::text
  from pawl.queue_definition q cross join lateral (
    select t.* from pawl.queue_transition t
    where t.queue = q.id and t.at >= p_since and t.at <= p_until
      and (p_word is null or t.id <= v_id and t.id + t.n > v_id
        or strpos(lower(coalesce(case when p_errors then pawl.queue_error(t.shard, t.at, t.error, t.error_of) end, t.reason)), lower(p_word)) > 0)
    order by t.at desc fetch first (v_most) rows with ties) t
  where p_subject is null or q.name = p_subject)
  union all
  (select r.settled_at, 'job', 'complete', q.name, lower(r.ids)::text,
    case when pawl.queue_size(r.ids) > 1 then pawl.queue_size(r.ids) || ' jobs in one batch' end, null, r.worker::text, null
  from pawl.queue_definition q cross join lateral (
    select r.* from pawl.queue_receipt r
    where r.queue = q.id and r.settled_at >= p_since and r.settled_at <= p_until and (p_word is null or r.ids @> v_id)
    order by r.settled_at desc fetch first (v_most) rows with ties) r
  where p_subject is null or q.name = p_subject)
  union all
  (select r.settled_at, 'job', 'complete', q.name, r.id::text, case when r.worker = 0 then 'by hand' end, null, nullif(r.worker, 0)::text, null
  from pawl.queue_definition q cross join lateral (
    select r.* from pawl.queue_receipt_one r
    where r.queue = q.id and r.settled_at >= p_since and r.settled_at <= p_until and (p_word is null or r.id = v_id)
    order by r.settled_at desc fetch first (v_most) rows with ties) r
  where p_subject is null or q.name = p_subject);
end $$;
