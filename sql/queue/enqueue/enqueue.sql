-- Enqueue: writes a job's row, and one row that says where the job waits. Runs in the caller's transaction. It does not wait, except for an
-- enqueue of the same unique job: the second must learn whether the first commits. It notifies only if a worker has said that it sleeps.

-- The public form, for any driver, psql and triggers: takes one object, or an array of objects, of
--   queue, kind, payload, key?, runAt? (ISO 8601), delay? (an interval), priority? (lower first, default 0), unique?,
--   group? (the queue limits how many jobs of a group run at a time), and the options of a job that job_options.sql lists
--   after? (the jobs that have to end before: ids, and {"batch": id}), afterError? and afterCancel? (run, error or cancel: what becomes of the job
--   if one of them ended in error, or was cancelled; by default it ends in the same way)
-- unique is what the caller's program declares for the kind. Without it the last declaration counts, of whichever version.
-- Answers {"id": "…", "status": "new", "duplicate": false}, or an array of these in the same order. If a job of the unique kind exists already, the
-- answer has the id of that job, with "duplicate": true and its status now; see unique.sql.
create or replace function pawl.enqueue(request jsonb) returns jsonb
language plpgsql as $$
declare
  v_ids bigint[];
  v_order int[];
  v_answers jsonb[];
  v_nth int;
begin
  if jsonb_typeof(request) is distinct from 'array' then
    return pawl.queue_enqueue_one(request, null);
  end if;
  perform pg_current_xact_id();  -- before the ids: see search_index.sql
  v_ids := array(select nextval('pawl.queue_job_id') from generate_series(1, jsonb_array_length(request)));
  if exists (select 1 from pawl.queue_kind k where k.unique_key or k.unique_rule is not null) or request @? '$[*].unique' then
    v_order := pawl.queue_unique_order(request);
  else
    v_order := array(select generate_series(1, cardinality(v_ids)));
  end if;
  v_answers := array_fill(null::jsonb, array[cardinality(v_ids)]);
  foreach v_nth in array v_order loop
    v_answers[v_nth] := pawl.queue_enqueue_one(request -> (v_nth - 1), v_ids[v_nth]);
  end loop;
  return to_jsonb(v_answers);
end $$;

-- Enqueues one job. p_id: the id that it is to have, or null.
create or replace function pawl.queue_enqueue_one(request jsonb, p_id bigint) returns jsonb
language plpgsql as $$
declare
  v_queue pawl.queue_definition;
  v_kind pawl.queue_kind;
  v_id bigint := p_id;
  v_key text;
  v_group text := request ->> 'group';
  v_shard smallint;
  v_run_at timestamptz;
  v_priority smallint;
  v_now timestamptz := clock_timestamp();
  v_rule jsonb;
  v_only_one boolean;
  v_digest bytea;
  v_win record;
  v_options json;
  v_after bigint[] := '{}';
  v_batches bigint[] := '{}';
  v_own constant text[] := '{schedule,attempts,timeout,backoff,expiresAt,onError,tags,meta}';  -- see job_options.sql
