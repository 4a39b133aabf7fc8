-- Why a job does not run. Reads only.

-- The facts about why a job does not run: from one snapshot, with every count bounded.
create or replace function pawl.queue_explain(p_queue text, p_id bigint) returns json
language plpgsql stable /* planner: probe */ as $$
declare
  v_shard smallint := pawl.queue_find(p_queue, p_id);
  v_job record;
  v_at record;
  v_worker record;
  v_key_name text;
  v_before json;
  v_waits json;
  v_ahead bigint;
  v_error record;
  v_wish record;
  v_aside boolean := false;
begin
  select j.queue, j.kind, j.priority, j.key, j.group_name, j.options, q.keyed, q.paused_at, q.paused_parts, q.name, k.name as kind_name, k.after, k.after_error into v_job
  from pawl.queue_job j join pawl.queue_definition q on q.id = j.queue join pawl.queue_kind k on k.id = j.kind
  where j.shard = v_shard and j.id = p_id;
  v_key_name := case when v_job.keyed then v_job.key end;
  v_at := pawl.queue_job_place(v_shard, p_id, v_job.queue, v_job.kind, v_job.priority, v_job.key, v_job.group_name);
  select w.host, w.pid, w.id, w.is_live into v_worker from pawl.worker w where w.id = v_at.worker;
  select c.at, c.reason into v_wish from pawl.queue_cancel c where c.shard = v_shard and c.id = p_id;
  select t.at, t.reason, t.error into v_error from pawl.queue_transitions(v_shard, p_id) t
  where t.from_status = 'in-progress' order by t.at desc limit 1;
  if v_at.place = 'delayed' then
    select d.run_at >= pawl.queue_set_aside_at(0) into v_aside from pawl.queue_delayed d
    where d.shard = v_shard and d.id <= p_id order by d.id desc limit 1;
  end if;
  if v_at.status = 'new' then
    if v_key_name is not null then
      v_before := pawl.queue_key_owner(v_job.queue, v_shard, v_key_name, p_id);
    end if;
    if cardinality(v_job.after) > 0 then
      select json_build_object('job', b.id::text, 'kind', k.name, 'place', b.place) into v_waits
      from (
        select x.id, x.kind, x.place from unnest(v_job.after) a (kind) cross join lateral (
          (select r.id, r.kind, 'ready' as place from pawl.queue_ready r
            where r.shard = v_shard and r.queue = v_job.queue and r.key = v_key_name and r.kind = a.kind order by r.id limit 1)
          union all
          (select r.id, r.kind, 'delayed' from pawl.queue_delayed r
            where r.shard = v_shard and r.queue = v_job.queue and r.key = v_key_name and r.kind = a.kind order by r.run_at limit 1)
          union all
          (select r.id, r.kind, 'parked' from pawl.queue_parked r
            where r.shard = v_shard and r.queue = v_job.queue and r.key = v_key_name and r.kind = a.kind order by r.id limit 1)
        ) x limit 1
      ) b join pawl.queue_kind k on k.id = b.kind;
    end if;
    if v_at.place = 'ready' then
      select coalesce(sum(x.n), 0) into v_ahead from (
        select least(r.n, case when r.priority = v_job.priority then p_id - r.id else r.n end) as n from pawl.queue_ready r
        where r.shard = v_shard and r.queue = v_job.queue and (r.priority, r.id) < (v_job.priority, p_id) limit 10000) x;
    end if;
  end if;
  return json_build_object(
    'status', v_at.status, 'place', v_at.place, 'queue', v_job.name, 'kind', v_job.kind_name, 'key', v_job.key,
    'attempt', coalesce(v_at.attempt, 0), 'runAt', v_at.run_at, 'claimedAt', v_at.claimed_at, 'settledAt', v_at.settled_at, 'error', v_at.error,
    'now', clock_timestamp(), 'pausedAt', v_job.paused_at,
    'own', case when v_job.options is not null then json_strip_nulls(json_build_object('attempts', v_job.options -> 'attempts',
      'timeout', v_job.options -> 'timeout', 'backoff', v_job.options -> 'backoff', 'expiresAt', v_job.options -> 'expiresAt',
      'onError', v_job.options -> 'onError')) end,
    'pausedParts', pawl.queue_shown_parts(v_job.paused_parts), 'tags', coalesce(v_job.options -> 'tags', '[]'), 'isSetAside', v_aside,
    'worker', case when v_worker.id is not null then json_build_object('id', v_worker.id::text, 'host', v_worker.host, 'pid', v_worker.pid, 'isLive', v_worker.is_live) end,
    'parents', case when v_at.place = 'delayed' and v_at.run_at is null and not v_aside then pawl.queue_parents_left(v_shard, p_id) end,
    'isBlocker', v_at.status = 'error' and pawl.queue_is_blocker(v_shard, p_id), 'before', v_before, 'waits', v_waits, 'group', case when v_at.place = 'grouped' then pawl.queue_explain_group(v_job.queue, v_shard, v_job.group_name, v_job.priority, p_id) end, 'ahead', least(10000, v_ahead),
    'failure', case when v_error.at is not null then json_build_object('at', v_error.at, 'reason', v_error.reason, 'error', v_error.error) end,
    'wish', case when v_wish.at is not null then json_build_object('at', v_wish.at, 'reason', v_wish.reason) end,
    'workers', (
      select count(*) from pawl.queue_worker w
      where w.queue = v_job.queue and w.expires_at > clock_timestamp() and pawl.queue_takes(w.takes, v_job.kind_name, v_job.priority)),
    'others', (
      select count(*) from pawl.queue_worker w
      where w.queue = v_job.queue and w.expires_at > clock_timestamp() and not pawl.queue_takes(w.takes, v_job.kind_name, v_job.priority)),
    'slots', (
      select coalesce(sum(w.concurrency), 0) from pawl.queue_worker w
      where w.queue = v_job.queue and w.expires_at > clock_timestamp() and pawl.queue_takes(w.takes, v_job.kind_name, v_job.priority)),
    'running', (
      select coalesce(sum(x.n), 0) from (
        select pawl.queue_size(r.ids) + 0 as n from pawl.queue_running r where r.queue = v_job.queue
        union all
        select cardinality(w.holding) from pawl.queue_worker w where w.queue = v_job.queue and w.expires_at > clock_timestamp() limit 10000) x),
    'holder', (
      select json_build_object('id', w.id::text, 'host', w.host, 'pid', w.pid, 'lostSince', case when w.expires_at < clock_timestamp() then w.beat_at end)
      from pawl.queue_worker w where w.queue = v_job.queue and p_id = any (w.holding) limit 1));
