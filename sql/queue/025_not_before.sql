-- A job that was cancelled and put back does not run before its time either. And pawl.enqueue() takes only times that programs
-- can read, and says so when it is given no queue. Searches do what they should where standard_conforming_strings is off.
-- Older workers may keep running: the functions answer as before.

-- A job that ended in error or was cancelled becomes new again, with all its attempts before it. A job of a key takes its
-- place in the key's order among those that have not been tried yet. Answers "new", or "busy".
create or replace function pawl.queue_retry_job(p_queue text, p_id bigint) returns text
language plpgsql
set lock_timeout = '500ms' set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
  v_shard smallint := pawl.queue_find(p_queue, p_id);
  v_job record;
  v_key record;
  v_from text;
  v_key_name text;
begin
  select j.queue, j.kind, j.priority, j.key, j.run_at, q.keyed into v_job
  from pawl.queue_job j join pawl.queue_definition q on q.id = j.queue where j.shard = v_shard and j.id = p_id;
  v_key_name := case when v_job.keyed then v_job.key end;
  v_key := pawl.queue_seize(v_job.queue, v_shard, v_key_name);
  delete from pawl.queue_dead d where d.shard = v_shard and d.id = p_id returning d.status into v_from;
  if not found then
    perform pawl.queue_find(p_queue, p_id);  -- its history may just be over
    v_from := (pawl.queue_look(v_shard, p_id, v_job.queue, v_job.kind, v_job.priority, v_job.key)).status;
    raise exception 'job % is %; only a job that ended in error or was cancelled can be retried', p_id, v_from using errcode = 'PW003';
  end if;
  if v_job.run_at > clock_timestamp() then
    -- It takes its place in the key when it is due, like any other.
    insert into pawl.queue_delayed (run_at, id, shard, queue, priority, kind, key)
    values (v_job.run_at, p_id, v_shard, v_job.queue, v_job.priority, v_job.kind, v_key_name);
  elsif v_key.epoch is null then
    insert into pawl.queue_ready (id, shard, queue, priority, kind, key)
    values (p_id, v_shard, v_job.queue, v_job.priority, v_job.kind, v_key_name);
  else
    insert into pawl.queue_parked (id, shard, queue, priority, kind, key)
    values (p_id, v_shard, v_job.queue, v_job.priority, v_job.kind, v_key_name);
    if not v_key.held then
      -- A later job that has not been tried waits at the key's head: it steps back, and the key's order decides anew.
      with head as (
        delete from pawl.queue_ready r
        where r.shard = v_shard and r.queue = v_job.queue and r.key = v_key_name and r.epoch = v_key.epoch and r.id > p_id and r.attempt = 0
        returning r.*
      )
      insert into pawl.queue_parked (id, shard, queue, priority, kind, attempt, lost, key)
      select h.id, h.shard, h.queue, h.priority, h.kind, h.attempt, h.lost, h.key from head h;
      if found then
        perform pawl.queue_raise(v_job.queue, v_shard, v_key_name, v_key.epoch);
      end if;
    end if;
  end if;
  insert into pawl.queue_transition (at, id, shard, queue, attempt, from_status, to_status, reason)
  values (clock_timestamp(), p_id, v_shard, v_job.queue, 0, v_from, 'new', 'retry by hand');
  delete from pawl.queue_cancel c where c.shard = v_shard and c.id = p_id;
  perform pawl.queue_wake(v_job.queue);
  return 'new';
exception when lock_not_available then
  return 'busy';
end $$;

-- The public form, for any driver, psql and triggers: one object, or an array of objects, of
--   queue, kind, payload, key?, runAt? (ISO 8601), delay? (an interval), priority? (lower first, default 0), unique?
-- unique is what the caller's program declares for the kind; without it counts what was declared last, by whichever version.
-- Answers {"id": "…", "status": "new", "duplicate": false}, or an array of these in the same order. For a unique kind
-- whose key exists the id is that of the first job, with "duplicate": true and its status now.
create or replace function pawl.enqueue(request jsonb) returns jsonb
language plpgsql as $$
declare
  v_item jsonb;
  v_answer jsonb := '[]';
  v_queue pawl.queue_definition;
  v_kind pawl.queue_kind;
  v_id bigint;
  v_key text;
  v_shard smallint;
  v_run_at timestamptz;
  v_priority smallint;
  v_now timestamptz := clock_timestamp();
  v_unknown text;
  v_unique boolean;