begin
  perform pawl.queue_check_request(request, v_own);
  lock table pawl.queue_job in row exclusive mode;  -- the number of shards stays as it is read here: see shard.sql
  select * into v_queue from pawl.queue_definition where name = request ->> 'queue';
  if not found or (v_queue.removed_at is not null and pawl.queue_is_gone(v_queue)) then
    raise exception 'queue "%" does not exist%; create it with createQueue(…) and register() it first', request ->> 'queue', pawl.queue_snapshot() using errcode = 'PW002';
  end if;
  select * into v_kind from pawl.queue_kind where queue = v_queue.id and name = request ->> 'kind';
  if not found then
    raise exception 'queue "%" has no kind "%"%; it has %', v_queue.name, request ->> 'kind', pawl.queue_snapshot(),
      (select string_agg('"' || name || '"', ', ' order by name) from pawl.queue_kind where queue = v_queue.id) using errcode = 'PW001', column = 'kind';
  end if;
  v_key := request ->> 'key';
  if octet_length(v_key) not between 1 and 1000 then
    raise exception 'key must be 1 to 1000 bytes long, got % bytes', octet_length(v_key) using errcode = 'PW001', column = 'key';
  end if;
  if v_group is not null then
    perform pawl.queue_check_group(v_queue, v_kind, v_group, v_key);
  end if;
  perform pawl.refuse_huge_numbers('payload', request -> 'payload');
  perform pawl.refuse_large('payload', request -> 'payload');
  v_rule := pawl.queue_unique_rule(request, v_kind);
  v_only_one := pawl.queue_is_only_one(v_rule);
  if request ? 'unique' and v_rule ->> 'while' = 'ever' and (v_rule ->> 'per')::interval > v_queue.history then
    raise exception 'unique.per is longer than the history of queue "%", which removes the job before; make history longer, or the time shorter', v_queue.name
      using errcode = 'PW001', column = 'unique';
  end if;
  if v_key is null and (v_rule ->> 'by' = 'key' or v_kind.needs_key or v_kind.coalesce <> 'none' or cardinality(v_kind.after) > 0) then
    raise exception 'kind "%" of queue "%" needs a key', v_kind.name, v_queue.name using errcode = 'PW001', column = 'key';
  end if;
  select w.run_at, coalesce(w.priority, 0) into v_run_at, v_priority from pawl.queue_read_when(request, v_now) w;
  if v_kind.debounce is not null then
    if v_run_at is not null then
      raise exception 'kind "%" of queue "%" has debounce, which sets the time of a job; leave runAt and delay out', v_kind.name, v_queue.name
        using errcode = 'PW001', column = 'runAt';
    end if;
    v_run_at := v_now + v_kind.debounce;
  end if;
  if request ?| v_own then
    v_options := pawl.queue_job_options(request);
  end if;
  if request ?| array['after', 'afterError', 'afterCancel'] then
    select a.ids, a.batches into v_after, v_batches from pawl.queue_after(request) a;
  end if;
  v_shard := case when v_queue.shards = 1 then 0
    when coalesce(v_group, v_key) is not null then pawl.queue_shard(coalesce(v_group, v_key), v_queue.shards)
    else floor(random() * v_queue.shards)::smallint end;

  perform pg_current_xact_id();  -- before the id: see search_index.sql
  if v_rule is not null and not v_only_one then
    v_digest := pawl.queue_digest(v_rule, v_key, coalesce(request -> 'payload', 'null'));
    loop
      v_win := pawl.queue_win(v_queue.id, v_kind.id, v_rule, v_digest, v_shard, v_id, v_now);
      exit when v_win.won;
      if v_rule -> 'replace' is distinct from 'true' or pawl.queue_replace(v_queue.id, v_kind.id, v_digest, v_win.id, request) then
        return jsonb_build_object('id', v_win.id::text, 'status', v_win.status, 'duplicate', true);
      end if;
    end loop;
    v_id := v_win.id;
  elsif v_id is null then
    v_id := nextval('pawl.queue_job_id');
  end if;
  insert into pawl.queue_job (id, created_at, shard, queue, kind, priority, only_one, run_at, key, payload, options, group_name)
  select v_id, v_now, v_shard, v_queue.id, v_kind.id, v_priority, nullif(v_only_one, false),
    v_run_at, v_key, coalesce(request -> 'payload', 'null')::json, v_options, v_group
  where not v_only_one or v_queue.former_shards is null or not exists (select from pawl.queue_only_ones(v_queue, v_kind.id, v_key))
  on conflict (shard, queue, kind, key) where only_one do nothing
  returning id into v_id;
  if v_id is null then
    select o.id, o.shard into v_win from pawl.queue_only_ones(v_queue, v_kind.id, v_key) o limit 1;
    return jsonb_build_object('id', v_win.id::text, 'status', pawl.queue_status(v_win.shard, v_win.id), 'duplicate', true);
  end if;
  if v_options is not null then
    perform pawl.queue_note_options(v_shard, array[v_id]);
  end if;

  if v_after <> '{}' or v_batches <> '{}' then
    insert into pawl.queue_delayed (run_at, id, shard, queue, priority, kind, key, group_name)
    values (pawl.queue_never(), v_id, v_shard, v_queue.id, v_priority, v_kind.id, case when v_queue.keyed then v_key end, v_group);
    perform pawl.queue_await(v_queue.id, v_shard, array[v_id], array[1], v_after, v_batches,
      coalesce(request ->> 'afterError', 'error'), coalesce(request ->> 'afterCancel', 'cancel'), '{}');
  elsif v_run_at > v_now then
    insert into pawl.queue_delayed (run_at, id, shard, queue, priority, kind, key, group_name)
    values (v_run_at, v_id, v_shard, v_queue.id, v_priority, v_kind.id, case when v_queue.keyed then v_key end, v_group);
  elsif v_group is not null then
    perform pawl.queue_line_up(v_queue.id, v_shard, array[v_id]);
  else
    insert into pawl.queue_ready (id, shard, queue, priority, kind, key)
    values (v_id, v_shard, v_queue.id, v_priority, v_kind.id, case when v_queue.keyed then v_key end);
  end if;
  if v_run_at > v_now then
    perform pawl.queue_wake_later(v_queue.id, v_shard, v_id, v_run_at);
  else
    perform pawl.queue_wake(v_queue.id);
  end if;
  return jsonb_build_object('id', v_id::text, 'duplicate', false, 'status', case when v_after <> '{}' or v_batches <> '{}' then pawl.queue_status(v_shard, v_id) else 'new' end);
