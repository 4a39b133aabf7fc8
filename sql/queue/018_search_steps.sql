-- Searches in shorter steps. A search looks at its budget between two steps, and some of them took longer than all of it: of a
-- range of ids each job was asked by itself where it is, and blocks of errors grew to 2,000.
-- Older workers may keep running: the functions answer as before.

-- Of a range of ids the newest that are complete: a job that is nowhere else. All places are asked for the range at once, which
-- takes a fiftieth of asking for each job, and less where runs of ready jobs cover the range.
create function pawl.queue_search_complete(p_query pawl.queue_query, p_shards smallint[], p_from bigint, p_to bigint, p_limit int) returns bigint[]
language plpgsql stable
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $$
begin
  return array(
    with job as materialized (
      select j.shard, j.id, j.queue, j.kind, j.priority, j.key from unnest(p_shards) s (shard) cross join lateral (
        select j.* from pawl.queue_job j
        where j.shard = s.shard and j.id >= p_from and j.id < p_to
          and (p_query.queue is null or j.queue = p_query.queue) and (p_query.kinds is null or j.kind = any (p_query.kinds))
          and (p_query.since is null or j.created_at >= p_query.since) and (p_query.until is null or j.created_at < p_query.until)) j
    ), line as materialized (
      select distinct j.shard, j.queue, j.priority from job j
    ), run as materialized (
      -- Runs that begin in the range, and the one before it, which may reach into it.
      select r.id, r.n from line l cross join lateral (
        select r.id, r.n from pawl.queue_ready r
        where r.shard = l.shard and r.queue = l.queue and r.priority = l.priority and r.id >= p_from and r.id < p_to) r
      union all
      select r.id, r.n from line l cross join lateral (
        select r.id, r.n from pawl.queue_ready r
        where r.shard = l.shard and r.queue = l.queue and r.priority = l.priority and r.id < p_from order by r.id desc limit 1) r
    ), elsewhere as materialized (
      select i.id from run r cross join lateral generate_series(greatest(r.id, p_from), least(r.id + r.n, p_to) - 1) i (id)
      union all
      select d.id from unnest(p_shards) s (shard) cross join lateral (
        select d.id from pawl.queue_delayed d where d.shard = s.shard and d.id >= p_from and d.id < p_to) d
      union all
      select d.id from unnest(p_shards) s (shard) cross join lateral (
        select d.id from pawl.queue_dead d where d.shard = s.shard and d.id >= p_from and d.id < p_to) d
      union all
      select i.id from unnest(p_shards) s (shard)
      cross join lateral (select r.ids from pawl.queue_running r where r.shard = s.shard and r.ids && int8range(p_from, p_to)) r
      cross join lateral unnest(r.ids * int8multirange(int8range(p_from, p_to))) u (span)
      cross join lateral generate_series(lower(u.span), upper(u.span) - 1) i (id)
    )
    select j.id from job j
    where j.id not in (select e.id from elsewhere e)
      and (j.key is null or not exists (
        select from pawl.queue_parked p where p.shard = j.shard and p.queue = j.queue and p.key = j.key and p.kind = j.kind and p.id = j.id))
    order by j.id desc limit p_limit);
end $$;

create or replace function pawl.queue_search_range(p_query pawl.queue_query, p_shards smallint[], p_from bigint, p_to bigint, p_limit int) returns bigint[]
language plpgsql stable
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $$
begin
  if p_query.likes = '{}' and p_query.status = 'complete' then
    return pawl.queue_search_complete(p_query, p_shards, p_from, p_to, p_limit);
  end if;
  if p_query.likes = '{}' then
    return array(
      select j.id from unnest(p_shards) s (shard) cross join lateral (
        select j.id from pawl.queue_job j
        where j.shard = s.shard and j.id >= p_from and j.id < p_to
          and (p_query.queue is null or j.queue = p_query.queue) and (p_query.kinds is null or j.kind = any (p_query.kinds))
          and (p_query.since is null or j.created_at >= p_query.since) and (p_query.until is null or j.created_at < p_query.until)
          and (p_query.status is null or (pawl.queue_look(j.shard, j.id, j.queue, j.kind, j.priority, j.key)).status = p_query.status)
        order by j.id desc limit p_limit) j
      order by 1 desc limit p_limit);
  end if;
  return array(
    select j.id from unnest(p_shards) s (shard) cross join lateral (
      select j.id from pawl.queue_job j cross join lateral (select pawl.queue_text(j.payload) as said offset 0) t
      where j.shard = s.shard and j.id >= p_from and j.id < p_to
        and (p_query.queue is null or j.queue = p_query.queue) and (p_query.kinds is null or j.kind = any (p_query.kinds))
        and (p_query.since is null or j.created_at >= p_query.since) and (p_query.until is null or j.created_at < p_query.until)
        and t.said like all (p_query.likes) and t.said ~ all (p_query.regexes)
        and (p_query.status is null or (pawl.queue_look(j.shard, j.id, j.queue, j.kind, j.priority, j.key)).status = p_query.status)
      order by j.id desc limit p_limit) j
    order by 1 desc limit p_limit);
