-- Unique kinds, except for "one job of a key for ever" (queue_job.only_one): a row of queue_unique says which job owns a digest.
--
-- Enqueues and retries by hand write these rows. The next enqueue judges a row by the state of its job, so a settlement never touches a row. The
-- winner's row is inserted in the transaction of its job: a second enqueue of the digest waits for that transaction to end, and for no other. A
-- loser locks nothing. If the job of a row no longer counts, the row is deleted and inserted, not updated: an update that lost would keep the row
-- locked until the loser's transaction ends. unique_many.sql does the same for many jobs at once.

-- The rule of a request to pawl.enqueue(), checked: the request's own, or else the rule that the kind was declared with; null if no rule applies.
-- {by: "key", "payload" or [path, …], while: "outstanding", "waiting" or "ever", per: an interval or null, replace: true or null}
create or replace function pawl.queue_unique_rule(p_request jsonb, p_kind pawl.queue_kind) returns jsonb
language plpgsql stable as $$
declare
  v_rule jsonb := p_request -> 'unique';
  v_unknown text;
begin
  if coalesce(jsonb_typeof(v_rule), 'null') = 'null' then
    return coalesce(p_kind.unique_rule::jsonb, case when p_kind.unique_key then '{"by": "key", "while": "ever"}'::jsonb end);
  elsif jsonb_typeof(v_rule) = 'boolean' then
    return case when v_rule::boolean then '{"by": "key", "while": "ever"}'::jsonb end;
  elsif jsonb_typeof(v_rule) <> 'object' then
    raise exception 'unique must be true, false or a rule {by, while, per}, got %', left(v_rule::text, 100) using errcode = 'PW001', column = 'unique';
  end if;
  select f.key into v_unknown from jsonb_object_keys(v_rule) f (key) where f.key not in ('by', 'while', 'per', 'replace') limit 1;
  if found then
    raise exception 'unknown field "%" in unique; it takes by, while, per, replace', v_unknown using errcode = 'PW001', column = 'unique';
  end if;
  v_rule := '{"by": "key", "while": "outstanding"}'::jsonb || jsonb_strip_nulls(v_rule);
  if not (v_rule -> 'by' in ('"key"', '"payload"') or jsonb_typeof(v_rule -> 'by') = 'array' and jsonb_array_length(v_rule -> 'by') between 1 and 20
      and not exists (select 1 from jsonb_array_elements(v_rule -> 'by') p where jsonb_typeof(p) <> 'string' or p = '""')) then
    raise exception 'unique.by must be "key", "payload" or an array of 1 to 20 paths into the payload such as "user.id", got %', left(v_rule ->> 'by', 100)
      using errcode = 'PW001', column = 'unique';
  elsif v_rule ->> 'while' not in ('outstanding', 'waiting', 'ever') then
    raise exception 'unique.while must be "outstanding", "waiting" or "ever", got "%"', left(v_rule ->> 'while', 100) using errcode = 'PW001', column = 'unique';
  elsif coalesce(v_rule -> 'replace' not in ('true', 'false'), false) then
    raise exception 'unique.replace must be true or false, got %', left(v_rule ->> 'replace', 100) using errcode = 'PW001', column = 'unique';
  elsif v_rule -> 'replace' = 'true' and (v_rule ->> 'while' <> 'waiting' or v_rule ->> 'by' = 'payload') then
    raise exception 'unique.replace needs while: "waiting", and a by other than "payload"' using errcode = 'PW001', column = 'unique';
  end if;
  begin
    if (v_rule ->> 'per')::interval <= interval '0' then
      raise exception 'it is not positive';
    end if;
  exception when others then
    raise exception 'unique.per must be a positive interval such as "1 hour": %', sqlerrm using errcode = 'PW001', column = 'unique';
  end;
  return v_rule;
end $$;

-- Whether the index of queue_job enforces this rule: the index knows the key alone, for ever.
create or replace function pawl.queue_is_only_one(p_rule jsonb) returns boolean
language sql immutable as $$
  select coalesce(p_rule ->> 'by' = 'key' and p_rule ->> 'while' = 'ever' and p_rule ->> 'per' is null, false)