end $$;

-- Refuses a request that is no object, lacks a field, or has an unknown one. p_own: the options of a job.
create or replace function pawl.queue_check_request(request jsonb, p_own text[]) returns void
language plpgsql as $$
declare
  v_fields constant text[] := '{queue,kind,payload,key,runAt,delay,priority,unique,group,after,afterError,afterCancel}';
  v_unknown text;
begin
  if jsonb_typeof(request) is distinct from 'object' then
    raise exception 'pawl.enqueue takes an object or an array of objects, got %', coalesce(left(request::text, 100), 'null') using errcode = 'PW001';
  end if;
  select key into v_unknown from jsonb_object_keys(request) key where key <> all (v_fields || p_own) limit 1;
  if found then
    raise exception 'unknown field "%" in pawl.enqueue; it takes %', v_unknown, array_to_string(v_fields || p_own, ', ') using errcode = 'PW001';
  end if;
  if request ->> 'queue' is null or request ->> 'kind' is null then
    raise exception 'pawl.enqueue needs a queue and a kind, got %', left(request::text, 100) using errcode = 'PW001';
  end if;
end $$;

-- Reads from a request in SQL when a job is to run, and its priority; null if the request does not say.
create or replace function pawl.queue_read_when(p_request jsonb, p_now timestamptz, out run_at timestamptz, out priority smallint)
language plpgsql stable as $$
begin
  run_at := coalesce((p_request ->> 'runAt')::timestamptz, p_now + (p_request ->> 'delay')::interval);
  priority := (p_request ->> 'priority')::smallint;
  if p_request ->> 'runAt' is not null and p_request ->> 'delay' is not null then
    raise exception 'both runAt and delay are given';
  elsif run_at < '0001-01-01 00:00+00' or run_at >= '10000-01-01 00:00+00' then
    raise exception '% is not of the years 1 to 9999', run_at;
  end if;
exception when others then
  raise exception 'runAt must be a timestamp, delay an interval and priority an integer from -32768 to 32767: %', sqlerrm using errcode = 'PW001';
end $$;