end $$;

-- As before, but in blocks that end within the budget.
create or replace function pawl.queue_search_listed(p_query pawl.queue_query, p_before bigint, p_limit int, p_end timestamptz, out ids bigint[], out horizon bigint)
language plpgsql stable
set enable_seqscan = off set jit = off set plan_cache_mode = force_generic_plan as $$
declare
  v_block int := greatest(2 * p_limit, 20);
  v_shards smallint[];
  v_ids bigint[];
begin
  ids := '{}';
  horizon := p_before;
  loop
    select array_agg(c.shard), array_agg(c.id) into v_shards, v_ids from pawl.queue_search_candidates(p_query, horizon, v_block) c;
    ids := ids || pawl.queue_search_fit(p_query, v_shards, v_ids);
    horizon := case when cardinality(v_ids) = v_block then v_ids[v_block] else 0 end;
    exit when horizon = 0 or cardinality(ids) >= p_limit or clock_timestamp() > p_end;
    v_block := least(400, v_block * 2);
  end loop;
end $$;

-- As before, but what the index gives is looked at newest first, in blocks, and so within the budget, too.
create or replace function pawl.queue_search_errors(p_query pawl.queue_query, p_before bigint, p_limit int, p_end timestamptz, out ids bigint[], out horizon bigint)
language plpgsql stable
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan as $$
declare
  v_most constant int := 2000;
  v_block int := greatest(2 * p_limit, 100);
  v_shards smallint[];
  v_ids bigint[];
  v_all int;
  v_done int := 0;
  v_low bigint;
begin
  ids := '{}';
  horizon := p_before;
  select array_agg(x.shard order by x.id desc), array_agg(x.id order by x.id desc), coalesce(max(x.found), 0) into v_shards, v_ids, v_all from (
    select distinct y.shard, y.id, count(*) over () as found from (
      select t.shard, i.id from pawl.queue_transition e
      cross join lateral (
        select e.shard, e.id, e.n
        union all
        select t.shard, t.id, t.n from pawl.queue_transition t where t.shard = e.shard and t.error_of = e.id and t.at = e.at) t
      cross join lateral generate_series(t.id, least(t.id + t.n, p_before) - 1) i (id)
      where e.error is not null and to_tsvector('simple', e.error) @@ p_query.ts and e.id < p_before limit v_most) y) x;
  if v_all < v_most then
    v_all := coalesce(cardinality(v_ids), 0);
    while v_done < v_all loop
      ids := ids || pawl.queue_search_fit(p_query, v_shards[v_done + 1:v_done + v_block], v_ids[v_done + 1:v_done + v_block]);
      v_done := v_done + v_block;
      exit when v_done < v_all and (cardinality(ids) >= p_limit or clock_timestamp() > p_end);
    end loop;
    horizon := case when v_done < v_all then v_ids[v_done] else 0 end;
    return;
  end if;
  loop
    -- Moves from the newest job on until they speak of v_block jobs. A run from further down may reach up to there.
    select coalesce(min(x.id) filter (where x.before < v_block), 0), coalesce(sum(x.n), 0) into v_low, v_all from (
      select t.id, t.n, sum(t.n) over (order by t.id desc rows unbounded preceding) - t.n as before
      from generate_series(0, 255) s cross join lateral (
        select t.id, t.n from pawl.queue_transition t
        where t.shard = s::smallint and t.id < horizon and (t.error is not null or t.error_of is not null)
        order by t.shard desc, t.id desc limit v_block) t) x;
    if v_all < v_block then
      v_low := 0;
    end if;
    select array_agg(x.shard), array_agg(x.id) into v_shards, v_ids from (
      select distinct t.shard, i.id from generate_series(0, 255) s cross join lateral (
        select t.shard, t.id, t.n from pawl.queue_transition t
        where t.shard = s::smallint and t.id < horizon and t.id > v_low - 256 and (t.error is not null or t.error_of is not null)) t
      cross join lateral generate_series(greatest(t.id, v_low), least(t.id + t.n, horizon) - 1) i (id)) x;
    ids := ids || pawl.queue_search_fit(p_query, v_shards, v_ids);
    horizon := v_low;
    exit when horizon = 0 or cardinality(ids) >= p_limit or clock_timestamp() > p_end;
    v_block := least(400, v_block * 2);
  end loop;
