-- Searching. Nothing of it is on the path of an enqueue or a claim: jobs are found by the indexes that are there, and by
-- words through chunks, which a background step writes: for every 256 consecutive ids the distinct words of the payloads,
-- as numbers, under a GIN index. A search asks the index for the chunks that may hold its words, reads these by primary
-- key, newest first, and looks itself; the newest ids, which no chunk covers yet, are read directly.
--
-- A chunk is written once and must not miss a job that is committed late. Every enqueue takes a transaction id before it
-- takes job ids; so when all transactions have ended that were older than one begun after an id was handed out, that job
-- is there or will never be.

-- 2^21 numbers for words: a chunk of 5,000 distinct words has a four-hundredth of them, so that of 4,000 chunks ten are read
-- in vain for a word that nobody wrote, and the index stays small where every payload has ids of its own.
create function pawl.queue_bucket(p_word text) returns integer
language sql immutable strict parallel safe as $$
  select ('x' || substr(md5(p_word), 1, 6))::bit(24)::int >> 3
$$;

create table pawl.queue_search_chunk (
  id_from   bigint primary key,
  id_to     bigint not null,
  first_at  timestamptz not null,
  last_at   timestamptz not null,
  shards    smallint[] not null,
  queues    smallint[] not null,
  kinds     smallint[] not null,
  words     integer[] not null
);
create index queue_search_chunk_words on pawl.queue_search_chunk using gin (words) with (fastupdate = off);

create table pawl.queue_search_state (
  one        boolean primary key default true check (one),
  sealed_to  bigint not null default 0,  -- every lower id is covered
  wait_to    bigint,                     -- every lower id has been handed out,
  wait_xid   xid8                        -- by a transaction older than this one
);
insert into pawl.queue_search_state default values;

create function pawl.queue_unescaped(p_json text) returns text
language plpgsql immutable as $$
begin
  if strpos(p_json, e'\\u') > 0 then
    begin
      p_json := replace(p_json, e'\\u0000', ' ')::jsonb::text;
    exception when others then  -- numbers and escapes that jsonb does not take
    end;
  end if;
  return regexp_replace(p_json, e'\\\\(u[0-9a-fA-F]{4}|.)', ' ', 'g');
end $$;

-- What a payload says, in lower case: its first 65,536 characters. left() counts them, which is left out where it can be.
create function pawl.queue_text(p_payload json) returns text
language sql stable as $$
  select lower(case when strpos(p_payload::text, e'\\') = 0 and octet_length(p_payload::text) <= 65536 then p_payload::text
    else pawl.queue_unescaped(left(p_payload::text, 65536)) end)
$$;

-- The background step: seals up to p_chunks chunks. Answers {chunks, waits: there are ids that cannot be sealed yet, quiet:
-- nothing is ready}. Safe to run by any number of processes.
create function pawl.queue_index(p_chunks int) returns json
language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan as $$
declare
  v_state pawl.queue_search_state;
  v_last bigint;
  v_from bigint;
  v_chunks int := 0;
begin
  -- Read before this transaction gets its id: that one is then higher than those of all who have been handed these ids.
  select s.last_value into v_last from pawl.queue_job_id s where s.is_called;
  select s.* into v_state from pawl.queue_search_state s for update skip locked;
  if not found or v_last is null then
    return '{"chunks":0,"waits":false,"quiet":true}';
  end if;
  if v_state.wait_to is null and (v_last + 1) / 256 * 256 > v_state.sealed_to then
    v_state.wait_to := (v_last + 1) / 256 * 256;
    v_state.wait_xid := pg_current_xact_id();
    update pawl.queue_search_state s set wait_to = v_state.wait_to, wait_xid = v_state.wait_xid;
  elsif v_state.wait_to is not null and pg_snapshot_xmin(pg_current_snapshot()) > v_state.wait_xid then
    v_from := v_state.sealed_to;
    while v_from < v_state.wait_to and v_chunks < p_chunks loop
      v_from := pawl.queue_seal(v_from);
      v_chunks := v_chunks + 1;
    end loop;
    update pawl.queue_search_state s set sealed_to = v_from, wait_to = nullif(v_state.wait_to, v_from);
    v_state.wait_to := nullif(v_state.wait_to, v_from);
    delete from pawl.queue_search_chunk c where c.id_from in (
      select o.id_from from (select o.* from pawl.queue_search_chunk o order by o.id_from limit 10) o
      where not exists (
        select 1 from unnest(o.shards) s (shard) cross join lateral (
          select 1 from pawl.queue_job j where j.shard = s.shard and j.id >= o.id_from and j.id < o.id_to limit 1) j));
  end if;
  return json_build_object('chunks', v_chunks, 'waits', v_state.wait_to is not null, 'quiet', not exists (select 1 from pawl.queue_ready));