-- Refuses numbers beyond 1.8e308: programs read them as infinity, and write that as null. A number that large has 255 digits in a row.
create or replace function pawl.refuse_huge_numbers(p_what text, p_value jsonb) returns void
language plpgsql immutable as $$
begin
  if p_value::text ~ '[0-9]{255}' and jsonb_path_exists(p_value,
    'strict $.** ? (@.type() == "number" && (@ > 1.7976931348623157e308 || @ < -1.7976931348623157e308))') then
    raise exception '% has a number beyond 1.8e308, which no program could read; write it as a string', p_what using errcode = 'PW001';
  end if;
end $$;

-- Refuses a value that no claim and no settlement could carry in time: it would keep all other jobs from theirs. The size is measured as it is in
-- memory, which costs nothing.
create or replace function pawl.refuse_large(p_what text, p_value jsonb) returns void
language plpgsql stable as $$
begin
  if pg_column_size(p_value) > 33554432 then
    raise exception '% has % bytes, and the limit is 33554432; store large data in a file, and its name in the value',
      p_what, pg_column_size(p_value) using errcode = 'PW001';
  end if;
end $$;

-- Enqueues one job: no arrays, no plans over sets.
create or replace function pawl.queue_add_one(
  p_queue smallint, p_shard smallint, p_kind smallint, p_priority smallint, p_payload json, p_key text, p_run_at timestamptz,
  p_options json default null, p_delay double precision default null
) returns bigint
language plpgsql as $$
declare
  v_id bigint;
  v_now timestamptz := clock_timestamp();
  v_line text := p_key;
  v_group text;
  v_keyed boolean;
  v_home smallint;
begin
  if p_delay is not null then
    p_run_at := v_now + p_delay * interval '1 millisecond';
  end if;
  perform pg_current_xact_id();  -- before the id: see search_index.sql
  v_id := nextval('pawl.queue_job_id');
  if p_options is not null then
    v_group := p_options ->> 'group';
    p_options := pawl.queue_without_group(p_options);
  end if;
  insert into pawl.queue_job (id, created_at, shard, queue, kind, priority, run_at, key, payload, options, group_name)
  values (v_id, v_now, p_shard, p_queue, p_kind, p_priority, p_run_at, p_key, p_payload, p_options, v_group);
  if p_key is not null or v_group is not null or p_shard > 0 then
    select d.keyed, pawl.queue_home(p_shard, coalesce(v_group, p_key), d.shards) into v_keyed, v_home from pawl.queue_definition d where d.id = p_queue;
    if v_home <> p_shard then  -- see shard.sql
      update pawl.queue_job j set shard = v_home where j.shard = p_shard and j.id = v_id;
      p_shard := v_home;
    end if;
    if not v_keyed then
      v_line := null;
    end if;
  end if;
  if p_options is not null then
    perform pawl.queue_note_options(p_shard, array[v_id]);
  end if;
  if p_run_at > v_now then
    insert into pawl.queue_delayed (run_at, id, shard, queue, priority, kind, key, group_name)
    values (p_run_at, v_id, p_shard, p_queue, p_priority, p_kind, v_line, v_group);
    perform pawl.queue_wake_later(p_queue, p_shard, v_id, p_run_at);
  elsif v_group is not null then
    perform pawl.queue_line_up(p_queue, p_shard, array[v_id]);
    perform pawl.queue_wake(p_queue);
  else
    insert into pawl.queue_ready (id, shard, queue, priority, kind, key)
    values (v_id, p_shard, p_queue, p_priority, p_kind, v_line);
    perform pawl.queue_wake(p_queue);
  end if;
  return v_id;
end $$;

