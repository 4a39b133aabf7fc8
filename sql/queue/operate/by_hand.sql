-- Changes by hand, as SQL, for people and programs: pawl.update, pawl.cancel, pawl.retry, pawl.finish, pawl.skip and pawl.erase. Each changes one job,
-- in the caller's transaction.
--
-- The job is named by {"id": "42"}, or by {"queue", "key"} with an optional "kind": then it is the newest job of the key that has not ended, or if all
-- have ended, the newest of all. Each answers {"id", "status"}. PW001: bad input; PW002: no such job; PW003: its status does not allow the change;
-- 55P03: for 2 s another transaction has held the job, or a job of its key, and nothing was changed.

-- Changes a waiting job: payload, runAt (ISO 8601) or delay (an interval), priority, and the options of a job that job_options.sql lists, except
-- schedule. PW003 once the job has begun or ended.
create or replace function pawl.update(request jsonb) returns jsonb
language plpgsql as $$
declare
  v_fields constant text[] := '{payload,runAt,delay,priority,attempts,timeout,backoff,expiresAt,onError,tags,meta}';
  v_id bigint := pawl.queue_named('pawl.update', request, v_fields);
  v_run_at timestamptz;
  v_priority smallint;
  v_begun timestamptz := clock_timestamp();
begin
  if not request ?| v_fields then
    raise exception 'pawl.update has nothing to change; it takes %', array_to_string(v_fields, ', ') using errcode = 'PW001';
  end if;
  select w.run_at, w.priority into v_run_at, v_priority from pawl.queue_read_when(request, clock_timestamp()) w;
  perform pawl.refuse_huge_numbers('payload', request -> 'payload');
  perform pawl.refuse_large('payload', request -> 'payload');
  loop
    if pawl.queue_update_job(request ->> 'queue', v_id, (request -> 'payload')::json, v_run_at, v_priority,
      pawl.queue_job_options(request)) <> 'busy' then
      return jsonb_build_object('id', v_id::text, 'status', 'new');
    end if;
    perform pawl.queue_await_others(v_id, v_begun);
  end loop;
end $$;

-- Cancels a job, with a "reason" if one is given. "in-progress": its worker was asked to stop it. PW003 if it has ended otherwise.
create or replace function pawl.cancel(request jsonb) returns jsonb
language sql as $$ select pawl.queue_change('cancel', request, true) $$;

-- Makes a job new again that ended in error or was cancelled. A job that is delayed, or waits for its next attempt, becomes due now.
create or replace function pawl.retry(request jsonb) returns jsonb
language sql as $$ select pawl.queue_change('retry', request, true) $$;

-- Completes a job that waits or has ended otherwise, with a "result" if one is given: see finish.sql. Answers the status "complete".
create or replace function pawl.finish(request jsonb) returns jsonb
language sql as $$ select pawl.queue_change('finish', request, true) $$;

-- Skips a job that blocks its key: see block.sql. Answers the status "error". PW003 if it blocks none.
create or replace function pawl.skip(request jsonb) returns jsonb
language sql as $$ select pawl.queue_change('skip', request, true) $$;

-- Erases a job that waits or has ended: see erase.sql. PW003 while it is in progress. Answers the status "erased".
create or replace function pawl.erase(request jsonb) returns jsonb
language sql as $$ select pawl.queue_change('erase', request, true) $$;

-- One of the five changes above, tried again for 2 s while another transaction has the job, or a job of its key. p_is_open: the transaction may stay
-- open after the change, so the jobs that come after an ended job are dealt with after its commit: see queue_ended_by_hand.
create or replace function pawl.queue_change(p_change text, p_request jsonb, p_is_open boolean) returns jsonb
language plpgsql as $$
declare
  v_queue text := p_request ->> 'queue';
  v_id bigint := case p_change
    when 'cancel' then pawl.queue_named('pawl.cancel', p_request, array['reason'])
    when 'retry' then pawl.queue_named('pawl.retry', p_request, '{}')
    when 'finish' then pawl.queue_named('pawl.finish', p_request, array['result'])
    when 'skip' then pawl.queue_named('pawl.skip', p_request, '{}')
    when 'erase' then pawl.queue_named('pawl.erase', p_request, '{}')
  end;
  v_status text;
  v_begun timestamptz := clock_timestamp();
begin
  if p_change = 'finish' then
    perform pawl.refuse_huge_numbers('result', p_request -> 'result');
    perform pawl.refuse_large('result', p_request -> 'result');
  end if;
  loop
    v_status := case p_change
      when 'cancel' then pawl.queue_cancel_job(v_queue, v_id, p_request ->> 'reason', p_is_open => p_is_open)
      when 'retry' then pawl.queue_retry_job(v_queue, v_id)
      when 'finish' then pawl.queue_finish_job(v_queue, v_id, (p_request -> 'result')::json, p_is_open)
      when 'skip' then pawl.queue_skip_job(v_queue, v_id)
      when 'erase' then pawl.queue_erase_job(v_queue, v_id, p_is_open)
    end;
    if v_status <> 'busy' then
      return jsonb_build_object('id', v_id::text, 'status', v_status);
    end if;
    perform pawl.queue_await_others(v_id, v_begun);
  end loop;
end $$;

-- Waits 25 ms before another try, and fails after 2 s. A claim has a job for milliseconds, but a claim that stays open (hold: 'transaction') has it for
-- as long as it likes, as a transaction of a user does.
create or replace function pawl.queue_await_others(p_id bigint, p_begun timestamptz) returns void
language plpgsql as $$
begin
  if clock_timestamp() > p_begun + interval '2 s' then
    raise exception 'job % cannot be changed now: an open transaction holds it or a job of its key; nothing was changed', p_id using errcode = '55P03';
  end if;
  perform pg_sleep(0.025);
