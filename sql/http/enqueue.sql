-- Enqueueing over HTTP. If an answer is lost, the caller repeats the request with the same key and gets the first answer. To run a job
-- again with another payload makes a new job, which names the old one.

-- Adds a job, or a list of jobs, all or none. p_raw is the body as it arrived; only its payloads are used, to the letter. p_jobs has the
-- rest of the body, parsed.
create or replace function pawl.http_enqueue(p_who text, p_key text, p_digest text, p_raw jsonb, p_jobs jsonb, p_trace text) returns jsonb
language plpgsql as $$
declare
  v_answer jsonb := pawl.http_once_begin(p_who, p_key, p_digest);
  v_request jsonb;
begin
  if v_answer is not null then
    return pawl.http_replayed(v_answer);
  end if;
  if jsonb_typeof(p_jobs) = 'array' then
    select jsonb_agg(jsonb_build_object('payload', r.job -> 'payload') || j.job order by j.n) into v_request
    from jsonb_array_elements(p_jobs) with ordinality j (job, n) join jsonb_array_elements(p_raw) with ordinality r (job, n) on r.n = j.n;
  else
    v_request := jsonb_build_object('payload', p_raw -> 'payload') || p_jobs;
  end if;
  v_answer := pawl.enqueue(v_request);
  if p_trace is not null then
    insert into pawl.queue_trace (id, parent)
    select (a ->> 'id')::bigint, p_trace
    from jsonb_array_elements(case jsonb_typeof(v_answer) when 'array' then v_answer else jsonb_build_array(v_answer) end) a
    where not (a ->> 'duplicate')::boolean;
  end if;
  return pawl.http_once_end(p_who, p_key, v_answer);
end $$;

-- The answer to the first request with this key. Null if this request is the first: then each other request with this key waits here
-- until the transaction ends. If the request has no key, p_key is null, and so is the answer.
create or replace function pawl.http_once_begin(p_who text, p_key text, p_digest text) returns jsonb
language plpgsql as $$
declare
  v_past timestamptz := clock_timestamp() - interval '1 day';
  v_once pawl.http_once;
begin
  if p_key is null then
    return null;
  end if;
  loop
    -- Waits for the open transaction of another request with the same key.
    insert into pawl.http_once (who, key, digest) values (p_who, p_key, p_digest) on conflict do nothing;
    if found then
      delete from pawl.http_once o where o.ctid = any (array(
        select x.ctid from pawl.http_once x where x.at < v_past order by x.at limit 10 for update skip locked));
      return null;
    end if;
    select o.* into v_once from pawl.http_once o where o.who = p_who and o.key = p_key;
    exit when found;  -- else another transaction has just removed the row
  end loop;
  if v_once.digest <> p_digest then
    raise exception 'the idempotency key "%" was used for another request on %; take a new key for each request', p_key, v_once.at
      using errcode = 'PW003';
  end if;
  return v_once.answer;
end $$;

create or replace function pawl.http_once_end(p_who text, p_key text, p_answer jsonb) returns jsonb
language plpgsql as $$
begin
  if p_key is not null then
    update pawl.http_once o set answer = p_answer where o.who = p_who and o.key = p_key;
  end if;
  return p_answer;
end $$;

-- Marks an answer, or each answer of a list, as a duplicate: it belongs to an earlier request.
create or replace function pawl.http_replayed(p_answer jsonb) returns jsonb
language sql immutable as $$
  select case jsonb_typeof(p_answer)
    when 'array' then (select jsonb_agg(a || '{"duplicate": true}' order by n) from jsonb_array_elements(p_answer) with ordinality x (a, n))
    else p_answer || '{"duplicate": true}' end
$$;

-- Makes a job new again as pawl.retry() does, once for each key.
create or replace function pawl.http_retry(p_who text, p_key text, p_digest text, p_job bigint) returns jsonb
language plpgsql as $$
declare
  v_answer jsonb := pawl.http_once_begin(p_who, p_key, p_digest);
begin
  if v_answer is not null then
    return pawl.http_replayed(v_answer);
  end if;
  return pawl.http_once_end(p_who, p_key, pawl.retry(jsonb_build_object('id', p_job::text)));
end $$;

-- Enqueues a new job of the queue, kind, key, priority and options of a job that has ended, with the payload of p_raw.
create or replace function pawl.http_rerun(p_who text, p_key text, p_digest text, p_job bigint, p_raw jsonb, p_trace text) returns jsonb
language plpgsql as $$
declare
  v_answer jsonb := pawl.http_once_begin(p_who, p_key, p_digest);
  v_shard smallint;
  v_past timestamptz := clock_timestamp() - interval '90 days';
  v_status text;
  v_job record;
begin
  if v_answer is not null then
    return pawl.http_replayed(v_answer);
  end if;
  v_shard := pawl.queue_find(null, p_job);
  v_status := pawl.queue_status(v_shard, p_job);
  if v_status in ('new', 'in-progress') then
    raise exception 'job % is %; only one that has ended can be run again with another payload', p_job, v_status using errcode = 'PW003';
  end if;
  select q.name as queue, k.name as kind, j.key, j.priority, coalesce(j.options::jsonb - 'expiresAt', '{}') as options into v_job
  from pawl.queue_job j join pawl.queue_definition q on q.id = j.queue join pawl.queue_kind k on k.id = j.kind
  where j.shard = v_shard and j.id = p_job;
  v_answer := pawl.enqueue(v_job.options || jsonb_build_object('queue', v_job.queue, 'kind', v_job.kind, 'key', v_job.key,
    'priority', v_job.priority, 'payload', p_raw -> 'payload'));
  if (v_answer ->> 'duplicate')::boolean then
    raise exception 'kind "%" of queue "%" is unique by its key, and job % has the key "%"; no second job of this key was enqueued',
      v_job.kind, v_job.queue, v_answer ->> 'id', v_job.key using errcode = 'PW003';
  end if;
  insert into pawl.http_rerun (job, of) values ((v_answer ->> 'id')::bigint, p_job);
  delete from pawl.http_rerun r where r.ctid = any (array(
    select x.ctid from pawl.http_rerun x where x.at < v_past order by x.at limit 10 for update skip locked));
  if p_trace is not null then
    insert into pawl.queue_trace (id, parent) values ((v_answer ->> 'id')::bigint, p_trace);
  end if;
  return pawl.http_once_end(p_who, p_key, v_answer || jsonb_build_object('retriedFrom', p_job::text));
end $$;