-- The bulk form: n jobs by position; answers their ids in order. A null array means "as the first job", or "none". p_kinds and p_priorities may have
-- one element for all jobs; p_options: an array of the jobs' options, with their groups; p_delays: ms from now, in place of p_run_at; p_declared: the
-- number of shards among which the caller has divided its jobs, see shard.sql. Jobs without a key that may run now get one ready row for each run of up
-- to 256 consecutive ids of one kind and priority, except jobs with options. Kinds with a unique key go through pawl.enqueue().
create or replace function pawl.queue_add(
  p_queue smallint, p_shard smallint, p_n int, p_kinds smallint[], p_priorities smallint[], p_payloads json,
  p_keys text[] default null, p_run_at timestamptz[] default null, p_options json default null, p_delays double precision[] default null,
  p_declared smallint default null
) returns bigint[]
language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan as $$
declare
  v_ids bigint[];
  v_now timestamptz := clock_timestamp();
  v_one boolean := cardinality(p_kinds) = 1 and cardinality(p_priorities) = 1;
  v_keyed boolean;
  v_shards smallint;
begin
  if p_keys is not null or p_options is not null or p_shard > 0 then
    lock table pawl.queue_job in row exclusive mode;
    select d.keyed, d.shards into v_keyed, v_shards from pawl.queue_definition d where d.id = p_queue;
    if pawl.queue_is_divided_otherwise(p_shard, p_declared, v_shards) then
      return pawl.queue_add_divided(
        p_queue, p_shard, p_n, p_kinds, p_priorities, p_payloads, p_keys, p_run_at, p_options, p_delays, v_shards);
    end if;
  end if;
  perform pg_current_xact_id();  -- before the ids: see search_index.sql
  v_ids := array(select nextval('pawl.queue_job_id') from generate_series(1, p_n));
  if v_one and p_keys is null and p_run_at is null and p_options is null and p_delays is null then
    insert into pawl.queue_job (id, created_at, shard, queue, kind, priority, payload)
    select v_ids[e.ord], v_now, p_shard, p_queue, p_kinds[1], p_priorities[1], e.value
    from json_array_elements(p_payloads) with ordinality e (value, ord);
    if v_ids[p_n] - v_ids[1] = p_n - 1 then
      insert into pawl.queue_ready (id, shard, queue, priority, kind, n)
      select first, p_shard, p_queue, p_priorities[1], p_kinds[1], least(256, v_ids[p_n] - first + 1)
      from generate_series(v_ids[1], v_ids[p_n], 256) first;
    else
      perform pawl.queue_add_runs(p_queue, p_shard, v_ids, array_fill(p_kinds[1], array[p_n]), array_fill(p_priorities[1], array[p_n]));
    end if;
  elsif p_keys is not null and p_run_at is null and p_options is null and p_delays is null and array_position(p_keys, null) is null
    and v_keyed and not pawl.queue_is_crowded(p_keys) then
    perform pawl.queue_add_keyed(p_queue, p_shard, v_ids, v_now, p_kinds, p_priorities, p_payloads, p_keys);
  else
    perform pawl.queue_add_mixed(p_queue, p_shard, v_ids, v_now, p_kinds, p_priorities, p_payloads, p_keys, p_run_at, p_options, p_delays);
  end if;
  perform pawl.queue_wake(p_queue);
  return v_ids;
end $$;

-- The bulk form with one parameter, for any driver's transaction: [{queue, shard, n, kinds, priorities, keys, runAt, delays, declared}, [payload, …],
-- [options, …]?].
-- It is an array, since the functions that take an object apart refuse U+0000 anywhere in it. The higher digits of queue are the id of the schema
-- to which the queue's id belongs.
create or replace function pawl.queue_add_json(p_batch json) returns bigint[]
language sql set search_path = pg_catalog, pg_temp as $$
  select pawl.queue_add(
    case when h.queue / 65536 = 'pawl'::regnamespace::oid::bigint then (h.queue % 65536)::smallint else pawl.queue_refuse_schema() end, h.shard, h.n, h.kinds, h.priorities, b.part[2], h.keys, h."runAt", b.part[3], h.delays, h.declared)
  from (select array_agg(e.value order by e.ord) as part from json_array_elements(p_batch) with ordinality e (value, ord)) b
  cross join lateral json_to_record(b.part[1]) h (
    queue bigint, shard smallint, n int, kinds smallint[], priorities smallint[], keys text[], "runAt" timestamptz[], delays double precision[],
    declared smallint)