end $$;

-- Whether a worker takes jobs of this kind and priority.
create or replace function pawl.queue_takes(p_takes json, p_kind text, p_priority smallint) returns boolean
language sql immutable as $$
  select p_takes is null or (p_priority between (p_takes ->> 'min')::smallint and (p_takes ->> 'max')::smallint
    and p_kind in (select json_array_elements_text(p_takes -> 'kinds')))
$$;

-- The job of a key that p_id has to wait for: {job, place, since, host, pid, lostSince, runAt}; null if there is none. Place 'open': its handler runs in
-- a transaction of that worker; 'blocked': it ended in error, and stops its key.
create or replace function pawl.queue_key_owner(p_queue smallint, p_shard smallint, p_key text, p_id bigint) returns json
language plpgsql stable /* planner: probe */ as $$
declare
  v_key record;
  v_answer json;
  v_holder record;
begin
  select k.epoch, k.held into v_key from pawl.queue_key k where k.shard = p_shard and k.queue = p_queue and k.key = p_key;
  if v_key.held then
    select json_build_object('job', lower(b.jobs)::text, 'place', 'blocked', 'since', b.since) into v_answer
    from pawl.queue_blocked b where b.queue = p_queue and b.shard = p_shard and b.key = p_key;
    if found then
      return v_answer;
    end if;
    select json_build_object('job', j.id::text, 'place', 'running', 'since', r.claimed_at, 'host', w.host, 'pid', w.pid) into v_answer
    from pawl.queue_running r
    cross join lateral unnest(r.ids) u (span)
    cross join lateral generate_series(lower(u.span), upper(u.span) - 1) i (id)
    cross join lateral (select j.id, j.key from pawl.queue_job j where j.shard = r.shard and j.id = i.id) j
    left join pawl.queue_worker w on w.id = r.worker
    where r.shard = p_shard and r.queue = p_queue and j.key = p_key and j.id <> p_id
    order by r.claimed_at, j.id limit 1;
  elsif v_key.epoch is not null then
    select json_build_object('job', h.id::text, 'place', h.place, 'runAt', h.run_at) into v_answer from (
      (select r.id, 'ready' as place, null::timestamptz as run_at from pawl.queue_ready r
        where r.shard = p_shard and r.queue = p_queue and r.key = p_key and r.epoch = v_key.epoch limit 1)
      union all
      (select d.id, 'delayed', case when d.run_at < pawl.queue_never() then d.run_at end from pawl.queue_delayed d
        where d.shard = p_shard and d.queue = p_queue and d.key = p_key and d.epoch = v_key.epoch limit 1)
    ) h where h.id <> p_id limit 1;
  else
    select json_build_object('job', h.id::text, 'place', 'ready') into v_answer
    from (
      select r.id from pawl.queue_kind k cross join lateral (
        select r.id from pawl.queue_ready r
        where r.shard = p_shard and r.queue = p_queue and r.key = p_key and r.kind = k.id and r.id < p_id order by r.id limit 1) r
      where k.queue = p_queue order by r.id limit 1
    ) h;
  end if;
  if v_answer ->> 'place' = 'ready' then
    select w.host, w.pid, case when w.expires_at < clock_timestamp() then w.beat_at end as "lostSince" into v_holder
    from pawl.queue_worker w where w.queue = p_queue and (v_answer ->> 'job')::bigint = any (w.holding) limit 1;
    if found then
      v_answer := (v_answer::jsonb || to_jsonb(v_holder) || '{"place":"open"}')::json;
    end if;
  end if;
  return v_answer;