end $$;

-- The shard and the id of the job that a request names.
create or replace function pawl.queue_pick(p_request jsonb, out shard smallint, out id bigint)
language plpgsql stable as $$
begin
  id := pawl.queue_named('get', p_request, '{}');
  shard := pawl.queue_find(p_request ->> 'queue', id);
end $$;

-- The id of the job that a request names. p_fields: the other fields that the request may have.
create or replace function pawl.queue_named(p_call text, p_request jsonb, p_fields text[]) returns bigint
language plpgsql stable as $$
declare
  v_known text[] := array['id', 'queue', 'key', 'kind'] || p_fields;
  v_unknown text;
begin
  if jsonb_typeof(p_request) is distinct from 'object' then
    raise exception '% takes an object, got %', p_call, coalesce(left(p_request::text, 100), 'null') using errcode = 'PW001';
  end if;
  select f.key into v_unknown from jsonb_object_keys(p_request) f (key) where f.key <> all (v_known) limit 1;
  if found then
    raise exception 'unknown field "%" in %; it takes %', v_unknown, p_call, array_to_string(v_known, ', ') using errcode = 'PW001';
  end if;
  if (p_request ->> 'id' is null) = (p_request ->> 'key' is null) or (p_request ->> 'id' is not null and p_request ->> 'kind' is not null)
    or (p_request ->> 'key' is not null and p_request ->> 'queue' is null) then
    raise exception '% names the job by its id, or by its queue and key, with a kind if you like; got %', p_call, left(p_request::text, 100)
      using errcode = 'PW001', column = 'id';
  end if;
  if p_request ->> 'key' is not null then
    return pawl.queue_of_key(p_request ->> 'queue', p_request ->> 'key', p_request ->> 'kind');
  end if;
  if p_request ->> 'id' !~ '^[1-9][0-9]{0,18}$' or (p_request ->> 'id')::numeric > 9223372036854775807 then
    raise exception '"%" is no job id; pawl.enqueue answers the id', left(p_request ->> 'id', 100) using errcode = 'PW001', column = 'id';
  end if;
  return (p_request ->> 'id')::bigint;
end $$;

-- The newest job of a key, and of a kind if one is given, that has not ended; if all have ended, the newest of all. Raises PW002 if there is none. In a
-- queue where a key is only a label, only the newest hundred of the key are checked.
create or replace function pawl.queue_of_key(p_queue text, p_key text, p_kind text) returns bigint
language plpgsql stable /* planner: loop */ as $$
declare
  v_queue smallint := pawl.queue_id(p_queue);
  v_kinds smallint[] := case when p_kind is null then array(select k.id from pawl.queue_kind k where k.queue = v_queue)
    else pawl.queue_kinds(v_queue, p_kind) end;
  v_keyed boolean;
  v_grouped boolean;
  v_shard smallint;
  v_id bigint;
begin
  select d.keyed, d.per_group is not null, case when d.shards = 1 then 0 else pawl.queue_shard(p_key, d.shards) end into v_keyed, v_grouped, v_shard
  from pawl.queue_definition d where d.id = v_queue;
  if v_keyed then
    select max(x.id) into v_id from unnest(v_kinds) k (id) cross join lateral (
      (select r.id from pawl.queue_ready r
        where r.shard = v_shard and r.queue = v_queue and r.key = p_key and r.kind = k.id order by r.id desc limit 1)
      union all
      (select p.id from pawl.queue_parked p
        where p.shard = v_shard and p.queue = v_queue and p.key = p_key and p.kind = k.id order by p.id desc limit 1)
      union all
      select d.id from pawl.queue_delayed d
      where d.shard = v_shard and d.queue = v_queue and d.key = p_key and d.kind = k.id) x;
    if v_id is null or exists (select 1 from pawl.queue_key k where k.shard = v_shard and k.queue = v_queue and k.key = p_key and k.held) then
      select greatest(v_id, max(j.id)) into v_id from pawl.queue_running r
      cross join lateral unnest(r.ids) u (span) cross join lateral generate_series(lower(u.span), upper(u.span) - 1) i (id)
      join pawl.queue_job j on j.shard = r.shard and j.id = i.id
      where r.shard = v_shard and r.queue = v_queue and j.key = p_key and j.kind = any (v_kinds);
    end if;
  end if;
  if not v_keyed or v_grouped then  -- a job that waits for a place of its group is not yet in the order of its key
    v_id := greatest(v_id, (
      select j.id from (
        select j.id from pawl.queue_job j
        where j.shard = v_shard and j.queue = v_queue and j.key = p_key and j.kind = any (v_kinds) order by j.id desc limit 100) j
      where pawl.queue_status(v_shard, j.id) in ('new', 'in-progress') limit 1));
  end if;
  if v_id is null then
    select max(j.id) into v_id from generate_series(0, 255) s cross join lateral (
      select j.id from pawl.queue_job j
      where j.shard = s::smallint and j.queue = v_queue and j.key = p_key and j.kind = any (v_kinds) order by j.id desc limit 1) j;
  end if;
  if v_id is null then
    raise exception 'queue "%" has no job of key "%"%', p_queue, left(p_key, 100), coalesce(' and kind "' || p_kind || '"', '') using errcode = 'PW002';
  end if;
  return v_id;
end $$;