$$;

-- Writes ready rows for jobs without a key whose ids may have gaps: one for each stretch of consecutive ids of one kind and priority.
create or replace function pawl.queue_add_runs(
  p_queue smallint, p_shard smallint, p_ids bigint[], p_kinds smallint[], p_priorities smallint[]
) returns void
language sql as $$
  insert into pawl.queue_ready (id, shard, queue, priority, kind, n)
  select min(id), p_shard, p_queue, priority, kind, count(*)
  from (
    select id, kind, priority, ord, id - row_number() over (partition by kind, priority order by id) as island
    from unnest(p_ids, p_kinds, p_priorities) with ordinality u (id, kind, priority, ord)
  ) j
  group by kind, priority, island, (ord - 1) / 256
$$;

-- Writes jobs that have a key each, and no options: all of them are ready. queue_add_mixed would pass through their rows five times. Runs under the
-- planner settings of its caller.
create or replace function pawl.queue_add_keyed(
  p_queue smallint, p_shard smallint, p_ids bigint[], p_now timestamptz, p_kinds smallint[], p_priorities smallint[], p_payloads json, p_keys text[]
) returns void
language plpgsql as $$
begin
  insert into pawl.queue_job (id, created_at, shard, queue, kind, priority, key, payload)
  select p_ids[e.ord], p_now, p_shard, p_queue, coalesce(e.kind, p_kinds[1]), coalesce(e.priority, p_priorities[1]), e.key, e.value
  from rows from (json_array_elements(p_payloads), unnest(p_kinds), unnest(p_priorities), unnest(p_keys))
    with ordinality e (value, kind, priority, key, ord);
  insert into pawl.queue_ready (id, shard, queue, priority, kind, key)
  select e.id, p_shard, p_queue, coalesce(e.priority, p_priorities[1]), coalesce(e.kind, p_kinds[1]), e.key
  from rows from (unnest(p_ids), unnest(p_kinds), unnest(p_priorities), unnest(p_keys)) e (id, kind, priority, key);
end $$;

-- Whether one of these keys has more jobs than one claim takes: see queue_add_mixed.
create or replace function pawl.queue_is_crowded(p_keys text[]) returns boolean
language plpgsql immutable as $$
begin
  return cardinality(p_keys) > 32 and exists (select from unnest(p_keys) u (key) group by u.key having count(*) > 32);
end $$;

-- Writes jobs of all sorts, each with a row that says where it waits. Of the jobs of one key, the first 32 are ready, as many as one claim takes. The
-- others are parked behind them at once, where a claim would put them. Otherwise a claim would read each of them on its way to the jobs of
-- other keys (100,000 jobs of one key kept those waiting for 2 s).
create or replace function pawl.queue_add_mixed(
  p_queue smallint, p_shard smallint, p_ids bigint[], p_now timestamptz, p_kinds smallint[], p_priorities smallint[],
  p_payloads json, p_keys text[], p_run_at timestamptz[], p_options json, p_delays double precision[]
) returns void
language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan as $$
declare
  v_keyed boolean;
  v_ids bigint[];
  v_kinds smallint[];
  v_priorities smallint[];
  v_has_options boolean;
