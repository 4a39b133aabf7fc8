-- The index of words, which a background step writes: a chunk for every 256 consecutive ids, with the distinct words of the payloads as numbers, under
-- a GIN index.
--
-- A chunk is written once, and must not miss a job that commits late. Every enqueue takes a transaction id before it takes job ids. So once all
-- transactions have ended that are older than one that began after an id was handed out, the job of that id exists or never will.

-- The background step: writes up to p_chunks chunks. Answers {chunks, waits: some ids cannot have a chunk yet, quiet: no job is ready}. Any number of
-- processes may run it.
create or replace function pawl.queue_index(p_chunks int) returns json
language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan set standard_conforming_strings = on as $$
declare
  v_state pawl.queue_search_state;
  v_last bigint;
  v_from bigint;
  v_chunks int := 0;
begin
  -- Read before this transaction gets its id, which is then higher than those of all transactions that have these ids.
  select s.last_value into v_last from pawl.queue_job_id s where s.is_called;
  select s.* into v_state from pawl.queue_search_state s for update skip locked;
  if not found or v_last is null then
    return '{"chunks":0,"waits":false,"quiet":true}';
  end if;
  v_chunks := pawl.queue_index_again(v_state.sealed_to, p_chunks);
  if v_state.wait_to is null and (v_last + 1) / 256 * 256 > v_state.sealed_to then
    v_state.wait_to := (v_last + 1) / 256 * 256;
    v_state.wait_xid := pg_current_xact_id();
    update pawl.queue_search_state s set wait_to = v_state.wait_to, wait_xid = v_state.wait_xid;
  elsif v_state.wait_to is not null and pg_snapshot_xmin(pg_current_snapshot()) > v_state.wait_xid then
    v_from := v_state.sealed_to;
    while v_from < v_state.wait_to and v_chunks < p_chunks loop
      v_from := pawl.queue_write_chunk(v_from);
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

-- Writes the chunks anew in which a payload was changed or erased. A change is committed together with its row in queue_search_again, so a statement
-- that begins after that row was seen also sees the payload. Answers how many chunks.
create or replace function pawl.queue_index_again(p_sealed bigint, p_chunks int) returns int
language plpgsql /* planner: probe */ as $$
declare
  v_seen tid[];
  v_froms bigint[];
  v_from bigint;
begin
  select array_agg(a.tid), array_agg(distinct a.id / 256 * 256) into v_seen, v_froms from (
    select a.ctid as tid, a.id from pawl.queue_search_again a where a.id < p_sealed order by a.id limit p_chunks * 16) a;
  if v_seen is null then
    return 0;
  end if;
  delete from pawl.queue_search_chunk c where c.id_from = any (v_froms);
  foreach v_from in array v_froms loop
    perform pawl.queue_write_chunk(v_from);
  end loop;
  delete from pawl.queue_search_again a where a.ctid = any (v_seen);
  return cardinality(v_froms);
end $$;

-- Writes the chunk that begins at p_from, if it has jobs. Answers where the next one begins.
create or replace function pawl.queue_write_chunk(p_from bigint) returns bigint
language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan as $$
begin
  with job as materialized (
    select j.shard, j.queue, j.kind, j.created_at, pawl.queue_text(j.payload) as said
    from generate_series(0, 255) s cross join lateral (
      select j.* from pawl.queue_job j where j.shard = s::smallint and j.id >= p_from and j.id < p_from + 256 order by j.id offset 0) j
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

-- The text of a payload, in lower case: its first 65,536 characters. left() counts characters, so it is avoided where it can be.
create or replace function pawl.queue_text(p_payload json) returns text
language sql stable as $$
  select lower(case when strpos(p_payload::text, e'\\') = 0 and octet_length(p_payload::text) <= 65536 then p_payload::text
    else pawl.queue_unescaped(left(p_payload::text, 65536)) end)
$$;

create or replace function pawl.queue_unescaped(p_json text) returns text
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

-- The number of a word, one of 2^21. A chunk of 5,000 distinct words has a four-hundredth of these numbers. So a search for a word that no job has reads
-- ten of 4,000 chunks without success, and the index stays small where every payload has ids of its own.
create or replace function pawl.queue_bucket(p_word text) returns integer
language sql immutable strict parallel safe as $$
  select ('x' || substr(md5(p_word), 1, 6))::bit(24)::int >> 3
$$;
