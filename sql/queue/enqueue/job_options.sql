-- The options that one job alone may have. queue_job.options has them as an object, and is null for nearly all jobs:
--   schedule   {name, at}: the schedule that enqueued the job, and its tick
--   attempts   how many it has; without this, as many as its kind says
--   timeout    ms for one attempt
--   backoff    {kind, min, max, factor, jitter}: the wait between two attempts, in ms
--   expiresAt  if the job has not begun by then, it ends as cancelled
--   onError    the name of the kind of its dead letter, in place of the kind's own
--   tags       texts, for searches
--   meta       an object of the caller's, which nothing here reads
-- src/queue/job-options.ts has the same table for programs, which check the options themselves.

-- Checks the options of a request to pawl.enqueue(), and answers them as they are stored; null if there are none. timeout, and min and max of
-- backoff, are ms, or an interval.
create or replace function pawl.queue_job_options(request jsonb) returns json
language plpgsql stable as $$
declare
  v_options jsonb := '{}';
  v_at timestamptz;
  v_backoff jsonb := request -> 'backoff';
  v_min numeric;
  v_max numeric;
begin
  request := jsonb_strip_nulls(request - '{payload,meta}'::text[]) || case when jsonb_typeof(request -> 'meta') <> 'null' then jsonb_build_object('meta', request -> 'meta') else '{}' end;
  if request ? 'schedule' then
    begin
      v_at := request -> 'schedule' ->> 'at';
      if request -> 'schedule' ->> 'name' is null or v_at is null or not isfinite(v_at) then
        raise exception 'name or at is missing';
      end if;
    exception when others then
      raise exception 'schedule must be an object of a name and a timestamp, {name, at}: %', sqlerrm using errcode = 'PW001', column = 'schedule';
    end;
    v_options := v_options || jsonb_build_object('schedule', jsonb_build_object('name', request -> 'schedule' ->> 'name', 'at', v_at));
  end if;
  if request ? 'attempts' then
    if request ->> 'attempts' !~ '^[0-9]{1,4}$' or (request ->> 'attempts')::int not between 1 and 1000 then
      raise exception 'attempts must be a whole number from 1 to 1000, got %', left(request ->> 'attempts', 100) using errcode = 'PW001', column = 'attempts';
    end if;
    v_options := v_options || jsonb_build_object('attempts', (request ->> 'attempts')::int);
  end if;
  if request ? 'timeout' then
    v_options := v_options || jsonb_build_object('timeout', pawl.queue_read_ms('timeout', request ->> 'timeout'));
  end if;
  if request ? 'backoff' then
    if jsonb_typeof(v_backoff) = 'string' then
      v_backoff := jsonb_build_object('kind', v_backoff);
    end if;
    if jsonb_typeof(v_backoff) <> 'object' or v_backoff - '{kind,min,max,factor,jitter}'::text[] <> '{}'
      or coalesce(v_backoff ->> 'kind', 'fixed') not in ('fixed', 'linear', 'exponential')
      or coalesce(jsonb_typeof(v_backoff -> 'factor'), 'number') <> 'number' or (v_backoff ->> 'factor')::numeric not between 1 and 100
      or coalesce(jsonb_typeof(v_backoff -> 'jitter'), 'number') <> 'number' or (v_backoff ->> 'jitter')::numeric not between 0 and 1 then
      raise exception 'backoff must be "fixed", "linear", "exponential", or an object of kind, min, max, factor from 1 to 100 and jitter from 0 to 1, got %',
        left(request ->> 'backoff', 100) using errcode = 'PW001', column = 'backoff';
    end if;
    v_min := coalesce(pawl.queue_read_ms('backoff.min', v_backoff ->> 'min'), 1000);
    v_max := coalesce(pawl.queue_read_ms('backoff.max', v_backoff ->> 'max'), greatest(v_min, 3600000));
    if v_max < v_min then
      raise exception 'backoff.max (% ms) must not be less than min (% ms)', v_max, v_min using errcode = 'PW001', column = 'backoff.max';
    end if;
    v_options := v_options || jsonb_build_object('backoff', jsonb_build_object('kind', coalesce(v_backoff ->> 'kind', 'exponential'), 'min', v_min,
      'max', v_max, 'factor', coalesce((v_backoff ->> 'factor')::numeric, 2),
      'jitter', coalesce((v_backoff ->> 'jitter')::numeric, case when v_backoff ->> 'kind' = 'fixed' then 0 else 0.5 end)));
  end if;
  if request ? 'expiresAt' then
    begin
      v_at := request ->> 'expiresAt';
      if v_at < '0001-01-01 00:00+00' or v_at >= '10000-01-01 00:00+00' then
        raise exception '% is not of the years 1 to 9999', v_at;
      end if;
    exception when others then
      raise exception 'expiresAt must be a timestamp: %', sqlerrm using errcode = 'PW001', column = 'expiresAt';
    end;
    v_options := v_options || jsonb_build_object('expiresAt', v_at);
  end if;
  if request ? 'onError' then
    if jsonb_typeof(request -> 'onError') <> 'string' or octet_length(request ->> 'onError') not between 1 and 100 then
      raise exception 'onError must be the name of a kind of 1 to 100 bytes, got %', left(request ->> 'onError', 100) using errcode = 'PW001', column = 'onError';
    end if;
    v_options := v_options || jsonb_build_object('onError', request -> 'onError');
  end if;
  if request ? 'tags' then
    if jsonb_typeof(request -> 'tags') <> 'array' or jsonb_array_length(request -> 'tags') > 20 or exists (
      select from jsonb_array_elements(request -> 'tags') t
      where jsonb_typeof(t) <> 'string' or octet_length(t #>> '{}') not between 1 and 100) then
      raise exception 'tags must be an array of at most 20 texts of 1 to 100 bytes, got %', left(request ->> 'tags', 100) using errcode = 'PW001', column = 'tags';
    end if;
    v_options := v_options || jsonb_build_object('tags', (select coalesce(jsonb_agg(distinct t), '[]') from jsonb_array_elements(request -> 'tags') t));
  end if;
  if request ? 'meta' then
    if jsonb_typeof(request -> 'meta') <> 'object' or octet_length((request -> 'meta')::text) > 16384 then
      raise exception 'meta must be an object of at most 16384 bytes as JSON, got %', left(request ->> 'meta', 100) using errcode = 'PW001', column = 'meta';
    end if;
    perform pawl.refuse_huge_numbers('meta', request -> 'meta');
    v_options := v_options || jsonb_build_object('meta', request -> 'meta');
  end if;
  return nullif(v_options, '{}')::json;
end $$;

-- A duration from SQL: ms as a number, or an interval; null for null.
create or replace function pawl.queue_read_ms(p_what text, p_value text) returns numeric
language plpgsql stable as $$
declare
  v_ms numeric;
begin
  begin
    v_ms := case when p_value ~ '^[0-9.]+$' then p_value::numeric else extract(epoch from p_value::interval) * 1000 end;
  exception when others then
    raise exception '% must be a number of milliseconds or an interval: %', p_what, sqlerrm using errcode = 'PW001', column = p_what;
  end;
  if v_ms not between 1 and 3153600000000 then
    raise exception '% must be from 1 ms to 100 years, got %', p_what, p_value using errcode = 'PW001', column = p_what;
  end if;
  return round(v_ms);
end $$;

-- Writes the options that have tables of their own: until when these jobs must have begun, their tags, and that some name the kind of their dead letters.
create or replace function pawl.queue_note_options(p_shard smallint, p_ids bigint[]) returns void
language plpgsql /* planner: probe */ as $$
declare
  v_letters bigint[];
begin
  with job as materialized (
    select j.id, j.queue, j.options from pawl.queue_job j where j.shard = p_shard and j.id = any (p_ids) and j.options is not null
  ), expiry as (
    insert into pawl.queue_expiry (expires_at, id, shard, queue)
    select (j.options ->> 'expiresAt')::timestamptz, j.id, p_shard, j.queue from job j where j.options ->> 'expiresAt' is not null
    on conflict do nothing
  ), tag as (
    insert into pawl.queue_tag (id, shard, queue, tag)
    select j.id, p_shard, j.queue, t.tag from job j cross join lateral json_array_elements_text(j.options -> 'tags') t (tag)
  )
  select array_agg(j.id) filter (where j.options ->> 'onError' is not null) into v_letters from job j;
  if v_letters is not null then
    perform pawl.queue_note_letters(p_shard, v_letters);
  end if;
end $$;

-- Ends jobs that have not begun by their expiresAt, p_limit at most. A job that another transaction has locked is left to a later call. A job that a
-- worker has, or has had, is left to that worker: the claim told it until when the job may begin. A job that is erased meanwhile is passed over.
create or replace function pawl.queue_expire(p_queue smallint, p_limit int) returns integer
language plpgsql /* planner: probe */ as $$
declare
  v_due record;
  v_stuck text[] := '{}';
  v_status text;
  v_ended integer := 0;
begin
  for v_due in
    select d.* from (
      select e.ctid as tid, e.id, j.key, j.options ->> 'expiresAt' as said, (j.options ->> 'expiresAt')::timestamptz <= clock_timestamp() as is_due
      from pawl.queue_expiry e
      left join lateral (select j.key, j.options from pawl.queue_job j where j.shard = e.shard and j.id = e.id offset 0) j on true
      where e.queue = p_queue and e.expires_at <= clock_timestamp() order by e.expires_at limit p_limit for update of e skip locked
    ) d order by random()  -- otherwise jobs that are locked come first each time
  loop
    continue when v_due.key = any (v_stuck);
    -- By hand, the job may have been given another time, which has a row of its own, or none.
    if v_due.is_due then
      begin
        v_status := pawl.queue_cancel_job(null, v_due.id, 'it had not begun by ' || v_due.said, true);
      exception when sqlstate 'PW002' then  -- it was erased since it was read: an error would end the claim that calls this
        v_status := 'erased';
      end;
      if v_status = 'busy' then
        v_stuck := v_stuck || v_due.key;
        exit when cardinality(v_stuck) = 3;  -- the call has waited for each
        continue;
      end if;
    end if;
    delete from pawl.queue_expiry e where e.ctid = v_due.tid;
    v_ended := v_ended + 1;
  end loop;
  return v_ended;
end $$;