end $$;

-- As before, but where errors are searched, too, the payloads leave them two fifths of the budget.
create or replace function pawl.queue_search(p_search json) returns json
language plpgsql stable
set enable_seqscan = off set jit = off as $$
declare
  v record;
  v_query pawl.queue_query;
  v_end timestamptz;
  v_before bigint;
  v_terms text[];
  v_found bigint[] := '{}';
  v_horizon bigint;
  v_errors record;
  v_behind bigint := 0;
begin
  select x.* into v from json_to_record(p_search) x (
    queue text, kind text, key text, status text, since timestamptz, until timestamptz, "sinceMs" double precision, "untilMs" double precision,
    terms text[], before bigint, "limit" int, budget double precision);
  v_end := clock_timestamp() + v.budget * interval '1 millisecond';
  v_before := coalesce(v.before, 9223372036854775807);
  v_terms := array(select lower(t) from unnest(v.terms) t order by length(t) desc);
  v_query.queue := case when v.queue is not null then pawl.queue_id(v.queue) end;
  v_query.kinds := case when v.kind is not null then pawl.queue_kinds(v_query.queue, v.kind) end;
  v_query.key := v.key;
  v_query.status := v.status;
  v_query.since := coalesce(v.since, clock_timestamp() - v."sinceMs" * interval '1 millisecond');
  v_query.until := coalesce(v.until, clock_timestamp() - v."untilMs" * interval '1 millisecond');
  v_query.likes := array(select '%' || regexp_replace(t, e'([\\\\%_])', e'\\\\\\1', 'g') || '%' from unnest(v_terms) t);
  v_query.regexes := array(
    select case when t ~ '^[[:alnum:]]' then '(^|[^[:alnum:]])' else '' end || regexp_replace(t, '([^[:alnum:][:space:]])', e'\\\\\\1', 'g')
      || case when t ~ '[[:alnum:]]$' then '([^[:alnum:]]|$)' else '' end from unnest(v_terms) t);
  v_query.buckets := array(
    select distinct pawl.queue_bucket(w) from unnest(v_terms) t cross join lateral regexp_split_to_table(t, '[^[:alnum:]]+') w where w <> '');
  select string_agg('(' || x.q::text || ')', ' | ')::tsquery into v_query.ts
  from (select phraseto_tsquery('simple', t) as q from unnest(v_terms) t) x where x.q::text <> '';

  if v_query.key is not null or v_query.status in ('new', 'in-progress')
    or (v_query.status in ('error', 'cancelled') and (v_query.likes = '{}' or not pawl.queue_is_narrow(v_query.buckets))) then
    select * into v_found, v_horizon from pawl.queue_search_listed(v_query, v_before, v."limit" + 1, v_end);
  else
    select * into v_found, v_horizon from pawl.queue_search_all(v_query, v_before, v."limit" + 1,
      case when v_query.ts is null then v_end else v_end - v.budget * 0.4 * interval '1 millisecond' end);
    if v_query.ts is not null then
      v_errors := pawl.queue_search_errors(v_query, v_before, v."limit" + 1, v_end);
      v_horizon := greatest(v_horizon, v_errors.horizon);
      v_found := array(select distinct i from unnest(v_found || v_errors.ids) i where i >= v_horizon order by i desc);
    end if;
    -- The page ends among the jobs that the index does not have yet: they are read one by one, as far as the budget goes.
    select i.last_value - s.sealed_to into v_behind from pawl.queue_search_state s, pawl.queue_job_id i where s.sealed_to < v_horizon;
  end if;
  return json_build_object(
    'ids', array(select i::text from unnest(v_found[1:v."limit"]) i),
    'next', case when cardinality(v_found) > v."limit" then v_found[v."limit"]::text when v_horizon > 0 then v_horizon::text end,
    'behind', coalesce(v_behind, 0));
end $$;