end $$;

-- Writes the chunk that begins at p_from, if there are jobs in it. Answers where the next one begins.
create function pawl.queue_seal(p_from bigint) returns bigint
language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan as $$
begin
  with job as materialized (
    select j.shard, j.queue, j.kind, j.created_at, pawl.queue_text(j.payload) as said
    from generate_series(0, 255) s cross join lateral (
      select j.* from pawl.queue_job j where j.shard = s::smallint and j.id >= p_from and j.id < p_from + 256) j
  ), word as materialized (
    select distinct w.word from job j cross join lateral regexp_split_to_table(j.said, '[^[:alnum:]]+') w (word) where w.word <> ''
  )
  insert into pawl.queue_search_chunk (id_from, id_to, first_at, last_at, shards, queues, kinds, words)
  select p_from, p_from + 256, min(j.created_at), max(j.created_at), array_agg(distinct j.shard), array_agg(distinct j.queue),
    array_agg(distinct j.kind), coalesce((select array_agg(distinct pawl.queue_bucket(w.word)) from word w), '{}')
  from job j having count(*) > 0
  on conflict (id_from) do nothing;
  return p_from + 256;
end $$;

-- What is asked for, ready to be compared. likes and regexes must all fit the text.
create type pawl.queue_query as (
  queue smallint, kinds smallint[], key text, status text, since timestamptz, until timestamptz,
  buckets integer[], likes text[], regexes text[], ts tsquery
);

-- Of the jobs of a range of ids the newest that fit.
create function pawl.queue_search_range(p_query pawl.queue_query, p_shards smallint[], p_from bigint, p_to bigint, p_limit int) returns bigint[]
language plpgsql stable
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $$
begin
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

-- The newest p_block jobs below p_before that have the query's key, or else its status: what the indexes give in order.
create function pawl.queue_search_candidates(p_query pawl.queue_query, p_before bigint, p_block int) returns table (shard smallint, id bigint)
language plpgsql stable
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
declare
  v_queues smallint[] := case when p_query.queue is null then array(select q.id from pawl.queue_definition q) else array[p_query.queue] end;
begin
  if p_query.key is not null then
    return query select j.shard, j.id from unnest(v_queues) q (queue) cross join generate_series(0, 255) s cross join lateral (
      select j.shard, j.id from pawl.queue_job j
      where j.shard = s::smallint and j.queue = q.queue and j.key = p_query.key and j.id < p_before order by j.id desc limit p_block) j
    order by j.id desc limit p_block;
  elsif p_query.status in ('error', 'cancelled') then
    return query select d.shard, d.id from unnest(v_queues) q (queue) cross join lateral (
      select d.shard, d.id from pawl.queue_dead d
      where d.queue = q.queue and d.status = p_query.status and d.id < p_before order by d.id desc limit p_block) d
    order by d.id desc limit p_block;
  elsif p_query.status = 'in-progress' then
    return query select r.shard, i.id from pawl.queue_running r
    cross join lateral unnest(r.ids) u (span) cross join lateral generate_series(lower(u.span), upper(u.span) - 1) i (id)
    where r.queue = any (v_queues) and i.id < p_before order by i.id desc limit p_block;
  else
    return query
    with recursive head as (
      select s::smallint as shard, q.queue, r.priority from unnest(v_queues) q (queue) cross join generate_series(0, 255) s cross join lateral (
        select r.priority from pawl.queue_ready r where r.shard = s::smallint and r.queue = q.queue order by r.priority limit 1) r
      union all
      select h.shard, h.queue, r.priority from head h cross join lateral (
        select r.priority from pawl.queue_ready r
        where r.shard = h.shard and r.queue = h.queue and r.priority > h.priority order by r.priority limit 1) r
    )
    select x.shard, x.id from (
      select r.shard, r.id from head h cross join lateral (
        select r.shard, i.id from (
          select r.shard, r.id, r.n from pawl.queue_ready r
          where r.shard = h.shard and r.queue = h.queue and r.priority = h.priority and r.id < p_before order by r.id desc limit p_block) r
        cross join lateral generate_series(r.id + r.n - 1, r.id, -1) i (id)
        where i.id < p_before limit p_block) r
      union all
      select d.shard, d.id from generate_series(0, 255) s cross join lateral (
        select d.shard, i.id from (
          select d.shard, d.id, d.n from pawl.queue_delayed d
          where d.shard = s::smallint and d.id < p_before and d.queue = any (v_queues) order by d.id desc limit p_block) d
        cross join lateral generate_series(d.id + d.n - 1, d.id, -1) i (id)
        where i.id < p_before limit p_block) d
      union all
      select p.shard, p.id from pawl.queue_parked p where p.queue = any (v_queues) and p.id < p_before
    ) x order by x.id desc limit p_block;
  end if;