end $$;

-- Whether an open transaction holds a job that seems to wait. Tried without waiting.
create or replace function pawl.queue_is_held(p_id bigint) returns boolean
language plpgsql /* planner: probe */ as $$
declare
  v_shard smallint := pawl.queue_shard_of(p_id);
  v_job record;
  v_at record;
begin
  select j.queue, j.kind, j.priority, j.key, j.group_name into v_job from pawl.queue_job j where j.shard = v_shard and j.id = p_id;
  v_at := pawl.queue_job_place(v_shard, p_id, v_job.queue, v_job.kind, v_job.priority, v_job.key, v_job.group_name);
  if v_at.place = 'ready' then
    perform 1 from pawl.queue_ready r
    where r.shard = v_shard and r.queue = v_job.queue and r.priority = v_job.priority and r.id = (
      select r.id from pawl.queue_ready r
      where r.shard = v_shard and r.queue = v_job.queue and r.priority = v_job.priority and r.id <= p_id order by r.id desc limit 1)
    for key share skip locked;
    return not found;
  elsif v_at.place = 'delayed' then
    perform 1 from pawl.queue_delayed d where d.shard = v_shard and d.id = (
      select d.id from pawl.queue_delayed d where d.shard = v_shard and d.id <= p_id order by d.id desc limit 1) for key share skip locked;
    return not found;
  elsif v_at.place = 'parked' then
    perform 1 from pawl.queue_parked p
    where p.shard = v_shard and p.queue = v_job.queue and p.key = v_job.key and p.kind = v_job.kind and p.id = p_id for key share skip locked;
    return not found;
  elsif v_at.place = 'grouped' then
    perform 1 from pawl.queue_grouped g
    where g.shard = v_shard and g.queue = v_job.queue and g.group_name = v_job.group_name and g.priority = v_job.priority and g.id = p_id
    for key share skip locked;
    return not found;
  end if;
  return false;
end $$;