begin
  select d.keyed into v_keyed from pawl.queue_definition d where d.id = p_queue;
  with job as (
    insert into pawl.queue_job (id, created_at, shard, queue, kind, priority, run_at, key, payload, options, group_name)
    select p_ids[e.ord], p_now, p_shard, p_queue, coalesce(e.kind, p_kinds[1]), coalesce(e.priority, p_priorities[1]),
      coalesce(e.run_at, p_now + e.delay * interval '1 millisecond'), e.key, e.value, pawl.queue_without_group(e.options), e.options ->> 'group'
    from rows from (
      json_array_elements(p_payloads), unnest(p_kinds), unnest(p_priorities), unnest(p_run_at), unnest(p_keys), json_array_elements(p_options),
      unnest(p_delays)) with ordinality e (value, kind, priority, run_at, key, options, delay, ord)
    returning id, kind, priority, run_at, key, key is not null and v_keyed as is_keyed, coalesce(run_at > p_now, false) as is_later,
      options is not null as is_special, group_name, group_name is not null as is_grouped
  ), line as materialized (
    select j.*, row_number() over (partition by j.key order by j.id) as nth from job j where j.is_keyed and not j.is_later and not j.is_grouped
  ), later as (
    insert into pawl.queue_delayed (run_at, id, shard, queue, priority, kind, key, group_name)
    select j.run_at, j.id, p_shard, p_queue, j.priority, j.kind, case when j.is_keyed then j.key end, j.group_name from job j where j.is_later
  ), ready as (
    insert into pawl.queue_ready (id, shard, queue, priority, kind, key)
    select l.id, p_shard, p_queue, l.priority, l.kind, l.key from line l where l.nth <= 32
    union all
    select j.id, p_shard, p_queue, j.priority, j.kind, null from job j where j.is_special and not j.is_keyed and not j.is_later and not j.is_grouped
    order by 1
  ), parked as (
    insert into pawl.queue_parked (id, shard, queue, priority, kind, key)
    select l.id, p_shard, p_queue, l.priority, l.kind, l.key from line l where l.nth > 32
  ), grouped as (  -- as queue_line_up does, which would read the jobs again: half of its cost is that
    insert into pawl.queue_grouped (id, made_at, shard, queue, priority, kind, attempt, lost, key, group_name)
    select j.id, case when not j.is_special and not j.is_keyed then p_now end, p_shard, p_queue, j.priority, j.kind, 0, 0,
      case when j.is_keyed then j.key end, j.group_name
    from job j where j.is_grouped and not j.is_later returning group_name
  ), noted as (
    insert into pawl.queue_group_note (shard, queue, group_name) select distinct p_shard, p_queue, g.group_name from grouped g
  )
  select array_agg(j.id order by j.id) filter (where not j.is_grouped), array_agg(j.kind order by j.id) filter (where not j.is_grouped),
    array_agg(j.priority order by j.id) filter (where not j.is_grouped), (select bool_or(j.is_special) from job j)
  into v_ids, v_kinds, v_priorities, v_has_options
  from job j where (not j.is_keyed and not j.is_special or j.is_grouped) and not j.is_later;
  if v_ids is not null then
    perform pawl.queue_add_runs(p_queue, p_shard, v_ids, v_kinds, v_priorities);
  end if;
  if v_has_options then
    perform pawl.queue_note_options(p_shard, p_ids);
  end if;
end $$;

create or replace function pawl.queue_wake(p_queue smallint) returns void
language plpgsql as $$
begin
  -- This read takes no lock. A worker sets its flag, commits, and searches once more before it sleeps. If an enqueue reads the flag earlier and
  -- commits later, the worker's poll finds its job.
  if exists (select 1 from pawl.queue_worker w where w.queue = p_queue and w.wants_notify) then
    perform pg_notify('pawl_queue', p_queue::text);
  end if;
end $$;

-- Wakes workers for a delayed job, unless another job of its shard is due as early: a sleeping worker knows when that one is due, or was notified
-- of it, and then learns of this job. Transactions that notify commit one after another, flush by flush: with a notification for each job, fifty
-- producers of delayed jobs would wait for each other as long as a worker sleeps.
create or replace function pawl.queue_wake_later(p_queue smallint, p_shard smallint, p_id bigint, p_run_at timestamptz) returns void
language plpgsql /* planner: probe */ as $$
begin
  -- Backwards from this job's place: deleted rows that a long snapshot keeps alive are at the front.
  if (
    select d.id from pawl.queue_delayed d where d.shard = p_shard and d.queue = p_queue and d.run_at <= p_run_at and d.id <> p_id
    order by d.run_at desc limit 1
  ) is null then
    perform pawl.queue_wake(p_queue);
  end if;
end $$;