end $$;

-- Of candidates those that fit: the payload, or the payload and one of the errors together, has every term.
create function pawl.queue_search_fit(p_query pawl.queue_query, p_shards smallint[], p_ids bigint[]) returns bigint[]
language plpgsql stable
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan as $$
begin
  return array(
    -- In steps, each dearer than the one before.
    with said as materialized (
      select j.shard, j.id, j.queue, j.kind, j.priority, j.key, case when p_query.likes = '{}' then '' else pawl.queue_text(j.payload) end as said
      from unnest(p_shards, p_ids) u (shard, id)
      cross join lateral (select j.* from pawl.queue_job j where j.shard = u.shard and j.id = u.id) j
      where (p_query.queue is null or j.queue = p_query.queue) and (p_query.kinds is null or j.kind = any (p_query.kinds))
        and (p_query.key is null or j.key = p_query.key)
        and (p_query.since is null or j.created_at >= p_query.since) and (p_query.until is null or j.created_at < p_query.until)
    ), fit as materialized (
      select s.* from said s
      where (s.said like all (p_query.likes) and s.said ~ all (p_query.regexes)) or exists (
        select 1 from pawl.queue_moves(s.shard, s.id) e cross join lateral (select s.said || e' \n' || lower(e.error) as said offset 0) x
        where e.error is not null and x.said like all (p_query.likes) and x.said ~ all (p_query.regexes))
    )
    select f.id from fit f
    where p_query.status is null or (pawl.queue_look(f.shard, f.id, f.queue, f.kind, f.priority, f.key)).status = p_query.status
    order by f.id desc);
end $$;

-- Jobs that have a term in an error, and all of them there and in the payload. Are p_most errors or fewer in question, the
-- index gives them; else the newest are walked. Everything from "horizon" up has been looked at.
create function pawl.queue_search_errors(p_query pawl.queue_query, p_before bigint, p_limit int, p_end timestamptz, out ids bigint[], out horizon bigint)
language plpgsql stable
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan as $$
declare
  v_most constant int := 2000;
  v_block int := greatest(2 * p_limit, 100);
  v_shards smallint[];
  v_ids bigint[];
  v_all int;