begin
  if jsonb_typeof(request) = 'array' then
    for v_item in select value from jsonb_array_elements(request) loop
      v_answer := v_answer || pawl.enqueue(v_item);
    end loop;
    return v_answer;
  end if;
  if jsonb_typeof(request) is distinct from 'object' then
    raise exception 'pawl.enqueue takes an object or an array of objects, got %', coalesce(left(request::text, 100), 'null') using errcode = 'PW001';
  end if;
  select key into v_unknown from jsonb_object_keys(request) key
  where key not in ('queue', 'kind', 'payload', 'key', 'runAt', 'delay', 'priority', 'unique') limit 1;
  if found then
    raise exception 'unknown field "%" in pawl.enqueue; it takes queue, kind, payload, key, runAt, delay, priority, unique', v_unknown using errcode = 'PW001';
  end if;
  if request ->> 'queue' is null or request ->> 'kind' is null then
    raise exception 'pawl.enqueue needs a queue and a kind, got %', left(request::text, 100) using errcode = 'PW001';
  end if;
  select * into v_queue from pawl.queue_definition where name = request ->> 'queue';
  if not found then
    raise exception 'queue "%" does not exist; create it with createQueue(…) and register() it first', request ->> 'queue' using errcode = 'PW002';
  end if;
  select * into v_kind from pawl.queue_kind where queue = v_queue.id and name = request ->> 'kind';
  if not found then
    raise exception 'queue "%" has no kind "%"; it has %', v_queue.name, request ->> 'kind',
      (select string_agg('"' || name || '"', ', ' order by name) from pawl.queue_kind where queue = v_queue.id) using errcode = 'PW001', column = 'kind';
  end if;
  v_key := request ->> 'key';
  if octet_length(v_key) not between 1 and 1000 then
    raise exception 'key must be 1 to 1000 bytes long, got % bytes', octet_length(v_key) using errcode = 'PW001', column = 'key';
  end if;
  perform pawl.refuse_huge_numbers('payload', request -> 'payload');
  if jsonb_typeof(request -> 'unique') not in ('boolean', 'null') then
    raise exception 'unique must be true or false, got %', left(request ->> 'unique', 100) using errcode = 'PW001';
  end if;
  v_unique := coalesce((request ->> 'unique')::boolean, v_kind.unique_key);
  if v_key is null and (v_unique or v_kind.coalesce <> 'none' or cardinality(v_kind.after) > 0) then
    raise exception 'kind "%" of queue "%" needs a key', v_kind.name, v_queue.name using errcode = 'PW001', column = 'key';
  end if;
  begin
    v_run_at := coalesce((request ->> 'runAt')::timestamptz, v_now + (request ->> 'delay')::interval);
    v_priority := coalesce((request ->> 'priority')::smallint, 0);
    if request ->> 'runAt' is not null and request ->> 'delay' is not null then
      raise exception 'both runAt and delay are given';
    elsif v_run_at < '0001-01-01 00:00+00' or v_run_at >= '10000-01-01 00:00+00' then
      raise exception '% is not of the years 1 to 9999', v_run_at;
    end if;
  exception when others then
    raise exception 'runAt must be a timestamp, delay an interval and priority an integer from -32768 to 32767: %', sqlerrm using errcode = 'PW001';
  end;
  v_shard := case when v_queue.shards = 1 then 0
    when v_key is not null then pawl.queue_shard(v_key, v_queue.shards)
    else floor(random() * v_queue.shards)::smallint end;

  perform pg_current_xact_id();  -- before the id: see 014_search.sql
  insert into pawl.queue_job (id, created_at, shard, queue, kind, priority, only_one, run_at, key, payload)
  values (nextval('pawl.queue_job_id'), v_now, v_shard, v_queue.id, v_kind.id, v_priority, nullif(v_unique, false),
    v_run_at, v_key, coalesce(request -> 'payload', 'null')::json)
  on conflict (shard, queue, kind, key) where only_one do nothing
  returning id into v_id;
  if v_id is null then
    select j.id into v_id from pawl.queue_job j
    where j.shard = v_shard and j.queue = v_queue.id and j.kind = v_kind.id and j.key = v_key and j.only_one;
    return jsonb_build_object('id', v_id::text, 'status', pawl.queue_status(v_shard, v_id), 'duplicate', true);
  end if;

  if v_run_at > v_now then
    insert into pawl.queue_delayed (run_at, id, shard, queue, priority, kind, key)
    values (v_run_at, v_id, v_shard, v_queue.id, v_priority, v_kind.id, case when v_queue.keyed then v_key end);
  else
    insert into pawl.queue_ready (id, shard, queue, priority, kind, key)
    values (v_id, v_shard, v_queue.id, v_priority, v_kind.id, case when v_queue.keyed then v_key end);
  end if;
  perform pawl.queue_wake(v_queue.id);
  return jsonb_build_object('id', v_id::text, 'status', 'new', 'duplicate', false);
end $$;

-- There are backslashes in what these call.
alter function pawl.queue_search(json) set standard_conforming_strings = on;
alter function pawl.queue_index(int) set standard_conforming_strings = on;