$$;

-- The only job of a kind and key, whatever its shard: if the number of shards was changed after its end, it is of another shard than the key. The index,
-- which enforces that there is one, knows the jobs of one shard.
create or replace function pawl.queue_only_ones(p_queue pawl.queue_definition, p_kind smallint, p_key text) returns table (id bigint, shard smallint)
language sql stable /* planner: loop */ as $$
  select j.id, j.shard from generate_series(0, greatest(p_queue.former_shards, p_queue.shards) - 1) s cross join lateral (
    select j.id, j.shard from pawl.queue_job j
    where j.shard = s::smallint and j.queue = p_queue.id and j.kind = p_kind and j.key = p_key and j.only_one limit 1) j
$$;

-- The digest of a job: jobs that are the same by this rule have the same digest. Two values with the same hash cannot be found, so one payload
-- never passes for another.
create or replace function pawl.queue_digest(p_rule jsonb, p_key text, p_payload jsonb) returns bytea
language sql stable as $$
  select case when p_rule ->> 'by' = 'key' then pawl.queue_key_digest(p_key)
    else sha256(convert_to(jsonb_build_array(p_rule -> 'by', case p_rule ->> 'by' when 'payload' then p_payload else (
      select jsonb_agg(p_payload #> string_to_array(p.path, '.') order by p.nth)
      from jsonb_array_elements_text(p_rule -> 'by') with ordinality p (path, nth)) end)::text, 'UTF8')) end
$$;

-- The digest by the key, without the cost of an object.
create or replace function pawl.queue_key_digest(p_key text) returns bytea
language sql stable as $$
  select sha256(convert_to('["key", ' || to_json(p_key)::text || ']', 'UTF8'))
$$;

-- Whether the job of a row still counts: by the rule, the time of its enqueue, and its status.
create or replace function pawl.queue_unique_counts(p_while text, p_per interval, p_at timestamptz, p_status text, p_now timestamptz) returns boolean
language sql stable as $$
  select coalesce(p_status is not null and (p_per is null or p_at + p_per > p_now)
    and case p_while when 'waiting' then p_status = 'new' when 'outstanding' then p_status in ('new', 'in-progress') else true end, false)
$$;

-- Makes a job the owner of its digest. p_id: its id, or null for the next id. Answers won and the job's id, or the job that owns the digest already,
-- and its status.
create or replace function pawl.queue_win(
  p_queue smallint, p_kind smallint, p_rule jsonb, p_digest bytea, p_shard smallint, p_id bigint, p_now timestamptz,
  out won boolean, out id bigint, out status text
)
language plpgsql /* planner: probe */ as $$
declare
  v_row pawl.queue_unique;
  v_per interval := (p_rule ->> 'per')::interval;
begin
  won := false;
  loop
    select u.* into v_row from pawl.queue_unique u where u.queue = p_queue and u.kind = p_kind and u.digest = p_digest;
    if found then
      id := v_row.job;
      status := pawl.queue_status(v_row.shard, v_row.job);
      exit when id = p_id or pawl.queue_unique_counts(p_rule ->> 'while', v_per, v_row.at, status, p_now);
      -- Waits for a transaction that replaces the row just now.
      delete from pawl.queue_unique u where u.queue = p_queue and u.kind = p_kind and u.digest = p_digest and u.job = v_row.job;
      continue when not found;
    end if;
    id := p_id;
    if id is null then
      id := nextval('pawl.queue_job_id');
    end if;
    insert into pawl.queue_unique (queue, kind, digest, shard, job, at, lasting)
    values (p_queue, p_kind, p_digest, p_shard, id, p_now, p_rule ->> 'while' = 'ever' and v_per is null)
    on conflict do nothing;  -- waits for a transaction that inserts the row just now
    won := found;
    status := 'new';
    exit when won;
  end loop;
  won := won or coalesce(id = p_id, false);
end $$;

-- For a rule with replace: gives the waiting job the payload of the request, and the time and the options that the request names; a priority of 0
-- counts as not named. Answers false if the job has begun, or was erased or moved to another queue meanwhile: then it no longer owns the digest, and
-- the caller's job may. A job in a claim that stays open has begun, too, though only its worker's note says so. Raises 55P03 if an open transaction has
-- held the job for 2 s.
create or replace function pawl.queue_replace(p_queue smallint, p_kind smallint, p_digest bytea, p_id bigint, p_request jsonb) returns boolean
language plpgsql as $$
begin
  perform pawl.update(jsonb_build_object('id', p_id::text, 'queue', p_request -> 'queue') || (
    select jsonb_object_agg(f.key, f.value) from jsonb_each(jsonb_build_object('payload', null) || p_request) f
    where f.key = any ('{payload,runAt,delay,priority,attempts,timeout,backoff,expiresAt,onError,tags,meta}') and (f.key, f.value) <> ('priority', '0')));
  return true;
exception when sqlstate 'PW002' or sqlstate 'PW003' then
  delete from pawl.queue_unique u where u.queue = p_queue and u.kind = p_kind and u.digest = p_digest and u.job = p_id;
  return false;
when lock_not_available then
  raise exception 'job % waits with an earlier payload and cannot be given this one now: an open transaction holds it, or a handler with hold ''transaction'' runs a job of its key; nothing was written. Enqueue it again when that has ended; where handlers run for seconds, declare coalesce: ''latest'' instead of replace, because it waits for no transaction', p_id
    using errcode = '55P03';
end $$;

-- The order in which the digests of an array of requests are decided, so that two arrays never wait for each other in a circle. By their ids the
-- jobs keep the order of the array.
create or replace function pawl.queue_unique_order(p_requests jsonb) returns int[]
language sql stable as $$
  select array_agg(r.nth::int order by d.queue, d.kind, d.digest, r.nth) from jsonb_array_elements(p_requests) with ordinality r (request, nth)
  left join lateral (
    select q.id as queue, k.id as kind, pawl.queue_digest(u.rule, r.request ->> 'key', coalesce(r.request -> 'payload', 'null')) as digest
    from pawl.queue_definition q join pawl.queue_kind k on k.queue = q.id
    cross join lateral (select pawl.queue_unique_rule(r.request, k) as rule offset 0) u
    where jsonb_typeof(r.request) = 'object' and q.name = r.request ->> 'queue' and k.name = r.request ->> 'kind' and u.rule is not null
  ) d on true
$$;

-- Makes a job of a unique kind own its digest again: one that has ended and is to be new again, or one that waits and is to have another payload.
-- Refused if another job owns the digest.
create or replace function pawl.queue_win_again(p_shard smallint, p_id bigint, p_payload json default null) returns void
language plpgsql as $$
declare
  v_job record;
  v_digest bytea;
  v_win record;
begin
  select j.queue, j.kind, j.key, j.payload::jsonb as payload, k.name, k.unique_rule::jsonb as rule into v_job
  from pawl.queue_job j join pawl.queue_kind k on k.id = j.kind where j.shard = p_shard and j.id = p_id and k.unique_rule is not null;
  if not found then
    return;
  end if;
  v_digest := pawl.queue_digest(v_job.rule, v_job.key, coalesce(p_payload::jsonb, v_job.payload));
  if p_payload is not null then
    if v_digest = pawl.queue_digest(v_job.rule, v_job.key, v_job.payload) then
      return;
    end if;
    delete from pawl.queue_unique u where u.job = p_id;
  end if;
  v_win := pawl.queue_win(v_job.queue, v_job.kind, v_job.rule, v_digest, p_shard, p_id, clock_timestamp());
  if not v_win.won then
    raise exception 'job % cannot be %: its kind "%" is unique, and job % already exists; that job is %', p_id,
      case when p_payload is null then 'new again' else 'given this payload' end, v_job.name, v_win.id,
      case v_win.status when 'in-progress' then 'in progress' when 'error' then 'in error' else v_win.status end using errcode = 'PW003';
  end if;
end $$;