begin
  select array_agg(x.shard), array_agg(x.id), count(*) into v_shards, v_ids, v_all from (
    select distinct y.shard, y.id from (
      select t.shard, t.id from pawl.queue_transition t
      where t.error is not null and to_tsvector('simple', t.error) @@ p_query.ts and t.id < p_before limit v_most) y) x;
  ids := '{}';
  horizon := 0;
  if v_all < v_most then
    ids := pawl.queue_search_fit(p_query, v_shards, v_ids);
    return;
  end if;
  horizon := p_before;
  loop
    select array_agg(x.shard), array_agg(x.id), count(*) into v_shards, v_ids, v_all from (
      select t.shard, t.id from generate_series(0, 255) s cross join lateral (
        select distinct t.shard, t.id from pawl.queue_transition t
        where t.shard = s::smallint and t.id < horizon and t.error is not null order by t.shard desc, t.id desc limit v_block) t
      order by t.id desc limit v_block) x;
    ids := ids || pawl.queue_search_fit(p_query, v_shards, v_ids);
    horizon := case when v_all = v_block then v_ids[v_block] else 0 end;
    exit when horizon = 0 or cardinality(ids) >= p_limit or clock_timestamp() > p_end;
    v_block := least(v_most, v_block * 4);
  end loop;
end $$;

-- One page: {queue, kind, key, status, since, until, sinceMs, untilMs: ago, terms: [word or phrase, …], before, limit, budget: ms}.
-- A term stands in the text from the beginning of a word to the end of one. Answers {ids: newest first, next: where the
-- next page begins, or null}. The work is bounded: a page may be empty and have a next one.
create function pawl.queue_search(p_search json) returns json
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
    select * into v_found, v_horizon from pawl.queue_search_all(v_query, v_before, v."limit" + 1, v_end);
    if v_query.ts is not null then
      v_errors := pawl.queue_search_errors(v_query, v_before, v."limit" + 1, v_end);
      v_horizon := greatest(v_horizon, v_errors.horizon);
      v_found := array(select distinct i from unnest(v_found || v_errors.ids) i where i >= v_horizon order by i desc);
    end if;
  end if;
  return json_build_object(
    'ids', array(select i::text from unnest(v_found[1:v."limit"]) i),
    'next', case when cardinality(v_found) > v."limit" then v_found[v."limit"]::text when v_horizon > 0 then v_horizon::text end);
end $$;

create function pawl.queue_kinds(p_queue smallint, p_name text) returns smallint[]
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

-- Whether so few chunks have these words that reading them is quicker than going through all jobs of a status.
create function pawl.queue_is_narrow(p_buckets integer[]) returns boolean
language sql stable
set enable_seqscan = off set enable_indexscan = off set jit = off as $$
  select count(*) < 80 from (select from pawl.queue_search_chunk c where c.words @> p_buckets limit 80) x
$$;

-- By key or status: block after block of candidates.
create function pawl.queue_search_listed(p_query pawl.queue_query, p_before bigint, p_limit int, p_end timestamptz, out ids bigint[], out horizon bigint)
language plpgsql stable
set enable_seqscan = off set jit = off set plan_cache_mode = force_generic_plan as $$
declare
  v_block int := greatest(2 * p_limit, 100);
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
    v_block := least(2000, v_block * 4);
  end loop;
end $$;

-- By nothing but words, kind and time: the newest ids one by one, then the chunks that may fit.
create function pawl.queue_search_all(p_query pawl.queue_query, p_before bigint, p_limit int, p_end timestamptz, out ids bigint[], out horizon bigint)
language plpgsql stable
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan as $$
declare
  v_sealed bigint;
  v_from bigint;
  v_to bigint;
  v_shards smallint[];
  v_chunks bigint[];
begin
  ids := '{}';
  horizon := p_before;
  select s.sealed_to into v_sealed from pawl.queue_search_state s;
  if horizon > v_sealed then
    v_shards := array(
      select j.shard from generate_series(0, 255) s cross join lateral (
        select j.shard from pawl.queue_job j where j.shard = s::smallint and j.id >= v_sealed limit 1) j);
    while horizon > v_sealed loop
      select min(x.id) into v_from from (
        select j.id from unnest(v_shards) s (shard) cross join lateral (
          select j.id from pawl.queue_job j where j.shard = s.shard and j.id >= v_sealed and j.id < horizon order by j.id desc limit 1024) j
        order by j.id desc limit 1024) x;
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
  -- The index is asked by itself: the words of a chunk are too long to be read for a comparison.
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
    ids := ids || pawl.queue_search_range(p_query, v_shards, v_from, least(v_to, p_before), p_limit - cardinality(ids));
    horizon := v_from;
  end loop;
  horizon := 0;
end $$;
