-- Searching. No enqueue and no claim pays for it. A search finds jobs by the indexes that exist anyway, and by words through chunks, which
-- search_index.sql writes. It asks the index for the chunks that may have its words, reads their jobs by primary key, newest first, and compares the
-- texts itself. The newest ids, which no chunk has yet, are read directly.
--
-- A search checks its budget between two steps, so no step may take longer than the budget: a step asks for a range of ids at once, and blocks are
-- bounded.

-- One page: {queue, kind, key, tag, status, since, until, sinceMs, untilMs: ago, terms: [word or phrase, …], before, limit, budget: ms}.
-- A term fits from the beginning of a word to the end of one. Answers {ids: newest first, next: where the next page begins, or null, behind: how many
-- ids the index does not have yet, if the page ends among these}. The work is bounded: a page may be empty and have a next one.
-- If errors are searched, too, the payloads leave them two fifths of the budget.
create or replace function pawl.queue_search(p_search json) returns json
language plpgsql stable
set enable_seqscan = off set jit = off set standard_conforming_strings = on as $$
declare
  v record;
  v_query pawl.queue_query;
  v_end timestamptz;
  v_before bigint;
  v_terms text[];
  v_found bigint[] := '{}';
  v_horizon bigint;
  v_errors record;
  v_again record;
  v_behind bigint := 0;
begin
  select x.* into v from json_to_record(p_search) x (
    queue text, kind text, key text, status text, since timestamptz, until timestamptz, "sinceMs" double precision, "untilMs" double precision,
    tag text, terms text[], before bigint, "limit" int, budget double precision);
  v_end := clock_timestamp() + v.budget * interval '1 millisecond';
  v_before := coalesce(v.before, 9223372036854775807);
  v_terms := array(select lower(t) from unnest(v.terms) t order by length(t) desc);
  v_query.queue := case when v.queue is not null then pawl.queue_id(v.queue) end;
  v_query.kinds := case when v.kind is not null then pawl.queue_kinds(v_query.queue, v.kind) end;
  v_query.key := v.key;
  v_query.tag := v.tag;
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

  if v_query.key is not null or v_query.tag is not null or v_query.status in ('new', 'in-progress')
    or (v_query.status in ('error', 'cancelled') and (v_query.likes = '{}' or not pawl.queue_is_narrow(v_query.buckets))) then
    select * into v_found, v_horizon from pawl.queue_search_listed(v_query, v_before, v."limit" + 1, v_end);
  else
    select * into v_found, v_horizon from pawl.queue_search_all(v_query, v_before, v."limit" + 1,
      case when v_query.ts is null then v_end else v_end - v.budget * 0.4 * interval '1 millisecond' end);
    v_again := pawl.queue_search_changed(v_query, v_before, v_horizon);
    if v_again.horizon is not null then
      v_horizon := v_again.horizon;
      v_found := array(select distinct i from unnest(v_found || v_again.ids) i where i >= v_horizon order by i desc);
    end if;
    if v_query.ts is not null then
      v_errors := pawl.queue_search_errors(v_query, v_before, v."limit" + 1, v_end);
      v_horizon := greatest(v_horizon, v_errors.horizon);
      v_found := array(select distinct i from unnest(v_found || v_errors.ids) i where i >= v_horizon order by i desc);
    end if;
    -- If the page ends among jobs that the index does not have yet: these are read one by one, as far as the budget goes.
    select i.last_value - s.sealed_to into v_behind from pawl.queue_search_state s, pawl.queue_job_id i where s.sealed_to < v_horizon;
  end if;
  return json_build_object(
    'ids', array(select i::text from unnest(v_found[1:v."limit"]) i),
    'next', case when cardinality(v_found) > v."limit" then v_found[v."limit"]::text when v_horizon > 0 then v_horizon::text end,
    'behind', coalesce(v_behind, 0));
end $$;

-- Of the jobs that were changed since their chunk was written, those from p_from up that fit, down to "horizon"; null if there are none.
create or replace function pawl.queue_search_changed(p_query pawl.queue_query, p_before bigint, p_from bigint, out ids bigint[], out horizon bigint)
language plpgsql stable /* planner: probe */ as $$
declare
  v_most constant int := 1000;
  v_ids bigint[];
begin
  v_ids := array(
    select a.id from pawl.queue_search_again a
    where a.id >= p_from and a.id < p_before group by a.id order by a.id desc limit v_most);
  if v_ids = '{}' then
    return;
  end if;
  horizon := case when cardinality(v_ids) = v_most then v_ids[v_most] else p_from end;
  ids := pawl.queue_search_fit(p_query, array(select pawl.queue_shard_of(i) from unnest(v_ids) with ordinality u (i, ord) order by ord), v_ids);
end $$;

-- A search by words, kind and time alone: the newest ids one by one, then the chunks that may fit. If only complete jobs are wanted, it skips ids
-- without a settled job: otherwise it would walk through a million waiting jobs a thousand at a time, each step longer than the budget of a page.
create or replace function pawl.queue_search_all(p_query pawl.queue_query, p_before bigint, p_limit int, p_end timestamptz, out ids bigint[], out horizon bigint)
language plpgsql stable
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan as $$
declare
  v_sealed bigint;
  v_from bigint;
  v_to bigint;
  v_shards smallint[];
  v_chunks bigint[];
  -- A job that holds a unique key for ever outlives its receipt: if there is any, nothing is skipped.
  v_passes boolean := p_query.status = 'complete' and not exists (select from pawl.queue_job j where j.only_one);
begin
  ids := '{}';
  horizon := p_before;
  select s.sealed_to into v_sealed from pawl.queue_search_state s;
  if horizon > v_sealed then
    v_shards := pawl.queue_search_shards(v_sealed);
    while horizon > v_sealed loop
      if v_passes then
        horizon := pawl.queue_search_settled(horizon, v_sealed);
        exit when horizon = v_sealed;
      end if;
      v_from := pawl.queue_search_step(v_shards, horizon, v_sealed);
      if v_from is null then
        horizon := v_sealed;
        exit;
      end if;
      ids := ids || pawl.queue_search_range(p_query, v_shards, v_from, horizon, p_limit - cardinality(ids));
      horizon := v_from;
      if cardinality(ids) >= p_limit or clock_timestamp() > p_end then
        return;
      end if;
    end loop;
  end if;
  -- The index is asked in a subquery: the words of a chunk are too long to be read for a comparison.
  if p_query.buckets = '{}' then
    select array_agg(c.id_from order by c.id_from desc) into v_chunks from pawl.queue_search_chunk c where c.id_from < horizon
      and (p_query.queue is null or p_query.queue = any (c.queues)) and (p_query.kinds is null or c.kinds && p_query.kinds)
      and (p_query.since is null or c.last_at >= p_query.since) and (p_query.until is null or c.first_at < p_query.until);
  else
    select array_agg(c.id_from order by c.id_from desc) into v_chunks
    from (select c.* from pawl.queue_search_chunk c where c.words @> p_query.buckets offset 0) c where c.id_from < horizon
      and (p_query.queue is null or p_query.queue = any (c.queues)) and (p_query.kinds is null or c.kinds && p_query.kinds)
      and (p_query.since is null or c.last_at >= p_query.since) and (p_query.until is null or c.first_at < p_query.until);
  end if;
  foreach v_from in array coalesce(v_chunks, '{}') loop
    if cardinality(ids) >= p_limit or clock_timestamp() > p_end then
      return;
    end if;
    select c.id_to, c.shards into v_to, v_shards from pawl.queue_search_chunk c where c.id_from = v_from;
    horizon := v_from;
    continue when v_passes and not pawl.queue_has_receipts(v_from, v_to);
    ids := ids || pawl.queue_search_range(p_query, v_shards, v_from, least(v_to, p_before), p_limit - cardinality(ids));
  end loop;
  horizon := 0;
end $$;

-- A search by key, tag or status: block after block of candidates, each of which ends within the budget.
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

-- Jobs that have a term in an error, and all terms in that error or in the payload. If fewer than 2,000 jobs are in question, the index gives them, and
-- they are checked newest first, in blocks, and so within the budget. Otherwise the newest errors are walked. Everything from "horizon" up has been
-- checked.
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
    -- Moves from the newest job down, until they are of v_block jobs. A run from further down may reach up to there.
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

create or replace function pawl.queue_kinds(p_queue smallint, p_name text) returns smallint[]
language plpgsql stable as $$
declare
  v_kinds smallint[] := array(select k.id from pawl.queue_kind k where k.name = p_name and (p_queue is null or k.queue = p_queue));
begin
  if v_kinds = '{}' then
    raise exception 'there is no kind "%"; there %', p_name, coalesce((
      select 'are ' || string_agg('"' || x.name || '"', ', ') from (
        select distinct k.name from pawl.queue_kind k where p_queue is null or k.queue = p_queue order by 1 limit 20) x), 'is none') using errcode = 'PW002';
  end if;
  return v_kinds;
end $$;

-- Whether so few chunks have these words that reading them is quicker than reading all jobs of a status.
create or replace function pawl.queue_is_narrow(p_buckets integer[]) returns boolean
language sql stable
set enable_seqscan = off set enable_indexscan = off set jit = off as $$
  select count(*) < 80 from (select from pawl.queue_search_chunk c where c.words @> p_buckets limit 80) x
$$;
